"""Small launches that are repeated by their addresses give what launches from scratch give."""

import subprocess
import sys
import threading

import pytest
import torch

import pullback as pb

F64 = torch.float64


@pytest.fixture
def arm() -> pb.RobotModel:
    """Return a robot whose programs have not run yet."""
    return pb.load("iiwa7", dtype=F64)


def inputs(batch: int, seed: int) -> list[torch.Tensor]:
    """Return q, qd and tau."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(batch, 7, generator=generator, dtype=F64) for _ in range(3)]


def from_scratch(*x: torch.Tensor) -> torch.Tensor:
    """Return forward dynamics by a robot of its own."""
    return pb.load("iiwa7", dtype=F64).compute_forward_dynamics(*x)


def test_other_numbers_other_batches_other_strides(arm):
    wide = torch.randn(3, 14, dtype=F64, generator=torch.Generator().manual_seed(9))
    spread = [wide[:, ::2], wide[:, 1::2], wide[:, :7]]
    for x in (
        inputs(3, 0),
        inputs(3, 1),
        inputs(5, 2),
        inputs(3, 3),
        spread,
        inputs(3, 4),
        inputs(200, 5),
        inputs(3, 6),
    ):
        assert torch.equal(arm.compute_forward_dynamics(*x), from_scratch(*x))


def test_what_was_returned_is_not_written_again(arm):
    arm.compute_forward_dynamics(*inputs(2, 0))
    first = arm.compute_forward_dynamics(*inputs(2, 1))
    kept = first.clone()
    arm.compute_forward_dynamics(*inputs(2, 2))
    assert torch.equal(first, kept)


def test_an_input_changed_in_place_is_refused_by_the_gradient(arm):
    q, qd, tau = inputs(2, 0)
    arm.compute_forward_dynamics(q, qd, tau)
    tau.requires_grad_()
    loss = arm.compute_forward_dynamics(q, qd, tau).sum()
    q += 1.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_threads_do_not_share_a_launch(arm):
    found: dict[int, list[torch.Tensor]] = {}

    def work(seed: int) -> None:
        found[seed] = [arm.compute_forward_dynamics(*inputs(4, seed + k)) for k in range(30)]

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed, values in found.items():
        for k, value in enumerate(values):
            assert torch.equal(value, from_scratch(*inputs(4, seed + k)))


FIRST_USE = """
import threading, torch, pullback as pb
arm = pb.load("iiwa7", dtype=torch.float64)
q = torch.zeros(4, 7, dtype=torch.float64)
ready, found = threading.Barrier(4), []

def work():
    ready.wait()
    found.extend(arm.compute_forward_dynamics(q, q, q) for _ in range(30))

threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 120 and all(torch.equal(x, found[0]) for x in found)
"""


def test_threads_may_all_be_the_first_to_use_a_kernel():
    subprocess.run([sys.executable, "-c", FIRST_USE], timeout=300, check=True)


def test_a_step_of_wrong_shape_is_refused_after_one_that_fits():
    world = pb.World()
    world.add(pb.load("pendulum3"), name="arm", actuators=pb.Torque())
    sim = world.compile(dt=1e-3, dtype=F64)
    u = torch.zeros(1, sim.nu, dtype=F64)
    state = sim.step(sim.step(sim.initial_state(), u), u)
    for wrong in (torch.zeros(1, sim.nu + 1, dtype=F64), torch.zeros(1, sim.nu), torch.zeros(2, 1, sim.nu, dtype=F64)):
        with pytest.raises(pb.PullbackError):
            sim.step(state, wrong)
    with pytest.raises(pb.PullbackError, match="not finite"):
        sim.step(state, torch.full_like(u, float("nan")))


def test_a_repeated_vjp_gives_what_a_first_one_gives(arm):
    for seed, wanted in ((0, (0, 1, 2)), (1, (0, 1, 2)), (2, (0, 1, 2)), (3, (2,)), (4, (2,)), (5, (0, 1, 2))):
        x = inputs(3, seed)
        for k in wanted:
            x[k].requires_grad_()
        leaves = [x[k] for k in wanted]
        weights = torch.randn(3, 7, dtype=F64, generator=torch.Generator().manual_seed(seed))
        found = torch.autograd.grad((weights * arm.compute_forward_dynamics(*x)).sum(), leaves)
        expected = torch.autograd.grad((weights * from_scratch(*x)).sum(), leaves)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_gradients_of_one_graph_do_not_share_memory(arm):
    q, qd, tau = inputs(1, 0)
    q.requires_grad_()
    y = [arm.compute_forward_dynamics(q, qd, tau + k) for k in range(4)]
    grads = [torch.autograd.grad(x.square().sum(), q, retain_graph=True)[0] for x in y]
    kept = [g.clone() for g in grads]
    torch.autograd.grad(y[0].sum(), q)
    assert all(torch.equal(a, b) for a, b in zip(grads, kept, strict=True))
    assert not torch.equal(grads[0], grads[1])


@pytest.fixture
def pendulum() -> pb.Sim:
    """Return a driven pendulum."""
    world = pb.World()
    world.add(pb.load("pendulum3"), name="arm", actuators=pb.Torque())
    return world.compile(dt=1e-3, dtype=F64)


def test_the_status_of_a_step_stays_what_it_was(pendulum):
    u = torch.zeros(1, pendulum.nu, dtype=F64)
    start = pendulum.initial_state()
    fine = [pendulum.step(start, u) for _ in range(3)]
    wild = pb.State(start.q, torch.full_like(start.qd, 1e200))
    broken = [pendulum.step(wild, u) for _ in range(3)]
    again = [pendulum.step(start, u) for _ in range(3)]
    assert [int(s.status.code) for s in fine + broken + again] == [0, 0, 0, 1, 1, 1, 0, 0, 0]


def test_inputs_that_are_not_finite_are_refused_every_time(pendulum):
    u = torch.zeros(1, pendulum.nu, dtype=F64)
    state = pendulum.step(pendulum.step(pendulum.initial_state(), u), u)
    for _ in range(3):
        with pytest.raises(pb.PullbackError, match="controls is not finite"):
            pendulum.step(state, torch.full_like(u, float("nan")))
    assert int(pendulum.step(state, u).status.code) == 0


def test_what_is_not_a_state_is_refused_by_name(pendulum):
    with pytest.raises(pb.PullbackError, match=r"expected a pb\.State"):
        pendulum.step("start", torch.zeros(1, pendulum.nu, dtype=F64))

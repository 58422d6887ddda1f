"""Groups of worlds in the lanes of vectors on a CPU: every world gets the bits that it gets alone."""

import threading

import pytest
import torch

import pullback as pb
from pullback.core import arrays, group_launch, program
from tests.interrupts import assert_heard

F64 = torch.float64
BITS = {torch.float64: torch.int64, torch.float32: torch.int32}
SOLVERS = {"finish": pb.PGS(), "warm": pb.PGS(warm_start=True), "sweeps": pb.PGS(finish=False), "exact": pb.Exact()}


def prepared(sim: pb.Sim) -> pb.Sim:
    """Return a simulation whose kernel for groups is compiled."""
    groups = sim._programs.step().groups(sim.dtype)
    assert groups is not None
    groups.prepare()
    return sim


@pytest.fixture
def one_by_one(monkeypatch):
    """Return a function that lets batches go world by world from then on."""
    return lambda: monkeypatch.setattr(program, "WORLDS", 1 << 30)


def dog(dtype=F64, **options) -> pb.World:
    world = pb.World(contact=options.pop("contact", pb.PGS()))
    robot = pb.load("laikago", base="floating", dtype=dtype)
    toes = ("toeFR", "toeFL", "toeRR", "toeRL")
    servo = pb.PositionServo(kp=150.0, kd=3.0, limit=options.pop("limit", 20.0))
    world.add(robot, position=(0.0, 0.0, 0.52), actuators=servo, collision_links=toes, friction=0.8, **options)
    world.add_ground(friction=0.8)
    return world


def scattered(sim: pb.Sim, worlds: int, steps: int, spread: float = 0.1) -> tuple[pb.State, torch.Tensor]:
    """Return states and controls of worlds that soon differ in what touches."""
    draw = torch.Generator().manual_seed(1)
    start = sim.initial_state()
    q, qd = (x.repeat(worlds, 1) for x in (start.q, start.qd))
    q[:, 2] -= 0.05 * torch.rand(worlds, generator=draw, dtype=q.dtype)
    q[:, 7:] += spread * torch.randn(q[:, 7:].shape, generator=draw, dtype=q.dtype)
    qd += spread * torch.randn(qd.shape, generator=draw, dtype=q.dtype)
    controls = spread * torch.randn((steps, worlds, sim.nu), generator=draw, dtype=q.dtype)
    impulses = None if start.impulses is None else start.impulses.repeat(worlds, 1)
    return pb.State(q, qd, impulses), controls


def poison_scratch() -> None:
    """Fill the memory that the next launch works in with NaN: what lanes forget to hand over shows."""
    buffer = getattr(arrays._SCRATCH, "buffer", None)
    if buffer is not None:
        buffer[2].fill_(0xFF)


def assert_same(mine: pb.Trajectory, expected: pb.Trajectory) -> None:
    for name in ("q", "qd"):
        a, b = (getattr(states, name) for states in (mine, expected))
        assert torch.equal(a.isnan(), b.isnan())
        same_bits = a.view(BITS[a.dtype]) == b.view(BITS[b.dtype])
        assert (same_bits | a.isnan()).all()
    assert torch.equal(mine.status._rows, expected.status._rows)


# gently, and so fast that velocity products are corrected and servos are at their limits
@pytest.mark.parametrize("spread", [0.1, 4.0])
@pytest.mark.parametrize("worlds", [8, 21])
def test_rollouts_in_groups_have_the_bits_of_single_worlds(one_by_one, worlds, spread):
    sim = prepared(dog().compile(dt=2e-3, substeps=2, dtype=F64))
    state, controls = scattered(sim, worlds, 60, spread)
    poison_scratch()
    together = sim.rollout(state, controls)
    one_by_one()
    assert_same(together, sim.rollout(state, controls))
    alone = sim.rollout(pb.State(state.q[4:5], state.qd[4:5]), controls[:, 4:5])
    assert torch.equal(alone.q[:, 0], together.q[:, 4])
    # they did touch the ground, and not all at once
    gaps = together.q[-1, :, 2]
    assert float(gaps.max() - gaps.min()) > 1e-3


def test_a_world_that_is_no_longer_finite_leaves_its_group_alone(one_by_one):
    sim = prepared(dog().compile(dt=2e-3, dtype=F64))
    state, controls = scattered(sim, 11, 30)
    state.qd[0] = 1e200
    state.qd[5, 3:] = 1e190
    together = sim.rollout(state, controls)
    assert together.status.code[0] & 1
    assert together.status.code[5] & 1
    assert not together.status.code[1] & 1
    one_by_one()
    assert_same(together, sim.rollout(state, controls))


def test_gradients_of_a_batch_in_groups_are_those_of_single_worlds(one_by_one):
    sim = prepared(dog().compile(dt=2e-3, dtype=F64))
    state, controls = scattered(sim, 9, 20)

    def gradient() -> tuple[torch.Tensor, ...]:
        leaves = state.q.clone().requires_grad_(), controls.clone().requires_grad_()
        states = sim.rollout(pb.State(leaves[0], state.qd), leaves[1], checkpoint=5)
        return torch.autograd.grad(states.q[-1].square().sum(), leaves)

    together = gradient()
    one_by_one()
    for mine, expected in zip(together, gradient()):
        assert torch.equal(mine, expected)


def test_steps_in_groups_are_repeated(one_by_one):
    sim = prepared(dog().compile(dt=2e-3, dtype=F64))
    state, controls = scattered(sim, 16, 12)
    expected = sim.rollout(state, controls)
    for t in range(12):
        poison_scratch()
        state = sim.step(state, controls[t])
        assert torch.equal(state.q, expected.q[t + 1])


@pytest.mark.parametrize("solver", [pytest.param(name, marks=pytest.mark.slow) for name in SOLVERS])
def test_groups_with_boxes_limits_and_bounces(one_by_one, solver):
    world = pb.World(contact=SOLVERS[solver])
    world.add(pb.load("ant", base="floating", dtype=F64), position=(0.0, 0.0, 0.7), friction=1.0)
    for k in range(2):
        world.add_box(
            f"box{k}", size=(0.1, 0.12, 0.14), mass=0.5, position=(1.0, 0.05 * k, 0.2 + 0.2 * k), friction=0.5
        )
    world.add_ground(friction=1.0, restitution=0.5)
    sim = prepared(world.compile(dt=2e-3, dtype=F64))
    state, controls = scattered(sim, 19, 250, spread=0.5)
    together = sim.rollout(state, controls)
    one_by_one()
    assert_same(together, sim.rollout(state, controls))


@pytest.mark.slow
def test_groups_in_single_precision(one_by_one):
    sim = prepared(dog(torch.float32).compile(dt=2e-3, dtype=torch.float32))
    state, controls = scattered(sim, 37, 100)
    together = sim.rollout(state, controls)
    one_by_one()
    assert_same(together, sim.rollout(state, controls))


def test_threads_share_groups(one_by_one):
    sim = prepared(dog().compile(dt=2e-3, dtype=F64))
    state, controls = scattered(sim, 150, 20)
    before = pb.get_num_threads()
    try:
        pb.set_num_threads(3)
        together = sim.rollout(state, controls)
    finally:
        pb.set_num_threads(before)
    one_by_one()
    assert_same(together, sim.rollout(state, controls))


def test_ctrl_c_is_heard_in_groups():
    sim = prepared(dog().compile(dt=2e-3, dtype=F64))
    state, _ = scattered(sim, 64, 1)
    controls = torch.zeros(20_000, 64, sim.nu, dtype=F64)
    assert_heard(lambda: sim.rollout(state, controls, checkpoint=1000))


def test_a_kernel_for_groups_is_prepared_while_batches_run(monkeypatch):
    made = threading.Event()
    monkeypatch.setattr(group_launch, "is_compiled", lambda kernel, device: False)
    monkeypatch.setattr(group_launch, "wait_for", lambda kernel, device: made.set())
    groups = group_launch.GroupKernel(lambda: "kernel")
    groups.spend(group_launch.LOOK / 2)
    assert not groups._begun
    groups.spend(group_launch.LOOK)
    for thread in threading.enumerate():
        if thread.name == "pullback prepares groups":
            thread.join()
    assert not made.is_set()
    groups.spend(group_launch.WORTH)
    assert made.wait(10.0)
    for thread in threading.enumerate():
        if thread.name == "pullback prepares groups":
            thread.join()
    assert groups.is_ready


def test_single_worlds_and_other_kinds_of_steps_have_no_groups():
    assert dog().compile(dt=2e-3, impacts="split", dtype=F64)._programs.step().groups(F64) is None
    compliant = pb.World(contact=pb.Compliant())
    compliant.add_sphere("ball", radius=0.1, mass=1.0, position=(0.0, 0.0, 0.2))
    compliant.add_ground()
    assert compliant.compile(dt=1e-4, dtype=F64)._programs.step().groups(F64) is None


def test_batches_go_on_where_their_kernel_cannot_be_made(recwarn):
    def fail():
        raise OSError("the disk is full")

    groups = group_launch.GroupKernel(fail)
    groups.spend(group_launch.LOOK * 2)
    for thread in threading.enumerate():
        if thread.name == "pullback prepares groups":
            thread.join()
    assert not groups.is_ready
    assert "world by world, with the same results" in str(recwarn.pop(RuntimeWarning).message)

"""What `Sim` promises: shapes, worlds side by side, what is refused, and what a world's status tells."""

import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.rigid.state import CONTACT_OVERFLOW, NAN, NOT_CONVERGED
from tests.rigid.worlds import F64, TOES, load

DT = 1e-3


def ball(*, contact: pb.PGS | None = None, **options) -> pb.World:
    """Return a ball that lies on the ground."""
    world = pb.World(contact=contact)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0, 0, 0.1), **options)
    world.add_ground()
    return world


def arm() -> pb.World:
    """Return a pendulum whose joint is driven by a force."""
    world = pb.World()
    world.add(load("pendulum1"), name="arm", actuators=pb.Torque())
    return world


def dog(*, contact: pb.PGS | None = None, height: float = 0.52, **options) -> pb.World:
    """Return a Laikago about to stand on its toes."""
    world = pb.World(contact=contact)
    world.add(load("laikago", "floating"), name="dog", position=(0, 0, height), collision_links=TOES, **options)
    world.add_ground(friction=0.8)
    return world


def refuse(match: str, call, *args, **options) -> None:
    with pytest.raises(pb.PullbackError, match=match):
        call(*args, **options)


# -- shapes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_types(dtype):
    sim = dog().compile(dt=DT, dtype=dtype)
    state = sim.initial_state(batch=3)
    assert (sim.nq, sim.nv, sim.nu, sim.dtype, sim.device.type) == (19, 18, 12, dtype, "cpu")
    after = sim.step(state, torch.zeros(3, 12, dtype=dtype))
    assert (after.q.shape, after.qd.shape, after.q.dtype) == ((3, 19), (3, 18), dtype)
    states = sim.rollout(state, torch.zeros(7, 3, 12, dtype=dtype), checkpoint=3)
    assert (states.q.shape, states.qd.shape, len(states)) == ((4, 3, 19), (4, 3, 18), 4)
    assert states.steps.tolist() == [0, 3, 6, 7]
    assert states.status.code.tolist() == [0, 0, 0]
    assert states.status.first_step.tolist() == [-1, -1, -1]
    assert torch.equal(states[0].q, state.q)
    kinetic, potential = sim.energies(state)
    assert (kinetic.shape, potential.shape) == ((3,), (3,))
    assert len(sim.contacts(state)) == 3
    assert "nq=19" in repr(sim)


def test_steps_are_a_rollout():
    sim = dog().compile(dt=DT, dtype=F64, substeps=2)
    generator = torch.Generator().manual_seed(0)
    controls = torch.randn(5, 2, 12, dtype=F64, generator=generator)
    start = sim.initial_state(batch=2)
    states = sim.rollout(start, controls)
    state = start
    for t, u in enumerate(controls):
        state = sim.step(state, u)
        assert torch.equal(state.q, states.q[t + 1])
        assert torch.equal(state.qd, states.qd[t + 1])
    assert torch.equal(sim.rollout(states[2], controls[2:])[-1].q, states[-1].q)


def test_substeps_are_smaller_steps():
    sims = [dog().compile(dt=dt, dtype=F64, substeps=n) for dt, n in ((4e-3, 4), (1e-3, 1))]
    coarse = sims[0].rollout(sims[0].initial_state(), 3)
    fine = sims[1].rollout(sims[1].initial_state(), 12, checkpoint=4)
    assert coarse.steps.tolist() == [0, 1, 2, 3]
    assert torch.equal(coarse.q, fine.q)


def test_gradients_through_steps_are_those_of_a_rollout():
    """A step keeps nothing but its inputs, with substeps and warm starts too."""
    world = ball(contact=pb.PGS(warm_start=True), friction=0.5)
    sim = world.compile(dt=4e-3, dtype=F64, substeps=2)
    qd = torch.tensor([[1.0, 0, 0, 0.3, 0.2, -0.1]], dtype=F64, requires_grad=True)

    def start() -> pb.State:
        state = sim.initial_state()
        return pb.State(state.q, qd, state.impulses)

    (whole,) = torch.autograd.grad(sim.rollout(start(), 4)[-1].q.sum(), qd)
    state = start()
    for _ in range(4):
        state = sim.step(state)
    (stepped,) = torch.autograd.grad(state.q.sum(), qd)
    torch.testing.assert_close(stepped, whole, rtol=1e-12, atol=1e-14)


def test_transforms():
    sim = ball(friction=0.5).compile(dt=DT, dtype=F64)
    start = sim.initial_state()

    def after(qd):
        return sim.step(pb.State(start.q, qd)).qd[0]

    jacobian = torch.func.jacrev(after)(start.qd)
    assert jacobian.shape == (6, 1, 6)
    rows = []
    for k in range(6):
        qd = start.qd.clone().requires_grad_()
        rows.append(torch.autograd.grad(after(qd)[k], qd)[0])
    torch.testing.assert_close(jacobian, torch.stack(rows))
    many = torch.randn(5, 1, 6, dtype=F64)
    assert torch.equal(torch.func.vmap(after)(many), torch.stack([after(qd) for qd in many]))


# -- worlds side by side ------------------------------------------------------------------------------------------


def test_one_of_anything_is_for_all_worlds():
    generator = torch.Generator().manual_seed(1)
    controls = torch.randn(4, 3, 1, dtype=F64, generator=generator).requires_grad_()
    gravity = torch.tensor([[0, 0, -1.0], [0, 1, -2], [1, 0, -3]], dtype=F64)
    world = arm()
    sim = world.compile(dt=DT, dtype=F64)
    one, three = sim.initial_state(), sim.initial_state(batch=3)
    # controls for three worlds
    assert torch.equal(sim.rollout(one, controls).q, sim.rollout(three, controls).q)
    # parameters for three worlds
    world.gravity = gravity
    for given in (controls, controls[:, :1], 4):
        assert torch.equal(sim.rollout(one, given).q, sim.rollout(three, given).q)
    assert torch.equal(sim.step(one, controls[0]).q, sim.step(three, controls[0]).q)
    assert torch.equal(sim.step(one).qd, sim.step(three).qd)
    assert torch.equal(sim.energies(one)[1], sim.energies(three)[1])
    assert len(sim.contacts(one)) == 3
    # the gradient of what they share is the sum of theirs
    q = one.q.clone().requires_grad_()
    sim.rollout(pb.State(q, one.qd), controls)[-1].q.sum().backward()
    each = three.q.clone().requires_grad_()
    sim.rollout(pb.State(each, three.qd), controls)[-1].q.sum().backward()
    assert q.grad is not None
    torch.testing.assert_close(q.grad, each.grad.sum(0, keepdim=True))


@pytest.mark.parametrize(("given", "there"), [(3, 2), (2, 3)])
def test_parameters_of_other_worlds(given, there):
    world = arm()
    sim = world.compile(dt=DT, dtype=F64)
    state = sim.initial_state(batch=there)
    world.gravity = torch.zeros(given, 3, dtype=F64)
    match = f"a state of {there} worlds with parameters for {given} and controls for 1; give the same number"
    refuse(match, sim.step, state)
    refuse(match, sim.rollout, state, 5)
    refuse(match, sim.contacts, state)
    refuse(match, sim.energies, state)
    refuse(match, sim.initial_state, there)
    match = f"a state of 1 worlds with parameters for {given} and controls for {there}"
    refuse(match, sim.rollout, sim.initial_state(), torch.zeros(5, there, 1, dtype=F64))
    refuse(match, sim.step, sim.initial_state(), torch.zeros(there, 1, dtype=F64))


# -- what is refused ----------------------------------------------------------------------------------------------


def test_bad_controls():
    sim = arm().compile(dt=DT, dtype=F64)
    state = sim.initial_state(batch=2)
    refuse("controls are 2.5; expected .* or a whole number of steps", sim.rollout, state, 2.5)
    refuse("controls are True; expected .* or a whole number of steps", sim.rollout, state, True)
    refuse("the rollout has 0 steps; give controls for at least one", sim.rollout, state, 0)
    refuse("the rollout has -3 steps", sim.rollout, state, -3)
    refuse("the rollout has 9223372036854775808 steps; at most 2,147,483,647", sim.rollout, state, 2**63)
    refuse("the rollout has 0 steps", sim.rollout, state, torch.zeros(0, 2, 1, dtype=F64))
    refuse(
        r"controls are \(5, 2, 7\); expected \(T, B, 1\).*1 actuators \(arm/", sim.rollout, state, torch.zeros(5, 2, 7)
    )
    refuse("parameters for 1 and controls for 3", sim.rollout, state, torch.zeros(5, 3, 1, dtype=F64))
    refuse("controls is torch.float32 on cpu, the simulation torch.float64", sim.rollout, state, torch.zeros(5, 2, 1))
    refuse(r"u is \(1,\); expected \(B, 1\)", sim.step, state, torch.zeros(1, dtype=F64))
    refuse("u is list; expected", sim.step, state, [0.0])
    assert len(sim.rollout(state, np.int64(3))) == 4


def test_bad_states():
    sim = arm().compile(dt=DT, dtype=F64)
    state = sim.initial_state(batch=2)
    refuse(r"the state has q \(1,\) and qd \(2, 1\); expected \(B, 1\)", sim.step, pb.State(state.q[0], state.qd))
    refuse(r"the state has q \(1, 1\) and qd \(2, 1\)", sim.step, pb.State(state.q[:1], state.qd))
    refuse("the state is a Tensor; expected a pb.State", sim.step, state.q)
    refuse("q is torch.float32 on cpu", sim.step, pb.State(state.q.float(), state.qd))
    refuse("the state has impulses .* starts cold", sim.step, pb.State(state.q, state.qd, state.q))
    refuse("batch is 0; give a whole number from 1 on", sim.initial_state, 0)
    refuse("batch is True", sim.initial_state, True)
    warm = ball(contact=pb.PGS(warm_start=True)).compile(dt=DT, dtype=F64)
    state = warm.initial_state()
    refuse("impulses None, the solver starts warm: expected", warm.step, pb.State(state.q, state.qd))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("worlds", [2, 100])
def test_values_that_are_not_finite(bad, worlds):
    sim = dog().compile(dt=DT, dtype=F64)
    state = sim.initial_state(batch=worlds)
    for name in ("q", "qd"):
        broken = {"q": state.q.clone(), "qd": state.qd.clone()}
        broken[name][1, 2] = bad
        match = f"{name} is not finite: entry 2 of batch element 1 is {bad}"
        refuse(match, sim.step, pb.State(**broken))
        refuse(match, sim.rollout, pb.State(**broken), 5)
    u = torch.zeros(3, worlds, 12, dtype=F64)
    u[2, 1, 5] = bad
    refuse("controls is not finite: entry 5 of batch element 1", sim.step, state, u[2])
    refuse(f"controls is not finite: entry {2 * 12 + 5} of batch element 1", sim.rollout, state, u)


# -- status -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warm_start", [False, True])
@pytest.mark.parametrize("substeps", [1, 3])
def test_a_world_that_diverges_leaves_the_others_alone(warm_start, substeps):
    world = dog(actuators=pb.Torque(limit=1e308), contact=pb.PGS(warm_start=warm_start))
    sim = world.compile(dt=DT, dtype=F64, substeps=substeps)
    controls = torch.zeros(6, 3, 12, dtype=F64)
    expected = sim.rollout(sim.initial_state(batch=3), controls)
    controls[2, 1] = 1e308
    states = sim.rollout(sim.initial_state(batch=3), controls)
    assert (states.status.code & NAN > 0).tolist() == [False, True, False]
    assert states.status.first_step.tolist() == [-1, 2, -1]
    assert states.q[3:, 1].isnan().all()
    assert states.q[:3, 1].isfinite().all()
    assert torch.equal(states.q[:, ::2], expected.q[:, ::2])
    match = r"world 1 became not finite; take a smaller dt.*\(step 2, 1 such worlds in all\)"
    refuse(match, states.status.check)
    refuse(match, sim.rollout, sim.initial_state(batch=3), controls, check=True)
    # the same, step by step
    state = sim.initial_state(batch=3)
    for u in controls[:3]:
        state = sim.step(state, u)
    assert (state.status.code & NAN > 0).tolist() == [False, True, False]
    refuse("q is not finite: entry 0 of batch element 1 is nan", sim.step, state, controls[0])
    sim.step(state[::2], controls[0, ::2])


@pytest.mark.parametrize("warm_start", [False, True])
def test_more_contacts_than_there_is_room_for(warm_start):
    world = dog(contact=pb.PGS(warm_start=warm_start), height=3.0)
    sim = world.compile(dt=DT, dtype=F64, max_contacts=2)
    state = sim.initial_state(batch=2)
    state.q[:, 2] = torch.tensor([3.0, 0.3], dtype=F64)
    states = sim.rollout(state, 3, check=False)
    assert (states.status.code & CONTACT_OVERFLOW > 0).tolist() == [False, True]
    assert states.status.first_step.tolist() == [-1, 0]
    refuse("world 1 had more contacts than there is room for; compile with a larger max_contacts", states.status.check)
    assert (sim.step(state, check=False).status.code & CONTACT_OVERFLOW > 0).tolist() == [False, True]
    match = "world 1 had more contacts than the 2 there is room for"
    refuse(match, sim.rollout, state, 3)
    refuse(match, sim.step, state)
    refuse("4 contacts where there is room for 2; compile with max_contacts=4 or more", sim.contacts, state)


def test_substeps_that_use_up_the_sweeps_are_counted():
    world = pb.World(contact=pb.PGS(iterations=1, tolerance=0.0, gradient="unrolled"))
    world.add_box("box", size=(0.2, 0.2, 0.2), mass=1.0, position=(0, 0, 0.1))
    world.add_ground()
    sim = world.compile(dt=DT, dtype=F64, substeps=2)
    status = sim.rollout(sim.initial_state(), 3).status
    assert status.code.tolist() == [NOT_CONVERGED]
    assert status.unconverged.tolist() == [6]
    assert status.first_step.tolist() == [-1]
    status.check()


@pytest.mark.parametrize("checkpoint", [1, 4])
def test_a_world_that_diverges_and_is_left_out_leaves_the_gradient_alone(checkpoint):
    friction = torch.tensor(0.5, dtype=F64, requires_grad=True)
    world = ball(friction=friction)
    sim = world.compile(dt=DT, dtype=F64)
    state = sim.initial_state(batch=2)
    state.qd[:, 3] = 1.0
    (expected,) = torch.autograd.grad(sim.rollout(state, 6, checkpoint=checkpoint).q[-1, 0].sum(), friction)
    state.qd[1, 3] = 1e308
    states = sim.rollout(state, 6, checkpoint=checkpoint)
    assert states.q[-1, 1].isnan().all()
    (gradient,) = torch.autograd.grad(states.q[-1, 0].sum(), friction)
    assert expected.abs() > 1e-9
    assert torch.equal(gradient, expected)


def test_a_world_that_diverges_and_is_not_left_out_is_an_error():
    sim = ball(friction=0.5).compile(dt=DT, dtype=F64)
    qd = sim.initial_state(batch=2).qd
    qd[1, 3] = 1e308
    qd.requires_grad_()
    states = sim.rollout(replace(sim.initial_state(batch=2), qd=qd), 6)
    with pytest.raises(pb.GradientError, match="in 1 batch elements, the first of them 1; leave worlds out") as caught:
        states.q[-1].sum().backward(retain_graph=True)
    assert caught.value.worlds == [1]
    # what is asked is not finite itself: it is passed on as it is
    (states.q[-1] * torch.tensor([[1.0], [torch.nan]])).sum().backward()
    assert qd.grad[0].isfinite().all()
    assert not qd.grad[1].isfinite().all()


# -- the start ----------------------------------------------------------------------------------------------------


def test_shapes_that_overlap_at_the_start():
    world = pb.World()
    world.add_sphere("low", radius=0.1, mass=1.0, position=(0, 0, 0.08))
    world.add_sphere("high", radius=0.1, mass=1.0, position=(0, 0, 0.27))
    world.add_ground()
    sim = world.compile(dt=DT, dtype=F64)
    with pytest.warns(UserWarning, match="shapes that overlap: ") as found:
        sim.initial_state(batch=2)
    (told,) = [str(w.message) for w in found]
    assert "low and ground by 20 mm" in told
    assert "low and high by 10 mm" in told or "high and low by 10 mm" in told
    # in one of two worlds
    world.set_shape("low", size=torch.tensor([[0.01], [0.1]], dtype=F64))
    with pytest.warns(UserWarning, match="low and ground by 20 mm"):
        sim.initial_state(batch=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ball().compile(dt=DT, dtype=F64).initial_state()


def test_a_thin_box_has_room_for_all_its_vertices():
    world = pb.World()
    world.add_box("sheet", size=(0.3, 0.2, 0.004), mass=0.1, position=(0, 0, 0.002))
    world.add_ground()
    sim = world.compile(dt=DT, dtype=F64)
    assert len(sim.contacts(sim.initial_state())[0]) == 8
    assert sim.rollout(sim.initial_state(), 20, check=True).q[-1, 0, 2] == pytest.approx(0.002, abs=1e-4)


def test_two_boxes_have_room_for_all_corners_and_crossings():
    world = pb.World()
    world.add_box("table", size=(0.2, 0.2, 0.2), static=True)
    world.add_box("box", size=(0.2, 0.2, 0.2), mass=1.0, position=(0, 0, 0.2), orientation=(0, 0, 5e-4, 1))
    sim = world.compile(dt=DT, dtype=F64)
    assert len(sim.contacts(sim.initial_state())[0]) > 4
    sim.rollout(sim.initial_state(), 5, check=True)


ONE_COMPILATION = """
import torch, warp as wp, pullback as pb
from pullback.core.modules import kernel_module
world = pb.World()
world.add_sphere("ball", radius=0.1, mass=1.0, position=(0, 0, 1))
sim = world.compile(dt=1e-3, dtype=torch.float64)
state = sim.initial_state()
module = kernel_module("rollout", wp.float64)
compiled = module.get_module_hash()
sim.rollout(state, 2)
assert module.get_module_hash() == compiled
"""


def test_looking_at_the_start_compiles_nothing_of_its_own():
    done = subprocess.run([sys.executable, "-c", ONE_COMPILATION], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]

"""Step Jacobians in the tangent space: against differences, against torch through `sim.step`, against rollouts."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.joints import JOINT_KINDS, JointKind
from pullback.rigid.sim import Linearization
from pullback.spatial.rotations_torch import (
    conjugate,
    quaternion_from_vector,
    quaternion_product,
    rotate,
    vector_from_quaternion,
)
from tests.rigid.worlds import F64, TOES, load
from tests.robot.synthetic import synthetic_robot

Tensor = torch.Tensor
# matrices that are computed in another order, relative to their largest entry; four corners of a box are redundant
ROUNDING = 1e-9
# central differences of 1e-6 in float64, relative to the largest entry
DIFFERENCES = 2e-7
CHANGE = 1e-6


# -- the tangent space -----------------------------------------------------------------------------------------------


def joints(sim: pb.Sim) -> list[tuple[JointKind, int, int]]:
    """Return kind, first coordinate and first dof of every joint."""
    a = sim.arrays
    return list(zip([JOINT_KINDS[number] for number in a.kind], a.q_start.tolist(), a.v_start.tolist()))


def moved(sim: pb.Sim, q: Tensor, x: Tensor) -> Tensor:
    """Return q (B, nq) moved by the tangents x (B, nv)."""
    parts = []
    for kind, at, v in joints(sim):
        if not kind.turns:
            parts.append(q[:, at : at + 1] + x[:, v : v + 1])
            continue
        first = at + 3 * kind.travels
        quat = q[:, first : first + 4] / q[:, first : first + 4].norm(dim=-1, keepdim=True)
        if kind.travels:
            parts.append(q[:, at : at + 3] + rotate(quat, x[:, v + 3 : v + 6]))
        parts.append(quaternion_product(quat, quaternion_from_vector(x[:, v : v + 3])))
    return torch.cat(parts, -1)


def difference(sim: pb.Sim, q: Tensor, start: Tensor) -> Tensor:
    """Return the tangents (B, nv) that move `start` to q."""
    parts = []
    for kind, at, _ in joints(sim):
        if not kind.turns:
            parts.append(q[:, at : at + 1] - start[:, at : at + 1])
            continue
        first = at + 3 * kind.travels
        back = conjugate(start[:, first : first + 4])
        parts.append(vector_from_quaternion(quaternion_product(back, q[:, first : first + 4])))
        if kind.travels:
            parts.append(rotate(back, q[:, at : at + 3] - start[:, at : at + 3]))
    return torch.cat(parts, -1)


def after(sim: pb.Sim, state: pb.State, u: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and qd after a step from `state` of one world, changed by x (B, 2 nv)."""
    impulses = None if state.impulses is None else state.impulses.expand(len(x), -1)
    q = moved(sim, state.q.expand(len(x), -1), x[:, : sim.nv])
    end = sim.step(pb.State(q, state.qd + x[:, sim.nv :], impulses), u)
    return end.q, end.qd


def by_differences(sim: pb.Sim, state: pb.State, u: Tensor) -> Tensor:
    """Return (A, B) side by side of one world's step by central differences."""
    n = 2 * sim.nv
    changes = CHANGE * torch.eye(n + sim.nu, dtype=F64)
    with torch.no_grad():
        ends = [after(sim, state, u + s * changes[:, n:], s * changes[:, :n]) for s in (1.0, -1.0)]
    (q, qd), (q_back, qd_back) = ends
    return torch.cat((difference(sim, q, q_back), qd - qd_back), -1).T / (2.0 * CHANGE)


def by_torch(sim: pb.Sim, state: pb.State, u: Tensor) -> Tensor:
    """Return (A, B) side by side of one world's step by torch, one vjp of `sim.step` a row."""
    end = sim.step(state, u).q.detach()

    def tangents(x: Tensor, u: Tensor) -> Tensor:
        q, qd = after(sim, state, u[None], x[None])
        return torch.cat((difference(sim, q, end), qd), -1)[0]

    nothing = torch.zeros(2 * sim.nv, dtype=sim.dtype)
    return torch.cat(torch.autograd.functional.jacobian(tangents, (nothing, u[0])), -1)


def joined(found: Linearization, t: int = 0, world: int = 0) -> Tensor:
    """Return (A, B) of one step side by side."""
    return torch.cat((found.A[t, world], found.B[t, world]), -1)


def assert_close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert float((found - expected).abs().max()) <= tolerance * float(expected.abs().max())


# -- scenes ----------------------------------------------------------------------------------------------------------


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def scene(contact: pb.PGS | None = None) -> pb.World:
    """Return a world with ground, and a box far from everything: all tests then share one kernel."""
    world = pb.World(contact=contact)
    world.add_ground(friction=0.5)
    world.add_box("far", size=(1, 1, 1), position=(0, 0, 50), static=True)
    return world


def arm(contact: pb.PGS | None = None, **options) -> tuple[pb.Sim, pb.State, Tensor]:
    """Return an arm with servos, one of them at its limit, one joint near its end and two with dry friction."""
    world = scene(contact)
    robot = load("iiwa7")
    for link in robot.get_link_names()[2:4]:
        robot.set_link_param(link, "joint_friction", torch.tensor(0.5, dtype=F64))
    world.add(robot, position=(0, 0, 1), actuators=pb.PositionServo(kp=200, kd=5, limit=60), collision_links=[])
    sim = world.compile(dt=2e-3, dtype=F64, **options)
    q = 0.5 * noise(1, sim.nv)
    upper = torch.tensor(robot.get_joint_limits()[3]["upper"], dtype=F64)
    q[0, 3] = upper + 1e-3
    qd = noise(1, sim.nv, seed=1)
    qd[0, 1:3] = torch.tensor([1e-4, 1.0])
    return sim, state_of(sim, q, qd), q + torch.tensor([0.1, 0.05, 0.2, -0.1, 5.0, 0.1, -0.1], dtype=F64)


def at_rest(sim: pb.Sim) -> Tensor:
    return sim.world.initial_q(dtype=F64).repeat(1, 1)


def state_of(sim: pb.Sim, q: Tensor, qd: Tensor) -> pb.State:
    return pb.State(q, qd, sim._at_rest(1).impulses)


def dog(contact: pb.PGS | None = None, **options) -> tuple[pb.Sim, pb.State, Tensor]:
    """Return Laikago on its four toes, all pressed in a little and one of them dragged."""
    world = scene(contact)
    servo = pb.PositionServo(kp=150, kd=3, limit=100)
    world.add(load("laikago", "floating"), position=(0, 0, 0.4835), collision_links=TOES, actuators=servo)
    sim = world.compile(dt=1e-3, dtype=F64, **options)
    q = at_rest(sim)
    pose = torch.tensor([[0.2, 0.0, -0.5] * 4], dtype=F64)
    q[:, 2], q[:, 7:] = 0.4828, pose
    q[:, 7:] += 1e-3 * noise(1, 12)
    qd = 0.05 * noise(1, sim.nv, seed=1)
    qd[:, 6] = 3.0
    return sim, state_of(sim, q, qd), pose + 0.05 * noise(1, 12, seed=2)


def box(contact: pb.PGS | None = None, **options) -> tuple[pb.Sim, pb.State, Tensor]:
    """Return a box that slides and turns on four corners."""
    world = scene(contact)
    world.add_box("box", size=(0.2, 0.3, 0.1), mass=1.0, position=(3, 0, 0.0499), friction=0.4)
    sim = world.compile(dt=1e-3, dtype=F64, **options)
    qd = torch.tensor([[1e-3, -2e-3, 0.8, 0.9, 0.2, 0.0]], dtype=F64)
    return sim, state_of(sim, at_rest(sim), qd), torch.zeros(1, 0, dtype=F64)


def pile(contact: pb.PGS | None = None, **options) -> tuple[pb.Sim, pb.State, Tensor]:
    """Return moving bodies that touch each other: a ball on a capsule on a box, each askew."""
    world = scene(contact)
    world.add_box("box", size=(0.4, 0.4, 0.2), mass=2.0, position=(5, 1, 0.0998), friction=0.6)
    along_x = (0, 0.7071068, 0, 0.7071068)
    world.add_capsule("rod", radius=0.05, length=0.3, mass=0.5, position=(5, 1, 0.2496), orientation=along_x)
    world.add_sphere("ball", radius=0.06, mass=0.3, position=(5.02, 1.03, 0.3545))
    sim = world.compile(dt=1e-3, dtype=F64, **options)
    # a normal along an axis would be a kink of the directions of friction
    tilt = torch.zeros(1, sim.nv, dtype=F64)
    tilt[:, :2] = torch.tensor([6e-4, -1e-3])
    return sim, state_of(sim, moved(sim, at_rest(sim), tilt), 0.1 * noise(1, sim.nv)), torch.zeros(1, 0, dtype=F64)


def joints_of_all_kinds(contact: pb.PGS | None = None, **options) -> tuple[pb.Sim, pb.State, Tensor]:
    """Return a floating robot with every type of joint, in fast motion."""
    world = scene(contact)
    world.add(synthetic_robot(), position=(0, 0, 3), actuators=pb.Torque())
    sim = world.compile(dt=5e-3, dtype=F64, **options)
    q = moved(sim, at_rest(sim), 0.5 * noise(1, sim.nv))
    return sim, state_of(sim, q, noise(1, sim.nv, seed=1)), noise(1, sim.nu, seed=2)


SCENES = {scene.__name__: scene for scene in (arm, dog, box, pile, joints_of_all_kinds)}


# -- one step --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("friction", ["cone", "pyramid"])
@pytest.mark.parametrize("name", SCENES)
def test_a_step_against_differences_and_torch(name, friction):
    sim, state, u = SCENES[name](pb.PGS(iterations=400, friction=friction))
    found = sim.linearize(state, u[None])
    assert int(found.status.code) == 0
    assert_close(joined(found), by_torch(sim, state, u), ROUNDING)
    assert_close(joined(found), by_differences(sim, state, u), DIFFERENCES)


@pytest.mark.parametrize("friction", ["cone", "pyramid"])
@pytest.mark.parametrize("name", ["dog", "box"])
def test_redundant_rows_without_softness(name, friction):
    """A singular system leaves out what the adjoint leaves out: the two solve transposes of each other."""
    sim, state, u = SCENES[name](pb.PGS(iterations=400, friction=friction, cfm=0.0))
    found = sim.linearize(state, u[None])
    assert int(found.status.code) == 0
    assert_close(joined(found), by_torch(sim, state, u), ROUNDING)


@pytest.mark.parametrize("substeps", [1, 3])
@pytest.mark.parametrize("contact", [
    pb.PGS(iterations=6, gradient="unrolled"),
    pb.PGS(iterations=6, gradient="unrolled", warm_start=True, friction="pyramid"),
    pb.PGS(iterations=3, tolerance=0.0),
    pb.PGS(iterations=3, tolerance=1e-17),
    pb.PGS(iterations=400, warm_start=True),
], ids=["unrolled", "unrolled warm", "unconverged", "close to rounding", "warm"])  # fmt: skip
def test_sweeps_and_substeps(contact, substeps):
    """Steps that no matrix can answer for are walked back as the adjoint does; substeps are one step."""
    sim, state, u = dog(contact, substeps=substeps)
    if contact.warm_start:
        state = sim.step(sim.step(state, u), u)
    found = sim.linearize(state, u[None])
    assert_close(joined(found), by_torch(sim, state, u), ROUNDING)
    if contact.tolerance is not None:
        # a tolerance below rounding is raised to what Newton's steps can reach
        assert int(found.status.unconverged) == int(contact.tolerance == 0.0)
    if not contact.warm_start:
        assert_close(joined(found), by_differences(sim, state, u), 10 * DIFFERENCES)


@pytest.mark.parametrize("height", [-1e-5, 4e-4])
def test_a_bounce(height):
    """At a rebound with free fall in it, the ball spinning: before touching, and with a little penetration."""
    world = scene(pb.PGS(iterations=400))
    world.add_sphere("ball", radius=0.1, mass=2.0, position=(3, 0, 0.1 + height), restitution=0.7)
    sim = world.compile(dt=1e-3, dtype=F64)
    qd = torch.tensor([[1.0, 2.0, -0.5, 0.6, 0.2, -1.0]], dtype=F64)
    state, u = pb.State(at_rest(sim), qd), torch.zeros(1, 0, dtype=F64)
    found = sim.linearize(state, u[None])
    assert_close(joined(found), by_torch(sim, state, u), ROUNDING)
    assert_close(joined(found), by_differences(sim, state, u), DIFFERENCES)
    # nothing but the height and the normal velocity see the rebound: dv'/dv = -e
    assert float(found.A[0, 0, 11, 11]) == pytest.approx(-0.7, abs=0.01)


def test_a_flight_against_mujoco():
    """Their steps of free flight are ours to rounding, and so must their differences be our matrices."""
    from tests.rigid.test_mujoco import Oracle, Servo, mujoco

    robot = load("laikago", "floating")
    world = scene()
    world.add(robot, position=(0, 0, 3), collision_links=[], actuators=pb.PositionServo(kp=150, kd=3, limit=100))
    sim = world.compile(dt=1e-3, dtype=F64, damping="explicit")
    q, qd, u = moved(sim, at_rest(sim), 0.3 * noise(1, 18)), noise(1, 18, seed=1), 0.3 * noise(1, 12, seed=2)
    oracle = Oracle(robot, [], dt=1e-3, friction=0.8, servo=Servo(150, 3, 100))
    oracle.run(q[0].numpy(), qd[0].numpy(), np.concatenate((np.zeros(7), u[0].numpy()))[7:], 0, 1)
    A, B = np.zeros((36, 36)), np.zeros((36, 12))
    mujoco.mjd_transitionFD(oracle.model, oracle.data, CHANGE, True, A, B, None, None)
    end = sim.step(pb.State(q, qd), u)

    def from_mujoco(q: Tensor, qd: Tensor) -> Tensor:
        """Return the matrix that turns their changes of state, linear in the world and first, into ours."""
        R = rotate(q[:, 3:7], torch.eye(3, dtype=F64)).T
        T = torch.zeros(36, 36, dtype=F64)
        T[[*range(6, 18), *range(24, 36)], [*range(6, 18), *range(24, 36)]] = 1.0
        for first in (0, 18):
            T[first : first + 3, first + 3 : first + 6] = torch.eye(3, dtype=F64)
            T[first + 3 : first + 6, first : first + 3] = R.T
        x, y, z = qd[0, 3:6].tolist()
        T[21:24, 3:6] = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=F64)
        return T

    found = sim.linearize(pb.State(q, qd), u[None])
    before, after_step = from_mujoco(q, qd), from_mujoco(end.q, end.qd)
    assert_close(found.A[0, 0], after_step @ torch.tensor(A) @ torch.linalg.inv(before), DIFFERENCES)
    assert_close(found.B[0, 0], after_step @ torch.tensor(B), DIFFERENCES)


# -- trajectories ----------------------------------------------------------------------------------------------------


def trajectory(steps: int = 6, worlds: int = 2, **options) -> tuple[pb.Sim, pb.Trajectory, Tensor]:
    sim, state, u = dog(**options)
    start = pb.State(state.q.repeat(worlds, 1), state.qd + 0.02 * noise(worlds, sim.nv, seed=3))
    controls = u + 0.05 * noise(steps, worlds, sim.nu, seed=4)
    return sim, sim.rollout(start, controls), controls


def test_the_chain_of_steps_is_the_gradient_of_a_rollout():
    sim, states, controls = trajectory()
    found = sim.linearize(states, controls)
    assert found.A.shape == (6, 2, 2 * sim.nv, 2 * sim.nv)
    assert found.B.shape == (6, 2, 2 * sim.nv, sim.nu)
    weights = noise(2, sim.nv, seed=5)
    leaves = [x.clone().requires_grad_() for x in (states.qd[0], controls)]
    end = sim.rollout(pb.State(states.q[0], leaves[0]), leaves[1])
    by_qd, by_controls = torch.autograd.grad((end.qd[-1] * weights).sum(), leaves)
    row = torch.cat((torch.zeros_like(weights), weights), -1)
    for t in reversed(range(6)):
        assert_close(torch.einsum("bi,bij->bj", row, found.B[t]), by_controls[t], ROUNDING)
        row = torch.einsum("bi,bij->bj", row, found.A[t])
    assert_close(row[:, sim.nv :], by_qd, ROUNDING)


def test_a_batch_of_states_is_a_trajectory():
    sim, states, controls = trajectory()
    expected = sim.linearize(states, controls)
    flat = pb.State(states.q[:6].flatten(0, 1), states.qd[:6].flatten(0, 1))
    found = sim.linearize(flat, controls)
    assert torch.equal(found.A, expected.A)
    assert torch.equal(found.B, expected.B)
    shared = sim.linearize(flat, controls[:, :1])
    assert torch.equal(shared.A[:, 0], expected.A[:, 0])
    assert not torch.equal(shared.A[:, 1], expected.A[:, 1])
    assert not found.A.requires_grad


def test_threads_give_the_same_bits():
    sim, states, controls = trajectory(steps=70)
    before, found = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        found.append(sim.linearize(states, controls))
    torch.set_num_threads(before)
    assert torch.equal(found[0].A, found[1].A)
    # few states are shared among threads as well: one costs as much as a step, at least
    programs = sim._programs
    assert programs.linearize().work == programs.step().work > 1


def test_parameters_of_each_world():
    def sliding(friction: Tensor) -> pb.Sim:
        world = scene()
        world.add_box("box", size=(0.2, 0.3, 0.1), mass=1.0, position=(3, 0, 0.0499), friction=friction)
        return world.compile(dt=1e-3, dtype=F64)

    many = torch.tensor([0.2, 0.6], dtype=F64, requires_grad=True)
    qd = torch.tensor([0.1, 0.0, 0.8, 0.9, 0.2, 0.0], dtype=F64)
    sim = sliding(many)
    states = sim.rollout(pb.State(at_rest(sim).repeat(2, 1), qd.repeat(2, 1)), 3)
    found = sim.linearize(states, torch.zeros(3, 2, 0, dtype=F64))
    for world in range(2):
        alone = sliding(many[world].detach())
        here = pb.State(states.q[:3, world].detach(), states.qd[:3, world].detach())
        expected = alone.linearize(here, torch.zeros(3, 1, 0, dtype=F64))
        assert_close(found.A[:, world], expected.A[:, 0], ROUNDING)


# -- the border ------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused():
    sim, states, controls = trajectory()
    with pytest.raises(pb.PullbackError, match="checkpoint=1"):
        sim.linearize(sim.rollout(states[0], controls, checkpoint=3), controls)
    with pytest.raises(pb.PullbackError, match="T B worlds"):
        sim.linearize(states[0], controls)
    with pytest.raises(pb.PullbackError, match="expected \\(T, B, 12\\)"):
        sim.linearize(states, controls[0])
    bad = controls.clone()
    bad[2, 0, 1] = float("nan")
    with pytest.raises(pb.PullbackError, match="controls is not finite"):
        sim.linearize(states, bad)


def test_contacts_without_room_are_reported():
    sim, state, u = dog()
    few = sim.world.compile(dt=1e-3, dtype=F64, max_contacts=2)
    assert int(few.linearize(state, u[None]).status.code) & 2


# -- other types and devices -----------------------------------------------------------------------------------------


def converted(dtype: torch.dtype, device: str) -> tuple[Linearization, Linearization]:
    """Return the linearisation of one state of the dog, and the same on another device or in another type."""
    sim, state, u = dog(pb.PGS(iterations=200))
    world = pb.World(contact=pb.PGS(iterations=200))
    world.add_ground(friction=0.5)
    world.add_box("far", size=(1, 1, 1), position=(0, 0, 50), static=True)
    robot = pb.load("laikago", "floating", dtype=dtype, device=device)
    servo = pb.PositionServo(kp=150, kd=3, limit=100)
    world.add(robot, position=(0, 0, 0.4835), collision_links=TOES, actuators=servo)
    other = world.compile(dt=1e-3, dtype=dtype, device=device)
    q, qd, u_other = (x.to(device, dtype) for x in (state.q, state.qd, u))
    return other.linearize(pb.State(q, qd), u_other[None]), sim.linearize(state, u[None])


@pytest.mark.slow
def test_single_precision():
    found, expected = converted(torch.float32, "cpu")
    assert found.A.dtype == torch.float32
    # the gap of a toe, 0.1 mm, is a difference of numbers near 0.5
    assert_close(joined(found).double(), joined(expected), 1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_a_gpu(dtype):
    found, expected = converted(dtype, "cuda")
    assert_close(joined(found).double().cpu(), joined(expected), 1e-4 if dtype == torch.float32 else ROUNDING)

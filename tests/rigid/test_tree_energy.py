"""Trees that turn fast: energy, the motion of the centre of mass, the reference step, and gradients."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, JointType, Link, Pose, Shape, Tree
from pullback.rigid.energy_watch import gain_text
from tests.reference.dynamics import center_of_mass, description_parameters
from tests.reference.step import Settings, step
from tests.rigid.worlds import F64

Tensor = torch.Tensor
DT = 0.01
KINDS: dict[str, tuple[JointType, ...]] = {
    "floating": ("revolute", "ball", "prismatic", "floating"),
    "fixed": ("ball", "revolute", "prismatic", "revolute", "floating", "revolute"),
}
HELD: tuple[JointType, ...] = ("revolute", "ball", "revolute", "revolute")
"""Joints that let nothing fly away."""


def rotation(rng: np.random.Generator) -> np.ndarray:
    """Return a random rotation."""
    Q = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return Q * np.sign(np.linalg.det(Q))


def tree(kinds: tuple[JointType, ...], damping: float = 0.05) -> Tree:
    """Return links one on another, two on each second of them, on joints of these kinds."""
    rng = np.random.default_rng(0)
    links = [Link("link0", 1.2, rng.uniform(-0.1, 0.1, 3), np.diag(rng.uniform(0.02, 0.024, 3)))]
    joints = []
    for k, kind in enumerate(kinds):
        R, axis = rotation(rng), rng.normal(size=3)
        inertia = R @ np.diag(rng.uniform(0.01, 0.02, 3)) @ R.T
        links.append(Link(f"link{k + 1}", float(rng.uniform(0.3, 1.5)), rng.uniform(-0.1, 0.1, 3), inertia))
        pose, axis = Pose(rng.uniform(-0.2, 0.2, 3), rotation(rng)), axis / np.linalg.norm(axis)
        joint = Joint(f"joint{k}", kind, f"link{max(0, k - k % 2)}", f"link{k + 1}", pose, axis)
        if kind != "floating":
            joint.armature, joint.damping = 0.01, damping
        joints.append(joint)
    return Tree("tree", links, joints, source="tree")


def world(base: str) -> pb.World:
    """Return a world with a tree of all kinds of joints."""
    made = pb.World(gravity=(0.0, 0.0, -3.0))
    made.add(pb.RobotModel(compile_tree(tree(KINDS[base]), base), dtype=F64), name="tree")
    return made


def undriven(base: str) -> pb.World:
    """Return a world without gravity, with a tree that nothing damps."""
    made = pb.World(gravity=(0.0, 0.0, 0.0))
    made.add(pb.RobotModel(compile_tree(tree(HELD, 0.0), base), dtype=F64), name="tree")
    return made


def rolling(dtype: torch.dtype) -> pb.World:
    """Return a world with a driven tree that lies on the ground with its first link, a ball."""
    made, description = pb.World(), tree(HELD)
    description.links[0].shapes.append(Shape("sphere", (0.3,)))
    robot = pb.RobotModel(compile_tree(description, "floating"), dtype=dtype)
    drives = {name: pb.Torque() for name in ("joint0", "joint2")}
    made.add(robot, name="tree", position=(0.0, 0.0, 0.3), actuators=drives)
    made.add_ground(friction=0.8)
    return made


def pressed(sim: pb.Sim, speed: float) -> pb.State:
    """Return a state of `rolling` with the ball a millimetre in the ground: a gap of zero is a kink."""
    state = start(sim, speed)
    q = state.q.clone()
    q[:, 2] = 0.299
    return pb.State(q, state.qd)


def start(sim: pb.Sim, speed: float, worlds: int = 1) -> pb.State:
    """Return states in which all dofs move at about `speed` [rad/s, m/s], after a few steps."""
    q = sim.initial_state(worlds).q
    qd = speed * torch.randn(worlds, sim.nv, dtype=F64, generator=torch.Generator().manual_seed(1))
    return sim.rollout(pb.State(q, qd), 5)[-1].detach()


@pytest.mark.parametrize("base", KINDS)
def test_a_tree_that_turns_fast_does_not_gain(base):
    """At more than a radian a step, where it would have 1e5 times its energy and more; what is kept goes down only."""
    sim = undriven(base).compile(dt=DT, dtype=F64)
    states = sim.rollout(start(sim, 40.0, 16), 200)
    energy = torch.stack([sim.energies(state)[0] for state in (states[0], *(states[-k] for k in range(20, 0, -1)))])
    ratio = energy[1:].mean(0) / energy[0]
    assert (ratio < 1.4).all(), ratio
    assert (ratio > 0.03).all(), ratio


def test_the_centre_of_mass_goes_straight_on():
    """Scaling leaves it alone: scaled with the rest it would slow down as the tree does."""
    sim = undriven("floating").compile(dt=DT, dtype=F64)
    model = sim.world.robots["tree"].model
    states = sim.rollout(start(sim, 6.0), 50)
    centre = torch.stack([center_of_mass(model, description_parameters(model), q) for q in states.q[:, 0]])
    speed = (centre[1:] - centre[:-1]) / DT
    assert float((speed[-1] - speed[0]).norm()) < 0.05 * float(states.qd[0, 0, :3].norm()) * 0.3


@pytest.mark.parametrize("base", KINDS)
@pytest.mark.parametrize(("speed", "without"), [(25.0, ()), (12.0, ()), (1.0, ()), (12.0, ("tree_energy",))], ids=str)
def test_a_step_is_that_of_the_reference(base, speed, without, monkeypatch):
    """Fast, where the weight is between 0 and 1, and slow; and plain Euler steps, for all that turns fast."""
    sim = world(base).compile(dt=DT, dtype=F64, without=without)
    if without:
        monkeypatch.setattr("tests.reference.step.tree_correction", lambda *given: torch.zeros_like(given[3]))
    model = sim.world.robots["tree"].model
    state = start(sim, speed)
    settings = Settings(dt=DT)
    weights = torch.randn(sim.nq + sim.nv, dtype=F64, generator=torch.Generator().manual_seed(2))
    ends = []
    for k in range(2):
        q, qd = state.q.clone().requires_grad_(), state.qd.clone().requires_grad_()
        if k == 0:
            found = sim.step(pb.State(q, qd))
            after = torch.cat([found.q[0], found.qd[0]])
        else:
            gravity = torch.tensor([0.0, 0.0, -3.0], dtype=F64)
            done = step(model, description_parameters(model), q[0], qd[0], gravity=gravity, settings=settings)
            after = torch.cat([done.q, done.qd])
        ends.append((after.detach(), *torch.autograd.grad((after * weights).sum(), (q, qd))))
    (found, *gradients), (expected, *by_reference) = ends
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(gradients[1], by_reference[1], rtol=1e-9, atol=1e-9)
    # along quaternions, of unit length, there is no derivative
    torch.testing.assert_close(gradients[0], by_reference[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("speed", "without"), [(18.0, ()), (12.0, ()), (12.0, ("tree_energy",))], ids=str)
@pytest.mark.parametrize("base", KINDS)
def test_gradients_are_differences(base, speed, without):
    """By the start and by mass, centre of mass, inertia, damping and armature of two links, over two steps."""
    made = world(base)
    sim, robot = made.compile(dt=DT, dtype=F64, without=without), made.robots["tree"]
    begin = start(sim, speed)
    names = [(link, key) for link in ("link1", "link2") for key in ("mass", "com", "joint_damping", "joint_armature")]
    weights = torch.randn(sim.nq + sim.nv, dtype=F64, generator=torch.Generator().manual_seed(1))

    def loss(q: Tensor, qd: Tensor, *numbers: Tensor) -> Tensor:
        for (link, key), value in zip(names, numbers):
            robot.set_link_param(link, key, value)
        end = sim.rollout(pb.State(q, qd), 2)[-1]
        return (weights * torch.cat([end.q[0], end.qd[0]])).sum()

    values = [robot.get_link_param(*name).detach().double() for name in names]
    inputs = [x.clone().requires_grad_() for x in (begin.q, begin.qd, *values)]
    for k, gradient in enumerate(torch.autograd.grad(loss(*inputs), inputs)):
        for at in range(inputs[k].numel()):
            ends = []
            for sign in (1, -1):
                moved = [x.detach().clone() for x in inputs]
                moved[k].view(-1)[at] += sign * 1e-6
                ends.append(float(loss(*moved)))
            expected = (ends[0] - ends[1]) / 2e-6
            assert float(gradient.reshape(-1)[at]) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("base", KINDS)
def test_a_warning_names_a_link_that_floats_inside_of_a_tree(base):
    sim = world(base).compile(dt=DT, dtype=F64)
    states = sim.rollout(start(sim, 1.0), 2)
    text = gain_text(sim, states, np.array([[1.0], [2.0], [3.0]]), np.array([True]))
    name = {"floating": "tree/link4", "fixed": "tree/link5"}[base]
    assert f"{name} floats, but its place is given against another link that turns" in text


ROLLING = [1.0, 4.0, 12.0]
"""Speeds [rad/s] at which the weight of the products is between 0 and 1, then 1, then energy is kept too."""


@pytest.mark.parametrize("speed", ROLLING)
def test_gradients_with_contact_are_differences(speed):
    """By the start and controls, over three steps on the ground; those of float32 are the same to its rounding."""
    sim = rolling(F64).compile(dt=DT, dtype=F64)
    begin = pressed(sim, speed)
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(sim.nq + sim.nv, dtype=F64, generator=generator)
    controls = torch.randn(3, 1, sim.nu, dtype=F64, generator=generator)

    def loss(sim: pb.Sim, *given: Tensor) -> Tensor:
        end = sim.rollout(pb.State(*given[:2]), given[2])[-1]
        return (weights.to(sim.dtype) * torch.cat([end.q[0], end.qd[0]])).sum()

    inputs = [x.clone().requires_grad_() for x in (begin.q, begin.qd, controls)]
    gradients = torch.autograd.grad(loss(sim, *inputs), inputs)
    assert all(len(found) > 0 for found in sim.contacts(begin))
    # along one direction of all inputs
    ways = [torch.randn(x.shape, dtype=F64, generator=generator) for x in inputs]
    ends = [float(loss(sim, *(x.detach() + sign * 1e-6 * way for x, way in zip(inputs, ways)))) for sign in (1.0, -1.0)]
    found = sum(float((g * way).sum()) for g, way in zip(gradients, ways))
    assert found == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)
    coarse = rolling(torch.float32).compile(dt=DT, dtype=torch.float32)
    inputs = [x.detach().float().requires_grad_() for x in inputs]
    for a, b in zip(gradients, torch.autograd.grad(loss(coarse, *inputs), inputs)):
        assert float((a - b).abs().max()) < 1e-3 * float(a.abs().max())


@pytest.mark.parametrize("speed", ROLLING)
def test_the_jacobian_with_contact_is_that_of_the_adjoint(speed):
    """By matrices; and a rollout under feedback does the same steps."""
    sim = rolling(F64).compile(dt=DT, dtype=F64)
    state, u = pressed(sim, speed), torch.ones(1, 1, sim.nu, dtype=F64)
    A = sim.linearize(state, u).A[0, 0]
    by_qd = torch.func.jacrev(lambda qd: sim.step(pb.State(state.q, qd), u[0]).qd[0])(state.qd)[:, 0]
    torch.testing.assert_close(A[sim.nv :, sim.nv :], by_qd, rtol=1e-9, atol=1e-9)
    for way in torch.eye(sim.nv, dtype=F64)[[1, 4, 8]]:
        ends = [sim.step(sim.retract(state, sign * 1e-6 * torch.cat([way, 0.0 * way])[None]), u[0]) for sign in (1, -1)]
        expected = sim.difference(ends[1], ends[0])[0] / 2e-6
        torch.testing.assert_close(A[:, : sim.nv] @ way, expected, rtol=1e-5, atol=1e-5)
    nominal = sim.rollout(state, u)
    found, _ = sim.feedback_rollout(state, u, torch.zeros(1, 1, sim.nu, 2 * sim.nv, dtype=F64), nominal)
    assert torch.equal(found.qd, nominal.qd)


@pytest.mark.slow
@pytest.mark.parametrize("base", KINDS)
def test_the_jacobian_of_a_step_is_that_of_its_adjoint(base):
    sim = world(base).compile(dt=DT, dtype=F64)
    state = start(sim, 6.0)
    found = sim.linearize(state, torch.zeros(1, 1, sim.nu, dtype=F64)).A[0, 0, sim.nv :, sim.nv :]
    expected = torch.func.jacrev(lambda qd: sim.step(pb.State(state.q, qd)).qd[0])(state.qd)[:, 0]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["split", "Exact", "compliant"])
def test_other_kinds_of_steps_do_the_same(option):
    """Where nothing touches, all solvers and a step that may be split give the same state."""
    made = world("floating")
    plain = made.compile(dt=DT, dtype=F64)
    state = start(plain, 6.0)
    if option == "Exact":
        made.contact = pb.Exact()
    elif option == "compliant":
        made.contact = pb.Compliant()
    other = made.compile(dt=DT, dtype=F64, impacts="split" if option == "split" else "step")
    a, b = plain.rollout(state, 20)[-1], other.rollout(state, 20)[-1]
    torch.testing.assert_close(a.q, b.q, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(a.qd, b.qd, rtol=1e-12, atol=1e-12)

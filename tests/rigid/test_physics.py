"""What a physicist would check, through the public interface: docs/physics.md has the numbers."""

from math import atan, cos, exp, pi, sin, sqrt

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Pose, Shape, Tree
from pullback.spatial.rotations_torch import rotate
from tests.rigid.worlds import F64, TOES, load

G = 9.81
WEIGHT = 25.567 * G
"""Of Laikago [N]."""
STANCE = (0.2, 0.0, -0.5) * 4
SIDEWAYS = (sin(pi / 4), 0.0, 0.0, cos(pi / 4))
"""Turns the z axis into -y."""


def along(trajectory: pb.Trajectory) -> pb.State:
    """Return the states of the first world as a batch."""
    return pb.State(trajectory.q[:, 0], trajectory.qd[:, 0])


def speeds(trajectory: pb.Trajectory, dt: float, coordinate: int = 0) -> torch.Tensor:
    """Return the rate of a coordinate of the first world over each step."""
    return trajectory.q[:, 0, coordinate].diff() / dt


def hinge(type: str = "revolute", *, com: float = 0.0, axis=(0.0, 1.0, 0.0), **options) -> pb.RobotModel:
    """Return one link of 2 kg and 0.1 kg m² on a joint."""
    arm = Link("arm", 2.0, inertia=0.1 * np.eye(3), com=np.array([com, 0.0, 0.0]))
    joint = Joint("joint", type, "base", "arm", axis=np.array(axis), **options)  # pyright: ignore[reportArgumentType]
    return pb.RobotModel(compile_tree(Tree("hinge", [Link("base", 1.0), arm], [joint], source="hinge")), dtype=F64)


def driven(robot: pb.RobotModel, actuators=None, gravity=(0.0, 0.0, 0.0), dt: float = 1e-3) -> pb.Sim:
    world = pb.World(gravity=gravity)
    world.add(robot, actuators=actuators)
    return world.compile(dt=dt, dtype=F64)


def constant(value: float, steps: int) -> torch.Tensor:
    return torch.full((steps, 1, 1), value, dtype=F64)


# -- energy and momentum -------------------------------------------------------------------------------------------


def pendulum_energy(links: int, dt: float, seconds: float) -> torch.Tensor:
    """Return the change of energy over the largest kinetic energy, at every step, from a horizontal start."""
    world = pb.World()
    world.add(load(f"pendulum{links}"), collision_links=[], actuators={})
    sim = world.compile(dt=dt, dtype=F64)
    kinetic, potential = sim.energies(along(sim.rollout(sim.initial_state(), round(seconds / dt))))
    return (kinetic + potential - potential[0]) / kinetic.max()


def test_energy_of_a_pendulum_is_bounded():
    energy = pendulum_energy(1, 1e-3, 10.0).abs()
    assert energy.max() < 2.5e-3
    # no drift: the last second is no worse than the first
    assert energy[-1000:].max() < 1.02 * energy[:1000].max()


@pytest.mark.parametrize("links", [1, 2, 3, 5])
def test_energy_error_of_pendulums_is_first_order(links):
    coarse, fine = (pendulum_energy(links, dt, 0.5).abs().max().item() for dt in (1e-3, 5e-4))
    assert coarse < 0.02
    assert coarse / fine == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize(("links", "bound"), [(2, 0.04), (3, 0.07), (5, 0.1)])
def test_chains_lose_little_energy_in_ten_seconds(links, bound):
    assert pendulum_energy(links, 1e-3, 10.0).abs().max() < bound


def tumbling(dt: float) -> tuple[float, float, float]:
    """Return the drift of linear and of angular momentum and of energy in 5 s of a box, relative."""
    world = pb.World(gravity=(0, 0, 0))
    world.add_box("box", size=(0.1, 0.2, 0.3), mass=2.0)
    sim = world.compile(dt=dt, dtype=F64)
    start = sim.initial_state()
    start.qd[0] = torch.tensor([1.0, 5.0, 2.0, 0.3, -0.4, 0.5])
    states = along(sim.rollout(start, round(5 / dt)))
    inertia = 2 / 12 * torch.tensor([0.04 + 0.09, 0.01 + 0.09, 0.01 + 0.04], dtype=F64)
    linear = rotate(states.q[:, 3:], states.qd[:, 3:])
    angular = rotate(states.q[:, 3:], inertia * states.qd[:, :3])
    energy, _ = sim.energies(states)
    # and it flies straight
    torch.testing.assert_close(states.q[-1, :3], 5 * linear[0], rtol=0, atol=1e-11)

    def drift(x: torch.Tensor) -> float:
        return float(((x - x[0]).reshape(len(x), -1).norm(dim=1) / x[0].norm()).max())

    return drift(linear), drift(angular), drift(energy)


def test_momentum_of_a_tumbling_box():
    linear, angular, energy = tumbling(1e-3)
    assert linear < 1e-12
    assert angular < 0.002
    assert energy < 1e-11
    _, finer, _ = tumbling(5e-4)
    assert angular / finer == pytest.approx(2.0, rel=0.05)


# -- friction ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("friction", ["cone", "pyramid"])
@pytest.mark.parametrize("beyond", [-0.02, 0.02, 0.2])
def test_a_box_sticks_and_slides_at_the_friction_angle(beyond, friction):
    mu = 0.5
    angle = atan(mu) + beyond
    turn = (0.0, sin(angle / 2), 0.0, cos(angle / 2))
    world = pb.World(contact=pb.PGS(friction=friction))
    world.add_plane("slope", orientation=turn, friction=mu)
    place = (0.05 * sin(angle), 0.0, 0.05 * cos(angle))
    world.add_box("box", size=(0.4, 0.4, 0.1), mass=2.0, position=place, orientation=turn, friction=mu)
    sim = world.compile(dt=1e-3, dtype=F64)
    end = sim.rollout(sim.initial_state(), 1000)[-1]
    expected = G * (sin(angle) - mu * cos(angle)) if beyond > 0 else 0.0
    # along the slope, in the box's axes
    assert end.qd[0, 3].item() == pytest.approx(expected, abs=1e-6)
    assert end.qd[0, 4:].abs().max() < 1e-6
    assert end.qd[0, :3].abs().max() < 1e-6


def test_a_box_brakes_by_dry_friction():
    """The way v² / (2 mu g) and the time v / (mu g) to a stop, whichever way it slides."""
    world = pb.World()
    world.add_ground(friction=0.4)
    world.add_box("box", size=(0.4, 0.4, 0.1), mass=2.0, position=(0, 0, 0.05), friction=0.4)
    sim = world.compile(dt=1e-3, dtype=F64)
    start = sim.initial_state(5)
    heading = torch.linspace(0.1, 1.4, 5, dtype=F64)
    start.qd[:, 3], start.qd[:, 4] = 1.5 * heading.cos(), 1.5 * heading.sin()
    states = sim.rollout(start, 500)
    way = states.q[-1, :, :2]
    torch.testing.assert_close(way.norm(dim=1), torch.full((5,), 1.5**2 / (0.8 * G), dtype=F64), rtol=5e-3, atol=0)
    torch.testing.assert_close(torch.atan2(way[:, 1], way[:, 0]), heading, rtol=0, atol=1e-3)
    assert states.qd[round(1500 / (0.4 * G)) + 2].abs().max() < 1e-6


def scattered() -> pb.World:
    """Return boxes, a capsule and a sphere on the ground and on each other, of different frictions."""
    world = pb.World()
    world.add_ground(friction=0.6)
    world.add_box("low", size=(0.3, 0.3, 0.2), mass=1.0, position=(0, 0, 0.1), friction=0.6)
    world.add_box("high", size=(0.2, 0.2, 0.2), mass=1.0, position=(0.02, 0.01, 0.3), friction=0.3)
    world.add_capsule(
        "rod", radius=0.05, length=0.2, mass=0.5, position=(0.5, 0, 0.05), orientation=SIDEWAYS, friction=0.4
    )
    world.add_sphere("ball", radius=0.06, mass=0.3, position=(0.3, 0.25, 0.06), friction=0.9)
    return world


def test_no_force_leaves_the_friction_cone():
    """Random pushes, all contacts, every step: 0 <= normal force, |tangential force| <= mu times it."""
    mu = {"ground": 0.6, "low": 0.6, "high": 0.3, "rod": 0.4, "ball": 0.9}
    sim = scattered().compile(dt=2e-3, dtype=F64)
    state = sim.initial_state(8)
    generator = torch.Generator().manual_seed(0)
    contacts = sliding = 0
    for step in range(150):
        if step % 5 == 0:
            state = pb.State(state.q, state.qd + 0.3 * torch.randn(8, sim.nv, generator=generator, dtype=F64))
        for contact in [c for found in sim.contacts(state) for c in found]:
            a, b = (mu[name] for name in contact.shapes)
            normal, force = np.array(contact.normal), np.array(contact.force)
            pressed = force @ normal
            spare = 2 * a * b / (a + b) * pressed - np.linalg.norm(force - pressed * normal)
            assert pressed >= 0.0
            assert spare > -1e-12 * (1.0 + pressed)
            contacts, sliding = contacts + 1, sliding + (pressed > 0 and spare < 1e-9)
        state = sim.step(state)
    assert contacts > 4000
    assert sliding > 300


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_sliding_turns_into_rolling(dtype):
    """v = v0 / (1 + I / (m r²)) after friction has set ball and capsule turning, and on they roll."""
    world = pb.World()
    world.add_ground(friction=0.3)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0, 0, 0.1), friction=0.3)
    world.add_capsule("rod", radius=0.1, length=0.4, mass=1.0, position=(0, 2, 0.1), orientation=SIDEWAYS, friction=0.3)
    sim = world.compile(dt=1e-3, dtype=dtype)
    start = sim.initial_state()
    start.qd[0, [3, 9]] = 1.0
    states = sim.rollout(start, 1000)
    ball, rod = speeds(states, 1e-3, 0), speeds(states, 1e-3, 7)
    moment = world.robots["rod"].model.links[-1].inertia[2, 2]
    tolerance = 1e-6 if dtype == F64 else 1e-3
    assert ball[-1].item() == pytest.approx(5 / 7, abs=tolerance)
    assert rod[-1].item() == pytest.approx(1 / (1 + moment / 0.01), abs=tolerance)
    assert states.qd[-1, 0, :3].norm().item() == pytest.approx(50 / 7, abs=10 * tolerance)
    # the ball slides for (1 - 5/7) v0 / (mu g)
    slid = int((ball > 5 / 7 + 2e-3).sum())
    assert slid * 1e-3 == pytest.approx(2 / 7 / (0.3 * G), abs=2e-3)


@pytest.mark.parametrize("angle", [0.3, 0.8])
def test_a_ball_rolls_down_a_slope(angle):
    world = pb.World(gravity=(G * sin(angle), 0, -G * cos(angle)))
    world.add_ground(friction=0.5)
    world.add_sphere("ball", radius=0.1, mass=2.0, position=(0, 0, 0.1))
    sim = world.compile(dt=1e-3, dtype=F64)
    speed = speeds(sim.rollout(sim.initial_state(), 500), 1e-3)[-1].item()
    assert speed == pytest.approx(0.5 * 5 / 7 * G * sin(angle), rel=1e-6)


def test_an_oblique_impact_obeys_coulomb():
    """A ball thrown flat at the ground does not rise again, and loses mu times its fall in speed."""
    world = pb.World(gravity=(0, 0, 0))
    world.add_ground(friction=0.3)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0, 0, 0.15))
    sim = world.compile(dt=1e-3, dtype=F64)
    start = sim.initial_state()
    start.qd[0, 3:] = torch.tensor([3.0, 0.0, -1.0])
    states = sim.rollout(start, 100)
    assert speeds(states, 1e-3)[-1].item() == pytest.approx(3.0 - 0.3, abs=1e-6)
    assert (states.q[60:, 0, 2] - 0.1).abs().max() < 1e-6


# -- impacts and rest ----------------------------------------------------------------------------------------------


def bounces(restitution: float, dt: float) -> tuple[np.ndarray, np.ndarray]:
    """Return heights and times of the first three peaks of a ball dropped from 1 m."""
    world = pb.World()
    world.add_ground(restitution=restitution)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0, 0, 1.1), restitution=restitution)
    sim = world.compile(dt=dt, dtype=F64)
    z = sim.rollout(sim.initial_state(), round(3.0 / dt)).q[:, 0, 2].numpy() - 0.1
    assert z.min() > -1e-4
    peaks = [t for t in range(1, len(z) - 1) if z[t - 1] < z[t] >= z[t + 1]][:3]
    return z[peaks], np.array(peaks) * dt


@pytest.mark.parametrize("restitution", [1.0, 0.8, 0.5])
def test_bouncing_ball(restitution):
    """Heights e² h, e⁴ h, ...; Euler's steps lose dt v / 2 of height on each way down or up."""
    e, fall = restitution, sqrt(2 / G)
    heights = np.array([e**2, e**4, e**6])
    times = fall * np.array([1 + e, 1 + 2 * e + e**2, 1 + 2 * e + 2 * e**2 + e**3])
    for dt in (1e-3, 1e-4):
        found_heights, found_times = bounces(e, dt)
        speed = e * sqrt(2 * G) * np.array([1, e, e**2])
        np.testing.assert_allclose(found_heights, heights, rtol=0, atol=1.5 * dt * speed.cumsum().max())
        np.testing.assert_allclose(found_times, times, rtol=0, atol=15 * dt)


def standing(dtype: torch.dtype, seconds: float) -> tuple[pb.Sim, pb.State, torch.Tensor]:
    """Return Laikago after standing for a while, and its targets."""
    world = pb.World()
    world.add_ground(friction=0.8)
    q = torch.tensor([0, 0, 0.4835, 0, 0, 0, 1, *STANCE])
    servo = pb.PositionServo(kp=150, kd=3, limit=100)
    robot = pb.load("laikago", "floating", dtype=dtype)
    world.add(robot, q=q, actuators=servo, collision_links=TOES)
    sim = world.compile(dt=1e-3, dtype=dtype)
    u = torch.tensor([STANCE], dtype=dtype)
    states = sim.rollout(sim.initial_state(), u.expand(round(seconds * 1000), 1, 12), checkpoint=1000)
    return sim, states[-1], u


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_forces_of_a_standing_robot_sum_to_its_weight(dtype):
    sim, state, u = standing(dtype, 5.0)
    forces = np.array([contact.force for contact in sim.contacts(state, u)[0]])
    assert forces[:, 2].min() > 50
    assert forces[:, 2].sum() == pytest.approx(WEIGHT, rel=1e-4)
    assert np.abs(forces[:, :2].sum(0)).max() < 1e-3 * WEIGHT


def stack(seconds: float, dt: float, **settings) -> torch.Tensor:
    """Return how far the boxes of a stack of five are from where they started, (5, 3)."""
    world = pb.World(contact=pb.PGS(**settings))
    world.add_ground(friction=0.8)
    for i in range(5):
        world.add_box(f"box{i}", size=(0.2, 0.2, 0.2), mass=1.0, position=(0, 0, 0.2 * i + 0.1), friction=0.8)
    sim = world.compile(dt=dt, dtype=F64)
    start, steps = sim.initial_state(), round(seconds / dt)
    return (sim.rollout(start, steps, checkpoint=steps).q[-1] - start.q).view(5, 7)[:, :3]


def test_a_stack_of_five_boxes_rests_for_ten_seconds():
    """To rounding with Newton's steps; sweeps alone, as unrolled gradients have them, let it creep by 2 mm a second."""
    assert stack(10.0, 5e-3).abs().max() < 1e-6
    assert stack(10.0, 5e-3, gradient="unrolled").abs().max() < 0.025


@pytest.mark.slow
def test_a_stack_of_five_boxes_rests_at_a_millisecond():
    assert stack(10.0, 1e-3).abs().max() < 1e-6
    assert stack(10.0, 1e-3, gradient="unrolled", warm_start=True).abs().max() < 1e-3
    assert stack(10.0, 1e-3, gradient="unrolled", iterations=200).abs().max() < 1e-3
    assert stack(10.0, 1e-3, gradient="unrolled").abs().max() < 6e-3


# -- joints --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("type", "axis"), [("revolute", (0.0, -1.0, 0.0)), ("prismatic", (0.0, 0.0, 1.0))])
def test_joint_limits_hold(type, axis):
    sim = driven(hinge(type, com=0.3, axis=axis, limits=Limits(-0.5, 0.5)), gravity=(0, 0, -G))
    states = sim.rollout(sim.initial_state(), 2000)
    assert states.q.min() > -0.5 - 1e-7
    assert states.q[-1].item() == pytest.approx(-0.5, abs=1e-7)
    assert states.qd[-1].abs().item() < 1e-9
    # pushed up against the other end, fast
    fast = sim.initial_state()
    fast.qd[0] = 50.0
    assert sim.rollout(fast, 100).q.max() < 0.5 + 1e-6


@pytest.mark.parametrize("torque", [0.3, 0.499, 0.501, 0.8, -0.499, -1.0])
def test_dry_friction_holds_and_slips(torque):
    sim = driven(hinge(friction=0.5))
    end = sim.rollout(sim.initial_state(), constant(torque, 1000))[-1]
    expected = np.sign(torque) * max(abs(torque) - 0.5, 0.0) / 0.1
    assert end.qd.item() == pytest.approx(expected, abs=1e-8)


def test_dry_friction_stops_a_joint():
    sim = driven(hinge(friction=0.5))
    start = sim.initial_state()
    start.qd[0] = 3.0
    states = sim.rollout(start, 700)
    moving = int((states.qd > 1e-8).sum())
    assert moving * 1e-3 == pytest.approx(3.0 * 0.1 / 0.5, abs=2e-3)
    assert states.q[-1].item() == pytest.approx(3.0**2 * 0.1 / (2 * 0.5), rel=5e-3)


def test_damping_decays_at_its_rate():
    errors = []
    for dt in (1e-3, 5e-4):
        sim = driven(hinge(damping=0.4), dt=dt)
        start = sim.initial_state()
        start.qd[0] = 2.0
        errors.append(abs(sim.rollout(start, round(1 / dt))[-1].qd.item() - 2 * exp(-0.4 / 0.1)))
    assert errors[0] < 0.01 * 2 * exp(-4)
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.05)


def test_servos_reach_their_targets():
    position = driven(hinge(), pb.PositionServo(kp=100, kd=6))
    assert position.rollout(position.initial_state(), constant(0.7, 2000))[-1].q.item() == pytest.approx(0.7, abs=1e-9)
    # against gravity: off by the torque over kp
    loaded = driven(hinge(com=0.1), pb.PositionServo(kp=100, kd=6), gravity=(0, 0, -G))
    sag = loaded.rollout(loaded.initial_state(), constant(0.0, 3000))[-1].q.item()
    assert 100 * sag == pytest.approx(2 * G * 0.1 * cos(sag), rel=1e-6)
    velocity = driven(hinge(), pb.VelocityServo(kd=2))
    assert velocity.rollout(velocity.initial_state(), constant(0.7, 1000))[-1].qd.item() == pytest.approx(0.7, abs=1e-7)
    limited = driven(hinge(), pb.PositionServo(kp=1e4, kd=10, limit=0.2))
    assert limited.rollout(limited.initial_state(), constant(100.0, 1000))[-1].qd.item() == pytest.approx(2.0)


# -- robots against robots -----------------------------------------------------------------------------------------


def arm(links: int, shape: str) -> pb.RobotModel:
    """Return a planar arm of links 0.4 m long, standing upright."""
    tree = Tree("arm", [Link("base", 1.0)], [], source="arm")
    for i in range(links):
        place = Pose(np.array([0.0, 0.0, 0.15]))
        form = Shape("capsule", (0.03, 0.3), place) if shape == "capsule" else Shape("box", (0.06, 0.06, 0.36), place)
        inertia = np.diag([0.01, 0.01, 0.001])
        tree.links.append(Link(f"link{i}", 1.0, np.array([0.0, 0.0, 0.15]), inertia, [form]))
        origin = Pose(np.array([0.0, 0.0, 0.4 if i else 0.0]))
        parent, axis = tree.links[i].name, np.array([0.0, 1.0, 0.0])
        tree.joints.append(Joint(f"joint{i}", "continuous", parent, f"link{i}", origin, axis, damping=0.5))
    return pb.RobotModel(compile_tree(tree), dtype=F64)


def deepest(sim: pb.Sim, states: pb.Trajectory, u: torch.Tensor) -> tuple[float, float]:
    """Return the smallest gap and the largest force among the contacts of every tenth state."""
    found = [c for t in range(0, len(states), 10) for c in sim.contacts(states[t], u)[0]]
    return min(c.gap for c in found), max(float(np.linalg.norm(c.force)) for c in found)


@pytest.mark.parametrize("shape", ["capsule", "box"])
def test_an_arm_folded_onto_itself_does_not_pass_through(shape):
    u = torch.tensor([[0.0, 3.0, 3.0, 3.0]], dtype=F64)
    ends = []
    for self_collision in (True, False):
        world = pb.World(gravity=(0, 0, 0))
        world.add(arm(4, shape), self_collision=self_collision, actuators=pb.Torque())
        sim = world.compile(dt=1e-3, dtype=F64)
        states = sim.rollout(sim.initial_state(), u.expand(1000, 1, 4), check=True)
        ends.append(states.q[-1])
        if self_collision:
            gap, force = deepest(sim, states, u)
            assert gap > -2e-4
            assert force > 1.0
    assert (ends[0] - ends[1]).abs().max() > 0.1


@pytest.mark.parametrize("shape", ["capsule", "box"])
def test_arms_pushed_together_hold_each_other(shape):
    world = pb.World(gravity=(0, 0, 0))
    world.add(arm(3, shape), name="left", position=(-0.3, 0, 0), actuators=pb.Torque())
    world.add(arm(3, shape), name="right", position=(0.3, 0, 0), actuators=pb.Torque())
    sim = world.compile(dt=1e-3, dtype=F64)
    u = torch.tensor([[3.0, 1.0, 0.5, -3.0, -1.0, -0.5]], dtype=F64)
    states = sim.rollout(sim.initial_state(), u.expand(2000, 1, 6), check=True)
    gap, _ = deepest(sim, states, u)
    assert gap > -5e-4
    assert sum(c.force[0] for c in sim.contacts(states[-1], u)[0] if c.shapes[0].startswith("left")) < -3.0
    assert states.qd[-1].abs().max() < 1.0


# -- the same whichever way it is computed -------------------------------------------------------------------------


def test_substeps_are_steps():
    world = scattered()
    coarse, fine = world.compile(dt=4e-3, substeps=4, dtype=F64), world.compile(dt=1e-3, dtype=F64)
    a, b = coarse.rollout(coarse.initial_state(), 50), fine.rollout(fine.initial_state(), 200)
    assert torch.equal(a.q, b.q[::4])
    assert torch.equal(a.qd, b.qd[::4])


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_worlds_side_by_side_are_worlds_alone(dtype):
    sim = scattered().compile(dt=2e-3, dtype=dtype)
    start = sim.initial_state(37)
    start.qd[:] = torch.randn(37, sim.nv, generator=torch.Generator().manual_seed(0), dtype=F64)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = sim.rollout(start, 100)
        torch.set_num_threads(2)
        two = sim.rollout(start, 100)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(one.q, two.q)
    assert torch.equal(one.qd, two.qd)
    for world in (0, 17, 36):
        alone = sim.rollout(start[world], 100)
        assert torch.equal(alone.q[:, 0], one.q[:, world])
        state = start[world]
        for _ in range(100):
            state = sim.step(state)
        assert torch.equal(state.q[0], one.q[-1, world])

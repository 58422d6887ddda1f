"""Joints that follow others: against reduced coordinates and MuJoCo, gradients, grippers, what is refused."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Mimic, Pose, Tree

F64 = torch.float64
DT = 1e-3


def tree(*, mimics: bool = True) -> Tree:
    """Return an arm with two fingers: one follows the other, a wrist follows the shoulder it hangs on."""

    def bar(name: str, mass: float) -> Link:
        return Link(name, mass, np.array([0.1, 0.02, 0.03]), mass * np.diag([2e-3, 4e-3, 3e-3]))

    def at(x: float, y: float = 0.0) -> Pose:
        return Pose(np.array([x, y, 0.05]))

    links = [Link("base", 1.0), bar("upper", 2.0), bar("lower", 1.5), bar("hand", 0.7), bar("left", 0.2)]
    links += [bar("right", 0.3)]
    y, x = np.array([0.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0])
    joints = [
        Joint("shoulder", "revolute", "base", "upper", at(0.0), y, limits=Limits(-3.0, 3.0), damping=0.1),
        Joint("elbow", "revolute", "upper", "lower", at(0.4), x, limits=Limits(-3.0, 3.0), friction=0.02),
        Joint("wrist", "revolute", "lower", "hand", at(0.3), y, damping=0.05),
        Joint("finger", "prismatic", "hand", "left", at(0.1, 0.05), y, limits=Limits(-0.1, 0.1), armature=0.1),
        Joint("thumb", "revolute", "hand", "right", at(0.1, -0.05), x, limits=Limits(0.0, 0.0), damping=0.02),
    ]
    if mimics:
        joints[2].mimic, joints[4].mimic = Mimic("shoulder", -0.7, 0.2), Mimic("finger", 3.0, -0.1)
    return Tree("arm", links, joints, source="arm")


def robot(**options) -> pb.RobotModel:
    """Return the arm, in float64."""
    return pb.RobotModel(compile_tree(tree(**options)), dtype=F64)


Q, QD = torch.tensor([0.4, -0.3, 0.05], dtype=F64), torch.tensor([1.0, -2.0, 0.4], dtype=F64)


def arm_world(contact: pb.PGS | pb.Compliant | None = None, **options) -> pb.World:
    """Return the arm in a world, in the middle of its range."""
    world = pb.World(contact=contact or pb.PGS())
    world.add(robot(), name="arm", q=Q, **options)
    return world


def moving(sim: pb.Sim, qd: torch.Tensor = QD) -> pb.State:
    """Return the initial state with velocities (nv,) of the joints that move by themselves."""
    start = sim.initial_state()
    return pb.State(start.q, sim.world.robots["arm"]._velocities(qd)[None], start.impulses)


def error(q: torch.Tensor) -> float:
    """Return how far followers are from where they should be."""
    wrist, thumb = q[..., 2] - (0.2 - 0.7 * q[..., 0]), q[..., 4] - (3.0 * q[..., 3] - 0.1)
    return float(torch.stack([wrist, thumb]).abs().max())


# -- motion ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cfm", [1e-6, 1e-9])
def test_a_step_is_one_of_reduced_coordinates(cfm):
    """The arm has nq 3, its world all 5: accelerations agree to the softness of the rows."""
    world = arm_world(pb.PGS(cfm=cfm, tolerance=1e-14))
    sim = world.compile(dt=DT, dtype=F64, without=["friction"], damping="explicit")
    assert (sim.world.robots["arm"].nq, sim.nq, sim.nu) == (3, 5, 3)
    assert sim.arrays.actuator_names == ["arm/shoulder", "arm/elbow", "arm/finger"]
    state, u = moving(sim), torch.tensor([[3.0, -1.0, 5.0]], dtype=F64)
    found = (sim.step(state, u).qd - state.qd)[0] / DT
    qdd = robot().compute_forward_dynamics(Q, QD, u[0], use_damping=True)
    expected = robot()._velocities(qdd)
    assert float((found - expected).abs().max()) < cfm * float(expected.abs().max()) / DT / 30
    assert float(expected.abs().max()) > 10.0


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_followers_follow_and_limits_are_the_leaders(dtype):
    world = pb.World()
    world.add(robot().to(dtype), name="arm", q=Q.to(dtype))
    sim = world.compile(dt=DT, dtype=dtype, without=["friction"])
    assert sim.arrays.limit_dof.tolist() == [0, 1, 3]
    u = torch.tensor([2.0, 1.0, 40.0], dtype=dtype).expand(1000, 1, 3)
    states = sim.rollout(sim.initial_state(), u, check=True)
    assert dtype == torch.float32 or int(states.status.unconverged) == 0
    assert states.q[:, 0, 3].max() > 0.0999
    # beyond the thumb's own limits, which its leader's replace
    assert states.q[:, 0, 4].max() > 0.19
    assert error(states.q) < (1e-7 if dtype == F64 else 1e-5)


def test_energy_is_that_of_reduced_coordinates():
    """Without damping it strays by the first order of the step."""
    strays = []
    for steps in (500, 1000):
        plain = tree()
        for joint in plain.joints:
            joint.damping = joint.friction = 0.0
        world = pb.World()
        world.add(pb.RobotModel(compile_tree(plain), dtype=F64), name="arm", q=Q, actuators={})
        sim = world.compile(dt=0.5 / steps, dtype=F64, without=["limits"])
        states = sim.rollout(moving(sim), steps)
        kinetic, potential = sim.energies(pb.State(states.q[:, 0], states.qd[:, 0]))
        total = kinetic + potential
        strays.append(float((total - total[0]).abs().max()))
    assert strays[1] < 0.05
    assert 1.7 < strays[0] / strays[1] < 2.3


def test_a_start_beside_the_coupling_returns_to_it():
    sim = arm_world().compile(dt=DT, dtype=F64)
    state = sim.initial_state()
    state.q[0, 4] += 0.01
    states = sim.rollout(state, 30)
    assert error(states.q[0]) == pytest.approx(0.01)
    assert error(states.q[-1]) < 1e-7


def test_gears_between_two_robots_turn_together():
    world = pb.World(gravity=(0, 0, 0))
    for name in ("a", "b"):
        world.add(robot(mimics=False), name=name, actuators={}, position=(0, 2 if name == "a" else 0, 0))
    world.couple("b/elbow", "a/elbow", multiplier=-2.0)
    sim = world.compile(dt=DT, dtype=F64, without=["friction"])
    state = sim.initial_state()
    state.qd[0, 1] = 0.5
    states = sim.rollout(state, 400, check=True)
    q = states.q[:, 0]
    assert float(q[-1, 1]) > 0.03
    torch.testing.assert_close(q[:, 6], -2.0 * q[:, 1], rtol=0.0, atol=1e-8)


MJCF = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="1e-4" solver="Newton" iterations="100" tolerance="1e-14"><flag contact="disable"/></option>
  <worldbody>
    <body name="upper" pos="0 0 1">
      <joint name="shoulder" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03"/>
      <body name="left" pos="0.4 0 0">
        <joint name="left" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.2 0.1 0" size="0.02"/></body>
      <body name="right" pos="0.4 0 0">
        <joint name="right" axis="1 0 0"/><geom type="capsule" fromto="0 0 0 0.2 -0.1 0" size="0.02"/></body>
    </body>
  </worldbody>
  <equality>{}</equality>
</mujoco>
"""
EQUALITY = (
    '<joint joint1="right" joint2="left" polycoef="0 -1.5 0 0 0" solref="2e-4 5" solimp="0.999 0.9999 0.001 0.5 2"/>'
)


def test_a_coupling_moves_as_mujocos_joint_equality(tmp_path):
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "arm.xml"
    path.write_text(MJCF.format(""))
    world = pb.World()
    world.add(pb.load(path, dtype=F64), name="arm", actuators={}, collision_links=[])
    world.couple("arm/right", "arm/left", multiplier=-1.5)
    sim = world.compile(dt=1e-4, dtype=F64)
    start = torch.tensor([[0.0, 2.0, -3.0]], dtype=F64)
    states = sim.rollout(pb.State(sim.initial_state().q, start), 5000, checkpoint=5000)
    model = mujoco.MjModel.from_xml_string(MJCF.format(EQUALITY))
    data = mujoco.MjData(model)
    data.qvel[:] = start[0]
    mujoco.mj_step(model, data, 5000)
    assert np.abs(data.qpos).min() > 0.1
    np.testing.assert_allclose(states.q[-1, 0].numpy(), data.qpos, atol=2e-4)


# -- gradients -------------------------------------------------------------------------------------------------------

SOLVERS = {
    "sweeps": pb.PGS(tolerance=1e-13),
    "few sweeps, unrolled": pb.PGS(gradient="unrolled", iterations=5, tolerance=0.0),
    "warm start": pb.PGS(warm_start=True, tolerance=1e-13),
    "sides of kinks": pb.PGS(kinks="downhill", tolerance=1e-13),
    "exact": pb.Exact(),
    "compliant": pb.Compliant(stiffness=1e4, onset=1e-3),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_gradients_agree_with_central_differences(name):
    """By state, controls, a mass, multiplier and offset, over 20 steps that end at a limit, with dry friction."""
    generator = torch.Generator().manual_seed(2)
    values = {
        "mass": torch.tensor(0.3, dtype=F64),
        "multiplier": torch.tensor(3.0, dtype=F64),
        "offset": torch.tensor(-0.1, dtype=F64),
        "q": torch.tensor([0.4, -0.3, -0.08, 0.095, 0.185], dtype=F64),
        "qd": torch.randn(5, generator=generator, dtype=F64),
        "u": 3.0 * torch.randn(20, 4, generator=generator, dtype=F64),
    }
    values["u"][:, 2] += 20.0

    def build(x: dict[str, torch.Tensor]) -> pb.Sim:
        plain = tree()
        plain.joints[4].mimic = None
        plain.joints[4].limits = Limits()
        world = pb.World(contact=SOLVERS[name])
        arm = pb.RobotModel(compile_tree(plain), dtype=F64)
        world.add(arm, name="arm", q=torch.tensor([0.4, -0.3, 0.095, 0.185], dtype=F64))
        world.couple("arm/thumb", "arm/finger", multiplier=x["multiplier"], offset=x["offset"])
        world.robots["arm"].set_link_param("right", "mass", x["mass"])
        return world.compile(dt=DT, dtype=F64)

    def loss(x: dict[str, torch.Tensor]) -> torch.Tensor:
        sim = build(x)
        impulses = sim.initial_state().impulses
        end = sim.rollout(pb.State(x["q"][None], x["qd"][None], impulses), x["u"][:, None])[-1]
        weights = torch.tensor([0.3, -1.0, 0.7, 2.0, 0.4], dtype=F64)
        return (end.q @ weights).sum() + 0.1 * (end.qd @ weights.flip(0)).sum()

    leaves = {key: value.clone().requires_grad_() for key, value in values.items()}
    found = torch.autograd.grad(loss(leaves), list(leaves.values()))
    for key, gradient in zip(values, found):
        d = torch.randn(values[key].shape, generator=generator, dtype=F64)
        given, errors = float((gradient * d).sum()), []
        with torch.no_grad():
            for h in (1e-5, 1e-6):
                up, down = (loss(values | {key: values[key] + s * h * d}) for s in (1.0, -1.0))
                errors.append(abs(float((up - down) / (2 * h)) - given))
        assert min(errors) < 1e-6 * max(1.0, abs(given)), key
        assert abs(given) > 1e-5, key


def test_linearize_is_the_gradient_of_a_step():
    sim = arm_world().compile(dt=DT, dtype=F64)
    u = torch.tensor([3.0, -1.0, 60.0], dtype=F64).expand(60, 1, 3)
    states = sim.rollout(moving(sim), u)
    maps = sim.linearize(states, u)
    for t in (1, 59):
        x = torch.cat([states.q[t, 0], states.qd[t, 0], u[t, 0]])

        def after(x: torch.Tensor) -> torch.Tensor:
            end = sim.step(pb.State(x[None, :5], x[None, 5:10]), x[None, 10:])
            return torch.cat([end.q[0], end.qd[0]])

        expected = torch.autograd.functional.jacobian(after, x)
        found = torch.cat([maps.A[t, 0], maps.B[t, 0]], -1)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_multipliers_that_differ_between_worlds():
    ratio = torch.tensor([1.0, 2.0, -1.0], dtype=F64, requires_grad=True)
    world = pb.World(gravity=(0, 0, 0))
    world.add(robot(mimics=False), name="arm", actuators={})
    world.couple("arm/wrist", "arm/shoulder", multiplier=ratio, offset=0.0)
    sim = world.compile(dt=DT, dtype=F64)
    state = sim.initial_state(3)
    state.qd[:, 0] = 1.0
    q = sim.rollout(state, 50).q[-1]
    torch.testing.assert_close(q[:, 2], ratio * q[:, 0], rtol=0.0, atol=1e-8)
    (gradient,) = torch.autograd.grad(q[1, 2], ratio)
    assert gradient[1] != 0.0
    assert gradient[0] == gradient[2] == 0.0


# -- files -----------------------------------------------------------------------------------------------------------


def installed(package: str, file: str) -> Path:
    """Return a file of an installed package."""
    try:
        path = Path(str(distribution(package).locate_file(file)))
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    return path


ROBOTS = "cmeel.prefix/share/example-robot-data/robots"
GRIPPERS = {
    "panda of example-robot-data": ("example-robot-data", f"{ROBOTS}/panda_description/urdf/panda.urdf"),
    "talos": ("example-robot-data", f"{ROBOTS}/talos_data/robots/talos_full_v2.urdf"),
    "pr2": ("example-robot-data", f"{ROBOTS}/pr2_description/urdf/pr2.urdf"),
    "baxter": ("example-robot-data", f"{ROBOTS}/baxter_description/urdf/baxter.urdf"),
    "tiago_pro": ("example-robot-data", f"{ROBOTS}/tiago_pro_description/robots/tiago_pro.urdf"),
    "panda of pybullet": ("pybullet", "pybullet_data/franka_panda/panda.urdf"),
    "xarm6": ("pybullet", "pybullet_data/xarm/xarm6_with_gripper.urdf"),
}


@pytest.mark.parametrize("name", GRIPPERS)
@pytest.mark.filterwarnings("ignore")
def test_grippers_of_files_move_as_described(name):
    """Leaders are pushed into their range for 0.2 s; followers follow, and a gradient comes back."""
    arm = pb.load(installed(*GRIPPERS[name]), dtype=F64, repair=True)
    model = arm.model
    mimics = {b.joint.name: b.joint.mimic for b in model.bodies if b.joint.mimic is not None}
    assert mimics
    leaders = sorted({mimic.joint for mimic in mimics.values()})
    world = pb.World(gravity=(0, 0, 0))
    world.add(arm, name="arm", collision_links=[], actuators={joint: pb.Torque() for joint in leaders})
    # TALOS's gripper has 7 joints, each with 1 N·m of it
    sim = world.compile(dt=DT, dtype=F64, without=["friction"])
    ends = {b.joint.name: b.joint.limits for b in model.bodies}
    inward = [1.0 if ends[joint].upper > -ends[joint].lower else -1.0 for joint in leaders]
    inward = torch.tensor([inward[leaders.index(name.split("/")[1])] for name in sim.arrays.actuator_names], dtype=F64)
    push = torch.zeros(200, 1, sim.nu, dtype=F64, requires_grad=True)
    states = sim.rollout(sim.initial_state(), push + inward, check=True)
    assert int(states.status.unconverged) == 0
    starts = {b.joint.name: b.q_start for b in model.bodies}
    for joint, mimic in mimics.items():
        leader, follower = (states.q[:, 0, starts[k]] for k in (mimic.joint, joint))
        assert leader.max() - leader.min() > 1e-4, joint
        torch.testing.assert_close(follower, mimic.multiplier * leader + mimic.offset, rtol=0.0, atol=1e-6)
    (gradient,) = torch.autograd.grad(states.q[-1, 0, starts[leaders[0]]], push)
    assert gradient.isfinite().all()


# -- what is refused -------------------------------------------------------------------------------------------------


def test_what_cannot_be_coupled():
    world = arm_world()
    with pytest.raises(pb.PullbackError, match="no joint with one degree of freedom named 'arm/elbo'; did you mean"):
        world.couple("arm/elbo", "arm/shoulder")
    with pytest.raises(pb.PullbackError, match="a joint cannot follow itself"):
        world.couple("arm/elbow", "arm/elbow")
    with pytest.raises(pb.PullbackError, match="give the offset too"):
        world.couple("arm/elbow", "arm/shoulder", multiplier=torch.ones(()))
    world.couple("arm/elbow", "arm/shoulder", offset=0.3)
    with pytest.raises(pb.PullbackError, match=r"the follower starts at -0\.3, and 1 times the leader plus 0\.3"):
        world.compile(dt=DT)


def test_coordinates_of_followers():
    world = pb.World()
    with pytest.raises(pb.PullbackError, match="'thumb' of 'arm': it follows 'finger'; give that joint's q"):
        world.add(robot(), name="arm", q={"thumb": 0.1})
    with pytest.raises(pb.PullbackError, match=r"expected \(3,\), or \(5,\) with its mimic joints"):
        world.add(robot(), name="arm", q=torch.zeros(4))
    world.add(robot(), name="by name", q={"finger": 0.05})
    world.add(robot(), name="all", q=torch.tensor([0.0, 0.0, 0.2, 0.05, 0.05], dtype=F64))
    by_name, everything = world.initial_q(dtype=F64).view(2, 5)
    torch.testing.assert_close(by_name, everything)


def test_coordinates_of_a_world_and_of_a_robot_are_told_apart():
    arm, sim = robot(), arm_world().compile(dt=DT, dtype=F64)
    q, qd = sim.initial_state().q, sim.initial_state().qd
    own = arm.model.independent_coordinates(), arm.model.independent_velocities()
    torch.testing.assert_close(q[:, own[0]], Q[None])
    text = r"q has shape \(1, 5\); arm expects \(\*batch, 3\): without its mimic joints \(wrist, thumb\).*"
    with pytest.raises(pb.PullbackError, match=text + r"pass q\[\.\.\., robot\.model\.independent_coordinates\(\)\]"):
        arm.compute_center_of_mass(q)
    with pytest.raises(pb.PullbackError, match=r"pass qd\[\.\.\., robot\.model\.independent_velocities\(\)\]"):
        arm.compute_kinetic_energy(Q[None], qd)
    assert arm.compute_kinetic_energy(q[:, own[0]], qd[:, own[1]]).item() == 0.0
    # forces of mimic joints act on their leaders: leaving them out would be wrong
    with pytest.raises(pb.PullbackError, match=r"f has shape \(5,\); arm expects \(\*batch, 3\)$"):
        arm.compute_forward_dynamics(Q, QD, torch.zeros(5, dtype=F64))
    with pytest.raises(pb.PullbackError, match=r"expects \(\*batch, 3\)$"):
        arm.compute_center_of_mass(q[:, :4])
    with pytest.raises(pb.PullbackError, match=r"hold the mimic joints too \(arm/wrist, arm/thumb\)"):
        sim.step(pb.State(Q[None], QD[None]))
    with pytest.raises(pb.PullbackError, match=r"as sim\.initial_state\(batch=B\) gives$"):
        sim.step(pb.State(q[:, :4], qd))


def test_followers_are_driven_where_they_are_named():
    world = arm_world(actuators={"thumb": pb.Torque(), "finger": pb.Torque()})
    assert world.actuator_names == ["arm/finger", "arm/thumb"]
    assert world.compile(dt=DT, dtype=F64).arrays.drives.dof.tolist() == [3, 4]


def test_smooth_integrators_refuse_couplings():
    with pytest.raises(pb.PullbackError, match="the world has 2 joints that follow others"):
        arm_world().compile(dt=DT, integrator="rk4", without=["limits", "friction"])

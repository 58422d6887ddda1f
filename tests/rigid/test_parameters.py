"""The rows of a world: what they hold, their gradients, and what is remembered between calls."""

from math import inf

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.tree import Shape
from pullback.rigid.compile.compile import compile_world
from pullback.rigid.compile.parameters import Rows
from pullback.rigid.world.actuators import PositionServo, Torque, VelocityServo
from pullback.rigid.world.world import World
from tests.rigid.worlds import F64, TOES, load, parameters, toes_on_ground
from tests.robot.synthetic import synthetic_robot

# a sum of products in another order
ROUNDING = 1e-12


# -- rows ---------------------------------------------------------------------------------------------------------


def test_rows_of_a_robot_are_its_own():
    robot = synthetic_robot()
    world = World()
    world.add(robot)
    rows = parameters(world)()
    kinematics = robot.kinematics({})
    dofs = robot.dofs({}, damping=True, friction=True).reshape(-1, 3)
    torch.testing.assert_close(rows.placements, kinematics.placements, rtol=0, atol=0)
    torch.testing.assert_close(rows.inertias, robot.inertias(kinematics, {}), rtol=0, atol=0)
    torch.testing.assert_close(rows.friction[0], dofs[:, 2], rtol=0, atol=0)
    torch.testing.assert_close(rows.dofs.reshape(-1, 3)[:, :2], dofs[:, :2], rtol=0, atol=0)
    assert not rows.dofs[:, 2::3].any()


def test_a_fixed_robot_stands_where_it_was_put():
    robot = synthetic_robot(base="fixed")
    place, turn = (0.3, -0.2, 0.5), torch.tensor([0.1, 0.7, -0.3, 0.6], dtype=F64)
    robot.model.links[robot.link_number("sensor")].shapes.append(Shape("box", (0.1, 0.2, 0.3)))
    robot.model.links[robot.link_number("ball_tip")].shapes.append(Shape("sphere", (0.1,)))
    world = World()
    world.add(robot, position=place, orientation=turn.tolist())
    rows = parameters(world)()
    q, links = robot.random_q(1), tuple(range(len(robot.model.links)))
    frames = robot.kinematics({}).frames(list(links))
    moved = robot._programs.poses(links)(q, rows.placements, frames).reshape(-1, 7)
    poses = robot.compute_forward_kinematics_all_links(q[0])
    R = torch.from_numpy(world.items[0].rotation)
    for number, (position, _) in enumerate(poses.values()):
        if robot.model.link_body[number] >= 0:
            torch.testing.assert_close(moved[number, :3], R @ position + torch.tensor(place, dtype=F64))
    # the sensor is fixed to the world, the tip to a body
    box, sphere = sorted(rows.shapes.reshape(-1, 16), key=lambda row: -float(row[0]))
    position, _ = poses["sensor"]
    torch.testing.assert_close(box[13:], R @ position + torch.tensor(place, dtype=F64))
    torch.testing.assert_close(box[4:13].reshape(3, 3), R @ robot.kinematics({}).R_BL[0, robot.link_number("sensor")])
    torch.testing.assert_close(sphere[13:], robot.kinematics({}).p_BL[0, robot.link_number("ball_tip")])


def test_rows_of_shapes():
    world = World()
    world.add_box("box", size=(0.2, 0.4, 0.6), mass=1)
    world.add_sphere("sphere", radius=0.3, mass=1)
    world.add_capsule("capsule", radius=0.1, length=0.5, mass=1)
    world.add_plane("wall", position=(1, 2, 3), orientation=(0, 1, 0, 1))
    rows = parameters(world)().shapes.reshape(4, 16)
    assert rows[:, :4].tolist() == [[0.1, 0.2, 0.3, 0], [0, 0, 0, 0.3], [0, 0, 0.25, 0.1], [0, 0, 0, 0]]
    torch.testing.assert_close(
        rows[3, 4:].reshape(4, 3), torch.tensor([[0, 0, 1], [0, 1, 0], [-1, 0, 0], [1, 2, 3]]).to(F64)
    )
    torch.testing.assert_close(rows[0, 4:13].reshape(3, 3), torch.eye(3, dtype=F64))


def test_a_turned_shape_on_a_turned_link():
    robot = synthetic_robot()
    tip = robot.link_number("ball_tip")
    robot.model.links[tip].shapes.append(Shape("box", (0.1, 0.2, 0.3)))
    world = World()
    world.add(robot, name="robot")
    world.set_shape("robot", position=(0.1, 0.2, 0.3), orientation=(1, 0, 0, 1))
    row = parameters(world)().shapes[0]
    R_BL, p_BL = robot.kinematics({}).R_BL[0, tip], robot.kinematics({}).p_BL[0, tip]
    R_LS = torch.tensor([[1, 0, 0], [0, 0, -1], [0, 1, 0]], dtype=F64)
    torch.testing.assert_close(row[4:13].reshape(3, 3), R_BL @ R_LS)
    torch.testing.assert_close(row[13:], p_BL + R_BL @ torch.tensor([0.1, 0.2, 0.3], dtype=F64))


def test_friction_of_pairs():
    world = World()
    world.add_ground(friction=0.8)
    world.add_sphere("rough", radius=0.1, mass=1, friction=0.4, restitution=0.5)
    world.add_sphere("silent", radius=0.1, mass=1)
    world.add_sphere("ice", radius=0.1, mass=1, friction=0.0)
    world.add_sphere("mute", radius=0.1, mass=1)
    arrays = compile_world(world)
    rows = parameters(world)().pairs.reshape(-1, 2).tolist()
    names = arrays.shape_names
    found = {frozenset((names[a], names[b])): row for a, b, row in zip(arrays.pair_a, arrays.pair_b, rows)}
    assert found[frozenset(("ground", "rough"))] == pytest.approx([2 * 0.8 * 0.4 / 1.2, 0.5])
    assert found[frozenset(("ground", "silent"))] == pytest.approx([0.8, 0.0])
    assert found[frozenset(("rough", "silent"))] == pytest.approx([0.4, 0.5])
    assert found[frozenset(("ground", "ice"))] == [0.0, 0.0]
    assert found[frozenset(("silent", "mute"))] == [1.0, 0.0]


def test_the_description_gives_friction_unless_the_world_does():
    assert parameters(toes_on_ground())().pairs[0, ::2].tolist() == pytest.approx([2 * 0.8 / 1.8] * 4)
    assert parameters(toes_on_ground(friction=0.8))().pairs[0, ::2].tolist() == pytest.approx([0.8] * 4)


def test_rows_of_actuators():
    world = World()
    servo = PositionServo(kp=torch.tensor([[1.0, 2.0]], dtype=F64), kd=0.5, limit=3.0)
    joints = {
        "panda_joint4": servo,
        "panda_joint2": VelocityServo(4.0),
        "panda_joint1": servo,
        "panda_joint7": Torque(2.0),
    }
    world.add(load("panda"), actuators=joints, collision_links=[])
    world.add(load("ant"), collision_links=[])
    numbers = parameters(world)().actuators.reshape(-1, 10)
    assert numbers[:, [3, 8, 9]].tolist() == [[0, 0, 0]] * 12
    assert numbers[:, 6:8].tolist() == [[-inf, inf]] * 12
    assert (numbers[:, 4] == -numbers[:, 5]).all()
    rows = numbers[:, [0, 1, 2, 5]].tolist()
    assert rows[:4] == [[1, 1, 0.5, 3], [4, 0, 4, 87], [2, 2, 0.5, 3], [2, 0, 0, 12]]
    assert rows[4:] == [[150, 0, 0, 150]] * 8
    assert world.actuator_names[:4] == [f"panda/panda_joint{k}" for k in (1, 2, 4, 7)]
    world = World()
    world.add(load("panda"), actuators={}, collision_links=[])
    assert parameters(world)().actuators.shape == (1, 0)


def test_actuators_keep_the_order_of_the_joints():
    servos = [VelocityServo(float(k)) for k in range(3)]
    order = (0, 1, 2, 1, 0, 2, 0)
    world = World()
    world.add(
        load("panda"), actuators={f"panda_joint{k}": servos[n] for k, n in enumerate(order, 1)}, collision_links=[]
    )
    assert parameters(world)().actuators[0, ::10].tolist() == list(order)


def test_rows_of_limits():
    world = World()
    world.add(load("ant"), collision_links=[])
    limits = parameters(world)().limits.reshape(-1, 2)
    assert limits[:6].tolist() == [[-np.inf, np.inf]] * 6
    assert limits[6:].isfinite().all()


def test_a_robot_of_another_type_keeps_the_precision_of_its_description():
    world, precise = World(), World()
    world.add(pb.load("panda", dtype=torch.float32), collision_links=[])
    precise.add(load("panda"), collision_links=[])
    torch.testing.assert_close(parameters(world)().inertias, parameters(precise)().inertias, rtol=0, atol=0)
    assert parameters(world, torch.float32).packed().dtype == torch.float32


def test_inertia_of_free_bodies():
    mujoco = pytest.importorskip("mujoco")
    world = World()
    world.add_box("box", size=(0.2, 0.4, 0.6), mass=1.5)
    world.add_sphere("sphere", radius=0.3, mass=2.5)
    world.add_capsule("capsule", radius=0.1, length=0.5, mass=3.5)
    geoms = ('box" size="0.1 0.2 0.3" mass="1.5', 'sphere" size="0.3" mass="2.5', 'capsule" size="0.1 0.25" mass="3.5')
    bodies = "".join(f'<body><freejoint/><geom type="{geom}"/></body>' for geom in geoms)
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")
    for body, row in enumerate(parameters(world)().inertias.reshape(-1, 10), 1):
        # MuJoCo sorts the moments
        moments = sorted(row[[4, 7, 9]].tolist())
        assert moments == pytest.approx(sorted(model.body_inertia[body]), rel=ROUNDING)
        assert float(row[0]) == model.body_mass[body]


# -- gradients and batches ----------------------------------------------------------------------------------------


def test_rows_are_differentiable_in_everything():
    def rows_of(gravity, mu, bounce, radius, position, orientation, kp, kd, limit, trans):
        world = World(gravity=gravity)
        robot = load("laikago", "floating")
        robot.learned[robot._key("toeFR", "trans")] = Constant(trans)
        world.add(robot, name="dog", collision_links=TOES, actuators=PositionServo(kp, kd, limit, (-9, 9)))
        world.add_ground(friction=mu)
        world.set_shape("dog", restitution=bounce)
        world.set_shape("dog/toeFL/0", size=radius, position=position, orientation=orientation)
        return tuple(x for x in parameters(world)() if x.requires_grad)

    generator = torch.Generator().manual_seed(0)
    shapes = ((3,), (), (2,), (2, 1), (3,), (2, 4), (1, 12), (2, 12), (), (2, 3))
    inputs = [(torch.rand(s, dtype=F64, generator=generator) + 0.1).mul(0.9).requires_grad_() for s in shapes]
    assert torch.autograd.gradcheck(rows_of, inputs)


class Constant(torch.nn.Module):
    """A tensor in the place of a parameter."""

    def __init__(self, value: torch.Tensor) -> None:
        super().__init__()
        self.held = [value]

    def forward(self) -> torch.Tensor:
        return self.held[0]


def test_learnable_masses_get_gradients():
    world = World()
    world.add(load("laikago", "floating"), name="dog", collision_links=TOES)
    world.add_box("crate", size=(1, 1, 1), mass=2)
    world.robots["crate"].to(F64)
    world.robots["crate"].make_link_param_learnable("crate", "mass", pb.PositiveScalar())
    call = parameters(world)
    packed = call.packed()
    packed.sum().backward()
    (raw,) = world.robots["crate"].parameters()
    assert raw.grad is not None
    assert raw.grad.abs() > 0
    assert call.packed() is not packed
    with torch.no_grad():
        raw += 0.1
        assert call().inertias[0, -10] > 2.0


def test_rows_under_transforms():
    world = toes_on_ground(friction=0.5)
    call = parameters(world)

    def total(mu):
        world.set_shape("ground", friction=mu)
        return call.packed()[0].isfinite().logical_not().sum() + call().pairs.sum()

    mu = torch.tensor([0.3, 0.4], dtype=F64)
    mapped = torch.func.vmap(torch.func.grad(total))(mu)
    # d/db of 2ab / (a + b), for four toes
    torch.testing.assert_close(mapped, 4 * 2 * 0.5**2 / (0.5 + mu) ** 2)


def test_values_for_each_world():
    world = toes_on_ground(friction=torch.linspace(0.1, 0.5, 5, dtype=F64))
    world.robots["dog"].set_link_param("chassis", "mass", torch.linspace(10, 14, 5))
    world.gravity = torch.randn(5, 3, dtype=F64)
    call = parameters(world)
    rows = call()
    assert [x.shape[0] for x in rows] == [5, 1, 5, 1, 1, 1, 1, 1, 5, 1, 1, 1, 1, 1]
    assert call.packed().shape == (5, sum(x.shape[1] for x in rows))
    torch.testing.assert_close(call.packed(), torch.cat([x.expand(5, -1) for x in rows], 1))
    world.gravity = torch.randn(4, 3, dtype=F64)
    with pytest.raises(pb.PullbackError, match=r"different batches: \[4, 5\]"):
        call()


# -- what is remembered -------------------------------------------------------------------------------------------


def test_constant_rows_are_made_once():
    call = parameters(toes_on_ground())
    with torch.inference_mode():
        rows, packed = call(), call.packed()
    assert call() is rows
    assert call.packed() is packed
    assert not packed.is_inference()


def test_changes_in_place_are_seen():
    mu = torch.tensor(0.3, dtype=F64)
    world = toes_on_ground(friction=mu)
    call = parameters(world)
    before = call()
    assert call() is before
    mu.fill_(0.8)
    after = call()
    assert after.pairs[0, 0] == pytest.approx(0.8)
    assert after.shapes is before.shapes
    mu.requires_grad_()
    assert call().pairs.requires_grad


def test_replaced_values_are_seen():
    world = toes_on_ground()
    call = parameters(world)
    before = call()
    world.set_shape("dog/toeFL", size=(0.05,))
    world.gravity = (0, 0, -1.62)
    after = call()
    assert (after.shapes != before.shapes).sum() == 1
    assert after.gravity.tolist() == [[0, 0, -1.62]]
    world.robots["dog"].set_link_param("chassis", "mass", 20.0)
    assert call().inertias[0, 0] > before.inertias[0, 0]
    world.set_actuators("dog", PositionServo(kp=10.0))
    assert call().actuators.reshape(-1, 10)[0, :6].tolist() == [10, 10, 0, 0, -100, 100]


def test_values_that_are_set_are_remembered_until_they_change():
    world = World()
    dog = load("laikago", base="floating")
    world.add(dog, name="dog", collision_links=TOES)
    dog.set_link_param("chassis", "mass", 20.0)
    rows = parameters(world)
    first = rows.packed()
    assert rows.packed() is first
    (given,) = dog.learned.values()
    # in place, by another tensor, by another value
    given.value.mul_(2.0)
    assert float(rows().inertias[0, 0]) == 40.0
    given.value = torch.tensor(30.0, dtype=F64)
    assert float(rows().inertias[0, 0]) == 30.0
    dog.set_link_param("chassis", "mass", 25.0)
    assert float(rows().inertias[0, 0]) == 25.0
    # by something that learns, which is looked at each time
    dog.make_link_param_learnable("chassis", "mass", pb.PositiveScalar())
    assert rows().inertias.requires_grad


def test_a_row_has_its_place_in_the_packed_tensor():
    call = parameters(toes_on_ground())
    rows = call()
    assert torch.equal(call.packed(), torch.cat(rows, 1))
    assert Rows._fields[0] == "gravity"

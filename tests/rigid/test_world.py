"""Worlds as a user describes them: names, where things start, and what is refused."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Shape, Tree
from pullback.rigid.compile.compile import compile_world
from pullback.rigid.compile.scene import HULL, PLANE
from pullback.rigid.solvers.pgs import PGS
from pullback.rigid.world.actuators import PositionServo, Torque
from pullback.rigid.world.world import World
from tests.rigid.worlds import F64, TOES, chain, load, parameters, toes_on_ground

# -- where things start -------------------------------------------------------------------------------------------


def test_initial_coordinates():
    world = World()
    world.add(load("panda"), q={"panda_joint2": 0.5}, collision_links=[])
    world.add_box("crate", size=(1, 1, 1), mass=1, position=(1, 2, 3), orientation=(0, 0, 2, 0))
    world.add_ground()
    world.add(load("laikago", "floating"), q=torch.arange(19.0, dtype=F64), collision_links=TOES)
    q = world.initial_q(dtype=F64)
    assert q.tolist() == [0, 0.5, 0, 0, 0, 0, 0, 1, 2, 3, 0, 0, 1, 0, *range(19)]


def test_names():
    world = World()
    robot = load("laikago", "floating")
    assert [world.add(robot), world.add(robot), world.add(robot, name="dog")] == ["laikago", "laikago_2", "dog"]
    assert "dog/FL_lower_leg/0" in world.shape_names


# -- what is refused ----------------------------------------------------------------------------------------------


def refuse(match: str, call, *args, **options) -> None:
    with pytest.raises(pb.PullbackError, match=match):
        call(*args, **options)


def test_bad_solvers():
    refuse("tolerance", pb.Compliant, tolerance=0.0)
    refuse("chooses between solutions", pb.PGS, kinks="downhill", tolerance=0.0)
    refuse("iterations is 0; give a whole number from 1 on", PGS, iterations=0)
    refuse("friction is 'box'; choose 'cone' or 'pyramid'", PGS, friction="box")
    refuse("gradient is 'tape'; choose 'implicit' or 'unrolled'", PGS, gradient="tape")
    refuse("margin is -1; it cannot be negative", PGS, margin=-1)
    refuse("erp is 2; give at most 1", PGS, erp=2)


def test_bad_compile_options():
    world = toes_on_ground()
    refuse("dt is 0; give more than 0", world.compile, dt=0.0)
    refuse("dt is not finite", world.compile, dt=float("nan"))
    refuse("substeps is 0; give a whole number from 1 on", world.compile, dt=1e-3, substeps=0)
    refuse("max_contacts is 1.5; give a whole number from 0 on", world.compile, dt=1e-3, max_contacts=1.5)
    refuse("dtype is torch.float16; a world computes in torch.float32", world.compile, dt=1e-3, dtype=torch.float16)


def test_worlds_without_bodies():
    world = World()
    refuse("a world without bodies", compile_world, world)
    world.add_ground()
    world.add_box("wall", size=(1, 1, 1), static=True)
    refuse("a world without bodies: nothing in it can move; add a robot or a free body", compile_world, world)


def test_massless_links():
    world = World()
    world.add(chain(mass=(1.0, 1.0, 0.0)))
    refuse("'chain': the joints 'to_c' move links without mass; give the links mass", compile_world, world)


def test_meshes_without_a_file_and_planes_that_move(tmp_path):
    shapes = [Shape("mesh", (1.0, 1.0, 1.0), mesh=tmp_path / "gone.stl"), Shape("cylinder", (0.1, 0.2))]
    robot = pb.RobotModel(compile_tree(Tree("cup", [Link("cup", 1, inertia=np.eye(3), shapes=shapes)], []), "floating"))
    world = World()
    world.add(robot, name="cup")
    compile_world(world)
    world.add_ground()
    refuse(
        r"shape 'cup/cup/0' is the mesh .*gone.stl, which is not there, and 'ground' may touch", compile_world, world
    )
    world = World()
    world.add(robot, name="cup", missing_meshes="ignore")
    world.add_ground()
    assert compile_world(world).shape_kind.tolist() == [int(HULL), int(PLANE)]
    refuse("missing_meshes is 'skip'", world.add, load("panda"), missing_meshes="skip")
    moving = pb.RobotModel(
        compile_tree(Tree("tray", [Link("tray", 1, inertia=np.eye(3), shapes=[Shape("plane", ())])], []), "floating")
    )
    world.add(moving)
    refuse("shape 'tray/tray/0' is a plane on a moving link; fix planes to the world", compile_world, world)


def test_bad_things():
    world = toes_on_ground()
    refuse("the world has a 'ground' already", world.add_ground)
    refuse("'a/b' cannot be a name", world.add_sphere, "a/b", radius=1, mass=1)
    refuse("add takes a robot, got a str", world.add, "panda")
    refuse(r"size of 'x' is -1; give more than 0", world.add_box, "x", size=(1, 1, -1), mass=1)
    refuse(r"size of 'x' has shape \(2,\); expected \(3,\)", world.add_box, "x", size=(1, 1), mass=1)
    refuse("'x' has no mass; give mass=..., or static=True", world.add_sphere, "x", radius=1)
    refuse("'x' is static and has a mass", world.add_sphere, "x", radius=1, mass=1, static=True)
    refuse("mass of 'x' is 0; give more than 0", world.add_sphere, "x", radius=1, mass=0)
    refuse("friction of 'x' is -0.5; it cannot be negative", world.add_sphere, "x", radius=1, mass=1, friction=-0.5)
    refuse("restitution of 'x' is 1.5; give at most 1", world.add_sphere, "x", radius=1, mass=1, restitution=1.5)
    refuse(
        "orientation of 'x' is a quaternion of length zero",
        world.add_sphere,
        "x",
        radius=1,
        mass=1,
        orientation=[0] * 4,
    )
    refuse(
        "position of 'x' is given for many worlds", world.add_sphere, "x", radius=1, mass=1, position=torch.zeros(2, 3)
    )
    learnable = torch.ones((), requires_grad=True)
    refuse(
        "radius of 'x' is given for many worlds or requires a gradient", world.add_sphere, "x", radius=learnable, mass=1
    )
    refuse("gravity is not finite", World, gravity=(0, 0, float("inf")))
    refuse(r"gravity has shape \(2,\); expected \(3,\), 3 numbers, or \(B, 3\)", World, gravity=(0, 0))
    refuse("gravity is 'down'; expected numbers", World, gravity="down")
    assert world.robots.keys() == {"dog"}


def test_bad_names_and_values_of_robots():
    world = toes_on_ground()
    dog = world.robots["dog"]
    refuse("no joint named 'knee' in x", world.add, dog, name="x", actuators={"knee": Torque()})
    refuse(
        "'floating_base' of 'x' has several degrees", world.add, dog, name="x", actuators={"floating_base": Torque()}
    )
    refuse("the actuator of 'x' is 3; expected pb.Torque", world.add, dog, name="x", actuators=3)
    refuse(
        "the actuator of 'x': kp is -1; it cannot be negative", world.add, dog, name="x", actuators=PositionServo(-1)
    )
    refuse("no joint named 'knee' in x", world.add, dog, name="x", q={"knee": 0.0})
    refuse(r"q of 'x' has shape \(3,\); expected \(19,\)", world.add, dog, name="x", q=torch.zeros(3))
    refuse("q holds the place of the floating base", world.add, dog, name="x", q=torch.zeros(19), position=(0, 0, 1))
    refuse("no link named 'toe'", world.add, dog, name="x", collision_links=["toe"])
    refuse("no shape named 'dog/toeFX/0'; did you mean", world.set_shape, "dog/toeFX/0", friction=1.0)
    refuse("the size of 'ground' cannot be set: it is a plane", world.set_shape, "ground", size=(1.0,))
    refuse(r"size of 'dog/toe../0', a sphere, is 0; give more than 0", world.set_shape, "dog", size=(0.0,))
    refuse("no robot named 'cat'", world.set_actuators, "cat", None)
    assert len(world.items) == 2


def test_changes_that_need_compiling_again():
    world = toes_on_ground()
    call = parameters(world)
    joint = world.robots["dog"].joint_names[1]
    world.set_actuators("dog", {joint: Torque()})
    refuse("'dog' has other joints driven than when it was compiled; compile again", call)
    world = toes_on_ground()
    call = parameters(world)
    world.robots["dog"].set_link_param("FL_lower_leg", "joint_friction", 0.5)
    refuse("dog/FL_lower_leg had no dry friction when the world was compiled; compile again", call)
    arrays = compile_world(world)
    assert len(arrays.friction_dof) == 1
    assert parameters(world)().friction[0, arrays.friction_dof[0]] == 0.5


def test_learnable_parameters_of_another_type_or_of_the_state():
    world = World()
    world.add(pb.load("panda", dtype=torch.float32), name="arm", collision_links=[])
    world.robots["arm"].make_link_param_learnable("panda_link3", "mass", pb.PositiveScalar())
    refuse(
        r"'arm' has parameters .* is torch.float32 on cpu, the world is compiled for torch.float64", parameters(world)
    )

    class ByState(torch.nn.Module):
        def forward(self, q):
            return q[:, 0]

    world = World()
    world.add(load("panda"), name="arm", collision_links=[])
    world.robots["arm"].make_link_param_learnable("panda_link3", "mass", ByState())
    refuse("the module for 'mass' of arm/panda_link3 asks for 'q'; in a World", parameters(world))


def test_actuator_values_of_the_wrong_shape():
    world = toes_on_ground(actuators=PositionServo(torch.ones(1, 3, dtype=F64)))
    refuse(r"a PositionServo of 'dog' has values of shape \(1, 3\) and drives 12 joints; expected", parameters(world))


def test_a_joint_with_one_end_has_a_limit():
    links = [Link("base", 1.0), Link("arm", 1.0, inertia=np.eye(3))]
    joint = Joint("hinge", "revolute", "base", "arm", limits=Limits(lower=0.0))
    world = World()
    world.add(pb.RobotModel(compile_tree(Tree("door", links, [joint])), dtype=F64))
    assert compile_world(world).limit_dof.tolist() == [0]
    assert parameters(world)().limits.tolist() == [[0.0, np.inf]]

"""Cylinders, meshes and signed-distance fields in worlds, through the public interface."""

from functools import partial
from math import atan, cos, pi, sin

import numpy as np
import pytest
import torch
import trimesh

import pullback as pb
from pullback import sdf
from pullback.core.errors import DescriptionWarning, PullbackError
from tests.rigid.worlds import F64

G = 9.81
SIDEWAYS = (sin(pi / 4), 0.0, 0.0, cos(pi / 4))
"""Turns the z axis into -y."""
CUBE = np.array([(x, y, z) for x in (-0.1, 0.1) for y in (-0.1, 0.1) for z in (-0.1, 0.1)])
STEP = 1e-5
"""Of differences, relative to a size."""


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values if len(values) != 1 else values[0], dtype=F64)


def run(world: pb.World, steps: int, velocity=None, dt: float = 1e-3) -> tuple[pb.Sim, pb.Trajectory]:
    """Return the simulation of a world and its motion from a velocity."""
    sim = world.compile(dt=dt, dtype=F64)
    start = sim.initial_state()
    if velocity is not None:
        start.qd[:] = tensor(*velocity)
    return sim, sim.rollout(start, steps, check=True)


def turned(angle: float, axis: int = 1) -> tuple[float, ...]:
    """Return the quaternion of a rotation about a coordinate axis."""
    quat = [0.0, 0.0, 0.0, cos(angle / 2)]
    quat[axis] = sin(angle / 2)
    return tuple(quat)


def product(a, b) -> tuple[float, ...]:
    """Return the product of two quaternions xyzw."""
    a, b = np.array(a), np.array(b)
    return (*(a[3] * b[:3] + b[3] * a[:3] + np.cross(a[:3], b[:3])), a[3] * b[3] - a[:3] @ b[:3])


# -- cylinders -----------------------------------------------------------------------------------------------------


def test_a_can_stands_on_its_end():
    world = pb.World()
    world.add_ground(friction=0.6)
    world.add_cylinder("can", radius=0.03, length=0.12, mass=0.4, position=(0.1, -0.2, 0.06))
    sim, states = run(world, 1000)
    assert (states.q - states.q[0]).abs().max() < 1e-6
    forces = np.array([contact.force for contact in sim.contacts(states[-1])[0]])
    assert len(forces) == 4
    np.testing.assert_allclose(forces.sum(0), [0, 0, 0.4 * G], rtol=0, atol=1e-6)


def test_a_sliding_can_comes_to_roll():
    """v = v0 / (1 + I / (m r²)) = 2/3 v0, and then v = omega r."""
    world = pb.World()
    world.add_ground(friction=0.3)
    world.add_cylinder("can", radius=0.1, length=0.3, mass=1.0, position=(0, 0, 0.1), orientation=SIDEWAYS)
    _, states = run(world, 500, (0, 0, 0, 1, 0, 0))
    speed = (states.q[-1, 0, 0] - states.q[-2, 0, 0]).item() / 1e-3
    assert speed == pytest.approx(2 / 3, abs=1e-6)
    assert states.qd[-1, 0, :3].norm().item() * 0.1 == pytest.approx(speed, abs=1e-6)
    assert (states.q[:, 0, 2] - 0.1).abs().max() < 1e-6


def on_slope(angle: float, mu: float, *, rolls: bool) -> pb.State:
    """Return where a can is after half a second on a slope, standing or lying across it."""
    turn, height = turned(angle), 0.1 if rolls else 0.05
    world = pb.World()
    world.add_plane("slope", orientation=turn, friction=mu)
    place = (height * sin(angle), 0.0, height * cos(angle))
    orientation = product(turn, SIDEWAYS) if rolls else turn
    world.add_cylinder("can", radius=0.1, length=0.1, mass=1.0, position=place, orientation=orientation)
    return run(world, 500)[1][-1]


@pytest.mark.parametrize("beyond", [-0.02, 0.02])
def test_a_standing_can_sticks_and_slides_at_the_friction_angle(beyond):
    angle = atan(0.5) + beyond
    end = on_slope(angle, 0.5, rolls=False)
    expected = 0.5 * G * (sin(angle) - 0.5 * cos(angle)) if beyond > 0 else 0.0
    assert end.qd[0, 3].item() == pytest.approx(expected, abs=1e-6)
    assert end.qd[0, :3].abs().max() < 1e-6


@pytest.mark.parametrize("mu", [0.5, 0.1])
def test_a_lying_can_rolls_down_a_slope_or_slips(mu):
    """Rolling needs the friction g sin / 3; it accelerates at 2/3 g sin, a slipping one at g (sin - mu cos)."""
    angle = 0.5
    end = on_slope(angle, mu, rolls=True)
    acceleration = G * max(2 / 3 * sin(angle), sin(angle) - mu * cos(angle))
    spin = 2 * min(G * sin(angle) / 3, mu * G * cos(angle)) / 0.1
    assert end.qd[0, 3:].norm().item() == pytest.approx(0.5 * acceleration, rel=1e-6)
    assert end.qd[0, :3].norm().item() == pytest.approx(0.5 * spin, rel=1e-6)


# -- meshes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("height", "velocity"),
    [(0.1, (0, 0, 2, 0.9, 0.4, 0)), (0.25, (5, -3, 1, 0.5, -0.2, 0))],
    ids=["slides", "tumbles"],
)
def test_the_mesh_of_a_cube_moves_as_a_box(height, velocity):
    ends = []
    for shape in ("box", "mesh"):
        world = pb.World()
        world.add_ground(friction=0.3)
        place = {"mass": 1.5, "position": (0, 0, height), "orientation": turned(0.3, 2)}
        if shape == "box":
            world.add_box("cube", size=(0.2, 0.2, 0.2), **place)
        else:
            world.add_mesh("cube", CUBE, **place)
        ends.append(run(world, 400, velocity)[1])
    assert ends[0].q[-1, 0, :2].norm() > 0.05
    torch.testing.assert_close(ends[0].q, ends[1].q, rtol=0, atol=1e-8)


def test_a_mesh_stands_on_a_mesh():
    world = pb.World()
    world.add_mesh("table", CUBE, scale=(4, 4, 1), static=True, friction=0.5)
    world.add_mesh("cube", CUBE, mass=1.0, position=(0.03, 0.02, 0.2), orientation=turned(0.4, 2), friction=0.5)
    _, states = run(world, 500)
    assert (states.q - states.q[0]).abs().max() < 1e-6


def test_mass_properties_of_a_mesh_file_are_those_of_its_hull(tmp_path):
    points = np.random.default_rng(3).normal(size=(30, 3)) * (0.1, 0.06, 0.04) + (0.02, -0.01, 0.03)
    solid = trimesh.convex.convex_hull(points)
    solid.export(tmp_path / "stone.stl")
    world = pb.World()
    world.add_mesh("stone", tmp_path / "stone.stl", scale=2.0, mass=0.7, position=(0, 0, 1))
    solid.apply_scale(2.0)
    solid.density = 0.7 / solid.volume
    link = world.robots["stone"].model.links[-1]
    assert link.mass == 0.7
    np.testing.assert_allclose(link.com, solid.center_mass, rtol=0, atol=1e-7)
    np.testing.assert_allclose(link.inertia, solid.moment_inertia, rtol=1e-5, atol=1e-9)


def test_a_stone_comes_to_rest_on_a_face():
    points = np.random.default_rng(3).normal(size=(20, 3)) * (0.1, 0.08, 0.06)
    world = pb.World()
    world.add_ground(friction=0.8)
    world.add_mesh("stone", points, mass=0.7, position=(0, 0, 0.3))
    sim, states = run(world, 1000, (1, 2, 0.5, 0.2, 0, 0), dt=2e-3)
    end = states[-1]
    assert end.qd.abs().max() < 1e-6
    contacts = sim.contacts(end)[0]
    assert sum(contact.force[2] for contact in contacts) == pytest.approx(0.7 * G, rel=1e-5)
    assert min(contact.gap for contact in contacts) > -1e-5


URDF = """
<robot name="lamp">
  <link name="foot">
    <inertial><mass value="2"/><inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><mesh filename="foot.stl" scale="2 2 0.2"/></geometry></collision>
  </link>
  <link name="arm">
    <inertial>
      <origin xyz="0 0 0.15"/><mass value="0.3"/>
      <inertia ixx="0.002" iyy="0.002" izz="0.0001" ixy="0" ixz="0" iyz="0"/>
    </inertial>
    <collision><origin xyz="0 0 0.15"/><geometry><cylinder radius="0.02" length="0.3"/></geometry></collision>
  </link>
  <joint name="neck" type="revolute">
    <parent link="foot"/><child link="arm"/><origin xyz="0.25 0 0"/><axis xyz="0 1 0"/>
    <limit lower="-3" upper="3" effort="10" velocity="10"/><dynamics damping="0.05"/>
  </joint>
</robot>
"""


def lamp(tmp_path) -> pb.RobotModel:
    """Return a flat foot, a mesh, with an arm, a cylinder, on a hinge beside it."""
    (tmp_path / "lamp.urdf").write_text(URDF)
    return pb.load(tmp_path / "lamp.urdf", base="floating", dtype=F64)


def test_a_robot_of_meshes_and_cylinders(tmp_path):
    """The foot stands; the arm falls over until it lies with the edge of its end on the ground."""
    trimesh.Trimesh(CUBE, trimesh.convex.convex_hull(CUBE).faces).export(tmp_path / "foot.stl")
    world = pb.World()
    world.add_ground(friction=0.8)
    world.add(lamp(tmp_path), position=(0, 0, 0.02), q={"neck": 0.5}, actuators={})
    sim, states = run(world, 2000)
    assert (states.q[-1, 0, :7] - states.q[0, 0, :7]).abs().max() < 1e-4  # a slip when the arm strikes
    # the lowest point of the end's rim: 0.02 + 0.3 cos q - 0.02 sin q = 0
    q = states.q[-1, 0, 7].item()
    assert 0.02 + 0.3 * cos(q) - 0.02 * sin(q) == pytest.approx(0.0, abs=1e-5)
    touching = {contact.shapes[0] for contact in sim.contacts(states[-1])[0] if contact.force[2] > 0.01}
    assert touching == {"lamp/foot/0", "lamp/arm/0"}


# -- fields --------------------------------------------------------------------------------------------------------


def plate(radius: float | torch.Tensor = 0.02) -> sdf.Shape:
    """Return a plate 0.04 m thick with a hole."""
    return sdf.box((0.1, 0.1, 0.02)) - sdf.cylinder(radius, 0.3)


@pytest.mark.parametrize("peg", ["sphere", "capsule", "cylinder"])
def test_a_peg_falls_through_a_hole_that_is_wide_enough(peg):
    for radius, falls in ((0.018, True), (0.024, False)):
        world = pb.World()
        world.add_field("plate", plate(), static=True, friction=0.3)
        rest = {"sphere": radius, "capsule": 0.05 + radius, "cylinder": 0.05}[peg]
        options = {"radius": radius, "mass": 0.1, "position": (0.001, 0, 0.021 + rest)}
        if peg != "sphere":
            options["length"] = 0.1
        getattr(world, f"add_{peg}")("peg", **options)
        sim, states = run(world, 1000)
        z = states.q[-1, 0, 2].item()
        if falls:
            assert z < -1.0
        else:
            assert 0.02 < z < 0.021 + rest
            if peg == "sphere":  # which rocks from side to side of the rim for long
                continue
            assert states.qd[-1].abs().max() < 0.05
            lift = sum(contact.force[2] for contact in sim.contacts(states[-1])[0])
            assert lift == pytest.approx(0.1 * G, rel=0.02)


def test_a_sphere_rests_on_the_rim_where_geometry_says():
    """Centred, its centre is sqrt(R² - r²) above the rim."""
    world = pb.World()
    world.add_field("plate", plate(), static=True, friction=0.3)
    world.add_sphere("ball", radius=0.03, mass=0.1, position=(0.0005, 0, 0.05))
    _, states = run(world, 3000)
    assert states.q[-1, 0, 2].item() == pytest.approx(0.02 + (0.03**2 - 0.02**2) ** 0.5, abs=1e-4)


def test_a_ball_rolls_to_the_bottom_of_a_height_field():
    x = np.linspace(-0.5, 0.5, 21)
    values = 0.4 * (x[:, None] - 0.1) ** 2 + 0.4 * (x[None] + 0.05) ** 2
    world = pb.World()
    world.add_field("bowl", sdf.heights(values, (1.0, 1.0)), static=True, friction=0.5)
    world.add_sphere("ball", radius=0.03, mass=0.2, position=(0.35, 0.2, 0.4 * (0.25**2 + 0.25**2) + 0.04))
    sim, states = run(world, 2000, dt=2e-3)
    kinetic, potential = sim.energies(pb.State(states.q[:, 0], states.qd[:, 0]))
    energy = kinetic + potential
    assert energy.max() < energy[0] + 1e-4
    # it swings through the bottom, and never leaves or enters the ground
    way = states.q[:, 0, :2] - tensor(0.1, -0.05)
    assert way.norm(dim=1).min() < 0.02
    gap = states.q[:, 0, 2] - 0.4 * way.square().sum(1) - 0.03
    assert gap[200:].min() > -1e-3
    assert gap[200:].max() < 5e-3


def test_a_box_and_a_field_rest_on_a_height_field():
    """Level ground that is a height field, and nothing of which is sampled."""
    world = pb.World()
    world.add_field("floor", sdf.heights(np.zeros((5, 5)), (1.0, 1.0)), static=True, friction=0.5)
    world.add_box("box", size=(0.1, 0.1, 0.1), mass=0.5, position=(0.2, 0, 0.05))
    ball = sdf.box((0.04, 0.04, 0.04)).rounded(0.01)
    world.add_field("die", ball, mass=0.5, inertia=1e-3 * np.eye(3), position=(-0.2, 0, 0.05))
    _, states = run(world, 300)
    assert (states.q - states.q[0]).abs().max() < 1e-5


def test_a_free_field_rests_on_the_ground():
    """A block with a hole across, samples of which meet the plane."""
    block = sdf.box((0.05, 0.04, 0.03)) - sdf.cylinder(0.015, 0.3).at(orientation=SIDEWAYS)
    world = pb.World()
    world.add_ground(friction=0.5)
    world.add_field("block", block, mass=0.5, inertia=np.diag([4e-4, 5e-4, 6e-4]), position=(0, 0, 0.05))
    sim, states = run(world, 1000)
    assert states.q[-1, 0, 2].item() == pytest.approx(0.03, abs=1e-5)
    assert states.qd[-1].abs().max() < 1e-6
    contacts = sim.contacts(states[-1])[0]
    assert sum(contact.force[2] for contact in contacts) == pytest.approx(0.5 * G, rel=1e-6)
    corners = np.abs([contact.point[:2] for contact in contacts])
    np.testing.assert_allclose(corners.max(0), [0.05, 0.04], rtol=0, atol=1e-6)


def test_a_grid_of_a_mesh_is_a_field(tmp_path):
    """A hollow shape that its hull would fill: a cup holds a ball."""
    trimesh.creation.annulus(r_min=0.04, r_max=0.06, height=0.08).export(tmp_path / "ring.stl")
    shape = sdf.grid(tmp_path / "ring.stl", 32) | sdf.cylinder(0.05, 0.02).at((0, 0, -0.03))
    world = pb.World()
    world.add_field("cup", shape, static=True, friction=0.5)
    world.add_sphere("ball", radius=0.015, mass=0.1, position=(0.01, 0, 0.0))
    _, states = run(world, 1000, (0, 0, 0, 0.5, 0.2, 0))
    assert states.q[:, 0, :2].norm(dim=1).max() < 0.04 - 0.015 + 2e-3
    assert states.q[-1, 0, 2].item() == pytest.approx(-0.02 + 0.015, abs=1e-3)


# -- gradients by what a shape is ----------------------------------------------------------------------------------


def slope_error(make, value: torch.Tensor, velocity, steps: int = 60) -> float:
    """Return the relative error of the derivative along a size against central differences.

    `make` is a world of a value with a leading dimension, one for each world.
    """
    weights = torch.linspace(0.5, 20.0, 13, dtype=F64).sin()

    def losses(values: torch.Tensor) -> torch.Tensor:
        sim = make(values).compile(dt=1e-3, dtype=F64)
        start = sim.initial_state(len(values))
        start.qd[:] = tensor(*velocity)
        states = sim.rollout(start, steps, check=True)
        return torch.cat([states.q[-1], states.qd[-1]], -1) @ weights

    x = value[None].clone().requires_grad_()
    (slope,) = torch.autograd.grad(losses(x).sum(), x)
    with torch.no_grad():
        ends = losses(torch.stack([value * (1 + STEP), value * (1 - STEP)]))
    expected = ((ends[0] - ends[1]) / (2 * STEP)).item()
    assert abs(expected) > 1e-3
    return abs((slope[0] * value).sum().item() - expected) / abs(expected)


SOLVED = pb.PGS(iterations=500, tolerance=1e-13)


def can(size: torch.Tensor, orientation=(0.0, 0.0, 0.15, 0.99)) -> pb.World:
    """Return a can, standing or lying, 0.1 mm in the ground."""
    world = pb.World(contact=SOLVED)
    world.add_ground(friction=0.2)
    world.add_cylinder("can", radius=0.05, length=0.1, mass=0.5, position=(0, 0, 0.0499), orientation=orientation)
    world.set_shape("can", size=size)
    return world


def stone(size: torch.Tensor) -> pb.World:
    """Return a pyramid that slides on its base."""
    world = pb.World(contact=SOLVED)
    world.add_ground(friction=0.2)
    corners = np.array([(-0.1, -0.1, -0.05), (0.1, -0.1, -0.05), (0, 0.12, -0.05), (0.01, 0.02, 0.1)])
    world.add_mesh("stone", corners, mass=0.5, position=(0, 0, 0.0499))
    world.set_shape("stone", size=size)
    return world


def hole(radius: torch.Tensor) -> pb.World:
    """Return a ball that runs along the rim of a hole."""
    world = pb.World(contact=SOLVED)
    world.add_field("plate", plate(radius[:, 0]), static=True, friction=0.3)
    world.add_sphere("ball", radius=0.03, mass=0.1, position=(0.0, 0.001, 0.0431))
    return world


@pytest.mark.parametrize(
    ("make", "value", "velocity"),
    [
        (can, tensor(0.05, 0.1), (0, 0, 3, 0.9, 0.4, 0)),
        (partial(can, orientation=SIDEWAYS), tensor(0.05, 0.1), (2, 0, -3, 0.5, 0, 0.4)),
        (stone, torch.ones(1, dtype=F64), (0, 0, 3, 0.9, 0.4, 0)),
        (hole, torch.full((1,), 0.02, dtype=F64), (0.3, -0.2, 0.4, 0.1, 0.2, 0)),
    ],
    ids=["standing can", "rolling can", "stone", "hole"],
)
def test_gradient_by_the_size_of_a_shape(make, value, velocity):
    assert slope_error(make, value, velocity) < 1e-5


# -- errors --------------------------------------------------------------------------------------------------------


def test_a_mesh_without_its_file(tmp_path):
    world = pb.World()
    world.add_ground()
    with pytest.raises(PullbackError, match=r"file '.*none\.stl' does not exist"):
        world.add_mesh("stone", tmp_path / "none.stl", mass=1.0)
    with pytest.warns(DescriptionWarning, match=r"mesh file 'foot\.stl' does not exist"):
        robot = lamp(tmp_path)
    world.add(robot, position=(0, 0, 0.02))
    with pytest.raises(PullbackError, match=r"'lamp/foot/0' is the mesh .*foot\.stl, .* 'ground' may touch it"):
        world.compile(dt=1e-3)
    lenient = pb.World()
    lenient.add_ground()
    lenient.add(robot, missing_meshes="ignore")
    assert lenient.shape_names == ["ground", "lamp/arm/0"]
    with pytest.raises(PullbackError, match=r"missing_meshes is 'skip'"):
        lenient.add(robot, name="other", missing_meshes="skip")  # pyright: ignore[reportArgumentType]
    # nothing to touch: no file is asked for
    alone = pb.World()
    alone.add(robot)
    alone.compile(dt=1e-3, dtype=F64)


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda w: w.add_cylinder("can", radius=-0.1, length=0.1, mass=1.0), r"radius of 'can' is -0\.1"),
        (lambda w: w.add_cylinder("can", radius=0.1, length=0.0, mass=1.0), r"length of 'can' is 0"),
        (lambda w: w.add_cylinder("can", radius=0.1, length=0.1), r"'can' has no mass"),
        (lambda w: w.add_cylinder("can", radius="wide", length=0.1, mass=1.0), r"radius of 'can' is 'wide'"),
        (lambda w: w.add_mesh("stone", CUBE[:3], mass=1.0), r"at least four points"),
        (lambda w: w.add_mesh("stone", CUBE[:4], mass=1.0), r"lie in a plane"),
        (lambda w: w.add_mesh("stone", CUBE, scale=0.0, mass=1.0), r"lie in a plane"),
        (lambda w: w.add_mesh("stone", CUBE, scale=(1.0, 1.0), mass=1.0), r"scale of 'stone'"),
        (lambda w: w.add_mesh("stone", "cube", mass=1.0), r"file 'cube' does not exist"),
        (lambda w: w.add_mesh("stone", trimesh.creation.box(), mass=1.0), r"'stone' takes a mesh file or points"),
        (lambda w: w.add_mesh("stone", CUBE, max_vertices=3, mass=1.0), r"max_vertices is 3"),
        (lambda w: w.add_field("block", CUBE, static=True), r"'block' takes a shape of pb\.sdf, got a ndarray"),
        (lambda w: w.add_field("block", sdf.sphere(0.1), mass=1.0), r"'block' has a mass and no inertia"),
        (lambda w: w.add_field("block", sdf.sphere(0.1), mass=1.0, inertia=np.eye(2)), r"inertia of 'block' has shape"),
        (lambda w: w.add_field("block", sdf.sphere(0.1), mass=1.0, inertia=-np.eye(3)), r"inertia"),
        (lambda w: w.add_field("block", sdf.sphere(0.1)), r"'block' has no mass"),
        (lambda w: w.add_field("block", sdf.sphere(-0.1), static=True), r"radius of a sphere is -0\.1"),
    ],
)  # fmt: skip
def test_what_cannot_be_added_is_named(add, message):
    world = pb.World()
    with pytest.raises(PullbackError, match=message):
        add(world)
    assert world.shape_names == []


def test_sizes_that_cannot_be_set_are_named():
    world = can(tensor(0.05, 0.1))
    world.add_field("plate", plate(), static=True)
    with pytest.raises(PullbackError, match=r"size of 'can', a cylinder, is -1"):
        world.set_shape("can", size=(-1.0, 0.1))
    with pytest.raises(PullbackError, match=r"size of 'can', a cylinder, has shape \(3,\)"):
        world.set_shape("can", size=(0.1, 0.1, 0.1))
    with pytest.raises(PullbackError, match=r"size of 'plate' cannot be set: it is a field"):
        world.set_shape("plate", size=(0.1,))


def test_a_mesh_with_holes_has_no_inside():
    solid = trimesh.creation.box((0.1, 0.1, 0.1))
    with pytest.raises(PullbackError, match="watertight"):
        sdf.grid((solid.vertices, solid.faces[:-1]))


def test_a_field_without_end_cannot_fall():
    """Its samples, which would have to meet the plane, have no place."""
    world = pb.World()
    world.add_ground()
    world.add_field("half", sdf.plane(), mass=1.0, inertia=np.eye(3))
    with pytest.raises(PullbackError, match=r"'half'.* without end"):
        world.compile(dt=1e-3, dtype=F64)

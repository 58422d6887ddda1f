"""What stands in a world, one by one: where it was put, its shapes, what drives it, where it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from pullback.core.errors import PullbackError, unknown_name
from pullback.description.compile import COORDINATES, Body
from pullback.description.tree import Drive, Shape, ShapeType
from pullback.rigid.collide.convex.hulls import Hull, convex_hull
from pullback.rigid.world.actuators import (
    Actuator,
    AffineActuator,
    PositionServo,
    Torque,
    VelocityServo,
    check_actuator,
)
from pullback.rigid.world.values import Given, Tensor, Value, check_dense, check_quaternion, check_value, check_whole
from pullback.robot.model import RobotModel
from pullback.sdf.program import Program
from pullback.spatial.rotations_torch import rotate

ORIGIN = (0.0, 0.0, 0.0)
UPRIGHT = (0.0, 0.0, 0.0, 1.0)
BITS = (-(2**31), 2**31 - 1)
"""Groups and masks have 32 bits."""

Actuators = Actuator | Mapping[str, Actuator] | None
Missing = Literal["error", "ignore"]
ShapeKind = ShapeType | Literal["field"]


@dataclass(eq=False)
class CollisionShape:
    """A shape on a link, or on the world where `body` is -1; None leaves friction or restitution to the other shape."""

    name: str
    kind: ShapeKind
    link: int
    body: int
    size: Value
    position: Value
    rotation: np.ndarray
    orientation: Value | None = None
    """Takes the place of `rotation` where it is given."""
    friction: Value | None = None
    restitution: Value | None = None
    source: Path | Hull | Program | None = None
    """The file or the hull of a mesh, the program of a field."""
    scale: tuple[float, ...] = (1.0, 1.0, 1.0)
    """What the file's coordinates are multiplied by, before `size`."""
    contype: int = 1
    conaffinity: int = 1
    """Bitmasks: of two shapes, the first of one and the second of the other have a bit in common if they may touch."""
    frictionless: bool = False
    """Whether it slides on shapes that are frictionless too."""


@dataclass(eq=False)
class Placed:
    """A robot, a free body, or a static shape (`robot` None), where it was put and what it may touch."""

    name: str
    robot: RobotModel | None
    position: np.ndarray
    orientation: np.ndarray
    shapes: list[CollisionShape]
    group: int
    mask: int
    self_collision: bool = False
    actuators: dict[str, Actuator] = field(default_factory=dict)
    """By the joint that each drives, or by the name of a drive of the description."""
    q: Mapping[str, Given] | Tensor | None = None

    @property
    def bodies(self) -> list[Body]:
        """The bodies that move."""
        return [] if self.robot is None else self.robot.model.bodies

    @property
    def rotation(self) -> np.ndarray:
        """The rotation matrix of the orientation."""
        return rotation_matrix(self.orientation)

    def excludes(self, a: CollisionShape, b: CollisionShape) -> bool:
        """Tell whether the description says that the links of two shapes never touch."""
        if self.robot is None:
            return False
        links = {self.robot.model.links[shape.link].name for shape in (a, b)}
        return any(links == {*pair} for pair in self.robot.model.tree.excluded)


def one_dof(body: Body) -> bool:
    """Tell whether a body moves by one coordinate."""
    return COORDINATES[body.kind][1] == 1


def has_dry_friction(item: Placed, body: Body) -> bool:
    """Tell whether a joint has dry friction, in the description or given by a module."""
    learned = () if item.robot is None else map(item.robot._split_key, item.robot.learned)
    return body.joint.friction > 0.0 or (body.joint.child, "joint_friction") in learned


def rotation_matrix(orientation: np.ndarray) -> np.ndarray:
    """Return the rotation matrix (3, 3) of a quaternion xyzw of any length."""
    quat = torch.from_numpy(orientation / np.linalg.norm(orientation))
    # plain numbers, inside a functorch transform too
    with torch._C._DisableFuncTorch():
        return rotate(quat.expand(3, 4), torch.eye(3, dtype=torch.float64)).mT.contiguous().numpy()


def place(
    name: str,
    robot: RobotModel | None,
    position: Sequence[float] | None,
    orientation: Sequence[float] | None,
    group: int,
    mask: int,
) -> Placed:
    """Return a thing in its place, without shapes."""
    p = constant(f"position of {name!r}", ORIGIN if position is None else position, (3,))
    what = f"orientation of {name!r}"
    quat = constant(what, UPRIGHT if orientation is None else orientation, (4,))
    check_quaternion(what, quat)
    for word, bits in (("group", group), ("mask", mask)):
        check_whole(f"{word} of {name!r}", bits, *BITS)
    return Placed(name, robot, p, quat / np.linalg.norm(quat), [], int(group), int(mask))


def constant(what: str, value: Given, shape: tuple[int, ...] = (), *, above: float | None = None) -> np.ndarray:
    """Return a number that all worlds share and that no gradient is asked of."""
    check_dense(what, value)
    if isinstance(value, Tensor) and not value.requires_grad:
        value = value.detach().cpu().numpy()
    checked = check_value(what, value, shape, above=above)
    if isinstance(checked, Tensor) or checked.ndim != len(shape):
        raise PullbackError(
            f"{what} is given for many worlds or requires a gradient; give plain numbers here, and the tensor by "
            f"set_shape, as a link parameter of world.robots, or in the initial state"
        )
    return checked


def shape_of_link(name: str, shape: Shape, robot: RobotModel, link: int) -> CollisionShape:
    """Return a shape of the description as one that can touch others."""
    size = np.asarray(shape.size, dtype=np.float64)
    origin = shape.origin
    result = CollisionShape(
        name, shape.type, link, robot.model.link_body[link], size, origin.translation, origin.rotation
    )
    result.contype, result.conaffinity, result.frictionless = shape.contype, shape.conaffinity, shape.frictionless
    if shape.type == "mesh":
        result.size, result.source, result.scale = np.ones(1), shape.mesh, tuple(shape.size)
        if shape.vertices is not None:
            result.source, result.scale = convex_hull(shape.vertices * np.asarray(shape.size)), (1.0, 1.0, 1.0)
    if shape.friction is not None:
        result.friction = check_value(f"friction of {name!r}", shape.friction, least=0.0)
    return result


def is_missing(shape: Shape) -> bool:
    """Tell whether a shape is a mesh of which there is nothing."""
    return shape.type == "mesh" and shape.vertices is None and not (shape.mesh and shape.mesh.is_file())


def collision_shape(
    name: str, shape: Shape | None, source: Hull | Program | None, link: int, body: int
) -> CollisionShape:
    """Return a primitive, the mesh with a hull, or a field (no shape) that stands where its link does."""
    if shape is None:
        # a tensor, so that how far the field reaches is computed anew whenever it changes
        return CollisionShape(name, "field", link, body, torch.zeros(0), np.zeros(3), np.eye(3), source=source)
    size = np.asarray(shape.size, dtype=np.float64)
    return CollisionShape(name, shape.type, link, body, size, np.zeros(3), np.eye(3), source=source)


def set_surface(shapes: Sequence[CollisionShape], friction: Given | None, restitution: Given | None, name: str) -> None:
    """Give shapes a friction coefficient, a restitution, both or neither."""
    mu = None if friction is None else check_value(f"friction of {name!r}", friction, least=0.0)
    bounce = None if restitution is None else check_value(f"restitution of {name!r}", restitution, least=0.0, most=1.0)
    for shape in shapes:
        shape.friction = shape.friction if mu is None else mu
        shape.restitution = shape.restitution if bounce is None else bounce


def has_spring(item: Placed, body: Body) -> bool:
    """Tell whether a joint has a spring, in the description or given by a module."""
    learned = () if item.robot is None else map(item.robot._split_key, item.robot.learned)
    return one_dof(body) and (body.joint.stiffness > 0.0 or (body.joint.child, "joint_stiffness") in learned)


def driven_joints(item: Placed, name: str) -> dict[str, float]:
    """Return the joints that an actuator drives, with their shares of its force."""
    assert item.robot is not None
    drives = {drive.name: drive.joints for drive in item.robot.model.tree.drives}
    return drives.get(name, {name: 1.0})


def described_actuator(drive: Drive) -> Actuator:
    """Return an actuator of the description, as a motor or servo where it is one."""
    low, high = drive.force_range
    control_range = drive.control_range if np.isfinite(drive.control_range).any() else None
    plain = not (drive.bias or drive.position_gain or drive.velocity_gain) and low == -high
    if plain and not drive.kp and not drive.kd:
        return Torque(drive.gain, high, control_range)
    if plain and drive.kp > 0.0 and drive.gain == drive.kp and drive.kd >= 0.0:
        return PositionServo(drive.kp, drive.kd, high, control_range)
    if plain and not drive.kp and drive.gain == drive.kd > 0.0:
        return VelocityServo(drive.kd, high, control_range)
    return AffineActuator(
        drive.gain,
        drive.kp,
        drive.kd,
        drive.bias,
        drive.force_range,
        control_range,
        drive.position_gain,
        drive.velocity_gain,
    )


def joint_actuators(name: str, robot: RobotModel, given: Actuators) -> dict[str, Actuator]:
    """Return what drives the joints: in the order of the joints, or that of the description where it says it."""
    drives = robot.model.tree.drives
    if given is None and drives:
        return {drive.name: described_actuator(drive) for drive in drives}
    every = [body.joint for body in robot.model.bodies if one_dof(body)]
    # what follows another joint is driven only where it is named
    joints = [joint for joint in every if joint.mimic is None]
    if given is None:
        geared: dict[str, Actuator] = {j.name: Torque(j.gear) for j in joints if j.gear is not None}
        return geared or dict.fromkeys([joint.name for joint in joints], Torque())
    if not isinstance(given, Mapping):
        actuator = check_actuator(f"the actuator of {name!r}", given)
        return dict.fromkeys([joint.name for joint in joints], actuator)
    names = list(dict.fromkeys([*(joint.name for joint in every), *(drive.name for drive in drives)]))
    for joint, actuator in given.items():
        if joint in robot.model.v_start and joint not in names:
            raise PullbackError(f"joint {joint!r} of {name!r} has several degrees of freedom and cannot be driven")
        if joint not in names:
            raise unknown_name("joint", joint, names, name)
        check_actuator(f"the actuator of {joint!r}", actuator)
    return {joint: given[joint] for joint in names if joint in given}


def item_q(item: Placed) -> Tensor:
    """Return the initial coordinates of all bodies of a robot or free body in float64; none for a static shape."""
    if item.robot is None:
        return torch.zeros(0, dtype=torch.float64)
    model = item.robot.model
    if isinstance(item.q, Tensor) and item.q.shape == (model.nq_all,):
        return item.q.to(device="cpu", dtype=torch.float64)
    q, coupling = robot_q(item), model.coupling
    return q if coupling is None else torch.from_numpy(coupling.position) @ q + torch.from_numpy(coupling.offset)


def robot_q(item: Placed) -> Tensor:
    """Return the initial coordinates (nq,) of a robot, without those of mimic joints, in float64."""
    assert item.robot is not None
    model = item.robot.model
    if isinstance(item.q, Tensor):
        if item.q.shape not in ((model.nq,), (model.nq_all,)):
            more = f", or ({model.nq_all},) with its mimic joints" if model.coupling is not None else ""
            raise PullbackError(f"q of {item.name!r} has shape {tuple(item.q.shape)}; expected ({model.nq},){more}")
        q = item.q.to(device="cpu", dtype=torch.float64)
        return q if len(q) == model.nq else q[model.independent_coordinates()]
    q = item.robot.initial_q().to(device="cpu", dtype=torch.float64)
    if model.base == "floating":
        q[:7] = torch.from_numpy(np.concatenate([item.position, item.orientation]))
    if item.q is not None and not isinstance(item.q, Mapping):
        example = next(iter(model.q_start), "joint")
        raise PullbackError(
            f"q of {item.name!r} is a {type(item.q).__name__}; give a dict by joints' names, {{{example!r}: 0.0}}, or "
            f"all coordinates as a tensor: torch.tensor([...])"
        )
    mimics = {body.joint.name: body.joint.mimic for body in model.bodies}
    for joint, value in (item.q or {}).items():
        mimic = mimics.get(joint)
        if mimic is not None:
            raise PullbackError(f"q of {joint!r} of {item.name!r}: it follows {mimic.joint!r}; give that joint's q")
        if joint not in model.q_start:
            raise unknown_name("joint", joint, model.q_start, item.name)
        count = next(COORDINATES[body.kind][0] for body in model.bodies if body.joint.name == joint)
        numbers = check_value(f"q of {joint!r}", value, () if count == 1 else (count,))
        start = model.q_start[joint]
        q[start : start + count] = torch.as_tensor(numbers).reshape(-1).to(q)
    return q

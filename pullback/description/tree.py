"""The plain description of a robot: links, joints, shapes. Every file format ends here, and compile starts here."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Literal

import numpy as np

from pullback.description.joints import JointType

LoopKind = Literal["connect", "hinge", "weld"]
ShapeType = Literal["sphere", "ellipsoid", "capsule", "cylinder", "box", "plane", "mesh"]

Vector = tuple[float, ...]


@dataclass
class Pose:
    """A placement of a child frame in a parent frame: translation [m], rotation matrix parent-from-child."""

    translation: np.ndarray = field(default_factory=lambda: np.zeros(3))
    rotation: np.ndarray = field(default_factory=lambda: np.eye(3))

    def __matmul__(self, other: Pose) -> Pose:
        """Compose X_AC = X_AB @ X_BC."""
        return Pose(self.translation + self.rotation @ other.translation, self.rotation @ other.rotation)


@dataclass
class Shape:
    """A collision shape placed on a link.

    `size` [m]: sphere (radius,), ellipsoid the three semi-axes, capsule and cylinder (radius, length along z, without
    the capsule's caps), box the three full edge lengths, plane () with its normal along z, mesh the three scale
    factors. `mesh` is the file of a mesh; `vertices` (n, 3) [m], before they are scaled, are those of its convex hull
    where they are not all of the file: of a part of a concave mesh, or where there is no file. Two shapes may touch if
    `contype` of one and `conaffinity` of the other, bitmasks, have a bit in common; they do so without friction where
    both are `frictionless`.
    """

    type: ShapeType
    size: Vector
    origin: Pose = field(default_factory=Pose)
    mesh: Path | None = None
    friction: float | None = None
    contype: int = 1
    conaffinity: int = 1
    frictionless: bool = False
    vertices: np.ndarray | None = None


@dataclass
class Link:
    """A rigid link: mass [kg], centre of mass [m] and rotational inertia about it [kg·m²], both in link axes.

    `carried` is the fraction of its weight that a force at its centre of mass carries (MJCF's `gravcomp`).
    """

    name: str
    mass: float = 0.0
    com: np.ndarray = field(default_factory=lambda: np.zeros(3))
    inertia: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))
    shapes: list[Shape] = field(default_factory=list)
    carried: float = 0.0


@dataclass(frozen=True)
class Limits:
    """Position [rad or m], velocity [rad/s or m/s] and effort [N·m or N] limits of a joint."""

    lower: float = -inf
    upper: float = inf
    velocity: float = inf
    effort: float = inf


@dataclass(frozen=True)
class Mimic:
    """This joint follows another: q = multiplier * q_other + offset."""

    joint: str
    multiplier: float = 1.0
    offset: float = 0.0


@dataclass
class Joint:
    """A joint between two links; its frame, `origin`, is the child link's frame at q = 0, placed in the parent link.

    `axis` is a unit vector in the joint frame: the direction of a revolute, prismatic or screw joint, the normal of a
    planar one. A screw turns by q [rad] and moves along its axis by `pitch` q, [m/rad], right-handed if positive; its
    velocity, limits, damping and forces are those of the turn. `damping` [N·m·s/rad or N·s/m], `friction` (dry, [N·m or
    N]), `armature` [kg·m² or kg] act on each of the joint's degrees of freedom. A joint with one has a spring of
    `stiffness` [N·m/rad or N/m] that is at rest at q = `rest`. `gear` scales the actuator that drives it, None where
    there is no actuator.
    """

    name: str
    type: JointType
    parent: str
    child: str
    origin: Pose = field(default_factory=Pose)
    axis: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, 1.0]))
    limits: Limits = Limits()
    damping: float = 0.0
    friction: float = 0.0
    armature: float = 0.0
    mimic: Mimic | None = None
    gear: float | None = None
    pitch: float = 0.0
    stiffness: float = 0.0
    rest: float = 0.0


@dataclass(frozen=True)
class Drive:
    """What acts on a joint, or on a sum of joints l = Σ share q: an actuator or, where it has no control u, a spring.

    The force on l is (gain + position_gain l + velocity_gain dl/dt) u + bias - kp l - kd dl/dt, within `force_range`
    [N·m or N], u within `control_range`. `joints` are the shares by joint name; 1 for a single joint.
    """

    name: str
    joints: dict[str, float]
    gain: float = 0.0
    kp: float = 0.0
    kd: float = 0.0
    bias: float = 0.0
    force_range: tuple[float, float] = (-inf, inf)
    control_range: tuple[float, float] = (-inf, inf)
    position_gain: float = 0.0
    velocity_gain: float = 0.0
    number: int = 0
    """Its place among the actuators of the file, some of which may be left out."""


@dataclass
class Keyframe:
    """A state that the description names: coordinates and velocities by joint name, controls by actuator name.

    A floating base is the joint `floating_base`.
    """

    q: dict[str, np.ndarray]
    qd: dict[str, np.ndarray]
    controls: dict[str, float]


@dataclass(eq=False)
class Terrain:
    """Ground of the scene: heights (nx, ny) [m] over a rectangle of lengths `size` [m] about its own origin.

    `orientation` is a quaternion xyzw.
    """

    name: str
    heights: np.ndarray
    size: tuple[float, float]
    position: Vector = (0.0, 0.0, 0.0)
    orientation: Vector = (0.0, 0.0, 0.0, 1.0)
    friction: float | None = None


@dataclass
class Loop:
    """What closes a loop of the tree: a frame on link a and one on link b that stay together.

    `connect` holds their origins together, `hinge` also their z axes, `weld` the whole frames. Without a link b it is
    the world, in its own frame.
    """

    name: str
    kind: LoopKind
    link_a: str
    link_b: str | None
    frame_a: Pose = field(default_factory=Pose)
    frame_b: Pose = field(default_factory=Pose)


@dataclass
class Tree:
    """A robot as plain data: `links` and `joints` in the order of the file, one root; `loops` are cut out of it.

    `source` names the file or the shipped robot in messages. `problems` are the things a reader of the file found
    odd but could live with; `pullback info` prints them. `base` is what the file says about the root link: bolted to
    the world, or free to move; None where it does not say. `file` is the URDF file it was read from, `visual_file` the
    one of any format that says how its links look, `expanded` the text of one that xacro wrote out, and `packages` the
    folders of ROS packages that the caller gave. `terrain` is ground that stands in the file beside the robot.

    `drives` are its actuators, `springs` those that act on several joints, and `keyframes` states by name. `initial`
    are the coordinates of joints, by name, that do not start at zero. `gravity` [m/s²] and `timestep` [s] are those of
    the file, None where it does not say. Shapes of two links in `excluded` never touch.
    """

    name: str
    links: list[Link]
    joints: list[Joint]
    source: str = ""
    problems: list[str] = field(default_factory=list)
    base: Literal["fixed", "floating"] | None = None
    loops: list[Loop] = field(default_factory=list)
    file: Path | None = None
    visual_file: Path | None = None
    drives: list[Drive] = field(default_factory=list)
    springs: list[Drive] = field(default_factory=list)
    keyframes: dict[str, Keyframe] = field(default_factory=dict)
    initial: dict[str, np.ndarray] = field(default_factory=dict)
    gravity: Vector | None = None
    timestep: float | None = None
    excluded: list[tuple[str, str]] = field(default_factory=list)
    expanded: bytes | None = None
    packages: dict[str, Path] = field(default_factory=dict)
    terrain: list[Terrain] = field(default_factory=list)

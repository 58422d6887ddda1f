"""The table of joint types. Adding one is its name and row here, and a kernel file of its name in `robot/joints/`."""

from __future__ import annotations

from math import pi
from typing import Literal, NamedTuple, get_args

JointType = Literal["fixed", "revolute", "continuous", "prismatic", "screw", "planar", "ball", "floating"]
"""The types of joints in descriptions. Fixed ones are merged and planar ones split; all others have a row below."""


class JointKind(NamedTuple):
    """What a joint is: the types of descriptions that become it, and its coordinates.

    With one coordinate more than velocities the last four coordinates are a quaternion xyzw, after a position where
    there are six velocities; velocities are angular, then linear, in the child's axes. Else they are plain numbers.
    """

    name: str
    types: tuple[JointType, ...]
    nq: int
    nv: int
    reach: float = 1.0
    """How far a coordinate without limits is drawn from zero [rad or m]."""
    constant: str = ""
    """The field of a `Joint` that kernels read as `topology.constant`, a number of the joint's own."""

    @property
    def turns(self) -> bool:
        """Whether the last four coordinates are a quaternion."""
        return self.nq == self.nv + 1

    @property
    def travels(self) -> bool:
        """Whether a position comes before the quaternion."""
        return self.turns and self.nv == 6


JOINT_KINDS = (
    JointKind("revolute", ("revolute", "continuous"), nq=1, nv=1, reach=pi),
    JointKind("prismatic", ("prismatic",), nq=1, nv=1),
    JointKind("screw", ("screw",), nq=1, nv=1, reach=pi, constant="pitch"),
    JointKind("ball", ("ball",), nq=4, nv=3),
    JointKind("free", ("floating",), nq=7, nv=6),
)

# one dof, a ball's or a free body's: the solves of `aba_kernels.py` know no others
assert all((kind.nq, kind.nv) in ((1, 1), (4, 3), (7, 6)) for kind in JOINT_KINDS)

KINDS = {kind.name: kind for kind in JOINT_KINDS}

KIND_NUMBER = {kind.name: number for number, kind in enumerate(JOINT_KINDS)}
"""What kernels know a kind by."""

COORDINATES = {kind.name: (kind.nq, kind.nv) for kind in JOINT_KINDS}
"""nq and nv of each kind."""

KIND_OF_TYPE: dict[str, str] = {name: kind.name for kind in JOINT_KINDS for name in kind.types}
"""The kind that each joint type of a description becomes."""

assert {*KIND_OF_TYPE, "fixed", "planar"} == {*get_args(JointType)}

"""Closed loops of a world: two frames, each on a link or on the world, that stay together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pullback.core.errors import PullbackError, shortened, unknown_name
from pullback.description.compile import WORLD, align_z
from pullback.description.tree import LoopKind, Pose
from pullback.rigid.world.items import ORIGIN, UPRIGHT, Placed, constant, robot_q, rotation_matrix
from pullback.rigid.world.values import Given, Tensor, Value, batched, check_quaternion, check_value
from pullback.robot.model import RobotModel
from pullback.robot.parameters import common_batch
from pullback.spatial.rotations_torch import rotate

ROW_KINDS: dict[LoopKind, tuple[int, ...]] = {
    "connect": (0, 1, 2),
    "hinge": (0, 1, 2, 3, 4),
    "weld": (0, 1, 2, 3, 4, 5),
}
"""Which of the motions in loop_kernels.py a loop stops."""

APART = 1e-3
"""How far apart [m], or turned [rad], the two frames may be at the start."""


@dataclass(eq=False)
class End:
    """One end of a loop: a frame on a link, or in the world where there is no item."""

    item: Placed | None
    link: int
    position: Value
    orientation: Value
    """A rotation matrix (3, 3), or a quaternion xyzw."""

    @property
    def values(self) -> tuple[Value, Value]:
        """What a user may have given as tensors."""
        return self.position, self.orientation

    @property
    def body(self) -> int:
        """The body of the item that the frame is on, -1: none that moves."""
        return WORLD if self.item is None or self.item.robot is None else self.item.robot.model.link_body[self.link]

    @property
    def name(self) -> str:
        """The link as a user names it."""
        if self.item is None or self.item.robot is None:
            return "world"
        return f"{self.item.name}/{self.item.robot.model.links[self.link].name}"

    def start(self) -> Pose:
        """Return the frame in the world at the start, that of the first of many worlds."""
        like = torch.zeros(0, dtype=torch.float64)
        R, p = _rotations(self.orientation, like)[0], batched(self.position, (3,), like)[0]
        frame = Pose(p.detach().cpu().numpy(), R.detach().cpu().numpy())
        return link_pose(self.item, self.link) @ frame


@dataclass(eq=False)
class ClosedLoop:
    """Two frames that stay together: their origins, for a hinge their z axes too, for a weld all of them."""

    name: str
    kind: LoopKind
    ends: tuple[End, End]


def loop_row_kinds(loop: ClosedLoop) -> tuple[int, ...]:
    """Return the rows of a loop."""
    return ROW_KINDS[loop.kind]


def link_pose(item: Placed | None, link: int) -> Pose:
    """Return where a link is in the world at the start."""
    if item is None or item.robot is None:
        return Pose()
    robot = item.robot
    if not robot.learned:
        robot = RobotModel(robot.model, dtype=torch.float64)
    with torch.no_grad():
        q = robot_q(item).to(dtype=robot.dtype, device=robot.device)
        # links may differ between worlds
        q = q.expand(max(len(x) for x in robot.kinematics({})), -1)
        position, quat = robot.compute_forward_kinematics(q, robot.model.links[link].name)
    p, orientation = (x[0].double().cpu().numpy() for x in (position, quat))
    pose = Pose(p, rotation_matrix(orientation))
    return pose if robot.model.base == "floating" else Pose(item.position, item.rotation) @ pose


# -- making them -----------------------------------------------------------------------------------------------------


def close_loop(
    items: Sequence[Placed], kind: LoopKind, a: str, b: str | None, frames: Mapping[str, Given | None]
) -> ClosedLoop:
    """Return a loop between two links; what is not said of b's frame is what meets a's at the start."""
    for end in (a,) if b is None else (a, b):
        if not isinstance(end, str):
            raise PullbackError(f"a {kind} is to hold {shortened(repr(end))}; give names of links, 'robot/link'")
    name = f"{kind} of {a} and {b or 'world'}"
    known = {"connect": (), "hinge": ("axis",), "weld": ("orientation_a", "orientation_b")}[kind]
    choices = ("position_a", "position_b", *known)
    for option in frames:
        if option not in choices:
            raise unknown_name("option", option, choices, name)
    given = {option: value for option, value in frames.items() if value is not None}
    first = find_link(items, a)
    second = End(None, 0, np.zeros(3), np.eye(3)) if b is None else find_link(items, b)
    first.position = check_value(f"position_a of the {name}", given.get("position_a", ORIGIN), (3,))
    if kind == "hinge":
        if "axis" not in given:
            raise PullbackError(f"axis of the {name} is None; give a direction on a, (3,)")
        axis = constant(f"axis of the {name}", given["axis"], (3,))  # pyright: ignore[reportArgumentType]
        if not np.linalg.norm(axis) > 0.0:
            raise PullbackError(f"axis of the {name} has no length; give a direction")
        first.orientation = align_z(axis / np.linalg.norm(axis))
    elif kind == "weld":
        first.orientation = check_quaternion(f"orientation_a of the {name}", given.get("orientation_a", UPRIGHT))
    _refuse_same_body(name, first, second)
    for a_side, value in given.items():
        b_side = a_side.replace("_a", "_b")
        follows = isinstance(value, Tensor) and (value.requires_grad or value.ndim > 1)
        if follows and b_side not in given:
            raise PullbackError(
                f"{a_side} of the {name} requires a gradient or differs between worlds; give {b_side} too, since what "
                f"is found at the start would not follow it"
            )
    # X_BG = X_WB^-1 X_WF
    here, there = first.start(), link_pose(second.item, second.link)
    met = Pose(there.rotation.T @ (here.translation - there.translation), there.rotation.T @ here.rotation)
    second.position, second.orientation = met.translation, met.rotation
    if "position_b" in given:
        second.position = check_value(f"position_b of the {name}", given["position_b"], (3,))
    if "orientation_b" in given:
        second.orientation = check_quaternion(f"orientation_b of the {name}", given["orientation_b"])
    return ClosedLoop(name, kind, (first, second))


def described_loops(item: Placed) -> list[ClosedLoop]:
    """Return the loops that a robot's description has."""
    if item.robot is None:
        return []
    model = item.robot.model
    loops = []
    for loop in model.tree.loops:
        ends = [
            End(
                None if link is None else item,
                0 if link is None else model.link_index[link],
                frame.translation,
                frame.rotation,
            )
            for link, frame in ((loop.link_a, loop.frame_a), (loop.link_b, loop.frame_b))
        ]
        loops.append(ClosedLoop(f"{item.name}/{loop.name}", loop.kind, (ends[0], ends[1])))
    return loops


def find_link(items: Sequence[Placed], name: str) -> End:
    """Return the origin of a link that is named `robot/link`, or like the only link of a free body."""
    robots = {item.name: (item, item.robot) for item in items if item.robot is not None}
    thing, _, link = name.partition("/")
    if thing not in robots:
        raise unknown_name("robot or free body", thing, robots)
    item, robot = robots[thing]
    links = robot.model.link_index
    moving = [k for k, body in enumerate(robot.model.link_body) if body != WORLD]
    if not link and len(moving) == 1:
        return End(item, moving[0], np.zeros(3), np.eye(3))
    if link not in links:
        raise unknown_name("link", name, [f"{thing}/{choice}" for choice in links])
    return End(item, links[link], np.zeros(3), np.eye(3))


def _refuse_same_body(name: str, first: End, second: End) -> None:
    both_stand = first.body == WORLD and second.body == WORLD
    if both_stand or (first.item is second.item and first.body == second.body):
        raise PullbackError(
            f"{name}: {first.name!r} and {second.name!r} cannot move against each other; name links of two bodies, "
            f"one of which moves"
        )


def check_closed(loops: Sequence[ClosedLoop], cfm: float | None) -> None:
    """Refuse loops that are not closed at the start, or that hold a body to itself."""
    if loops and cfm == 0.0:
        raise PullbackError("loops need a softness: most stop a motion that is stopped already; give cfm > 0")
    for loop in loops:
        _refuse_same_body(loop.name, *loop.ends)
        F, G = (end.start() for end in loop.ends)
        apart = float(np.linalg.norm(F.translation - G.translation))
        f, g = F.rotation, G.rotation
        turned = {"connect": 0.0, "hinge": np.linalg.norm(np.cross(f[:, 2], g[:, 2])), "weld": _angle(f.T @ g)}
        if apart > APART or turned[loop.kind] > APART:
            what = f"{apart:.3g} m apart" if apart > APART else f"turned by {float(turned[loop.kind]):.3g} rad"
            a, b = (end.name for end in loop.ends)
            raise PullbackError(
                f"loop {loop.name!r} is open at the start: its frames on {a!r} and {b!r} are {what}; start from "
                f"coordinates that close it, add(..., q=robot.close_loops(q)), or leave out the frame on {b!r}"
            )


def _angle(R: np.ndarray) -> float:
    sine = np.linalg.norm([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
    return float(np.arctan2(sine, np.trace(R) - 1.0))


# -- the rows that kernels read --------------------------------------------------------------------------------------

LinkFrames = Callable[[Placed | None, Sequence[int]], tuple[Tensor, Tensor]]


def loop_rows(loops: Sequence[ClosedLoop], links: LinkFrames, like: Tensor) -> Tensor:
    """Return axes and origins of the frames on their bodies, (b, 24 n); `links` gives R_BL and p_BL of links."""
    rows = [like.new_zeros(1, 0)]
    for end in (end for loop in loops for end in loop.ends):
        R_BL, p_BL = (x[:, 0] for x in links(end.item, [end.link]))
        R_BF = R_BL @ _rotations(end.orientation, like)
        p_BF = p_BL + (R_BL @ batched(end.position, (3,), like)[..., None])[..., 0]
        batch = common_batch(R_BF, p_BF)
        rows += [R_BF.mT.flatten(1).expand(batch, -1), p_BF.expand(batch, -1)]
    batch = common_batch(*rows)
    return torch.cat([row.expand(batch, -1) for row in rows], 1)


def _rotations(orientation: Value, like: Tensor) -> Tensor:
    """Return rotation matrices (b, 3, 3) of one, or of quaternions."""
    if orientation.shape == (3, 3):
        return batched(orientation, (3, 3), like)
    quat = batched(orientation, (4,), like)
    quat = quat / torch.linalg.vector_norm(quat, dim=-1, keepdim=True)
    axes = torch.eye(3).to(like).expand(len(quat), 3, 3)
    return rotate(quat[:, None].expand(-1, 3, 4), axes).mT

"""What acts on the joints of a world, as kernels read it: actuators in the order of the control u, then springs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from pullback.rigid.compile.scene import ACTUATOR_ROWS
from pullback.rigid.world.actuators import AFFINE, Numbers
from pullback.rigid.world.items import Placed, driven_joints, has_spring
from pullback.robot.model import RobotModel

Tensor = torch.Tensor


class DriveArrays(NamedTuple):
    """Actuators and springs: the dofs that each acts on, its share of the force on each, and its law."""

    nu: int
    start: np.ndarray
    """Where the dofs of each start, (n + 1,)."""
    dof: np.ndarray
    share: np.ndarray
    law: np.ndarray
    laws: tuple[str, ...]
    """The kernels files of the laws, the affine one first."""
    compensates: bool
    """Whether the weight of some link is carried."""

    @property
    def count(self) -> int:
        """Number of actuators and springs."""
        return len(self.law)


def find_drives(items: Sequence[Placed], first_dofs: Sequence[int]) -> DriveArrays:
    """Return what acts on the joints of all items, whose dofs start at `first_dofs`."""
    driven: list[dict[int, float]] = []
    springs: list[dict[int, float]] = []
    files: list[str] = []
    for item, first in zip(items, first_dofs):
        if item.robot is None:
            continue
        dofs = {body.joint.name: first + body.v_start for body in item.bodies}
        of_item = [driven_joints(item, name) for name in item.actuators]
        sprung = [{body.joint.name: 1.0} for body in item.bodies if has_spring(item, body)]
        sprung += [spring.joints for spring in item.robot.model.tree.springs]
        driven += [{dofs[joint]: share for joint, share in joints.items()} for joints in of_item]
        springs += [{dofs[joint]: share for joint, share in joints.items()} for joints in sprung]
        files += [actuator.law for actuator in item.actuators.values()]
    laws = (AFFINE, *sorted({*files} - {AFFINE}))
    every = driven + springs
    return DriveArrays(
        nu=len(driven),
        start=np.cumsum([0, *map(len, every)]).astype(np.int32),
        dof=np.array([dof for joints in every for dof in joints], dtype=np.int32),
        share=np.array([share for joints in every for share in joints.values()], dtype=np.float64),
        law=np.array([laws.index(file) for file in files] + [0] * len(springs), dtype=np.int32),
        laws=laws,
        compensates=any(item.robot is not None and item.robot.compensates_gravity for item in items),
    )


def stiff_actuators(items: Sequence[Placed]) -> Tensor:
    """Return, for actuators and then springs, whether a step may take the stiffness at its end: 1 or 0, (n,).

    Those that act on several joints do not: they would fill a block of the mass matrix.
    """
    driven, springs = [], []
    for item in items:
        if item.robot is None:
            continue
        driven += [a.is_stiff and len(driven_joints(item, name)) == 1 for name, a in item.actuators.items()]
        springs += [True] * sum(has_spring(item, body) for body in item.bodies)
        springs += [len(spring.joints) == 1 for spring in item.robot.model.tree.springs]
    return torch.tensor([float(x) for x in driven + springs])


def spring_rows(item: Placed, robot: RobotModel, like: Tensor) -> Tensor:
    """Return the numbers of a robot's springs, (b, 10 n): those of joints, then those on several joints."""
    stiffness, rest = robot.springs({})
    links = [robot.model.link_index[body.joint.child] for body in item.bodies if has_spring(item, body)]
    kp, bias = stiffness[:, links], (stiffness * rest)[:, links]
    several = robot.model.tree.springs
    constant = {name: like.new_tensor([[getattr(s, name) for s in several]]) for name in ("kp", "kd", "bias")}

    def joined(a: Tensor, b: Tensor) -> Tensor:
        return torch.cat([a, b.expand(len(a), -1)], 1)

    kp, bias, kd = (
        joined(kp, constant["kp"]),
        joined(bias, constant["bias"]),
        joined(torch.zeros_like(kp), constant["kd"]),
    )
    none, endless = torch.zeros_like(kp), torch.full_like(kp, torch.inf)
    numbers = Numbers(none, kp, kd, bias, -endless, endless, -endless, endless, none, none)
    return torch.stack(list(numbers), -1).flatten(1)  # pyright: ignore[reportArgumentType]


def spring_energy(drives: DriveArrays, actuators: Tensor, coordinates: np.ndarray, q: Tensor) -> Tensor:
    """Return the energy [J] (B,) of all springs at q (B, nq); `coordinates` are those of the dofs."""
    total = q.new_zeros(len(q))
    numbers = actuators.unflatten(1, (-1, int(ACTUATOR_ROWS)))
    for k in range(drives.nu, drives.count):
        at = slice(drives.start[k], drives.start[k + 1])
        length = q[:, coordinates[drives.dof[at]]] @ q.new_tensor(drives.share[at])
        kp, bias = numbers[:, k, 1], numbers[:, k, 3]
        # at rest where kp length = bias; a damper alone has no energy
        rest = bias / torch.where(kp > 0.0, kp, 1.0)
        total = total + 0.5 * kp * (length - rest) ** 2
    return total

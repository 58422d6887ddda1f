"""Couplings of a world: a joint that follows another one, as mimic joints and gears do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pullback.core.errors import PullbackError, shortened, unknown_name
from pullback.description.compile import Body
from pullback.rigid.world.items import Placed, item_q, one_dof
from pullback.rigid.world.values import Given, Tensor, Value, batched, check_value
from pullback.robot.parameters import common_batch

APART = 1e-3
"""How far [rad or m] a follower may be at the start from where its leader wants it."""


@dataclass(frozen=True, eq=False)
class CoupledJoint:
    """A joint with one degree of freedom of something in the world."""

    item: Placed
    body: Body

    @property
    def name(self) -> str:
        """The joint as a user names it."""
        return f"{self.item.name}/{self.body.joint.name}"

    def start(self) -> float:
        """Return the coordinate [rad or m] at the start."""
        return float(item_q(self.item)[self.body.q_start])


@dataclass(eq=False)
class JointCoupling:
    """A joint that follows another: q_follower = multiplier q_leader + offset."""

    name: str
    follower: CoupledJoint
    leader: CoupledJoint
    multiplier: Value
    offset: Value


def couple_joints(
    items: Sequence[Placed], follower: str, leader: str, multiplier: Given, offset: Given | None
) -> JointCoupling:
    """Return a coupling of two joints; without an offset they are coupled as they stand at the start."""
    name = f"coupling of {follower} to {leader}"
    first, second = _find_joint(items, follower), _find_joint(items, leader)
    if first.item is second.item and first.body is second.body:
        raise PullbackError(f"{name}: a joint cannot follow itself; name two joints")
    ratio = check_value(f"multiplier of the {name}", multiplier)
    if offset is None:
        if isinstance(ratio, Tensor):
            raise PullbackError(
                f"the multiplier of the {name} is a tensor; give the offset too, since what is found at the start "
                f"would not follow it"
            )
        offset = first.start() - float(ratio) * second.start()
    return JointCoupling(name, first, second, ratio, check_value(f"offset of the {name}", offset))


def described_couplings(item: Placed) -> list[JointCoupling]:
    """Return the couplings that a robot's description has: its mimic joints."""
    by_name = {body.joint.name: body for body in item.bodies}
    couplings = []
    for body in item.bodies:
        mimic = body.joint.mimic
        if mimic is not None:
            follower, leader = CoupledJoint(item, body), CoupledJoint(item, by_name[mimic.joint])
            numbers = (np.asarray(float(x)) for x in (mimic.multiplier, mimic.offset))
            couplings.append(JointCoupling(f"{follower.name} mimics {leader.name}", follower, leader, *numbers))
    return couplings


def mimic_advice(items: Sequence[Placed], nq: int) -> str:
    """Return why a state with nq coordinates does not fit, if it lacks exactly those of mimic joints."""
    robots = [item.robot for item in items if item.robot is not None]
    mimics = [f"{item.name}/{body.joint.name}" for item in items for body in item.bodies if body.joint.mimic]
    if not mimics or nq != sum(robot.nq for robot in robots):
        return ""
    return (
        f"; a world's q and qd hold the mimic joints too ({shortened(', '.join(mimics))}): "
        f"q = multiplier q_leader + offset, qd = multiplier qd_leader"
    )


def _find_joint(items: Sequence[Placed], name: str) -> CoupledJoint:
    """Return a joint that is named `robot/joint`."""
    found = {f"{i.name}/{b.joint.name}": CoupledJoint(i, b) for i in items for b in i.bodies if one_dof(b)}
    if name not in found:
        raise unknown_name("joint with one degree of freedom", name, found)
    return found[name]


def check_coupled(couplings: Sequence[JointCoupling]) -> None:
    """Refuse followers that do not start where their leaders want them; of many worlds the first is looked at."""
    like = torch.zeros(0, dtype=torch.float64)
    for coupling in couplings:
        m, c = (float(batched(x, (), like)[0].detach()) for x in (coupling.multiplier, coupling.offset))
        wanted, found = m * coupling.leader.start() + c, coupling.follower.start()
        if abs(found - wanted) > APART:
            raise PullbackError(
                f"{coupling.name}: the follower starts at {found:.6g}, and {m:g} times the leader plus {c:g} is "
                f"{wanted:.6g}; start from coordinates that agree, add(..., q=...)"
            )


def coupling_rows(couplings: Sequence[JointCoupling], like: Tensor) -> Tensor:
    """Return multiplier and offset of each coupling, (b, 2 n)."""
    columns = [batched(x, (1,), like) for coupling in couplings for x in (coupling.multiplier, coupling.offset)]
    if not columns:
        return like.new_zeros(1, 0)
    batch = common_batch(*columns)
    return torch.cat([column.expand(batch, 1) for column in columns], 1)

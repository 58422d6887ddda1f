"""From the table of joint types to kernel functions that ask the joint at hand."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pullback.core.dispatch import dispatched
from pullback.description.joints import JOINT_KINDS, JointKind
from pullback.robot.joints import one_dof_kernels

FILES = tuple(import_module(f"pullback.robot.joints.{kind.name}_kernels") for kind in JOINT_KINDS)


def of_joints(which: Callable[[JointKind], bool] = lambda kind: True) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that makes a declaration, called joint_x, the function x of the kernel file of each joint.

    Its first arguments are `topology` and `i`, the body whose joint is meant. `which` leaves out joints of which it is
    never asked, or for which there is nothing to do.
    """

    def decorate(declaration: Callable[..., Any]) -> Any:
        name = declaration.__name__.removeprefix("joint_")
        branches = {number: _answer(kind, name) for number, kind in enumerate(JOINT_KINDS) if which(kind)}
        return dispatched(declaration, "topology.kind[i]", branches)

    return decorate


def _answer(kind: JointKind, name: str) -> Any:
    """Return what a kind has under a name: in its row, in its file, or as every joint with one coordinate has it."""
    places = [kind, FILES[JOINT_KINDS.index(kind)]]
    if kind.nq == kind.nv == 1:
        places.append(one_dof_kernels)
    for place in places:
        if hasattr(place, name):
            return getattr(place, name)
    raise NotImplementedError(f"pullback/robot/joints/{kind.name}_kernels.py has no function {name!r}")

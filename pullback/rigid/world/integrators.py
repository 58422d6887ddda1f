"""How a world steps in time, and what may be left out of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from pullback.core.errors import PullbackError

if TYPE_CHECKING:
    from pullback.rigid.compile.compile import SceneArrays

Integrator = Literal["semi_implicit", "explicit", "rk4", "midpoint"]
Part = Literal["contacts", "limits", "friction", "tree_energy"]
Damping = Literal["explicit", "implicit"]
Impacts = Literal["step", "split"]


class Smooth(NamedTuple):
    """An integrator for worlds without contact: its kernels file, with `step` and `retrace`, and its number of stages.

    Each stage has rows of scratch for q, qd, qdd (or a momentum) and for a factor of the mass matrix.
    """

    kernels: str
    stages: int


SMOOTH: dict[str, Smooth] = {
    "explicit": Smooth("pullback.rigid.step.runge_kutta_kernels", stages=1),
    "rk4": Smooth("pullback.rigid.step.runge_kutta_kernels", stages=4),
    "midpoint": Smooth("pullback.rigid.step.midpoint_kernels", stages=2),
}
"""All integrators but the one with contact, "semi_implicit"."""


def default_damping(integrator: Integrator) -> Damping:
    """Return how damping is taken unless a user says: implicitly wherever it can be."""
    return "explicit" if integrator in SMOOTH else "implicit"


def check_integration(
    integrator: Integrator, damping: Damping | None, impacts: Impacts, without: Collection[Part]
) -> None:
    """Refuse choices that there are not, or that do not go together."""
    choices = (("damping", damping, Damping), ("integrator", integrator, Integrator), ("impacts", impacts, Impacts))
    for what, choice, kind in choices:
        if choice not in get_args(kind) and not (what == "damping" and choice is None):
            raise PullbackError(f"{what} is {choice!r}; choose {_choices(get_args(kind))}")
    is_list = isinstance(without, Collection) and not isinstance(without, str)
    if not is_list or any(part not in get_args(Part) for part in without):
        raise PullbackError(f"without is {without!r}; give a list of {_choices(get_args(Part))}")
    if integrator in SMOOTH and damping == "implicit":
        raise PullbackError(
            f"integrator={integrator!r} takes damping where its stages are, and cannot have damping='implicit'; leave "
            f"one of them out"
        )


def _choices(names: Collection[str]) -> str:
    *first, last = map(repr, names)
    return f"{', '.join(first)} or {last}"


def refuse_rough(arrays: SceneArrays, integrator: Integrator) -> None:
    """Refuse a world in which something may touch, come to an end or stick, and name the first."""

    def joint(dof: int) -> str:
        return f"the joint of {arrays.body_names[arrays.dof_body[dof]]!r}"

    if arrays.nloop:
        raise PullbackError(
            f"integrator={integrator!r} is for motion without constraints, and the world has {arrays.nloop} closed "
            f"loops; leave integrator at 'semi_implicit'"
        )
    if arrays.ncoupling:
        raise PullbackError(
            f"integrator={integrator!r} is for motion without constraints, and the world has {arrays.ncoupling} joints "
            f"that follow others; leave integrator at 'semi_implicit'"
        )
    if arrays.npair:
        a, b = (arrays.shape_names[pair[0]] for pair in (arrays.pair_a, arrays.pair_b))
        found = f"{a!r} and {b!r} may touch; keep them apart with group and mask", "contacts"
    elif len(arrays.limit_dof):
        found = f"{joint(arrays.limit_dof[0])} has an end; take the limits out of its description", "limits"
    elif len(arrays.friction_dof):
        found = f"{joint(arrays.friction_dof[0])} has dry friction; take that out of its description", "friction"
    else:
        return
    raise PullbackError(
        f"integrator={integrator!r} is for smooth motion, and {found[0]}, or leave all {found[1]} out: "
        f"compile(..., without=[{found[1]!r}])"
    )

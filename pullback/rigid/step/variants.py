"""The kinds of steps there are: shapes, solver, integrator and floating-point type choose the functions of one `Step`.

A step is written once, for spheres, capsules, boxes and planes under projected Gauss-Seidel in float64. A variant is a
copy of it in which some functions, however deep, are replaced by others (docs/decisions/0007), so that each kernel is
compiled with what its worlds need and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Literal

import numpy as np
import warp as wp

from pullback.core.codegen import rebound
from pullback.core.modules import kernel_module, made_once
from pullback.rigid.collide.collide_kernels import collide_pair, collide_round_pair
from pullback.rigid.compile.compile import SceneArrays
from pullback.rigid.compile.scene import PLANE, SPHERE
from pullback.rigid.solvers.solver import Solver
from pullback.rigid.step.actuator_kernels import law, law_or_second

ShapeSet = Literal["round", "plain", "all", "all_smooth"]
"""Spheres and planes; capsules and boxes too; cylinders, meshes and fields too; smooth shapes too."""


GROUPED = tuple(f"pullback.rigid.solvers.{name}_kernels" for name in ("pgs", "finish", "exact"))
"""Solvers whose steps can be begun in the lanes of vectors."""


@dataclass(frozen=True, eq=False)
class Step:
    """The device functions of one kind of step, for one floating-point type. Kernel factories take it."""

    name: str
    """In the names of kernel modules."""
    real: type
    step: Any
    """(job, u, parameters, w, scratch) -> status: replace the state in scratch by the one after the step."""
    retrace: Any
    """(job, pulls_back, u, parameters, w, adj_u, adj_parameters, scratch, nowhere): the step again, or its vjp."""
    chosen: dict[Any, Any]
    """Functions that take the place of others in this kind of step."""
    replaced: dict[Any, Any]
    """Functions as this kind of step calls them, those that were asked for so far."""
    splits: bool = False
    """It is split where something touches."""
    in_groups: bool = False
    """Groups of worlds can begin it in the lanes of vectors on a CPU (step/group_kernels.py)."""
    apart: bool = False
    """Rollout, its vjp and that of the report on contacts are modules of their own, as on a GPU."""

    def module(self, name: str) -> Any:
        """Return the module of the kernels called `name`; on a CPU all of them are one (docs/decisions/0020)."""
        return kernel_module(f"{name if self.apart else 'rollout'}_{self.name}", self.real, large=True)

    def variant(self, function: Any) -> Any:
        """Return a function of the step as this kind of step calls it."""
        return variant(function, self.name, self.replaced)


@made_once
def for_gpu(kind: Step) -> Step:
    """Return a kind of step with its kernels apart: there a vjp takes minutes to compile, and a rollout needs none."""
    return replace(kind, apart=True)


def variant(function: Any, name: str, replaced: dict[Any, Any]) -> Any:
    """Return a device function with every call of a key of `replaced`, however deep, replaced by its value.

    Functions on the way there are copied under names that end in `name`; what takes the place of another is taken as it
    is. All that are visited are added to `replaced`, so that kernels of one module share their copies.
    """

    def visit(visited: Any) -> Any:
        if visited not in replaced:
            others = {called: new for called, x in _called(visited).items() if (new := visit(x)) is not x}
            replaced[visited] = rebound(visited, f"{visited.key}_{name}", **others) if others else visited
        return replaced[visited]

    return visit(function)


def _called(function: Any) -> dict[str, Any]:
    """Return the device functions of ours that a device function calls, by the names it calls them."""
    names = function.func.__globals__
    found = ((name, names.get(name)) for name in function.func.__code__.co_names)
    return {name: x for name, x in found if isinstance(x, type(function)) and x.func is not None}


def shape_set(arrays: SceneArrays) -> ShapeSet:
    """Return the smallest set that has all shapes of a world."""
    if arrays.geometry.has_smooth:
        return "all_smooth"
    if not arrays.geometry.is_plain:
        return "all"
    is_round = np.isin(arrays.shape_kind, (int(SPHERE), int(PLANE))).all()
    return "round" if is_round else "plain"


def shape_functions(shapes: ShapeSet) -> dict[Any, Any]:
    """Return what takes the place of the collision functions of plain shapes."""
    if shapes == "round":
        return {collide_pair: collide_round_pair}
    if shapes == "plain":
        return {}
    # rare shapes and solvers are imported lazily: Warp takes 0.3 s to read them
    from pullback.rigid.collide.collide_kernels import collide_one, contact_vjp

    if shapes == "all":
        from pullback.rigid.collide.all_shapes_kernels import any_contact_vjp, collide_any

        return {collide_one: collide_any, contact_vjp: any_contact_vjp}
    from pullback.rigid.collide.smooth.pair_kernels import any_smooth_contact_vjp, collide_any_smooth

    return {collide_one: collide_any_smooth, contact_vjp: any_smooth_contact_vjp}


def actuator_functions(laws: tuple[str, ...]) -> dict[Any, Any]:
    """Return what takes the place of the affine law of actuators: a chain that chooses among all laws of a world."""
    chain = law
    for kind, file in enumerate(laws[1:], 1):
        functions = {"law": chain, "second_law": import_module(file).law, "SECOND": wp.constant(kind)}
        chain = rebound(law_or_second, f"law_or_{_name_of(file)}", **functions)
    return {} if chain is law else {law: chain}


def _name_of(file: str) -> str:
    """Return the name of a kernels file as it stands in those of kernels."""
    return file.rpartition(".")[2].removesuffix("_kernels")


def split_functions() -> dict[Any, Any]:
    """Return what takes the place of functions of the step where it is split at touches."""
    from pullback.rigid.collide.collide_kernels import pair_margin
    from pullback.rigid.step.actuator_kernels import time_ahead
    from pullback.rigid.step.constraint_kernels import is_impact_row, softness
    from pullback.rigid.step.part_forces_kernels import time_ahead_in_part, tree_work_of_part
    from pullback.rigid.step.split_kernels import write_velocities_of_part
    from pullback.rigid.step.step_kernels import write_velocities
    from pullback.rigid.step.touch_kernels import is_no_impact_row, margin_ahead, softness_of_part
    from pullback.rigid.step.tree_energy_kernels import tree_work

    return {
        is_impact_row: is_no_impact_row,
        pair_margin: margin_ahead,
        time_ahead: time_ahead_in_part,
        tree_work: tree_work_of_part,
        softness: softness_of_part,
        write_velocities: write_velocities_of_part,
    }


def functions_of_parts(name: str, replaced: dict[Any, Any]) -> dict[Any, Any]:
    """Return what takes the place of functions of whole steps: they call variants themselves."""
    from pullback.rigid.solvers.pgs_kernels import solver_vjp
    from pullback.rigid.step.force_kernels import free_forces
    from pullback.rigid.step.part_forces_kernels import part_forces
    from pullback.rigid.step.refine_kernels import part_solver_vjp
    from pullback.rigid.step.rows_vjp_kernels import mass_matrix_vjp
    from pullback.rigid.step.split_kernels import solve_unless_touched
    from pullback.rigid.step.split_vjp_kernels import part_mass_matrix_vjp
    from pullback.rigid.step.step_kernels import solve_unless_split

    # these call what they take the place of, and the others call them
    pairs = ((free_forces, part_forces), (mass_matrix_vjp, part_mass_matrix_vjp), (solver_vjp, part_solver_vjp))
    for old, new in pairs:
        replaced[old] = variant(new, name, replaced)
    return {solve_unless_split: variant(solve_unless_touched, name, replaced)}


def compensation_functions() -> dict[Any, Any]:
    """Return what takes the place of functions of the step where the weights of some bodies are carried."""
    from pullback.rigid.linearize.compensation_kernels import carried_change
    from pullback.rigid.linearize.solve_kernels import add_carried_change
    from pullback.rigid.step.actuator_kernels import add_carried_weights, carried_weights_vjp
    from pullback.rigid.step.compensation_kernels import carry_weights, carry_weights_vjp

    return {
        add_carried_weights: carry_weights,
        carried_weights_vjp: carry_weights_vjp,
        add_carried_change: carried_change,
    }


def contact_step(
    shapes: ShapeSet, solver: Solver, laws: tuple[str, ...], real: type, *, compensates: bool, splits: bool
) -> Step:
    """Return the step with contact, of one set of shapes, one solver and some laws of actuators."""
    return _contact_step(shapes, solver.kernels, laws, real, compensates, splits)


@made_once
def _contact_step(
    shapes: ShapeSet, kernels: str, laws: tuple[str, ...], real: type, compensates: bool, splits: bool
) -> Step:
    replaced = {**shape_functions(shapes), **import_module(kernels).functions(real), **actuator_functions(laws)}
    name = "_".join([shapes, _name_of(kernels), *map(_name_of, laws[1:])])
    if compensates:
        replaced |= compensation_functions()
        name += "_carried"
    if splits:
        from pullback.rigid.step.split_kernels import split_step as step
        from pullback.rigid.step.split_vjp_kernels import split_retrace as retrace

        name += "_split"
        replaced |= split_functions()
        replaced |= functions_of_parts(name if real == wp.float64 else f"{name}_single", replaced)
    else:
        from pullback.rigid.step.step_kernels import step
        from pullback.rigid.step.step_vjp_kernels import retrace
    suffix = name if real == wp.float64 else f"{name}_single"
    chosen = dict(replaced)
    functions = variant(step, suffix, replaced), variant(retrace, suffix, replaced)
    # other shapes and solvers would take long to compile once more, and laws of users may call what lanes do not have
    in_groups = shapes in ("round", "plain") and kernels in GROUPED and not laws[1:] and not splits
    return Step(name, real, *functions, chosen, replaced, splits, in_groups)


@made_once
def smooth_step(kernels: str, laws: tuple[str, ...], real: type, compensates: bool) -> Step:
    """Return the step of an integrator for worlds without contact, from its kernels file."""
    file, replaced = import_module(kernels), actuator_functions(laws)
    name = "_".join([_name_of(kernels), *map(_name_of, laws[1:])])
    if compensates:
        replaced |= compensation_functions()
        name += "_carried"
    chosen = dict(replaced)
    return Step(name, real, variant(file.step, name, replaced), variant(file.retrace, name, replaced), chosen, replaced)

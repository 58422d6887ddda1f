"""Sets of kernels by name: what `pullback compile` compiles and `pullback doctor` looks for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import warp as wp

from pullback.core.prepare import sources
from pullback.rigid import report_kernels, rollout_kernels
from pullback.rigid.compile.compile import compile_world
from pullback.rigid.compile.drives import AFFINE
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.solvers.exact import Exact
from pullback.rigid.solvers.pgs import PGS
from pullback.rigid.solvers.solver import Solver
from pullback.rigid.step.variants import ShapeSet, Step, contact_step, for_gpu, shape_set
from pullback.rigid.world.world import World
from pullback.robot import operators
from pullback.robot.load import load

KernelSet = Literal["robots", "round", "plain", "all", "smooth", "linearize", "feedback", "heat"]
SolverName = Literal["pgs", "exact", "compliant"]

MEANING: dict[KernelSet, str] = {
    "robots": "kinematics and dynamics of robots",
    "round": "contact of spheres and planes",
    "plain": "contact of capsules and boxes too",
    "all": "contact of cylinders, meshes and fields too",
    "smooth": "contact of ellipsoids and other smooth shapes too",
    "linearize": "A and B of a step, for the sets of shapes chosen",
    "feedback": "rollouts under feedback, for the sets of shapes chosen",
    "heat": "a part being printed",
}

COMMON: tuple[KernelSet, ...] = ("robots", "round", "plain", "all", "linearize", "feedback", "heat")
"""The sets that a release ships."""

LOOKED_FOR: tuple[KernelSet, ...] = ("robots", "round", "plain", "all")

SHAPES: dict[KernelSet, ShapeSet] = {"round": "round", "plain": "plain", "all": "all", "smooth": "all_smooth"}
SOLVERS: dict[SolverName, Solver] = {"pgs": PGS(), "exact": Exact(), "compliant": Compliant()}
OF_ROBOTS = (
    operators.POSES, operators.JACOBIAN, operators.VELOCITIES, operators.INVERSE_DYNAMICS, operators.FORWARD_DYNAMICS,
    operators.MASS_MATRIX, operators.MOMENTUM,
)  # fmt: skip


def names() -> tuple[KernelSet, ...]:
    """Return the names of all sets."""
    return get_args(KernelSet)


def kernels_of(
    sets: Sequence[KernelSet], real: type, solvers: Sequence[SolverName] = ("pgs",), *, gpu: bool = False
) -> list[Any]:
    """Return the kernels of some sets for one of Warp's floating-point types; nothing is compiled."""
    steps = [
        contact_step(SHAPES[name], SOLVERS[solver], (AFFINE,), real, compensates=False, splits=False)
        for name in sets
        if name in SHAPES
        for solver in solvers
    ]
    found: list[Any] = []
    if "robots" in sets:
        found += [kernel for operator in OF_ROBOTS for kernel in operator.kernels(real)]
    for step in steps:
        found += kernels_of_step(step, linearize="linearize" in sets, feedback="feedback" in sets, gpu=gpu)
    if "heat" in sets:
        found += _kernels_of_heat(real)
    return [kernel for kernel in found if kernel is not None]


def kernels_of_step(step: Step, *, linearize: bool = False, feedback: bool = False, gpu: bool = False) -> list[Any]:
    """Return the kernels of one kind of step."""
    rollout = for_gpu(step) if gpu else step
    found = [*rollout_kernels.kernels(rollout), *report_kernels.kernels(rollout)]
    if linearize:
        from pullback.rigid.linearize import linearize_kernels

        found += linearize_kernels.kernels(step)
    if feedback:
        from pullback.rigid import feedback_kernels

        found += feedback_kernels.kernels(step)
    return found


def kernels_of_robot(
    robot: str, real: type, *, linearize: bool = False, feedback: bool = False, gpu: bool = False
) -> list[Any]:
    """Return the kernels that a world of a robot, shipped or of a file, on the ground needs."""
    world = World()
    world.add_ground()
    world.add(load(robot))
    arrays = compile_world(world, None, ())
    drives = arrays.drives
    step = contact_step(
        shape_set(arrays), PGS(), drives.laws, real, compensates=drives.compensates, splits=False
    )  # fmt: skip
    return [*kernels_of(["robots"], real), *kernels_of_step(step, linearize=linearize, feedback=feedback, gpu=gpu)]


def _kernels_of_heat(real: type) -> list[Any]:
    from pullback.thermal.conduction_kernels import flow_kernel
    from pullback.thermal.implicit_kernels import implicit_kernels
    from pullback.thermal.source_kernels import source_kernels
    from pullback.thermal.step_kernels import step_kernels
    from pullback.thermal.step_vjp_kernels import step_vjp_kernels

    groups = [factory(real) for factory in (implicit_kernels, source_kernels, step_kernels, step_vjp_kernels)]
    found = [kernel for group in groups for kernel in vars(group).values() if hasattr(kernel, "module")]
    return [flow_kernel(real), *found]


def readiness() -> dict[str, str]:
    """Return for the sets that most worlds need, by name and type, whether the CPU's kernels are ready."""
    states = {}
    for name in LOOKED_FOR:
        for real in (wp.float32, wp.float64):
            found = set(sources(kernels_of([name], real), "cpu").values())
            text = "not compiled yet" if found == {"none"} else "some compiled" if "none" in found else "ready"
            states[f"{name} {real.__name__}"] = text + (" (shipped)" if found == {"shipped"} else "")
    return states


def is_robot(name: str) -> bool:
    """Return whether a name is no set's, and so a robot's or a file's."""
    return name not in names() or Path(name).exists()

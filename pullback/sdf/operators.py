"""Fields as differentiable functions of points and parameters, and the arrays that kernels read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import warp as wp

from pullback.core import program as core
from pullback.core.program import Operator
from pullback.sdf.fields import STACK_ROWS, TAPE_ROWS, Fields
from pullback.sdf.program import Program
from pullback.sdf.samples import Samples


def _kernels(real: type) -> Any:
    # Warp takes 40 ms to read what few need
    from pullback.sdf import evaluate_kernels

    return evaluate_kernels.kernels(real)


VALUE_GRADIENT = Operator("the field", ("points", "parameters"), _kernels)


def make_fields(programs: Sequence[Program], samples: Sequence[Samples], device: str) -> Any:
    """Return programs, their grids and sample sets in one struct on a Warp device, numbered as they come."""
    lattices = list({id(x): x for program in programs for x in program.lattices}.values())
    number = {id(x): k for k, x in enumerate(lattices)}
    code = []
    for program in programs:
        # a program counts its own grids; kernels count all
        part = program.code.copy()
        if program.lattices:
            part[:, 3] = np.array([number[id(x)] for x in program.lattices])[part[:, 3]]
        code.append(part)
    sizes = [x.coefficients.size for x in lattices]
    starts = np.cumsum([0, *sizes])
    clusters = [len(x.cluster_first) - 1 for x in samples]
    points = np.cumsum([0, *(len(x.points) for x in samples)])
    edges = np.cumsum([0, *(len(x.edges) for x in samples)])
    result = Fields()
    arrays = {
        "code": (wp.int32, code),
        "first": (wp.int32, [np.cumsum([0, *(len(x.code) for x in programs)])]),
        "slope": (wp.float64, [np.array([x.slope for x in programs])]),
        "lattice": (wp.int32, [np.array([*x.counts, start]) for x, start in zip(lattices, starts)]),
        "frame": (wp.float64, [np.concatenate([x.origin, x.spacing]) for x in lattices]),
        "coefficients": (wp.float32, [x.coefficients for x in lattices]),
        "set_first": (wp.int32, [np.cumsum([0, *clusters])]),
        "cluster_first": (wp.int32, [*(x.cluster_first[:-1] + s for x, s in zip(samples, points)), points[-1:]]),
        "cluster": (wp.float64, [np.column_stack([x.centres, x.reaches]) for x in samples]),
        "sample": (wp.float64, [x.points for x in samples]),
        "edge_first": (wp.int32, [*(x.edge_first[:-1] + s for x, s in zip(samples, edges)), edges[-1:]]),
        "edge": (wp.float64, [x.edges for x in samples]),
    }
    for name, (dtype, parts) in arrays.items():
        flat = np.concatenate([np.ravel(part) for part in parts]) if parts else np.zeros(0)
        setattr(result, name, wp.array(flat.astype(wp.dtype_to_numpy(dtype)), dtype=dtype, device=device))
    return result


def value_gradient(program: Program) -> core.Program:
    """Return the function (points (B, 3), parameters (b, rows)) -> (B, 4): value, gradient."""
    return core.Program(
        VALUE_GRADIENT,
        lambda device: make_fields([program], [], device),
        rows=4,
        scratch=[STACK_ROWS],
        vjp_scratch=[TAPE_ROWS],
    )

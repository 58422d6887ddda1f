"""Contact problems that fall apart into islands are solved one by one, up to a size."""

from functools import cache
from typing import Any

import torch
import warp as wp

from pullback.core.modules import kernel_module
from pullback.rigid.solvers.exact_kernels import exact_rows
from pullback.rigid.solvers.finish_kernels import ISLAND_VECTORS, LARGEST, solve_islands
from pullback.rigid.solvers.problem import Problem as Rows
from tests.reference.contact_solver import Problem
from tests.reference.exact_solver import problems
from tests.rigid.test_exact_solver import TOLERANCE, exact
from tests.rigid.test_solvers import WARP, launch, like

Tensor = torch.Tensor


@cache
def kernel(real: type) -> Any:
    array = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_islands", real))
    def islands(p: Rows, tolerance: real, x: array):
        w = wp.tid()
        x[p.residual, w] = wp.where(solve_islands(p, tolerance, w, x), real(1.0), real(0.0))

    return islands


def solved(given: Problem) -> tuple[Tensor, Tensor]:
    """Return impulses, from zeros on, and whether they are the solution."""
    lam = torch.zeros_like(given.b)
    m, done = lam.shape[1], like(lam, 1)
    work = like(lam, m * (m + int(ISLAND_VECTORS)) + exact_rows(m))
    launch(kernel(WARP[lam.dtype]), given, True, TOLERANCE, lam=lam, residual=done, work=work)
    return lam, done[:, 0] == 1


def side_by_side(*given: Problem) -> tuple[Problem, list[Tensor]]:
    """Return several problems as one, all contacts before all scalar rows, and where the rows of each stand in it."""
    contacts = [p.mu.shape[1] for p in given]
    scalars = [p.lower.shape[1] for p in given]
    places, at, below = [], 0, 3 * sum(contacts)
    for nc, ns in zip(contacts, scalars, strict=True):
        places.append(torch.cat([torch.arange(at, at + 3 * nc), torch.arange(below, below + ns)]))
        at, below = at + 3 * nc, below + ns
    m = below
    A, b = given[0].A.new_zeros(len(given[0].b), m, m), given[0].b.new_zeros(len(given[0].b), m)
    for p, place in zip(given, places, strict=True):
        A[:, place[:, None], place] = p.A
        b[:, place] = p.b
    rest = (torch.cat(x, 1) for x in zip(*((p.mu, p.lower, p.upper) for p in given), strict=True))
    return Problem(A, b, *rest), places


def test_islands_are_solved_as_if_alone():
    parts = [problems("quadruped, 24 rows", 8, seed=1), problems("box on four corners", 8, seed=2)]
    parts.append(problems("quadruped, 24 rows", 8, seed=3))
    assert all(p.lower.shape[1] > 0 for p in parts[::2])
    whole, places = side_by_side(*parts)
    lam, done = solved(whole)
    alone = [exact(p, torch.zeros_like(p.b), True) for p in parts]
    assert torch.equal(done, torch.stack([steps >= 0 for _, steps in alone]).all(0))
    assert done.sum() >= 6
    for place, (expected, _) in zip(places, alone, strict=True):
        assert torch.equal(lam[done][:, place], expected[done])


def test_an_island_that_is_too_large_is_left_alone():
    """Boxes in a row, each coupled to the next by a trace of mass."""
    part = problems("box on four corners", 2, seed=4)
    count = int(LARGEST) // part.b.shape[1] + 1
    whole, _ = side_by_side(*[part] * count)
    lam, done = solved(whole)
    assert done.all()
    assert lam.abs().max() > 0
    step = part.b.shape[1]
    for k in range(count - 1):
        whole.A[:, step * k, step * (k + 1)] = whole.A[:, step * (k + 1), step * k] = 1e-9
    lam, done = solved(whole)
    assert not done.any()
    assert torch.equal(lam, torch.zeros_like(lam))

"""Contact problems are solved island by island, for the rows in play alone, up to a size."""

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
from tests.rigid.test_exact_solver import TOLERANCE, exact, residuals
from tests.rigid.test_solvers import WARP, launch, like, solve

Tensor = torch.Tensor


@cache
def kernel(real: type) -> Any:
    array = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_islands", real))
    def islands(p: Rows, tolerance: real, x: array):
        w = wp.tid()
        x[p.residual, w] = wp.where(solve_islands(p, tolerance, w, x), real(1.0), real(0.0))

    return islands


def solved(given: Problem, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return impulses, from zeros on unless a start is given, and whether they are the solution."""
    lam = torch.zeros_like(given.b) if start is None else start.clone()
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
    alone = [solved(p) for p in parts]
    assert torch.equal(done, torch.stack([found for _, found in alone]).all(0))
    assert done.sum() >= 6
    for place, (expected, _) in zip(places, alone, strict=True):
        assert torch.equal(lam[done][:, place], expected[done])


def test_rows_that_were_set_aside_are_taken_in_where_the_solution_needs_them():
    """From zeros, when all of them stand at a bound, and from sweeps: the same conditions hold as for the whole."""
    for kind in ("two boxes, 8 contacts", "quadruped, 24 rows"):
        given = problems(kind, 24, seed=5, cfm=1e-3)
        swept = solve(given, torch.zeros_like(given.b), 20, True)
        whole, _ = exact(given, swept, True)
        closed = whole[:, : 3 * given.mu.shape[1] : 3] > 0
        assert closed.any(1).sum() > 12
        assert (~closed).any(1).sum() > 12
        for start in (None, swept):
            lam, done = solved(given, start)
            assert done.all()
            assert (residuals(given, lam, True) < 10 * TOLERANCE).all()


def test_only_rows_in_play_count_against_the_size():
    """Boxes side by side, coupled by a trace of mass, most of them about to leave the ground."""
    part = problems("box on four corners", 2, seed=4)
    step = part.b.shape[1]
    count = int(LARGEST) // step + 1
    whole, places = side_by_side(*[part] * count)
    for k in range(count - 1):
        whole.A[:, step * k, step * (k + 1)] = whole.A[:, step * (k + 1), step * k] = 1e-9
    # all in play
    start = torch.full_like(whole.b, 1e-6)
    lam, done = solved(whole, start)
    assert not done.any()
    assert torch.equal(lam, start)
    for place in places[2:]:
        whole.b[:, place[::3]] = 1.0
        start[:, place] = 0.0
    lam, done = solved(whole, start)
    assert done.all()
    assert (lam[:, places[0]] > 0).any()
    assert torch.equal(lam[:, places[2]], torch.zeros_like(lam[:, places[2]]))
    assert (residuals(whole, lam, True) < 10 * TOLERANCE).all()


def test_limits_that_are_set_aside_push_on():
    """A scalar at a bound that is not zero moves the others: given its impulse, they are as without it."""
    given = problems("quadruped, 24 rows", 24, seed=6, cfm=1e-3)
    whole, _ = exact(given, torch.zeros_like(given.b), True)
    first = 3 * given.mu.shape[1]
    finite = given.upper.isfinite()
    at_bound = ((whole[:, first:] >= given.upper) | (whole[:, first:] <= given.lower)) & finite & (given.upper > 0)
    assert at_bound.any(1).sum() > 6
    lam, done = solved(given, whole)
    assert done.all()
    assert (residuals(given, lam, True) < 10 * TOLERANCE).all()
    assert ((lam - whole).abs().amax(1) < 1e-8 * (1 + whole.abs().amax(1))).all()

"""The exact solver of contact problems: against other solvers, its own conditions, and differences of its answers."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import warp as wp

from pullback.core.modules import kernel_module
from pullback.rigid.solvers.exact_kernels import EXACT_STEPS, exact_rows, exact_solve
from pullback.rigid.solvers.problem import Problem as Rows
from tests.reference import exact_solver as reference
from tests.reference.contact_solver import Problem, kkt_residual
from tests.reference.exact_solver import KINDS, problems
from tests.rigid.test_solvers import WARP, assert_close, implicit, launch, like, modes, one, random_like, solve

Tensor = torch.Tensor
TOLERANCE = 1e-11  # [m/s] of the rows' residuals
HARD = {"arm, 18 rows", "jammed arm, 32 rows"}
"""Kinds with more friction than they can use, some of whose problems no curve leads through."""
both_frictions = pytest.mark.parametrize("cone", [True, False], ids=["cone", "pyramid"])


@cache
def kernel(real: type) -> Any:
    array = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_exact_solver", real))
    def exact(p: Rows, tolerance: real, limit: int, x: array):
        w = wp.tid()
        x[p.residual, w] = real(exact_solve(p, tolerance, limit, w, x))

    return exact


def exact(
    given: Problem, start: Tensor, cone: bool, tolerance: float = TOLERANCE, limit: int = int(EXACT_STEPS)
) -> tuple[Tensor, Tensor]:
    """Return impulses and the number of systems that were solved for each problem of a batch."""
    lam, steps = start.clone(), like(start, 1)
    work = like(lam, exact_rows(lam.shape[1]))
    launch(kernel(WARP[start.dtype]), given, cone, tolerance, limit, lam=lam, residual=steps, work=work)
    return lam, steps[:, 0]


def residuals(given: Problem, lam: Tensor, cone: bool) -> Tensor:
    """Return the largest violation of the conditions of each problem [m/s], with steps of the rows' own size."""
    found = []
    for w in range(len(lam)):
        A, b, *rest = (x.double() for x in one(given, w))
        root = A.diagonal().sqrt()
        nc = len(rest[0])
        # one scale for a contact, so that its cone stays one
        root[: 3 * nc] = root[: 3 * nc].view(nc, 3).amax(1).repeat_interleave(3)
        scaled = Problem(
            A / root / root[:, None], b / root, rest[0], rest[1] * root[3 * nc :], rest[2] * root[3 * nc :]
        )
        found.append(kkt_residual(scaled, lam[w].double() * root, cone) * root.max())
    return torch.stack(found)


@both_frictions
@pytest.mark.parametrize("kind", KINDS)
def test_the_conditions_hold(kind, cone):
    """From the impulses that sweeps leave."""
    given = problems(kind, 36, seed=1)
    lam, steps = exact(given, solve(given, torch.zeros_like(given.b), 50, cone), cone)
    solved = steps >= 0
    assert solved.float().mean() >= (0.85 if kind in HARD else 1.0)
    # what rounding leaves where impulses are large, in the worst of 36
    rounding = 1e-14 * (given.A.diagonal(dim1=1, dim2=2) * lam.abs()).amax(1)
    assert (residuals(given, lam, cone) < 10 * TOLERANCE + 10 * rounding)[solved].all()


@both_frictions
def test_it_needs_no_start(cone):
    given = problems("two boxes, 8 contacts", 36, seed=2)
    warm, _ = exact(given, solve(given, torch.zeros_like(given.b), 50, cone), cone)
    for start in (torch.zeros_like(warm), random_like(warm)):
        lam, steps = exact(given, start, cone)
        assert (steps >= 0).all()
        assert (residuals(given, lam, cone) < 10 * TOLERANCE).all()
        # solutions with friction need not be unique; nearly all are
        same = (lam - warm).abs().amax(1) < 1e-6 * (1 + warm.abs().amax(1))
        assert same.float().mean() > 0.8


@both_frictions
@pytest.mark.parametrize("kind", ["box on eight corners", "two boxes, 8 contacts", "quadruped, 24 rows"])
def test_it_is_where_sweeps_converge(kind, cone):
    given = problems(kind, 12, seed=3, cfm=1e-2)
    swept = solve(given, torch.zeros_like(given.b), 100_000, cone)
    converged = residuals(given, swept, cone) < 1e-10
    lam, steps = exact(given, solve(given, torch.zeros_like(given.b), 50, cone), cone)
    assert converged.sum() >= 9
    assert (steps >= 0).all()
    assert ((lam - swept).abs().amax(1) < 1e-7 * (1 + swept.abs().amax(1)))[converged].all()


@both_frictions
def test_without_friction_it_is_a_quadratic_program(cone):
    """Against scipy's active sets, with bounds on either, both and neither side."""
    rng = np.random.default_rng(4)
    drawn = [
        reference.robot(rng, 3, 8, 9, motion, 0.0, 1e-4, "every") for motion in reference.MOTIONS for _ in range(4)
    ]
    given = Problem(*map(torch.stack, zip(*drawn)))
    lam, steps = exact(given, torch.zeros_like(given.b), cone)
    right = torch.stack([torch.tensor(reference.quadratic_program(p)) for p in drawn])
    assert (steps >= 0).all()
    assert ((lam - right).abs().amax(1) < 1e-8 * (1 + right.abs().amax(1))).all()


def test_it_is_among_all_solutions():
    """Of a pyramid, all cases tried."""
    rng = np.random.default_rng(5)
    drawn = [reference.robot(rng, 2, 0, 5, motion, 0.9, 1e-4) for motion in 4 * reference.MOTIONS]
    given = Problem(*map(torch.stack, zip(*drawn)))
    lam, steps = exact(given, torch.zeros_like(given.b), False)
    assert (steps >= 0).all()
    for w, problem in enumerate(drawn):
        found = torch.tensor(np.array(reference.all_solutions(problem)))
        assert len(found)
        assert (found - lam[w]).abs().amax(1).min() < 1e-7 * (1 + lam[w].abs().max())


@both_frictions
def test_impulses_stand_on_their_bounds(cone):
    """To the last bit, or to rounding in the length of a tangent: the adjoint reads the cases from them."""
    given = problems("two boxes, 16 contacts", 36, seed=6)
    lam, _ = exact(given, torch.zeros_like(given.b), cone)
    opened, sticking, sliding = modes(given, lam)
    assert min(opened, sticking, sliding) >= 20
    impulse = lam.unflatten(1, (-1, 3))
    assert (impulse[..., 0] >= 0).all()
    assert (impulse[impulse[..., 0] == 0] == 0).all()
    again, steps = exact(given, lam, cone)
    assert (steps <= 1).all()
    assert ((again - lam).abs().amax(1) < 1e-8 * lam.abs().amax(1) + 1e-12).all()


@both_frictions
@pytest.mark.parametrize("kind", ["box on eight corners", "two boxes, 8 contacts", "quadruped, 24 rows"])
def test_the_implicit_adjoint_is_central_differences(kind, cone):
    """Along a random direction in b, mu and bounds; differences across a kink are left out."""
    given = problems(kind, 24, seed=7, cfm=1e-3)
    lam, _ = exact(given, torch.zeros_like(given.b), cone)
    adj_lam = random_like(lam)
    adj = implicit(given, lam, adj_lam, cone)
    h, ends, cases = 1e-9, [], []
    moves = [0.1 * random_like(x, 5 + k) for k, x in enumerate(given[1:])]
    moves[1] *= given.mu
    for sign in (1, -1):
        moved = Problem(given.A, *(x + sign * h * dx for x, dx in zip(given[1:], moves)))
        ends.append(exact(moved, lam, cone)[0])
        cases.append([cases_of(one(moved, w), ends[-1][w]) for w in range(len(lam))])
    smooth = torch.tensor([a == b for a, b in zip(*cases)])
    difference = (adj_lam * (ends[0] - ends[1])).sum(1) / (2 * h)
    inner = torch.stack([(x * dx).sum(1) for x, dx in zip(adj[1:], moves)]).sum(0)
    assert smooth.sum() > 16
    assert ((difference - inner).abs() < 1e-4 * (1 + inner.abs()))[smooth].all()


def cases_of(problem: Problem, lam: Tensor) -> list[bool]:
    """Return which contacts are closed, which tangents are at their limit, and which scalars at a bound."""
    normal, *tangent = lam[: 3 * len(problem.mu)].view(-1, 3).unbind(1)
    limit = (1 - 1e-9) * problem.mu * normal
    tangent.append(torch.hypot(*tangent))
    scalar = lam[3 * len(problem.mu) :]
    slides = [t.abs() >= limit for t in tangent]
    return torch.cat([normal > 0, *slides, scalar <= problem.lower, scalar >= problem.upper]).tolist()


def test_it_finds_what_sweeps_do_not():
    """A box that slides on eight corners, almost rigid: the sweeps stand still, far from the solution."""
    rng = np.random.default_rng(8)
    drawn = [reference.stack(rng, 2, 8, "slide", 0.4, 1e-6) for _ in range(16)]
    given = Problem(*map(torch.stack, zip(*drawn)))
    swept = solve(given, torch.zeros_like(given.b), 2000, True)
    lam, steps = exact(given, swept, True)
    assert (steps >= 0).all()
    assert (residuals(given, lam, True) < 10 * TOLERANCE).all()
    assert (residuals(given, swept, True) > 1e-9).sum() >= 4
    assert ((swept - lam).abs().amax(1) > 0.01 * lam.abs().amax(1)).sum() >= 4


@both_frictions
def test_what_does_not_converge_is_left_as_it_was(cone):
    given = problems("two boxes, 8 contacts", 12, seed=9)
    start = random_like(given.b).abs()
    lam, steps = exact(given, start, cone, limit=1)
    assert (steps == -1).all()
    assert torch.equal(lam, start)


@both_frictions
def test_float32(cone):
    given = problems("two boxes, 8 contacts", 36, seed=10, cfm=1e-3)
    single = Problem(*(x.float() for x in given))
    lam, steps = exact(single, solve(single, torch.zeros_like(single.b), 50, cone), cone, tolerance=1e-5)
    right, _ = exact(given, torch.zeros_like(given.b), cone)
    assert (steps >= 0).all()
    assert (residuals(given, lam, cone) < 1e-4 * (1 + given.b.abs().amax(1))).all()
    change = torch.einsum("bij,bj->bi", given.A, lam.double() - right).abs().amax(1)
    assert change.median() < 1e-5


@both_frictions
def test_almost_rigid_in_float32_nothing_is_lost(cone):
    """Softness drowns in rounding, systems become singular: what is returned is finite and no worse for it."""
    single = Problem(*(x.float() for x in problems("two boxes, 8 contacts", 72, seed=11)))
    start = solve(single, torch.zeros_like(single.b), 50, cone)
    lam, steps = exact(single, start, cone, tolerance=1e-5)
    solved = steps >= 0
    assert lam.isfinite().all()
    assert solved.float().mean() > 0.8
    assert torch.equal(lam[~solved], start[~solved])
    assert residuals(single, lam, cone)[solved].median() < 1e-6


@pytest.mark.gpu
@both_frictions
def test_a_gpu_agrees(cone):
    given = problems("two boxes, 8 contacts", 36, seed=2)
    lam, _ = exact(given, torch.zeros_like(given.b), cone)
    there, steps = exact(Problem(*(x.cuda() for x in given)), torch.zeros_like(given.b).cuda(), cone)
    assert (steps >= 0).all()
    same = (there.cpu() - lam).abs().amax(1) < 1e-6 * (1 + lam.abs().amax(1))
    assert same.float().mean() > 0.8
    assert_close([there.cpu()[same]], [lam[same]], 1e-6)


@both_frictions
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_redundant_rows_without_softness(dtype, cone):
    """A joint between its limit and a contact, four rows and one direction: they press no more than needed."""
    generator = torch.Generator().manual_seed(6)
    Y = torch.randn(64, 4, 1, dtype=dtype, generator=generator)
    Y[:, 0], Y[:, 3] = -Y[:, 0].abs() - 0.1, Y[:, 3].abs() + 0.1
    speed = torch.randn(64, 1, dtype=dtype, generator=generator)
    A = Y @ Y.transpose(1, 2)
    b = (Y @ speed[:, :, None])[:, :, 0]
    full = torch.full((64, 1), torch.inf, dtype=dtype)
    given = Problem(A, b, torch.full_like(full, 0.8), torch.zeros_like(full), full)
    start = 1e-3 * torch.rand(64, 4, dtype=dtype, generator=generator)
    tolerance = TOLERANCE if dtype == torch.float64 else 1e-6
    lam, steps = exact(given, start, cone, tolerance)
    solved = steps >= 0
    assert solved.float().mean() > 0.95
    # the largest that one row alone needs is |speed| / 0.1
    assert (lam.abs().amax(1) < 100 * (speed[:, 0].abs() + 0.01))[solved].all()
    assert (residuals(given, lam, cone) < 1e3 * tolerance)[solved].all()

"""Sweeps over a contact problem that is written as a matrix."""

from functools import cache
from typing import Any

import pytest
import torch
import warp as wp

import pullback as pb
from pullback.core.modules import kernel_module
from pullback.rigid.solvers.pgs_kernels import MATRIX_ROWS
from pullback.rigid.solvers.problem import Problem as Rows
from pullback.rigid.solvers.sweep_kernels import solve_matrix
from tests.reference import contact_solver as reference
from tests.reference.contact_solver import Problem
from tests.rigid.test_solvers import WARP, both_frictions, launch, like, one, random_problems, solve

Tensor = torch.Tensor


def boxes(count: int, **contact: Any) -> tuple[Tensor, int]:
    """Return where the first of some boxes goes that are thrown onto the ground, and the steps not solved."""
    world = pb.World(contact=pb.PGS(cfm=1e-4, **contact))
    world.add_ground(friction=0.5)
    for k in range(count):
        world.add_box(f"box{k}", size=(0.2, 0.3, 0.1), mass=1.0, position=(2.0 * k, 0.0, 0.06))
    sim = world.compile(dt=2e-3, dtype=torch.float64)
    start = sim.initial_state()
    qd = torch.tensor([[0.3, -0.2, 0.5, 0.4, 0.2, -0.5]], dtype=torch.float64).repeat(1, count)
    with torch.no_grad():
        states = sim.rollout(pb.State(start.q, qd, start.impulses), 100)
    assert max(len(sim.contacts(states[t])[0]) for t in range(60, 100, 5)) == 4 * count
    return states.q[:, 0, :7], int(states.status.unconverged.max())


@both_frictions
def test_problems_with_and_without_their_matrix_are_solved_alike(cone):
    friction = "cone" if cone else "pyramid"
    small, unsolved = boxes(1, friction=friction)
    large, others = boxes(4, friction=friction)
    assert 3 * 4 <= MATRIX_ROWS < 3 * 16
    assert unsolved == others <= 1
    torch.testing.assert_close(large, small, rtol=0.0, atol=1e-12)


@cache
def sweeping(real: type) -> Any:
    array = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_matrix_sweeps", real))
    def sweep_until(p: Rows, limit: int, tolerance: real, x: array):
        w = wp.tid()
        sweeps, change = solve_matrix(p, limit, tolerance, w, x)
        x[p.work, w] = real(sweeps)
        x[p.work + 1, w] = change

    return sweep_until


def sweep_until(
    problems: Problem, start: Tensor, limit: int, tolerance: float, cone: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return impulses, numbers of sweeps and the changes of the last ones."""
    lam, told = start.clone(), like(start, 2)
    kernel = sweeping(WARP[lam.dtype])
    launch(kernel, problems, cone, limit, tolerance, lam=lam, work=told, residual=like(lam, lam.shape[1]))
    return lam, told[:, 0], told[:, 1]


@both_frictions
@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_sweeps_over_the_matrix_are_those_of_the_reference(cone, dtype, close):
    problems = random_problems(20, nc=3, ns=4, dtype=dtype)
    start = 0.1 * torch.rand(20, 13, dtype=dtype, generator=torch.Generator().manual_seed(1))
    for sweeps in (1, 2, 15):
        expected = torch.stack([reference.solve(one(problems, w), start[w], sweeps, cone) for w in range(20)])
        lam, done, _ = sweep_until(problems, start, sweeps, -1.0, cone)
        assert (done == sweeps).all()
        torch.testing.assert_close(lam, expected, rtol=0.0, atol=close)


@both_frictions
def test_sweeps_over_the_matrix_stop_where_impulses_hardly_change(cone):
    problems = random_problems(20)
    start = torch.zeros_like(problems.b)
    lam, sweeps, change = sweep_until(problems, start, 3000, 1e-9, cone)
    assert ((sweeps > 1) & (sweeps < 3000) & (change <= 1e-9)).all()
    for w in range(20):
        before = solve(problems, start, int(sweeps[w]) - 1, cone)[w]
        after = solve(problems, start, int(sweeps[w]), cone)[w]
        diagonal = problems.A[w].diagonal()
        assert float((diagonal * (after - before)).abs().max()) == pytest.approx(float(change[w]), rel=1e-3)
        torch.testing.assert_close(lam[w], after, rtol=0.0, atol=1e-12)

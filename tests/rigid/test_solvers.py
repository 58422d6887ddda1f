"""Adjoints of the contact solver: unrolled against autograd, implicit against unrolled, autograd and differences."""

from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
import warp as wp

from pullback.core.modules import kernel_module
from pullback.rigid.solvers.implicit_kernels import implicit_rows, implicit_vjp
from pullback.rigid.solvers.problem import Problem as Rows
from pullback.rigid.solvers.rows_kernels import SMALL
from pullback.rigid.solvers.unrolled_kernels import sweep, unrolled_rows, unrolled_vjp
from tests.reference import contact_solver as reference
from tests.reference.contact_solver import Problem

Tensor = torch.Tensor
wp.init()
WARP = {torch.float32: wp.float32, torch.float64: wp.float64}


class Kernels(NamedTuple):
    solve: Any
    unrolled: Any
    implicit: Any


@cache
def kernels(real: type) -> Kernels:
    array = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_solvers", real))
    def solve(p: Rows, sweeps: int, x: array):
        w = wp.tid()
        m = 3 * p.nc + p.ns
        for i in range(m):
            x[p.work + i, w] = x[p.lam + i, w]
        for _ in range(sweeps):
            sweep(p, m, w, x)
        for i in range(m):
            x[p.lam + i, w] = x[p.work + i, w]

    @wp.kernel(module=kernel_module("test_solvers", real))
    def unrolled(p: Rows, sweeps: int, x: array):
        unrolled_vjp(p, sweeps, wp.tid(), x)

    @wp.kernel(module=kernel_module("test_solvers", real))
    def implicit(p: Rows, x: array):
        implicit_vjp(p, wp.tid(), x)

    return Kernels(solve, unrolled, implicit)


def launch(kernel: Any, problems: Problem, cone: bool, *numbers: Any, **arrays: Tensor) -> None:
    """Run a kernel over a batch of problems, its other arrays (B, ...) given by the names they have in a problem."""
    named = {**problems._asdict(), **arrays}
    packed = torch.cat([x.flatten(1) for x in named.values()], 1)
    p, first = Rows(), 0
    p.nc, p.ns, p.cone = problems.mu.shape[1], problems.lower.shape[1], int(cone)
    for name, x in named.items():
        setattr(p, name, first)
        first += x[0].numel()
    inputs = [p, *numbers, wp.from_torch(packed.t())]
    wp.launch(kernel, dim=len(problems.b), inputs=inputs, device=str(problems.b.device))
    first = 0
    for x in named.values():
        x.copy_(packed[:, first : first + x[0].numel()].view_as(x))
        first += x[0].numel()


def like(x: Tensor, *shape: int) -> Tensor:
    """Return a tensor of NaN, (B, *shape), of the type of x."""
    return torch.full((len(x), *shape), torch.nan, dtype=x.dtype, device=x.device)


def solve(problems: Problem, start: Tensor, sweeps: int, cone: bool) -> Tensor:
    lam = start.clone()
    launch(kernels(WARP[lam.dtype]).solve, problems, cone, sweeps, lam=lam, work=like(lam, 2 * lam.shape[1]))
    return lam


def unrolled(problems: Problem, start: Tensor, adj_lam: Tensor, sweeps: int, cone: bool) -> tuple[Problem, Tensor]:
    adj = Problem(*(like(x, *x.shape[1:]) for x in problems))
    m = start.shape[1]
    out = {"adj_start": like(start, m), "multiplier": like(start, m), "work": like(start, unrolled_rows(m, sweeps))}
    out |= {f"adj_{name}": value for name, value in adj._asdict().items() if name != "b"}
    launch(kernels(WARP[start.dtype]).unrolled, problems, cone, sweeps, start=start, adj_lam=adj_lam, **out)
    return adj._replace(b=-out["multiplier"]), out["adj_start"]


def implicit(problems: Problem, lam: Tensor, adj_lam: Tensor, cone: bool) -> Problem:
    multiplier, work = like(lam, lam.shape[1]), like(lam, implicit_rows(lam.shape[1]))
    adj = {f"adj_{name}": like(x, *x.shape[1:]) for name, x in problems._asdict().items() if name not in ("A", "b")}
    launch(
        kernels(WARP[lam.dtype]).implicit, problems, cone,
        lam=lam, adj_lam=adj_lam, multiplier=multiplier, work=work, **adj,
    )  # fmt: skip
    return Problem(-torch.einsum("bi,bj->bij", multiplier, lam), -multiplier, *adj.values())


def random_problems(
    count: int, nc: int = 4, ns: int = 3, nv: int = 18, cfm: float = 1e-3, seed: int = 0, dtype=torch.float64
) -> Problem:
    """Return problems with contacts of every mode, joint limits, and dry friction on the last scalars."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(count, *shape, dtype=dtype, generator=generator)

    m = 3 * nc + ns
    J = normal(m, nv) / nv**0.5
    A = J @ J.mT + cfm * torch.eye(m, dtype=dtype)
    # pushed together in the range of J, so that contacts without cfm could carry it
    b = (J @ normal(nv, 1)).squeeze(-1) - 0.8 * (J @ J.mT)[:, :, : 3 * nc : 3].sum(-1)
    mu = 0.1 + 0.6 * torch.rand(count, nc, dtype=dtype, generator=generator)
    dry = 0.3 * torch.rand(count, ns, dtype=dtype, generator=generator)
    limits = torch.arange(ns) < ns // 2
    return Problem(A, b, mu, torch.where(limits, 0.0, -dry), torch.where(limits, torch.inf, dry))


def one(problems: Problem, w: int) -> Problem:
    return Problem(*(x[w] for x in problems))


def stacked(answers: list) -> Any:
    return type(answers[0])(*map(torch.stack, zip(*answers)))


def converged(problems: Problem, cone: bool, sweeps: int = 3000) -> Tensor:
    lam = solve(problems, torch.zeros_like(problems.b), sweeps, cone)
    lam = torch.stack([reference.converge(one(problems, w), lam[w], cone) for w in range(len(lam))])
    assert max(reference.kkt_residual(one(problems, w), lam[w], cone) for w in range(len(lam))) < 1e-12
    return lam


def modes(problems: Problem, lam: Tensor) -> tuple[int, int, int]:
    """Return how many contacts are open, stick and slide."""
    impulse = lam[:, : 3 * problems.mu.shape[1]].unflatten(1, (-1, 3))
    n, t = impulse[..., 0], impulse[..., 1:].norm(dim=-1)
    closed = n > 0
    sticks = closed & (t < (1 - 1e-9) * problems.mu * n)
    return int((~closed).sum()), int(sticks.sum()), int((closed & ~sticks).sum())


def assert_close(found: Any, right: Any, tolerance: float) -> None:
    """Compare cotangents world by world, each array relative to its largest entry."""
    for x, y in zip(found, right, strict=True):
        x, y = x.flatten(1).double(), y.flatten(1).double()
        if y.shape[1]:
            error = (x - y).abs().amax(1) / y.abs().amax(1).clamp_min(1e-3)
            assert error.isfinite().all()
            assert error.max() < tolerance


def autograd_unrolled(problems: Problem, start: Tensor, adj_lam: Tensor, sweeps: int, cone: bool):
    answers, starts = [], []
    for w in range(len(start)):
        inputs = [x.clone().requires_grad_() for x in (*one(problems, w), start[w])]
        lam = reference.solve(Problem(*inputs[:5]), inputs[5], sweeps, cone)
        *adj, adj_start = torch.autograd.grad(lam, inputs, adj_lam[w], allow_unused=True, materialize_grads=True)
        answers.append(Problem(*adj))
        starts.append(adj_start)
    return stacked(answers), torch.stack(starts)


def random_like(x: Tensor, seed: int = 1) -> Tensor:
    return torch.randn(x.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(x.dtype)


both_frictions = pytest.mark.parametrize("cone", [True, False], ids=["cone", "pyramid"])


@both_frictions
def test_sweeps_are_those_of_the_reference(cone):
    problems = random_problems(8)
    start = random_like(problems.b)
    right = torch.stack([reference.solve(one(problems, w), start[w], 7, cone) for w in range(8)])
    assert (solve(problems, start, 7, cone) - right).abs().max() < 1e-13


def thin_problems(count: int) -> Problem:
    """Return problems in which the second tangent of every contact hardly moves, as in a plane."""
    problems = random_problems(count, cfm=0.0)
    still = torch.ones_like(problems.b[0])
    still[2 : 3 * problems.mu.shape[1] : 3] = 1e-2
    A = still[:, None] * problems.A * still + 1e-5 * torch.eye(len(still), dtype=torch.float64)
    return problems._replace(A=A, b=still * problems.b)


def test_thin_cones_are_swept_and_walked_back():
    problems, sweeps = thin_problems(8), 5
    start, adj_lam = random_like(problems.b, 2), random_like(problems.b)
    right = torch.stack([reference.solve(one(problems, w), start[w], sweeps, True) for w in range(8)])
    assert (solve(problems, start, sweeps, True) - right).abs().max() < 1e-12
    adj, adj_start = unrolled(problems, start, adj_lam, sweeps, True)
    answer, right_start = autograd_unrolled(problems, start, adj_lam, sweeps, True)
    assert_close((*adj, adj_start), (*answer, right_start), 1e-10)
    # and by central differences, along a symmetric change of A
    way = random_like(problems.A, 3)
    way, step = problems.A * (way + way.mT), 1e-6
    ahead, back = (solve(problems._replace(A=problems.A + s * way), start, sweeps, True) for s in (step, -step))
    slopes = ((ahead - back) * adj_lam).sum(1) / (2 * step)
    torch.testing.assert_close((adj.A * way).sum((1, 2)), slopes, rtol=1e-5, atol=1e-6)


@both_frictions
def test_only_the_first_sweep_is_sure_to_take_energy_out(cone):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(20000, *shape, dtype=torch.float64, generator=generator)

    J = normal(6, 6) * (1.5 * normal(1, 6)).exp()
    A, b = J @ J.mT + 1e-6 * torch.eye(6, dtype=torch.float64), (J @ normal(6, 1)).squeeze(-1)
    problems = Problem(A, b, torch.full_like(b[:, :2], 1.5), b[:, :0], b[:, :0])

    def raised(sweeps: int) -> Tensor:
        lam = solve(problems, torch.zeros_like(b), sweeps, cone)
        return (0.5 * torch.einsum("bi,bij,bj->b", lam, A, lam) + (lam * b).sum(1)) / (1e-9 + (lam * b).abs().sum(1))

    assert raised(1).max() <= 0.0
    assert (raised(50) > 0.1).sum() > 3


@both_frictions
def test_problems_show_every_mode(cone):
    problems = random_problems(24)
    lam = converged(problems, cone)
    scalars = lam[:, -3:]
    assert min(modes(problems, lam)) >= 5
    assert (scalars[:, 0] == 0).any()
    assert (scalars[:, 0] > 0).any()
    assert (scalars == problems.upper[:, -3:]).any()
    assert (scalars == problems.lower[:, -3:]).any()
    held = (scalars > problems.lower[:, -3:]) & (scalars < problems.upper[:, -3:])
    assert held[:, 1:].any()


@both_frictions
@pytest.mark.parametrize("sweeps", [0, 1, 2, 5, 40])
@pytest.mark.parametrize("warm", [False, True])
def test_unrolled_is_autograd(cone, sweeps, warm):
    problems = random_problems(24 if sweeps < 40 else 6, seed=sweeps)
    start = random_like(problems.b, 2) if warm else torch.zeros_like(problems.b)
    adj_lam = random_like(problems.b)
    adj, adj_start = unrolled(problems, start, adj_lam, sweeps, cone)
    right, right_start = autograd_unrolled(problems, start, adj_lam, sweeps, cone)
    assert_close((*adj, adj_start), (*right, right_start), 1e-10)


@both_frictions
@pytest.mark.parametrize(("nc", "ns"), [(1, 0), (0, 2), (6, 5)])
def test_unrolled_of_other_sizes_is_autograd(cone, nc, ns):
    problems = random_problems(5, nc, ns)
    start, adj_lam = random_like(problems.b, 2), random_like(problems.b)
    adj, adj_start = unrolled(problems, start, adj_lam, 6, cone)
    right, right_start = autograd_unrolled(problems, start, adj_lam, 6, cone)
    assert_close((*adj, adj_start), (*right, right_start), 1e-10)


@both_frictions
@pytest.mark.parametrize("nv", [18, 9], ids=["independent", "redundant"])
def test_implicit_is_unrolled_at_convergence(cone, nv):
    problems = random_problems(24, nv=nv)
    lam, adj_lam = converged(problems, cone, 20000), random_like(problems.b)
    adj, adj_start = unrolled(problems, lam, adj_lam, 20000, cone)
    assert adj_start.abs().max() < 1e-8
    assert_close(implicit(problems, lam, adj_lam, cone), adj, 1e-6)


@both_frictions
def test_implicit_of_more_rows_than_a_thread_solves_by_itself(cone):
    problems = random_problems(4, 16, 3, nv=60)
    assert problems.b.shape[1] > 2 * int(SMALL)
    lam, adj_lam = converged(problems, cone, 5000), random_like(problems.b)
    held = (lam.abs() > 0.0).sum(1)
    assert (held > int(SMALL)).any()
    right = [reference.solution_vjp(one(problems, w), lam[w], adj_lam[w], cone) for w in range(len(lam))]
    assert_close(implicit(problems, lam, adj_lam, cone), stacked(right), 1e-7)


@both_frictions
@pytest.mark.parametrize(("nv", "cfm"), [(18, 1e-3), (9, 1e-3), (9, 1e-5), (6, 1e-4)])
def test_implicit_is_that_of_the_fixed_point(cone, nv, cfm):
    problems = random_problems(24, nv=nv, cfm=cfm, seed=3)
    lam, adj_lam = converged(problems, cone, 20000), random_like(problems.b)
    right = [reference.solution_vjp(one(problems, w), lam[w], adj_lam[w], cone) for w in range(len(lam))]
    assert_close(implicit(problems, lam, adj_lam, cone), stacked(right), 1e-7)


@both_frictions
@pytest.mark.parametrize(("nv", "cfm"), [(18, 1e-3), (9, 1e-3), (9, 1e-5)])
def test_implicit_is_central_differences(cone, nv, cfm):
    """Along a random direction in which all numbers of the problem change, A by a symmetric matrix."""
    problems = random_problems(12, nv=nv, cfm=cfm, seed=4)
    lam, adj_lam = converged(problems, cone, 20000), random_like(problems.b)
    adj = implicit(problems, lam, adj_lam, cone)
    direction = Problem(*(random_like(x, 5 + k) for k, x in enumerate(problems)))
    direction = direction._replace(A=direction.A + direction.A.mT)
    h, kinks = 1e-7 * (cfm / 1e-3) ** 0.5, 0
    for w in range(len(lam)):
        ends = []
        for sign in (1, -1):
            moved = Problem(*(x[w] + sign * h * dx[w] for x, dx in zip(problems, direction, strict=True)))
            ends.append(reference.converge(moved, lam[w], cone))
            kinks += modes(one_batch(moved), ends[-1][None]) != modes(one_batch(one(problems, w)), lam[w][None])
        difference = adj_lam[w] @ (ends[0] - ends[1]) / (2 * h)
        inner = sum((x[w] * dx[w]).sum() for x, dx in zip(adj, direction, strict=True))
        assert abs(difference - inner) < 1e-5 * (1 + abs(inner))
    assert kinks == 0


def one_batch(problem: Problem) -> Problem:
    return Problem(*(x[None] for x in problem))


@both_frictions
def test_without_friction_or_room_the_gradients_are_one_sided(cone):
    """Contacts with mu = 0 and dry friction of zero: both ways agree, and mu has a gradient."""
    problems = random_problems(12, seed=6)
    still = torch.zeros_like(problems.lower[:, 1:])
    problems.mu[:, ::2] = 0.0
    problems.lower[:, 1:], problems.upper[:, 1:] = still, still
    lam, adj_lam = converged(problems, cone), random_like(problems.b)
    adj = implicit(problems, lam, adj_lam, cone)
    right, _ = unrolled(problems, lam, adj_lam, 5000, cone)
    assert_close(adj, right, 1e-6)
    assert (adj.mu[:, ::2] != 0).any()


@both_frictions
def test_separate_groups_do_not_mix(cone):
    """Two robots that do not touch, in one problem: the gradients are those of each alone."""
    first, second = random_problems(6, 2, 0, seed=7), random_problems(6, 3, 0, seed=8)
    A = torch.stack([torch.block_diag(x, y) for x, y in zip(first.A, second.A, strict=True)])
    together = Problem(A, *(torch.cat([x, y], 1) for x, y in zip(first[1:], second[1:], strict=True)))
    lam, adj_lam = converged(together, cone), random_like(together.b)
    adj = implicit(together, lam, adj_lam, cone)
    parts = [
        implicit(p, lam[:, s].clone(), adj_lam[:, s].clone(), cone)
        for p, s in ((first, slice(6)), (second, slice(6, 15)))
    ]
    assert_close((adj.b, adj.mu), (torch.cat([p.b for p in parts], 1), torch.cat([p.mu for p in parts], 1)), 1e-12)


def side_by_side(groups: list[Problem], seed: int) -> tuple[Problem, list[tuple[Tensor, Tensor, Tensor]]]:
    """Return one problem of some that do not touch, in any order, and where each one's contacts, scalars, rows are."""
    generator = torch.Generator().manual_seed(seed)
    nc, ns = (sum(p[k].shape[1] for p in groups) for k in (2, 3))
    contacts = torch.randperm(nc, generator=generator).split([p.mu.shape[1] for p in groups])
    scalars = torch.randperm(ns, generator=generator).split([p.lower.shape[1] for p in groups])
    rows = [torch.cat([(3 * c[:, None] + torch.arange(3)).flatten(), 3 * nc + s]) for c, s in zip(contacts, scalars)]
    m, count = 3 * nc + ns, len(groups[0].b)
    together = Problem(*(torch.zeros(count, *n, dtype=torch.float64) for n in ((m, m), (m,), (nc,), (ns,), (ns,))))
    places = list(zip(contacts, scalars, rows, strict=True))
    for group, (c, s, r) in zip(groups, places, strict=True):
        together.A[:, r[:, None], r], together.b[:, r] = group.A, group.b
        together.mu[:, c], together.lower[:, s], together.upper[:, s] = group[2:]
    return together, places


@both_frictions
def test_islands_are_solved_one_by_one(cone):
    """Four robots that do not touch, their rows in any order, more of them held than are solved for at once."""
    groups = [random_problems(6, nc, ns, 60, seed=nc) for nc, ns in ((9, 2), (5, 0), (16, 1), (8, 3))]
    together, places = side_by_side(groups, seed=3)
    lam, adj_lam = converged(together, cone), random_like(together.b)
    adj = implicit(together, lam, adj_lam, cone)
    _, sticks, slides = modes(together, lam)
    assert 3 * sticks + slides > len(lam) * int(SMALL)
    for group, (c, s, r) in zip(groups, places, strict=True):
        alone = implicit(group, lam[:, r].clone(), adj_lam[:, r].clone(), cone)
        found = (adj.b[:, r], adj.mu[:, c], adj.lower[:, s], adj.upper[:, s])
        assert_close(found, (alone.b, alone.mu, alone.lower, alone.upper), 1e-11)


@both_frictions
def test_robots_with_more_held_rows_than_freedoms(cone):
    """A box on four points: six freedoms, twelve rows that stick, and a matrix that is singular but for cfm."""
    corners = [(x, y, -0.1) for x in (-0.2, 0.3) for y in (-0.2, 0.1)]
    identity, axes = torch.eye(3, dtype=torch.float64), [2, 0, 1]
    arms = torch.tensor(corners, dtype=torch.float64)
    J = torch.cat([torch.cat([torch.linalg.cross(p.expand(3, 3), identity[axes]), identity[axes]], 1) for p in arms])
    inverse_mass = torch.tensor([30.0, 20.0, 25.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    v = torch.tensor([[0.0, 0.1, 0.0, 0.02, 0.01, -0.3], [0.1, 0.0, 0.05, 0.2, -0.1, -0.2]], dtype=torch.float64)
    A = J @ torch.diag(inverse_mass) @ J.T + 1e-5 * torch.eye(12, dtype=torch.float64)
    none = torch.zeros(2, 0, dtype=torch.float64)
    problems = Problem(A.repeat(2, 1, 1), v @ J.T, torch.full((2, 4), 0.6, dtype=torch.float64), none, none.clone())
    lam, adj_lam = converged(problems, cone, 200000), random_like(problems.b)
    assert modes(problems, lam)[1] >= 4
    right = [reference.solution_vjp(one(problems, w), lam[w], adj_lam[w], cone) for w in range(2)]
    assert_close(implicit(problems, lam, adj_lam, cone), stacked(right), 1e-6)


@pytest.mark.gpu
@both_frictions
@pytest.mark.parametrize("islands", [1, 4])
def test_a_gpu_agrees(cone, islands):
    problems, *_ = side_by_side([random_problems(24, seed=k) for k in range(islands)], seed=0)
    lam, adj_lam = converged(problems, cone), random_like(problems.b)
    there = Problem(*(x.cuda() for x in problems))
    found = implicit(there, lam.cuda(), adj_lam.cuda(), cone)
    assert_close([x.cpu() for x in found], implicit(problems, lam, adj_lam, cone), 1e-9)
    found, start = unrolled(there, lam.cuda(), adj_lam.cuda(), 10, cone)
    right, right_start = unrolled(problems, lam, adj_lam, 10, cone)
    assert_close([x.cpu() for x in (*found, start)], (*right, right_start), 1e-9)


@both_frictions
def test_float32_follows_float64(cone):
    problems = random_problems(24)
    lam, adj_lam = converged(problems, cone), random_like(problems.b)
    single = Problem(*(x.float() for x in problems))
    lam32 = solve(single, lam.float(), 50, cone)
    assert modes(Problem(*(x.double() for x in single)), lam32.double())[0] == modes(problems, lam)[0]
    assert_close(implicit(single, lam32, adj_lam.float(), cone), implicit(problems, lam, adj_lam, cone), 2e-3)
    adj, _ = unrolled(single, lam32, adj_lam.float(), 10, cone)
    right, _ = unrolled(problems, lam, adj_lam, 10, cone)
    assert_close(adj, right, 2e-3)

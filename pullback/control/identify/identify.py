"""Find numbers of a world, masses, frictions, sizes, from how it was seen to move.

The sum of squares of the residuals of all windows (`windows.py`) is made least over the variables z of the unknowns
and the corrections d of the windows' starts. Levenberg–Marquardt and Gauss–Newton solve

    [Hxx + λ Dx   Hxz       ] [δd]     [gx]
    [Hzx          Hzz + λ Dz] [δz] = - [gz],    H = Jᵀ J,  g = Jᵀ r,  D = diag H,

the windows' own corrections first, each by itself, and what is left of it for δz; Adam descends along the gradient.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pullback.control.identify.ambiguity import (
    Ambiguity,
    AmbiguityWarning,
    Names,
    ambiguities,
    covariance_of,
    projected,
)
from pullback.control.identify.windows import Recording, Windows, cut, linearized, losses, residuals
from pullback.control.search.search import Evaluation
from pullback.control.search.shooting import minimize
from pullback.control.search.unknowns import Unknown, Unknowns
from pullback.core.errors import PullbackError
from pullback.core.interrupt import gentle_interrupt
from pullback.rigid.sim import Sim

Tensor = torch.Tensor
Method = Literal["lm", "gauss-newton", "adam", "cma"]

ITERATIONS = {"lm": 50, "gauss-newton": 50, "adam": 300, "cma": 100}
SPREAD = 0.3
"""How far from the start CMA-ES first looks, in variables: 0.3 is a third of a value."""
FIRST_DAMPING = 1e-3
DAMPING = (1e-12, 1e12)
TRIES = 12
"""Damped or shortened steps that are tried before a search ends."""
LONGEST = 2.0
"""The most that a variable moves in one step; exp(2) is a factor of seven."""
ROUNDING = 1e-16
"""A loss below this share of the first is one of rounding."""
PATIENCE = 50
"""Iterations of Adam without progress after which it ends."""


@dataclass
class Identification:
    """What was found, how well it is known, and how the search went."""

    values: dict[str, Tensor]
    """The value of each unknown by its name, `mass of block`."""
    entries: list[str]
    """A name for each single number: `com x of arm/link2`."""
    numbers: Tensor
    """All numbers (n,), in the order of `entries`."""
    covariance: Tensor
    """Their covariance (n, n), from the residual; huge where the data tells nothing."""
    noise: float
    """The standard deviation of a residual, in units of the noise or of the spread that residuals are divided by."""
    ambiguities: list[Ambiguity]
    """What the data cannot tell, or hardly."""
    losses: list[float] = field(default_factory=list)
    """The mean square of the residuals at the start and after each iteration."""
    seconds: list[float] = field(default_factory=list)
    """When each of these was reached."""
    path: list[Tensor] = field(default_factory=list)
    """The numbers (n,) at each of these."""
    reason: str = ""
    """Why the search ended."""
    converged: bool = False
    interrupted: bool = False

    @property
    def standard_error(self) -> Tensor:
        """The standard error (n,) of each number."""
        return self.covariance.diagonal().clamp(min=0.0).sqrt()

    @property
    def correlation(self) -> Tensor:
        """The correlation (n, n) of the numbers."""
        error = self.standard_error.clamp(min=torch.finfo(self.numbers.dtype).tiny)
        return self.covariance / (error[:, None] * error)

    def __getitem__(self, name: str) -> Tensor:
        """Return the value of an unknown: `found["mass of block"]`."""
        return self.values[name]

    def __str__(self) -> str:
        """List the numbers with their standard errors, and what cannot be told."""
        width = max(map(len, self.entries))
        rows = zip(self.entries, self.numbers.tolist(), self.standard_error.tolist())
        lines = [f"{name:{width}}  {value:.6g} ± {error:.2g}" for name, value, error in rows]
        return "\n".join([*lines, *(each.text for each in self.ambiguities), self.reason])


@dataclass
class _Search:
    """The problem, the best point so far, and how it was reached."""

    sim: Sim
    unknowns: Unknowns
    windows: Windows
    fit_starts: bool
    tolerance: float
    z: Tensor
    shift: Tensor
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    path: list[Tensor] = field(default_factory=list)
    reason: str = ""
    converged: bool = False
    begun: float = field(default_factory=time.perf_counter)

    def loss(self, z: Tensor, shift: Tensor) -> float:
        """Return the mean square of the residuals at a point."""
        return float(losses(self.sim, self.unknowns, self.windows, z[None], shift if self.fit_starts else None))

    def note(self, loss: float) -> None:
        """Write down that a point was reached."""
        self.losses.append(loss)
        self.seconds.append(time.perf_counter() - self.begun)
        with torch.no_grad():
            self.path.append(self.unknowns.numbers(self.z))

    def end(self, reason: str, *, converged: bool) -> None:
        """Say why there is no further iteration."""
        self.reason, self.converged = reason, converged


def identify(
    sim: Sim,
    recordings: Recording | Sequence[Recording],
    unknowns: Sequence[Unknown],
    *,
    method: Method = "lm",
    window: int | None = None,
    stride: int | None = None,
    fit_starts: bool = True,
    noise: tuple[Tensor | float, Tensor | float] | None = None,
    iterations: int | None = None,
    tolerance: float = 1e-5,
    learning_rate: float = 0.03,
    seed: int = 0,
    progress: bool = False,
) -> Identification:
    """Find the unknowns with which the simulation moves as recorded, and leave them in its world.

    `window`: samples that are predicted from one measured state, all of a recording by default; windows start `stride`
    samples apart, by default one after the other. `fit_starts` lets the state that a window starts from deviate from
    the measured one, which is noisy too. `noise` is the standard deviation of measured positions and velocities, each a
    number or (nv,); by default what the roughness of the data suggests. `method`: "lm" (Levenberg–Marquardt),
    "gauss-newton", "adam" (with `learning_rate`), or to compare with "cma" (with `seed`), which takes starts as
    measured. The search ends when an iteration changes the loss by less than `tolerance` of it, after `iterations`, or
    at Ctrl-C, with the best so far. What the data cannot tell is an `AmbiguityWarning`.
    """
    if method not in ITERATIONS:
        raise PullbackError(f"method is {method!r}; choose from: {', '.join(ITERATIONS)}")
    limit = ITERATIONS[method] if iterations is None else iterations
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise PullbackError(f"iterations is {iterations!r}; give a whole number, 0 only to look at the start")
    if not learning_rate > 0.0 or not tolerance >= 0.0:
        raise PullbackError(f"learning_rate {learning_rate:g} must be positive, tolerance {tolerance:g} not negative")
    windows = cut(sim, recordings, window, stride, noise)
    found = Unknowns(sim, unknowns)
    like = windows.q
    search = _Search(
        *(sim, found, windows, fit_starts and method != "cma", tolerance),
        *(like.new_zeros(found.size), like.new_zeros(windows.count, 2 * sim.nv)),
    )
    try:
        first = search.loss(search.z, search.shift)
        if first == torch.inf:
            raise PullbackError("the simulation blows up from the start on; take other start values or shorter windows")
        search.note(first)
        if method == "cma":
            interrupted = _evolve(search, limit, seed, progress)
        else:
            interrupted = _run(search, _steps_of(search, method, learning_rate, limit), limit, progress)
        result = _report(search, interrupted)
    finally:
        # also after an error the world has one value for all worlds
        found.settle(search.z)
    for each in result.ambiguities:
        warnings.warn(each.text, AmbiguityWarning, stacklevel=2)
    return result


def _run(search: _Search, step: Callable[[], None], limit: int, progress: bool) -> bool:
    """Take steps until one of them says that it was the last; return whether the user ended it."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("loss {task.fields[loss]:.3e}"))
    bar = Progress(
        *columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(), transient=False, disable=not progress
    )
    with bar, gentle_interrupt() as stop:
        task = bar.add_task("identifying", total=limit, loss=search.losses[0])
        for _ in range(limit):
            if stop or search.reason:
                break
            step()
            bar.update(task, advance=1, loss=min(search.losses))
        if stop:
            search.end("stopped by the user; this is what was reached", converged=False)
        elif not search.reason:
            search.end(f"{limit} iterations are used up; the search may not be at its end", converged=False)
    return bool(stop)


def _steps_of(search: _Search, method: Method, learning_rate: float, limit: int) -> Callable[[], None]:
    """Return the function that takes one step of a method."""
    if method == "adam":
        return _adam(search, learning_rate, limit)
    return _levenberg_marquardt(search) if method == "lm" else _gauss_newton(search)


# -- least squares -----------------------------------------------------------------------------------------------


@dataclass
class _Normal:
    """The normal equations of a point: Hxx (W, n, n), Hxz (W, n, P), Hzz (P, P), and the gradients by both."""

    Hxx: Tensor
    Hxz: Tensor
    Hzz: Tensor
    gx: Tensor
    gz: Tensor

    def solve(self, damping: float, fit_starts: bool) -> tuple[Tensor, Tensor]:
        """Return the steps of z (P,) and of the starts (W, n)."""
        Hzz, gz = _damped(self.Hzz, damping), self.gz
        if fit_starts:
            # what the starts do by themselves, and what they leave to z
            both = torch.cat([self.gx[..., None], self.Hxz], -1)
            solved = torch.cholesky_solve(both, torch.linalg.cholesky(_damped(self.Hxx, damping)))
            gz = gz - (self.Hxz.mT @ solved[..., :1]).sum(0)[:, 0]
            Hzz = Hzz - (self.Hxz.mT @ solved[..., 1:]).sum(0)
        dz = -torch.linalg.lstsq(Hzz, gz, driver="gelsd").solution if len(gz) else gz
        dz = dz * (LONGEST / dz.abs().max().clamp(min=LONGEST))
        if not fit_starts:
            return dz, torch.zeros_like(self.gx)
        return dz, -(solved[..., 0] + solved[..., 1:] @ dz)


def _damped(H: Tensor, damping: float) -> Tensor:
    """Return H (..., n, n) with its diagonal raised by a share of it, and by a trifle where it is zero."""
    diagonal = H.diagonal(dim1=-2, dim2=-1)
    least = 1e-12 * diagonal.amax(-1, keepdim=True) + torch.finfo(H.dtype).tiny
    return H + torch.diag_embed(damping * diagonal + least)


def _normal(search: _Search) -> _Normal:
    """Linearize at the present point."""
    r, Jx, Jz = linearized(search.sim, search.unknowns, search.windows, search.z, search.shift)
    if not bool(Jz.isfinite().all() & Jx.isfinite().all()):
        raise PullbackError("a derivative of the recorded motion is not finite; take shorter windows or a smaller dt")
    return _Normal(
        Jx.mT @ Jx,
        Jx.mT @ Jz,
        torch.einsum("wmp,wmq->pq", Jz, Jz),
        (Jx.mT @ r[..., None])[..., 0],
        torch.einsum("wmp,wm->p", Jz, r),
    )


def _move(search: _Search, dz: Tensor, dx: Tensor) -> bool:
    """Take a step if it lowers the loss, and say whether it did; end the search where there is nothing to gain."""
    before = search.losses[-1]
    z, shift = search.z + dz, search.shift + dx
    loss = search.loss(z, shift)
    if not loss < before:
        return False
    search.z, search.shift = z, shift
    search.note(loss)
    if before - loss <= search.tolerance * before or loss <= ROUNDING * search.losses[0]:
        search.end("converged: the loss no longer changes", converged=True)
    return True


def _levenberg_marquardt(search: _Search) -> Callable[[], None]:
    damping = FIRST_DAMPING

    def step() -> None:
        nonlocal damping
        normal = _normal(search)
        for _ in range(TRIES):
            dz, dx = normal.solve(damping, search.fit_starts)
            if _move(search, dz, dx):
                damping = max(damping / 5.0, DAMPING[0])
                return
            damping = min(damping * 10.0, DAMPING[1])
        search.end("converged: no damped step lowers the loss", converged=True)

    return step


def _gauss_newton(search: _Search) -> Callable[[], None]:
    def step() -> None:
        dz, dx = _normal(search).solve(0.0, search.fit_starts)
        for halvings in range(TRIES):
            if _move(search, dz * 0.5**halvings, dx * 0.5**halvings):
                return
        search.end("converged: no step along the direction lowers the loss", converged=True)

    return step


# -- along the gradient ------------------------------------------------------------------------------------------


def _adam(search: _Search, learning_rate: float, limit: int) -> Callable[[], None]:
    """Descend in z and in the starts; these in units that make the residuals change by one, or contact is too stiff."""
    z, share = search.z.clone().requires_grad_(), torch.zeros_like(search.shift)
    moving = [{"params": [z], "lr": learning_rate}]
    if search.fit_starts:
        factor = torch.linalg.cholesky(_damped(_normal(search).Hxx, FIRST_DAMPING)).mT
        moving.append({"params": [share.requires_grad_()], "lr": 0.03 * learning_rate})
    optimizer = torch.optim.Adam(moving)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, limit), eta_min=0.01 * learning_rate)
    best, seen = search.losses[0], search.windows.weights > 0.0
    waited = 0

    def step() -> None:
        nonlocal best, waited
        optimizer.zero_grad()
        shift = (
            torch.linalg.solve_triangular(factor, share[..., None], upper=True)[..., 0] if search.fit_starts else None
        )
        loss = residuals(search.sim, search.unknowns, search.windows, z[None], shift)[..., seen].square().mean()
        loss.backward()
        value = float(loss.detach())
        # how far this is below the best, before the step goes on from here
        waited = 0 if value < best * (1.0 - search.tolerance) else waited + 1
        if value < best or len(search.losses) == 1:
            best, search.z, search.shift = value, z.detach().clone(), search.shift if shift is None else shift.detach()
        search.note(best)
        if waited >= PATIENCE:
            search.end(f"converged: {PATIENCE} iterations without progress", converged=True)
        optimizer.step()
        schedule.step()

    return step


def _evolve(search: _Search, limit: int, seed: int, progress: bool) -> bool:
    """Search without derivatives, by CMA-ES; return whether the user ended it."""

    def keep(_: int, found: Evaluation) -> None:
        best = int(found.losses.nan_to_num(nan=torch.inf).argmin())
        if float(found.losses[best]) < search.losses[-1]:
            search.z = tried[best].clone()
        search.note(min(search.losses[-1], float(found.losses[best])))

    tried = search.z[None]

    def objective(z: Tensor) -> Tensor:
        nonlocal tried
        tried = z.detach()
        return losses(search.sim, search.unknowns, search.windows, z)

    found = minimize(
        objective, search.z[None], method="cma", iterations=limit, spread=SPREAD, seed=seed, callback=keep,
        patience=PATIENCE, tolerance=search.tolerance, progress=progress,
    )  # fmt: skip
    search.end(found.reason, converged=False)
    return found.interrupted


# -- what it is worth --------------------------------------------------------------------------------------------


def _report(search: _Search, interrupted: bool) -> Identification:
    """Return the point reached with its covariance and what the data cannot tell."""
    r, Jx, Jz = linearized(search.sim, search.unknowns, search.windows, search.z, search.shift)
    J = projected(Jx, Jz) if search.fit_starts else Jz.flatten(0, 1)
    fitted = search.unknowns.size + (Jx.shape[0] * Jx.shape[2] if search.fit_starts else 0)
    sigma = float((r.square().sum() / max(1, r.numel() - fitted)).sqrt())
    covariance, s, V = covariance_of(J, sigma)
    slope = search.unknowns.slope(search.z)
    numbers = search.unknowns.numbers(search.z).detach()
    return Identification(
        search.unknowns.values(search.z),
        search.unknowns.entries,
        numbers,
        slope @ covariance @ slope.mT,
        sigma,
        ambiguities(s, V, sigma, _names(search, numbers, slope)),
        search.losses,
        search.seconds,
        search.path,
        search.reason,
        search.converged,
        interrupted,
    )


def _names(search: _Search, numbers: Tensor, slope: Tensor) -> Names:
    """Return what each variable is called: by its number where it has one of its own, else by its unknown."""
    labels, parameters, values, slopes, single = [], [], [], [], []
    row = 0
    for variable in search.unknowns.variables:
        entries = variable.entries
        alone = variable.size == len(entries) and variable.unknown.parameter not in ("inertial", "inertia_mat")
        for k in range(variable.size):
            labels.append(entries[k] if alone else variable.unknown.name)
            parameters.append(variable.unknown.parameter)
            values.append(numbers[row + k] if alone else numbers.new_ones(()))
            slopes.append(slope[row + k, len(labels) - 1] if alone else numbers.new_ones(()))
            single.append(alone)
        row += len(entries)
    return Names(labels, parameters, torch.stack(values), torch.stack(slopes), single)

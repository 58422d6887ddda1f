"""Least squares over recorded windows: Levenberg–Marquardt, Gauss–Newton, Adam and CMA-ES.

The sum of squares of the residuals of all windows (`windows.py`) is minimised over the variables z of the unknowns and
the corrections d of the windows' initial states. Levenberg–Marquardt and Gauss–Newton solve

    [Hxx + λ Dx   Hxz       ] [δd]     [gx]
    [Hzx          Hzz + λ Dz] [δz] = - [gz],    H = Jᵀ J,  g = Jᵀ r,  D = diag H,

by elimination of δd, window by window; Adam follows the gradient, CMA-ES uses losses alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from pullback.control.identify.unknowns import Unknowns
from pullback.control.identify.windows import Windows, linearized, losses, residuals
from pullback.control.search.search import Evaluation
from pullback.control.search.shooting import minimize
from pullback.core.errors import PullbackError
from pullback.core.ranks import ranks
from pullback.core.search_loop import SearchLoop
from pullback.rigid.sim import Sim

Tensor = torch.Tensor
Method = Literal["lm", "gauss-newton", "adam", "cma"]

SPREAD = 0.3
"""First standard deviation of CMA-ES, in variables: 0.3 is a third of a value."""
FIRST_DAMPING = 1e-3
DAMPING = (1e-12, 1e12)
TRIES = 12
"""Damped or shortened steps that are tried before a search ends."""
LONGEST = 2.0
"""The most that a variable moves in one step; exp(2) is a factor of seven."""
ROUNDING = 1e-16
"""A loss below this fraction of the first one is rounding error."""
PATIENCE = 50
"""Iterations of Adam and CMA-ES without progress after which they end."""


@dataclass
class Fit:
    """The least-squares problem, the best point so far, and the history of the search."""

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
    ended: str = ""
    """Why the search is over, or an empty string."""
    converged: bool = False
    interrupted: bool = False
    begun: float = field(default_factory=time.perf_counter)

    def loss(self, z: Tensor, shift: Tensor) -> float:
        """Return the mean square of the residuals at a point."""
        return float(losses(self.sim, self.unknowns, self.windows, z[None], shift if self.fit_starts else None))

    def note(self, loss: float) -> None:
        """Append the present point to the history."""
        self.losses.append(loss)
        self.seconds.append(time.perf_counter() - self.begun)
        with torch.no_grad():
            self.path.append(self.unknowns.numbers(self.z))

    def end(self, reason: str, *, converged: bool) -> None:
        """End the search after this iteration."""
        self.ended, self.converged = reason, converged

    def run(self, method: Method, learning_rate: float, seed: int, limit: int, progress: bool) -> None:
        """Search for at most `limit` iterations."""
        if ranks().many:
            ranks().refuse_differences({"the robot or world": self.sim.fingerprint()})
        self.note(self.loss(self.z, self.shift))
        if self.losses[0] == torch.inf:
            raise PullbackError("the simulation diverges at the start; give other start values or shorter windows")
        if method == "cma":
            return _evolve(self, limit, seed, progress)
        if method == "adam":
            step = _adam(self, learning_rate, limit)
        else:
            step = _levenberg_marquardt(self) if method == "lm" else _gauss_newton(self)
        reason = SearchLoop(limit, "identifying", progress).run(Steps(self, step))
        if reason == "interrupted":
            self.interrupted = True
            self.end("stopped by the user: these are the best values so far", converged=False)
        elif reason == "iterations":
            self.end(f"all {limit} iterations are used up; the search may not have converged", converged=False)


@dataclass(frozen=True)
class Steps:
    """A fit and its step function as the search loop sees them."""

    fit: Fit
    iterate: Callable[[], None]

    @property
    def done(self) -> int:
        """Number of finished iterations."""
        return len(self.fit.losses) - 1

    @property
    def ended(self) -> str:
        """Why the search is over, or an empty string."""
        return self.fit.ended

    @property
    def score(self) -> float:
        """What sweeps compare: the best loss."""
        return min(self.fit.losses)

    def summary(self) -> str:
        """Return the best loss as text."""
        return f"loss {min(self.fit.losses):.3e}"

    def metrics(self) -> dict[str, float]:
        """Return the last loss."""
        return {"loss": float(self.fit.losses[-1])}


# -- least squares -----------------------------------------------------------------------------------------------


@dataclass
class _Normal:
    """The normal equations at a point: Hxx (W, n, n), Hxz (W, n, P), Hzz (P, P), and both gradients."""

    Hxx: Tensor
    Hxz: Tensor
    Hzz: Tensor
    gx: Tensor
    gz: Tensor

    def solve(self, damping: float, fit_starts: bool) -> tuple[Tensor, Tensor]:
        """Return the steps of z (P,) and of the windows' initial states (W, n)."""
        Hzz, gz = _damped(self.Hzz, damping), self.gz
        if fit_starts:
            # eliminate the initial states: Schur complement in z
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
    """Return H (..., n, n) plus `damping` times its diagonal, and a little more where that is zero."""
    diagonal = H.diagonal(dim1=-2, dim2=-1)
    least = 1e-12 * diagonal.amax(-1, keepdim=True) + torch.finfo(H.dtype).tiny
    return H + torch.diag_embed(damping * diagonal + least)


def _normal(fit: Fit) -> _Normal:
    """Return the normal equations at the present point."""
    r, Jx, Jz = linearized(fit.sim, fit.unknowns, fit.windows, fit.z, fit.shift)
    if not bool(Jz.isfinite().all() & Jx.isfinite().all()):
        raise PullbackError(
            "the derivative of the predicted motion is not finite; give shorter windows or a smaller dt"
        )
    return _Normal(
        Jx.mT @ Jx,
        Jx.mT @ Jz,
        torch.einsum("wmp,wmq->pq", Jz, Jz),
        (Jx.mT @ r[..., None])[..., 0],
        torch.einsum("wmp,wm->p", Jz, r),
    )


def _move(fit: Fit, dz: Tensor, dx: Tensor) -> bool:
    """Take a step if it lowers the loss, and return whether it did; end the search if it barely did."""
    before = fit.losses[-1]
    z, shift = fit.z + dz, fit.shift + dx
    loss = fit.loss(z, shift)
    if not loss < before:
        return False
    fit.z, fit.shift = z, shift
    fit.note(loss)
    if before - loss <= fit.tolerance * before or loss <= ROUNDING * fit.losses[0]:
        fit.end("converged: the loss no longer changes", converged=True)
    return True


def _levenberg_marquardt(fit: Fit) -> Callable[[], None]:
    damping = FIRST_DAMPING

    def step() -> None:
        nonlocal damping
        normal = _normal(fit)
        for _ in range(TRIES):
            dz, dx = normal.solve(damping, fit.fit_starts)
            if _move(fit, dz, dx):
                damping = max(damping / 5.0, DAMPING[0])
                return
            damping = min(damping * 10.0, DAMPING[1])
        fit.end("converged: no damped step lowers the loss", converged=True)

    return step


def _gauss_newton(fit: Fit) -> Callable[[], None]:
    def step() -> None:
        dz, dx = _normal(fit).solve(0.0, fit.fit_starts)
        for halvings in range(TRIES):
            if _move(fit, dz * 0.5**halvings, dx * 0.5**halvings):
                return
        fit.end("converged: no step along the direction lowers the loss", converged=True)

    return step


# -- first order and gradient-free --------------------------------------------------------------------------------


def _adam(fit: Fit, learning_rate: float, limit: int) -> Callable[[], None]:
    """Return a step of Adam in z and the initial states, which are scaled by the Cholesky factor of Hxx."""
    z, scaled = fit.z.clone().requires_grad_(), torch.zeros_like(fit.shift)
    moving = [{"params": [z], "lr": learning_rate}]
    if fit.fit_starts:
        factor = torch.linalg.cholesky(_damped(_normal(fit).Hxx, FIRST_DAMPING)).mT
        moving.append({"params": [scaled.requires_grad_()], "lr": 0.03 * learning_rate})
    optimizer = torch.optim.Adam(moving)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(1, limit), eta_min=0.01 * learning_rate)
    best, seen = fit.losses[0], fit.windows.weights > 0.0
    mine, part = fit.windows.own()
    waited = 0

    def step() -> None:
        nonlocal best, waited
        optimizer.zero_grad()
        shift = torch.linalg.solve_triangular(factor, scaled[..., None], upper=True)[..., 0] if fit.fit_starts else None
        own_shift = None if shift is None else shift[part]
        loss = residuals(fit.sim, fit.unknowns, mine, z[None], own_shift)[..., seen].square().mean()
        loss.backward()
        loss = ranks().share_gradients([x for group in moving for x in group["params"]], loss, mine.count)
        value = float(loss.detach())
        waited = 0 if value < best * (1.0 - fit.tolerance) else waited + 1
        if value < best or len(fit.losses) == 1:
            best, fit.z, fit.shift = value, z.detach().clone(), fit.shift if shift is None else shift.detach()
        fit.note(best)
        if waited >= PATIENCE:
            fit.end(f"converged: {PATIENCE} iterations without progress", converged=True)
        optimizer.step()
        schedule.step()

    return step


def _evolve(fit: Fit, limit: int, seed: int, progress: bool) -> None:
    """Search without derivatives, by CMA-ES."""
    tried = fit.z[None]

    def keep(_: int, found: Evaluation) -> None:
        best = int(found.losses.nan_to_num(nan=torch.inf).argmin())
        if float(found.losses[best]) < fit.losses[-1]:
            fit.z = tried[best].clone()
        fit.note(min(fit.losses[-1], float(found.losses[best])))

    def objective(z: Tensor) -> Tensor:
        nonlocal tried
        tried = z.detach()
        return losses(fit.sim, fit.unknowns, fit.windows, z)

    found = minimize(
        objective, fit.z[None], method="cma", iterations=limit, spread=SPREAD, seed=seed, callback=keep,
        patience=PATIENCE, tolerance=fit.tolerance, progress=progress,
    )  # fmt: skip
    fit.interrupted = found.interrupted
    fit.end(found.reason, converged=False)

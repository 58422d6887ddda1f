"""Levenberg–Marquardt for several small least-squares problems side by side, resumable.

Each of S problems has P unknowns z and M residuals r(z). Rows of z are simulated as worlds of one batch: an iteration
takes P of them for the Jacobian J, by forward differences, and one for each damping that is tried,

    δz = −(JᵀJ + λ diag JᵀJ)⁻¹ Jᵀ r,    λ ∈ {λ₀/10, λ₀, 10 λ₀},

of which the one with the smallest residual is taken, if it is smaller than before. For a handful of unknowns and many
residuals this is cheaper than adjoints, one of which gives Jᵀ r but not JᵀJ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pullback.core.search_loop import Checkpoint, SearchLoop
from pullback.tasks.common.options import settings_of

Tensor = torch.Tensor

DIFFERENCE = 1e-4
"""Step of the differences."""
TRIES = (0.1, 1.0, 10.0)
"""Dampings that are tried, of the last one that was taken."""
FIRST, LIMITS = 1e-2, (1e-8, 1e8)
"""The first damping, and its bounds."""
LONGEST = 1.0
"""The most that an unknown moves in an iteration."""
AT_REST = 1e-4
"""A problem is solved when a step moves no unknown by more than this."""


@dataclass
class GuessOptions:
    """Options of a task that searches from several first guesses."""

    guesses: int = 5
    """First guesses, one for each seed from `seed` on."""
    seed: int = 0
    """Seed of the first guess and of the noise."""
    fresh: bool = False
    """Start over; otherwise an interrupted run in the same folder is resumed."""
    out: Path = Path("out")
    """Folder for numbers, picture and replay."""


class LeastSquares:
    """S problems: `see` maps rows of unknowns (R, P) to predictions (R, M), NaN where one fails; data (S, M)."""

    def __init__(self, see: Callable[[Tensor], Tensor], data: Tensor, start: Tensor) -> None:
        self.see, self.data = see, data
        self.z = start.clone()
        self.damping = torch.full((len(start),), FIRST, dtype=start.dtype)
        self.at_rest = torch.zeros(len(start), dtype=torch.bool)
        self.path: list[Tensor] = [start.clone()]
        """Unknowns (S, P) before the first iteration and after each."""
        self.seen = self._predict(start[None])[0]
        self.losses: list[Tensor] = [self._misses(self.seen[None])[0]]
        """Mean squares of the residuals (S,), at the points of `path`."""

    @property
    def done(self) -> int:
        """Number of finished iterations."""
        return len(self.path) - 1

    @property
    def ended(self) -> str:
        """Why the search is over, or an empty string."""
        return "converged" if bool(self.at_rest.all()) else ""

    def summary(self) -> str:
        """Return the errors as text."""
        return "rms errors " + ", ".join(f"{float(x) ** 0.5:.3g}" for x in self.losses[-1])

    def metrics(self) -> dict[str, float]:
        """Return the mean of the losses."""
        return {"loss": float(self.losses[-1].mean())}

    def _predict(self, z: Tensor) -> Tensor:
        """Return predictions (K, S, M) of points (K, S, P)."""
        with torch.no_grad():
            return self.see(z.flatten(0, 1)).unflatten(0, z.shape[:2])

    def _misses(self, seen: Tensor) -> Tensor:
        """Return mean squares (K, S), infinite for predictions that failed."""
        return (seen - self.data).square().mean(-1).nan_to_num(nan=torch.inf)

    def jacobian(self) -> Tensor:
        """Return the derivative (S, M, P) of the predictions by the unknowns."""
        steps = DIFFERENCE * torch.eye(self.z.shape[1], dtype=self.z.dtype)
        return ((self._predict(self.z + steps[:, None]) - self.seen) / DIFFERENCE).permute(1, 2, 0)

    def iterate(self) -> None:
        """Take the best of three damped steps in each problem, or none and raise its damping."""
        J = self.jacobian().nan_to_num()
        H, g = J.mT @ J, J.mT @ (self.seen - self.data)[..., None]
        diagonal = H.diagonal(dim1=-2, dim2=-1)
        dampings = torch.tensor(TRIES, dtype=H.dtype)[:, None] * self.damping
        least = 1e-12 * diagonal.amax(-1, keepdim=True) + torch.finfo(H.dtype).tiny
        damped = H + torch.diag_embed(dampings[..., None] * diagonal + least)
        step = -torch.linalg.solve(damped, g.expand(len(dampings), -1, -1, -1))[..., 0]
        step = step * (LONGEST / step.abs().amax(-1, keepdim=True).clamp(min=LONGEST))
        tried = self._predict(self.z + step)
        misses = self._misses(tried)
        best, problems = misses.argmin(0), torch.arange(len(self.z))
        lower = misses[best, problems] < self.losses[-1]
        taken = step[best, problems]
        self.at_rest = self.at_rest | (taken.abs().amax(-1) < AT_REST)
        self.z = torch.where(lower[:, None], self.z + taken, self.z)
        self.seen = torch.where(lower[:, None], tried[best, problems], self.seen)
        raised = torch.where(lower, dampings[best, problems], 100.0 * self.damping)
        self.damping = raised.clamp(*LIMITS)
        self.losses.append(torch.where(lower, misses[best, problems], self.losses[-1]))
        self.path.append(self.z.clone())

    def standard_errors(self) -> Tensor:
        """Return those of the unknowns (S, P), as what is left of the residuals and the Jacobian imply them."""
        J = self.jacobian()
        variance = self.losses[-1] * J.shape[1] / max(1, J.shape[1] - J.shape[2])
        return (torch.linalg.inv(J.mT @ J).diagonal(dim1=-2, dim2=-1) * variance[:, None]).sqrt()

    def state(self) -> dict[str, Any]:
        """Return the points, the dampings and the history."""
        return {name: getattr(self, name) for name in ("z", "damping", "at_rest", "path", "seen", "losses")}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        for name in self.state():
            setattr(self, name, state[name])


def solve_in_stages(
    predict: Callable[[Tensor, int], Tensor],
    data: Tensor,
    start: Tensor,
    counts: tuple[int, ...],
    options: Any,
    console: Console,
) -> list[LeastSquares]:
    """Fit the first few of M moments, then more, each from where the last fit ended; return the fits.

    Motions that differ much in late moments have local minima there, which early ones do not have. `predict` maps rows
    of unknowns (R, P) and a count to the first moments (count, R, ...); data (M, S, ...). Each stage has at most
    `options.iterations`, and a checkpoint in `options.out`; a stage that the user interrupts is the last.
    """
    fits: list[LeastSquares] = []
    settings = settings_of(asdict(options))
    for count in counts:

        def see(z: Tensor, count: int = count) -> Tensor:
            return predict(z, count).transpose(0, 1).flatten(1)

        fit = LeastSquares(see, data[:count].transpose(0, 1).flatten(1), fits[-1].z if fits else start)
        file = options.out / f"fit-of-{count}.pt"
        checkpoint = Checkpoint(fit, file, settings, "give another --out, or --fresh")
        checkpoint.begin(resume=checkpoint.exists() and not options.fresh)
        fits.append(fit)
        label = f"fitting {count} of {len(data)} moments"
        if SearchLoop(options.iterations, label, console=console).run(fit, checkpoint) == "interrupted":
            break
    return fits

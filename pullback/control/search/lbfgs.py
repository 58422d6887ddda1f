"""L-BFGS for a batch: every row has its own history and its own line search.

Notation of a row: x the point accepted last, f and g its loss and gradient, d the direction, a the length along it; s
and y the changes of x and g in accepted steps. The two-loop recursion gives d = -H g; a trial x + a d is accepted by
Armijo's rule, f(x + a d) <= f + c a g·d, or a is shortened by parabolic interpolation. Each trial is one evaluation
with its gradient, and counts as an iteration.
"""

from __future__ import annotations

from typing import Any

import torch

from pullback.control.search.search import Evaluation

Tensor = torch.Tensor

ARMIJO = 1e-4
SHORTEST, LONGEST = 0.1, 0.5
"""A rejected step is shortened by a factor between these."""
REFUSALS = 8
"""After this many rejections in a row the history is reset; after as many along the gradient the row ends."""
CURVATURE = 1e-10
GROWTH = 10.0
"""A step is at most this many times as long as the last accepted one."""


class BatchLBFGS:
    """L-BFGS on each row of x (B, n); `first` is the length of the first step."""

    name, uses_gradient = "lbfgs", True

    def __init__(self, x: Tensor, first: float, memory: int = 10) -> None:
        rows, n = x.shape
        self.first, self.ended, self.settings = first, "", {}
        zeros, none = x.new_zeros(rows), x.new_zeros(memory, rows)
        self._tensors = {
            "x": x.clone(),
            "f": torch.full_like(zeros, torch.inf),
            "g": torch.zeros_like(x),
            "d": torch.zeros_like(x),
            "a": zeros.clone(),
            "length": torch.full_like(zeros, first / GROWTH),
            "gamma": torch.full_like(zeros, torch.nan),
            "s": x.new_zeros(memory, rows, n),
            "y": x.new_zeros(memory, rows, n),
            "rho": none.clone(),
            "refusals": zeros.clone(),
            "resting": torch.zeros(rows, dtype=torch.bool, device=x.device),
        }

    def ask(self) -> Tensor:
        """Return the trial points."""
        t = self._tensors
        return t["x"] + t["a"][:, None] * t["d"]

    def tell(self, found: Evaluation) -> None:
        """Accept trials or shorten steps, row by row."""
        t = self._tensors
        assert found.gradients is not None
        trial, g = self.ask(), torch.where(found.bad[:, None], 0.0, found.gradients)
        f = torch.where(found.bad, torch.inf, found.losses)
        slope = (t["g"] * t["d"]).sum(1)
        accepted = ~found.bad & (f <= t["f"] + ARMIJO * t["a"] * slope) & ~t["resting"]
        self._remember(accepted, trial - t["x"], g - t["g"])
        moved = (trial - t["x"]).norm(dim=1)
        t["length"] = torch.where(accepted & (moved > 0), moved, t["length"])
        # rejected: parabola through f, slope and the trial's loss
        curve = f - t["f"] - t["a"] * slope
        fitted = -slope * t["a"].square() / (2.0 * curve)
        fitted = torch.where(fitted.isfinite(), fitted, 0.0)
        shorter = torch.maximum(torch.minimum(fitted, LONGEST * t["a"]), SHORTEST * t["a"])
        t["a"] = torch.where(accepted, 1.0, shorter)
        t["refusals"] = torch.where(accepted, 0.0, t["refusals"] + 1.0)
        for name, new in (("x", trial), ("g", g)):
            t[name] = torch.where(accepted[:, None], new, t[name])
        t["f"] = torch.where(accepted, f, t["f"])
        forgetful = t["refusals"] == REFUSALS
        t["rho"] = torch.where(forgetful, 0.0, t["rho"])
        t["gamma"] = torch.where(forgetful, torch.nan, t["gamma"])
        t["resting"] = t["resting"] | (t["refusals"] >= 2 * REFUSALS) | (accepted & (g.norm(dim=1) == 0.0))
        self._turn(accepted | forgetful)
        t["a"] = torch.where(t["resting"], 0.0, t["a"])
        if bool(t["resting"].all()):
            self.ended = "no step lowers the loss"

    def _remember(self, accepted: Tensor, s: Tensor, y: Tensor) -> None:
        """Add the pairs of accepted steps with positive curvature to the history."""
        t = self._tensors
        sy, yy = (s * y).sum(1), (y * y).sum(1)
        # a row's first point has no step before it
        kept = accepted & t["f"].isfinite() & (sy > CURVATURE * s.norm(dim=1) * y.norm(dim=1))
        for name, new in (("s", s), ("y", y), ("rho", 1.0 / torch.where(kept, sy, 1.0))):
            shifted = torch.cat([t[name][1:], new[None]])
            t[name] = torch.where(kept[:, None] if new.ndim == 2 else kept, shifted, t[name])
        t["gamma"] = torch.where(kept, sy / torch.where(kept, yy, 1.0), t["gamma"])

    def _turn(self, rows: Tensor) -> None:
        """Set the direction -H g of these rows, with a length limited by the last accepted step."""
        t = self._tensors
        q, alphas = t["g"].clone(), []
        for s, y, rho in zip(t["s"].flip(0), t["y"].flip(0), t["rho"].flip(0)):
            alphas.append(rho * (s * q).sum(1))
            q = q - alphas[-1][:, None] * y
        norm = t["g"].norm(dim=1)
        plain = GROWTH * t["length"] / torch.where(norm > 0, norm, 1.0)
        q = torch.where(t["gamma"].isnan(), plain, t["gamma"])[:, None] * q
        for s, y, rho, alpha in zip(t["s"], t["y"], t["rho"], reversed(alphas)):
            q = q + (alpha - rho * (y * q).sum(1))[:, None] * s
        t["d"] = torch.where(rows[:, None], -q, t["d"])
        size = t["d"].norm(dim=1)
        cap = GROWTH * t["length"] / torch.where(size > 0, size, 1.0)
        t["a"] = torch.where(rows, cap.clamp(max=1.0), t["a"])

    def state(self) -> dict[str, Any]:
        """Return the points, directions and histories."""
        return {"tensors": self._tensors, "ended": self.ended}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from a saved state."""
        device = self._tensors["x"].device
        self._tensors = {name: tensor.to(device) for name, tensor in state["tensors"].items()}
        self.ended = state["ended"]

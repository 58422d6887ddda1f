"""The state of a soft simulation, and what a rollout returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class SoftState:
    """What particles carry, (n, ...) or (B, n, ...) for B worlds.

    x, v: position [m], velocity [m/s] (n, d); C: affine velocity [1/s], F: elastic deformation (n, d, d), of a fluid
    diag(J, 1, 1); history (n,): plastic strain, or the volume that sand gained.
    """

    x: Tensor
    v: Tensor
    C: Tensor
    F: Tensor
    history: Tensor

    def replace(self, **parts: Tensor) -> SoftState:
        """Return a state with other parts."""
        return replace(self, **parts)

    def detach(self) -> SoftState:
        """Return the same state without gradients."""
        return SoftState(*[x.detach() for x in (self.x, self.v, self.C, self.F, self.history)])


@dataclass(frozen=True, eq=False)
class SoftRollout:
    """What a rollout returns: the final state, and x, v (S, [B,] n, d) at the steps of `frames` (S,).

    failed: whether a particle of each world left, was too fast or was turned inside out; everything of it is NaN.
    """

    final: SoftState
    x: Tensor
    v: Tensor
    failed: Tensor
    frames: np.ndarray
    dt: float

    @property
    def times(self) -> np.ndarray:
        """Return the times of the frames [s]."""
        return self.frames * self.dt

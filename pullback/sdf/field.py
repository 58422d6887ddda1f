"""A shape ready to be evaluated: distances and gradients at points, with gradients to points and sizes."""

from __future__ import annotations

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.sdf.operators import value_gradient
from pullback.sdf.program import compile_shape
from pullback.sdf.shapes import Shape

Tensor = torch.Tensor


class Field:
    """The signed distance of a shape as a function of points, differentiable in the points and in every size.

        phi, gradient = Field(shape)(points)

    points (B, 3) in the shape's frame [m]; phi (B,) [m], gradient (B, 3). Sizes that are tensors (B,) give each point
    its own shape.
    """

    def __init__(self, shape: Shape) -> None:
        self.program = compile_shape(shape)
        self._evaluate = value_gradient(self.program)

    def __call__(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and gradient."""
        if points.ndim != 2 or points.shape[1] != 3:
            raise PullbackError(f"points have shape {tuple(points.shape)}; expected (B, 3)")
        parameters = self.program.parameters(points)
        if len(parameters) not in (1, len(points)):
            raise PullbackError(
                f"a shape with sizes for {len(parameters)} worlds and {len(points)} points; give as many"
            )
        rows = self._evaluate(points, parameters)
        return rows[:, 0], rows[:, 1:]

    def values(self, points: np.ndarray) -> np.ndarray:
        """Return the values (n,) in the first world, in float64, at points (n, 3)."""
        return self._in_first_world(torch.from_numpy(np.asarray(points, dtype=np.float64)))[:, 0].numpy()

    def nearest(self, points: np.ndarray, steps: int = 30) -> tuple[np.ndarray, np.ndarray]:
        """Return points (n, 3) moved onto the first world's surface by Newton's steps, and how far off they are."""
        x = torch.from_numpy(np.asarray(points, dtype=np.float64))
        for _ in range(steps):
            rows = self._in_first_world(x)
            phi, g = rows[:, :1], rows[:, 1:]
            x = x - phi / g.square().sum(-1, keepdim=True).clamp(min=0.0625) * g
        return x.numpy(), self._in_first_world(x)[:, 0].abs().numpy()

    def _in_first_world(self, points: Tensor) -> Tensor:
        """Return value and gradient (n, 4) of points on the CPU, without a gradient."""
        with torch.no_grad():
            return self._evaluate(points, self.program.parameters(points)[:1])

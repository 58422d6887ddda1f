"""Losses of searches, drawn beside each other."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
from matplotlib.figure import Figure

import pullback as pb


def test_losses_are_drawn_as_the_best_so_far() -> None:
    axes = Figure().subplots(1, 2)
    adam = SimpleNamespace(
        losses=torch.tensor([[4.0, 5.0], [6.0, 2.0], [3.0, torch.nan]]), seconds=torch.tensor([1.0, 2.0, 3.0])
    )
    cma = SimpleNamespace(losses=np.array([9.0, 8.0]), seconds=np.array([0.5, 1.0]))
    pb.viewer.draw_losses(axes, {"Adam": adam, "CMA-ES": cma})
    first, second = (axis.get_lines() for axis in axes)
    np.testing.assert_array_equal(first[0].get_ydata(), [4.0, 2.0, 2.0])
    np.testing.assert_array_equal(first[0].get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(second[1].get_xdata(), [0.5, 1.0])
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["Adam", "CMA-ES"]

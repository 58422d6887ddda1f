"""Gradients at work: optimise what a simulation is given, by what comes out of it."""

from pullback.control import diagnostics
from pullback.control.search import Found
from pullback.control.shooting import minimize, random_starts, train

__all__ = ["Found", "diagnostics", "minimize", "random_starts", "train"]

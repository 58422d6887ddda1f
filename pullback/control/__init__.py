"""Gradients at work: optimise what a simulation is given, by what comes out of it."""

from pullback.control import diagnostics
from pullback.control.ambiguity import Ambiguity, AmbiguityWarning
from pullback.control.identify import Identification, identify
from pullback.control.search import Found
from pullback.control.shooting import minimize, random_starts, train
from pullback.control.unknowns import Unknown
from pullback.control.windows import Recording

__all__ = [
    "Ambiguity",
    "AmbiguityWarning",
    "Found",
    "Identification",
    "Recording",
    "Unknown",
    "diagnostics",
    "identify",
    "minimize",
    "random_starts",
    "train",
]

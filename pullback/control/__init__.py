"""Gradients at work: what to do so that a simulated world does what is wanted, and what it is made of."""

from pullback.control import diagnostics
from pullback.control.ambiguity import Ambiguity, AmbiguityWarning
from pullback.control.constraints import Constraint, joint_limits
from pullback.control.contact_cost import ContactForce
from pullback.control.costs import ControlCost, Cost, StateCost
from pullback.control.frame_cost import FramePose
from pullback.control.identify import Identification, identify
from pullback.control.ilqr import ilqr
from pullback.control.mpc import Drive, mpc
from pullback.control.problem import Problem
from pullback.control.report import Result
from pullback.control.riccati import Policy, Quadratic, backward_pass
from pullback.control.search import Found
from pullback.control.shooting import minimize, random_starts, train
from pullback.control.torch_costs import Function, Residual
from pullback.control.unknowns import Unknown
from pullback.control.windows import Recording
from pullback.rigid.frames import LinkFrame

__all__ = [
    "Ambiguity",
    "AmbiguityWarning",
    "Constraint",
    "ContactForce",
    "ControlCost",
    "Cost",
    "Drive",
    "Found",
    "FramePose",
    "Function",
    "Identification",
    "LinkFrame",
    "Policy",
    "Problem",
    "Quadratic",
    "Recording",
    "Residual",
    "Result",
    "StateCost",
    "Unknown",
    "backward_pass",
    "diagnostics",
    "identify",
    "ilqr",
    "joint_limits",
    "minimize",
    "mpc",
    "random_starts",
    "train",
]

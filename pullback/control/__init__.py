"""Optimal control, shooting and system identification on a Sim."""

from pullback.control.costs.contact_cost import ContactForce
from pullback.control.costs.costs import ControlCost, Cost, StateCost
from pullback.control.costs.frame_cost import FramePose
from pullback.control.costs.torch_costs import Function, Residual
from pullback.control.identify.ambiguity import Ambiguity, AmbiguityWarning
from pullback.control.identify.identify import Identification, identify
from pullback.control.identify.unknowns import Unknown
from pullback.control.identify.windows import Recording
from pullback.control.ilqr.constraints import Constraint, joint_limits
from pullback.control.ilqr.ilqr import ilqr
from pullback.control.ilqr.mpc import Drive, mpc
from pullback.control.ilqr.problem import Problem
from pullback.control.ilqr.report import Result
from pullback.control.ilqr.riccati import Policy, Quadratic, backward_pass
from pullback.control.search import diagnostics
from pullback.control.search.search import Found
from pullback.control.search.shooting import minimize, random_starts, train
from pullback.rigid.compile.frames import LinkFrame

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

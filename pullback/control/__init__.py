"""Gradients at work: what to do so that a simulated world does what is wanted."""

from pullback.control import diagnostics
from pullback.control.constraints import Constraint, joint_limits
from pullback.control.costs import ControlCost, Cost, StateCost
from pullback.control.frame_cost import FramePose
from pullback.control.ilqr import ilqr
from pullback.control.mpc import Drive, mpc
from pullback.control.problem import Problem
from pullback.control.report import Result
from pullback.control.riccati import Policy, Quadratic, backward_pass
from pullback.control.search import Found
from pullback.control.shooting import minimize, random_starts, train
from pullback.control.torch_costs import Function, Residual
from pullback.rigid.frames import LinkFrame

__all__ = [
    "Constraint",
    "ControlCost",
    "Cost",
    "Drive",
    "Found",
    "FramePose",
    "Function",
    "LinkFrame",
    "Policy",
    "Problem",
    "Quadratic",
    "Residual",
    "Result",
    "StateCost",
    "backward_pass",
    "diagnostics",
    "ilqr",
    "joint_limits",
    "minimize",
    "mpc",
    "random_starts",
    "train",
]

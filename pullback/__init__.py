"""Pullback: differentiable physics for robots in contact and parts being printed."""

from pullback.core.errors import DescriptionError, DescriptionWarning, PullbackError, SecondDerivativeError
from pullback.robot.data import MotionData, NMSELoss, random_torque_motion, sine_motion
from pullback.robot.export import export_urdf
from pullback.robot.ik import IKResult, inverse_kinematics
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.robot.parametrizations import (
    PhysicalInertia,
    PositiveScalar,
    SymmetricPositiveDefinite,
    UnconstrainedTensor,
    pseudo_inertia,
)

__version__ = "0.1.0"

__all__ = [
    "DescriptionError",
    "DescriptionWarning",
    "IKResult",
    "MotionData",
    "NMSELoss",
    "PhysicalInertia",
    "PositiveScalar",
    "PullbackError",
    "RobotModel",
    "SecondDerivativeError",
    "SymmetricPositiveDefinite",
    "UnconstrainedTensor",
    "export_urdf",
    "inverse_kinematics",
    "load",
    "pseudo_inertia",
    "random_torque_motion",
    "sine_motion",
]

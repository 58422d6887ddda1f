"""Pullback: differentiable physics for robots in contact and parts being printed."""

from pullback.core import collector

with collector.paused():
    from pullback import sdf, thermal
    from pullback.core.errors import DescriptionError, DescriptionWarning, PullbackError, SecondDerivativeError
    from pullback.rigid.actuators import PositionServo, Torque, VelocityServo
    from pullback.rigid.contact import PGS, Compliant, Exact
    from pullback.rigid.sim import Linearization, Sim
    from pullback.rigid.smoothing import Smoothing
    from pullback.rigid.state import Contact, State, Trajectory
    from pullback.rigid.world import World
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
    from pullback.rollout.checkpoint import Binomial, Every

__version__ = "0.1.0"

__all__ = [
    "PGS",
    "Binomial",
    "Compliant",
    "Contact",
    "DescriptionError",
    "DescriptionWarning",
    "Every",
    "Exact",
    "IKResult",
    "Linearization",
    "MotionData",
    "NMSELoss",
    "PhysicalInertia",
    "PositionServo",
    "PositiveScalar",
    "PullbackError",
    "RobotModel",
    "SecondDerivativeError",
    "Sim",
    "Smoothing",
    "State",
    "SymmetricPositiveDefinite",
    "Torque",
    "Trajectory",
    "UnconstrainedTensor",
    "VelocityServo",
    "World",
    "export_urdf",
    "inverse_kinematics",
    "load",
    "pseudo_inertia",
    "random_torque_motion",
    "sdf",
    "sine_motion",
    "thermal",
]

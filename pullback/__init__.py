"""Pullback: differentiable physics for robots in contact and parts being printed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pullback.core.host import collection_paused

if TYPE_CHECKING:
    from pullback import control, learn, soft, thermal, viewer
    from pullback.viewer import view

with collection_paused:
    from pullback import sdf
    from pullback.core.errors import (
        DescriptionError,
        DescriptionWarning,
        GradientError,
        PullbackError,
        SecondDerivativeError,
        SimulationWarning,
    )
    from pullback.core.files import FileLimits, file_limits
    from pullback.core.ranks import RankError, ranks, start_ranks
    from pullback.core.threads import get_num_threads, set_num_threads
    from pullback.rigid.sim import Linearization, Sim
    from pullback.rigid.smoothing import Smoothing
    from pullback.rigid.solvers.compliant import Compliant
    from pullback.rigid.solvers.exact import Exact
    from pullback.rigid.solvers.pgs import PGS
    from pullback.rigid.state import Contact, State, Trajectory
    from pullback.rigid.world.actuators import AffineActuator, PositionServo, Torque, VelocityServo
    from pullback.rigid.world.dc_motor import DCMotor
    from pullback.rigid.world.soft_stop import SoftStopMotor
    from pullback.rigid.world.world import World
    from pullback.robot.data import MotionData, NMSELoss, random_torque_motion, sine_motion
    from pullback.robot.decompose import decompose_mesh
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
    from pullback.rollout.store import OnDisk, OnHost

__version__ = "0.1.0"

__all__ = [
    "PGS",
    "AffineActuator",
    "Binomial",
    "Compliant",
    "Contact",
    "DCMotor",
    "DescriptionError",
    "DescriptionWarning",
    "Every",
    "Exact",
    "FileLimits",
    "GradientError",
    "IKResult",
    "Linearization",
    "MotionData",
    "NMSELoss",
    "OnDisk",
    "OnHost",
    "PhysicalInertia",
    "PositionServo",
    "PositiveScalar",
    "PullbackError",
    "RankError",
    "RobotModel",
    "SecondDerivativeError",
    "Sim",
    "SimulationWarning",
    "Smoothing",
    "SoftStopMotor",
    "State",
    "SymmetricPositiveDefinite",
    "Torque",
    "Trajectory",
    "UnconstrainedTensor",
    "VelocityServo",
    "World",
    "control",
    "decompose_mesh",
    "export_urdf",
    "file_limits",
    "get_num_threads",
    "inverse_kinematics",
    "learn",
    "load",
    "pseudo_inertia",
    "random_torque_motion",
    "ranks",
    "sdf",
    "set_num_threads",
    "sine_motion",
    "soft",
    "start_ranks",
    "thermal",
    "view",
    "viewer",
]


def __getattr__(name: str) -> Any:
    """Read the parts that robots do without when they are first used."""
    if name in ("control", "learn", "soft", "thermal", "viewer"):
        return import_module(f"pullback.{name}")
    if name == "view":
        return import_module("pullback.viewer").view
    raise AttributeError(f"module 'pullback' has no attribute {name!r}")

"""The robot that has every joint type, shared by the tests of the robot layer."""

import pytest

import pullback as pb
from tests.robot.synthetic import synthetic_robot


@pytest.fixture(scope="module")
def robot() -> pb.RobotModel:
    return synthetic_robot()


@pytest.fixture
def own() -> pb.RobotModel:
    """A robot that a test may change."""
    return synthetic_robot()

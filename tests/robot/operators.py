"""Every compute_* of a robot in one form, so that each test can go through all of them.

An operator maps the inputs it names, tensors (*batch, n), to one tensor; damping and friction are switched on and an
external wrench acts on one link wherever the operator knows of them. `expected` is the same of tests/reference, for a
single state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch

import pullback as pb
from tests.reference import dynamics as reference
from tests.robot.synthetic import TIP

Tensor = torch.Tensor


class Operator(NamedTuple):
    name: str
    inputs: tuple[str, ...]
    compute: Callable[..., Tensor]
    expected: Callable[..., Tensor]

    def __repr__(self) -> str:
        return self.name


def _poses(robot: pb.RobotModel, q: Tensor) -> Tensor:
    return torch.stack([torch.cat(pose, -1) for pose in robot.compute_forward_kinematics_all_links(q).values()], -2)


def _motion(compute: str) -> Callable[..., Tensor]:
    def call(robot: pb.RobotModel, *inputs: Tensor) -> Tensor:
        *state, wrench, gravity = inputs
        return getattr(robot, compute)(
            *state, external_forces={TIP: wrench}, gravity=gravity, use_damping=True, use_friction=True
        )

    return call


def _expected_motion(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(model, parameters, *inputs: Tensor) -> Tensor:
        *state, wrench, gravity = inputs
        if compute is reference.inverse_dynamics and len(state) == 2:
            state = [*state, torch.zeros_like(state[1])]
        return compute(model, parameters, *state, external_forces={TIP: wrench}, gravity=gravity, friction=True)

    return call


def _expected_poses(model, parameters, q: Tensor) -> Tensor:
    R, p, _ = reference.link_poses(model, parameters, q)
    return torch.stack([torch.cat([x, reference.quaternion_of_rotation(X)]) for x, X in zip(p, R)])


OPERATORS = (
    Operator(
        "forward_kinematics",
        ("q",),
        lambda robot, q: torch.cat(robot.compute_forward_kinematics(q, TIP), -1),
        lambda m, p, q: torch.cat(reference.forward_kinematics(m, p, q, m.link_index[TIP])),
    ),
    Operator("forward_kinematics_all_links", ("q",), _poses, _expected_poses),
    Operator(
        "endeffector_jacobian",
        ("q",),
        lambda robot, q: torch.cat(robot.compute_endeffector_jacobian(q, TIP), -2),
        lambda m, p, q: torch.cat(reference.jacobian(m, p, q, m.link_index[TIP])),
    ),
    Operator(
        "inverse_dynamics",
        ("q", "qd", "qdd", "wrench", "gravity"),
        _motion("compute_inverse_dynamics"),
        _expected_motion(reference.inverse_dynamics),
    ),
    Operator(
        "non_linear_effects",
        ("q", "qd", "wrench", "gravity"),
        _motion("compute_non_linear_effects"),
        _expected_motion(reference.inverse_dynamics),
    ),
    Operator(
        "lagrangian_inertia_matrix",
        ("q",),
        lambda robot, q: robot.compute_lagrangian_inertia_matrix(q),
        reference.mass_matrix,
    ),
    Operator(
        "forward_dynamics",
        ("q", "qd", "tau", "wrench", "gravity"),
        _motion("compute_forward_dynamics"),
        _expected_motion(reference.forward_dynamics),
    ),
    Operator("center_of_mass", ("q",), lambda robot, q: robot.compute_center_of_mass(q), reference.center_of_mass),
    Operator(
        "centroidal_momentum",
        ("q", "qd"),
        lambda robot, q, qd: robot.compute_centroidal_momentum(q, qd),
        reference.centroidal_momentum,
    ),
    Operator(
        "kinetic_energy",
        ("q", "qd"),
        lambda robot, q, qd: robot.compute_kinetic_energy(q, qd),
        reference.kinetic_energy,
    ),
    Operator(
        "potential_energy",
        ("q", "gravity"),
        lambda robot, q, gravity: robot.compute_potential_energy(q, gravity=gravity),
        lambda m, p, q, gravity: reference.potential_energy(m, p, q, gravity=gravity),
    ),
)


def random_inputs(robot: pb.RobotModel, *batch: int, seed: int = 0) -> dict[str, Tensor]:
    """Return random q, qd, qdd, tau, wrench, gravity; no velocity is within 0.1 of zero, where dry friction jumps."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"qd": robot.nv, "qdd": robot.nv, "tau": robot.nv, "wrench": 6, "gravity": 3}
    q = robot.random_q(*batch, generator=generator)
    drawn = {name: torch.randn(*batch, n, dtype=robot.dtype, generator=generator) for name, n in sizes.items()}
    drawn["qd"] = drawn["qd"] + 0.1 * drawn["qd"].sign()
    drawn["gravity"] = drawn["gravity"] + drawn["gravity"].new_tensor([0.0, 0.0, -9.0])
    return {"q": q, **{name: x.to(robot.device) for name, x in drawn.items()}}


each_operator = pytest.mark.parametrize("operator", OPERATORS, ids=repr)


def inputs_of(operator: Operator, x: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return the inputs an operator takes."""
    return [x[name] for name in operator.inputs]

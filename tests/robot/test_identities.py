"""Identities of rigid-body dynamics, on a robot that has every joint type."""

import pytest
import torch

import pullback as pb
from tests.reference import dynamics as reference
from tests.robot.operators import each_operator, random_inputs
from tests.robot.synthetic import TIP

# torch's own forward-mode differentiation, which the reference uses, warns about torch
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

# float64 rounding through a tree of 15 links, relative to the largest entry
ROUNDING = 1e-11


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    """Return whether the worst error is within tolerance of the largest entry."""
    assert found.shape == expected.shape
    scale = max(expected.abs().max().item(), 1e-12)
    return (found - expected).abs().max().item() <= tolerance * scale


# -- identities ---------------------------------------------------------------------------------------------------


def test_forward_dynamics_undoes_inverse_dynamics(robot):
    x = random_inputs(robot, 20)
    terms = {"external_forces": {TIP: x["wrench"]}, "gravity": x["gravity"], "use_damping": True, "use_friction": True}
    tau = robot.compute_inverse_dynamics(x["q"], x["qd"], x["qdd"], **terms)
    assert close(robot.compute_forward_dynamics(x["q"], x["qd"], tau, **terms), x["qdd"], ROUNDING)


def test_mass_matrix_is_symmetric_positive_definite(robot):
    M = robot.compute_lagrangian_inertia_matrix(random_inputs(robot, 20)["q"])
    assert torch.equal(M, M.mT)
    assert torch.linalg.eigvalsh(M).min().item() > 1e-3


def test_inverse_dynamics_is_mass_times_acceleration_and_the_rest(robot):
    x = random_inputs(robot, 20)
    M = robot.compute_lagrangian_inertia_matrix(x["q"])
    rest = robot.compute_non_linear_effects(x["q"], x["qd"])
    tau = robot.compute_inverse_dynamics(x["q"], x["qd"], x["qdd"])
    assert close((M @ x["qdd"][..., None])[..., 0] + rest, tau, ROUNDING)


def test_kinetic_energy_is_half_the_product_with_the_mass_matrix(robot):
    x = random_inputs(robot, 20)
    M = robot.compute_lagrangian_inertia_matrix(x["q"])
    expected = 0.5 * torch.einsum("bi,bij,bj->b", x["qd"], M, x["qd"])
    assert close(robot.compute_kinetic_energy(x["q"], x["qd"]), expected, ROUNDING)


def test_gravity_can_be_left_out(robot):
    x = random_inputs(robot, 3)
    state = (x["q"], x["qd"], x["qdd"])
    weightless = robot.compute_inverse_dynamics(*state, include_gravity=False)
    assert torch.equal(weightless, robot.compute_inverse_dynamics(*state, gravity=(0.0, 0.0, 0.0)))
    heavy = robot.compute_inverse_dynamics(*state)
    assert torch.equal(heavy, robot.compute_inverse_dynamics(*state, gravity=(0.0, 0.0, -9.81)))
    assert not close(weightless, heavy, 0.1)


def test_power_of_all_forces_is_the_rate_of_energy(robot):
    x = random_inputs(robot, 20)
    q, qd = x["q"].requires_grad_(), x["qd"].requires_grad_()
    energy = robot.compute_kinetic_energy(q, qd) + robot.compute_potential_energy(q, gravity=x["gravity"])
    by_q, by_qd = torch.autograd.grad(energy.sum(), (q, qd))
    with torch.no_grad():
        rates = torch.stack([reference.coordinate_rates(robot.model, a, b) for a, b in zip(q, qd)])
        rate = (by_q * rates).sum(-1) + (by_qd * x["qdd"]).sum(-1)
        forces = {"external_forces": {TIP: x["wrench"]}, "gravity": x["gravity"]}
        tau = robot.compute_inverse_dynamics(q, qd, x["qdd"], **forces)
        linear, angular = robot.compute_endeffector_jacobian(q, TIP)
        twist = (torch.cat([angular, linear], -2) @ qd[..., None])[..., 0]
        power = (tau * qd).sum(-1) + (x["wrench"] * twist).sum(-1)
    assert close(rate, power, ROUNDING)


def test_outer_forces_are_the_rate_of_momentum(robot):
    """Only what acts from outside counts: gravity, the wrench on a link, and the force on the floating base."""
    x = random_inputs(robot, 10)
    q, qd = x["q"].requires_grad_(), x["qd"].requires_grad_()
    momentum = robot.compute_centroidal_momentum(q, qd)
    rates = torch.stack([reference.coordinate_rates(robot.model, a, b) for a, b in zip(q, qd)]).detach()
    change = []
    for k in range(6):
        by_q, by_qd = torch.autograd.grad(momentum[:, k].sum(), (q, qd), retain_graph=True)
        change.append((by_q * rates).sum(-1) + (by_qd * x["qdd"]).sum(-1))
    with torch.no_grad():
        forces = {"external_forces": {TIP: x["wrench"]}, "gravity": x["gravity"]}
        tau = robot.compute_inverse_dynamics(q, qd, x["qdd"], **forces)
        rotation = torch.stack([reference.rotation_of_quaternion(a[3:7]) for a in q])
        base_torque, base_force = ((rotation @ tau[:, k : k + 3, None])[..., 0] for k in (0, 3))
        centre = robot.compute_center_of_mass(q)
        tip, _ = robot.compute_forward_kinematics(q, TIP)
        torque = base_torque + torch.linalg.cross(q[:, :3] - centre, base_force)
        torque = torque + x["wrench"][:, :3] + torch.linalg.cross(tip - centre, x["wrench"][:, 3:])
        force = base_force + x["wrench"][:, 3:] + robot.compute_total_mass() * x["gravity"]
    assert close(torch.stack(change, -1), torch.cat([torque, force], -1), ROUNDING)


def test_planar_joint_slides_in_its_plane_and_turns_about_its_normal(robot):
    q = random_inputs(robot, 5)["q"]
    normal = torch.from_numpy(robot.model.link_joint[robot.link_number("puck")].axis)
    start = robot.model.q_start["puck_joint/x"]
    assert [robot.model.q_start[f"puck_joint/{k}"] - start for k in ("x", "y", "angle")] == [0, 1, 2]

    def placed(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        moved = q.clone()
        moved[:, start : start + 3] = values
        position, quat = robot.compute_forward_kinematics(moved, "puck")
        return position, torch.stack([reference.rotation_of_quaternion(x) for x in quat])

    origin, R_0 = placed(torch.zeros(3, dtype=torch.float64))
    position, R = placed(q[:, start : start + 3])
    shift = (R_0.mT @ (position - origin)[..., None])[..., 0]
    assert (shift @ normal).abs().max().item() < ROUNDING
    assert close(shift.norm(dim=-1), q[:, start : start + 2].norm(dim=-1), ROUNDING)
    turn = torch.stack([reference.rotation_about(normal, angle) for angle in q[:, start + 2]])
    assert close(R_0.mT @ R, turn, ROUNDING)


@each_operator
def test_quaternions_of_any_length_are_the_same_pose(robot, operator):
    x = random_inputs(robot, 4)
    scaled = x | {"q": x["q"].clone()}
    quats = quaternions(robot)
    for k, quat in enumerate(quats):
        scaled["q"][:, quat] *= 0.5 + k
    found, by_q = value_and_gradient(robot, operator, scaled)
    expected, expected_by_q = value_and_gradient(robot, operator, x)
    assert close(found, expected, ROUNDING)
    for k, quat in enumerate(quats):
        # a longer quaternion turns less for the same step, and growing it does nothing
        assert close(by_q[:, quat] * (0.5 + k), expected_by_q[:, quat], ROUNDING)
        growth = (by_q[:, quat] * scaled["q"][:, quat]).sum(-1)
        assert growth.abs().max().item() <= ROUNDING * max(1.0, by_q.abs().max().item())


def quaternions(robot: pb.RobotModel) -> list[slice]:
    start = robot.model.q_start
    return [slice(start[name] + skip, start[name] + skip + 4) for name, skip in QUATERNIONS.items()]


QUATERNIONS = {"floating_base": 3, "ball_joint": 0, "drone_joint": 3}


def value_and_gradient(robot, operator, x) -> tuple[torch.Tensor, torch.Tensor]:
    q = x["q"].clone().requires_grad_()
    value = operator.compute(robot, q, *(x[name] for name in operator.inputs[1:]))
    mu = torch.randn(value.shape, dtype=value.dtype, generator=torch.Generator().manual_seed(3))
    return value.detach(), torch.autograd.grad(value, q, mu)[0]

"""Kinematics, dynamics and their derivatives of 16 robots against Pinocchio, at 100 random states each.

The derivatives are compared in the tangent space: those of ours by coordinates are multiplied by dq/d(displacement).
Joints that mimic others (panda_gripper, talos) move by themselves in Pinocchio; see pinocchio_oracle.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch

import pullback as pb
from tests.robot.pinocchio_oracle import ROBOTS, PinocchioOracle, load_both

pytestmark = pytest.mark.filterwarnings("ignore::pullback.core.errors.DescriptionWarning")

STATES = 100
# relative to the largest entry of a state's result; float64 through chains of up to 50 joints, whose forward
# dynamics are the worst conditioned
VALUES = 1e-9
DERIVATIVES = 1e-8


class Case(NamedTuple):
    robot: pb.RobotModel
    oracle: PinocchioOracle
    q: torch.Tensor
    qd: torch.Tensor
    qdd: torch.Tensor


@cache
def case(name: str) -> Case:
    robot, oracle = load_both(name)
    generator = torch.Generator().manual_seed(0)
    q = robot.random_q(STATES, generator=generator)
    qd, qdd = (torch.randn(STATES, robot.nv, dtype=torch.float64, generator=generator) for _ in range(2))
    return Case(robot, oracle, q, qd, qdd)


@pytest.fixture(params=ROBOTS)
def c(request) -> Case:
    return case(request.param)


def relative_error(found: torch.Tensor, expected: np.ndarray) -> float:
    """Return the worst entry's error relative to the largest entry of its state, over all states."""
    found = found.detach().numpy()
    assert found.shape == expected.shape
    error = np.abs(found - expected).reshape(len(found), -1).max(1)
    scale = np.abs(expected).reshape(len(found), -1).max(1)
    return float((error / np.where(scale > 0.0, scale, 1.0)).max())


# -- values; each returns its worst relative error ----------------------------------------------------------------


def forward_kinematics(c: Case) -> float:
    found = c.robot.compute_forward_kinematics_all_links(c.q)
    worst = 0.0
    for link, expected in c.oracle.poses(c.q).items():
        position, quat = found[link]
        assert bool((quat[:, 3] >= 0).all())
        worst = max(worst, relative_error(torch.cat([rotation(quat), position[..., None]], -1), expected))
        alone = c.robot.compute_forward_kinematics(c.q, link)
        assert torch.equal(alone[0], position)
        assert torch.equal(alone[1], quat)
    return worst


def rotation(quat: torch.Tensor) -> torch.Tensor:
    x, y, z, w = quat.unbind(-1)
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]
    rows += [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]
    rows += [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]
    return torch.stack(rows, -1).unflatten(-1, (3, 3))


def jacobian(c: Case) -> float:
    links = c.oracle.links()
    worst = 0.0
    for link in (links[-1], links[len(links) // 2]):
        found = torch.cat(c.robot.compute_endeffector_jacobian(c.q, link), -2)
        worst = max(worst, relative_error(found, c.oracle.jacobian(c.q, link)))
    return worst


def inverse_dynamics(c: Case) -> float:
    found = c.robot.compute_inverse_dynamics(c.q, c.qd, c.qdd)
    return relative_error(found, c.oracle.inverse_dynamics(c.q, c.qd, c.qdd))


def friction(c: Case) -> float:
    found = c.robot.compute_inverse_dynamics(c.q, c.qd, c.qdd, use_damping=True, use_friction=True)
    return relative_error(found, c.oracle.inverse_dynamics(c.q, c.qd, c.qdd) + c.oracle.friction(c.qd))


def non_linear_effects(c: Case) -> float:
    found = c.robot.compute_non_linear_effects(c.q, c.qd)
    return relative_error(found, c.oracle.non_linear_effects(c.q, c.qd))


def mass_matrix(c: Case) -> float:
    return relative_error(c.robot.compute_lagrangian_inertia_matrix(c.q), c.oracle.mass_matrix(c.q))


def forward_dynamics(c: Case) -> float:
    found = c.robot.compute_forward_dynamics(c.q, c.qd, c.qdd)
    return relative_error(found, c.oracle.forward_dynamics(c.q, c.qd, c.qdd))


def center_of_mass(c: Case) -> float:
    return relative_error(c.robot.compute_center_of_mass(c.q), c.oracle.center_of_mass(c.q))


def centroidal_momentum(c: Case) -> float:
    return relative_error(c.robot.compute_centroidal_momentum(c.q, c.qd), c.oracle.centroidal_momentum(c.q, c.qd))


def energies(c: Case) -> float:
    kinetic, potential = c.robot.compute_kinetic_energy(c.q, c.qd), c.robot.compute_potential_energy(c.q)
    worst = relative_error(kinetic, c.oracle.kinetic_energy(c.q, c.qd))
    # potential energy is a difference of heights: its scale is the largest of all states
    expected = c.oracle.potential_energy(c.q)
    return max(worst, relative_error(potential[None], expected[None]))


def integrate(c: Case) -> float:
    """Compare displacements by turning and by joints; we move a floating base straight, Pinocchio along a screw."""
    step = 0.3 * c.qd
    if c.robot.model.base == "floating":
        step[:, 3:6] = 0.0
    moved = c.robot.integrate(c.q, step).numpy()
    return relative_error(
        torch.from_numpy(c.oracle.positive(np.stack([c.oracle.q(q) for q in moved]))), c.oracle.integrate(c.q, step)
    )


def integrate_tangent(c: Case) -> float:
    """Compare the derivative of a displacement with dq/d(displacement)."""
    step = torch.zeros(STATES, c.robot.nq, c.robot.nv, dtype=torch.float64, requires_grad=True)
    moved = c.robot.integrate(c.q[:, None].expand(-1, c.robot.nq, -1), step)
    moved.backward(torch.eye(c.robot.nq, dtype=torch.float64).expand_as(moved))
    return relative_error(step.grad, tangents(c).numpy())


# -- derivatives --------------------------------------------------------------------------------------------------


def tangents(c: Case) -> torch.Tensor:
    return torch.from_numpy(np.stack([c.oracle.tangent(q) for q in c.q.numpy()]))


def jacobians(function, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return d output / d input (B, nv, n) for each input, all rows by one vjp over B nv worlds."""
    nv = inputs[1].shape[-1]
    copies = [x[:, None].expand(-1, nv, -1).clone().requires_grad_() for x in inputs]
    output = function(*copies)
    return list(torch.autograd.grad(output, copies, torch.eye(nv, dtype=output.dtype).expand_as(output)))


def forward_dynamics_derivatives(c: Case) -> dict[str, float]:
    by_q, by_qd, by_tau = jacobians(c.robot.compute_forward_dynamics, c.q, c.qd, c.qdd)
    expected = c.oracle.forward_dynamics_derivatives(c.q, c.qd, c.qdd)
    found = {"q": by_q @ tangents(c), "qd": by_qd, "tau": by_tau}
    return {name: relative_error(x, expected[:, k]) for k, (name, x) in enumerate(found.items())}


def inverse_dynamics_derivatives(c: Case) -> dict[str, float]:
    by_q, by_qd, by_qdd = jacobians(c.robot.compute_inverse_dynamics, c.q, c.qd, c.qdd)
    expected = c.oracle.inverse_dynamics_derivatives(c.q, c.qd, c.qdd)
    mass = c.oracle.mass_matrix(c.q)
    return {
        "q": relative_error(by_q @ tangents(c), expected[:, 0]),
        "qd": relative_error(by_qd, expected[:, 1]),
        "qdd": relative_error(by_qdd, mass),
    }


def links_with_mass(c: Case) -> list[str]:
    """Return the moving links that weigh something; a pseudo-inertia without mass has no centre."""
    links = c.robot.model.links
    return [link.name for link, body in zip(links, c.robot.model.link_body) if body >= 0 and link.mass > 0.0]


def pseudo_inertia_gradient(c: Case) -> float:
    """Compare the gradient by every link's pseudo-inertia at once, summed over the states, with the regressor's."""
    robot = pb.RobotModel(c.robot.model, dtype=torch.float64)
    learned = {link: pb.UnconstrainedTensor() for link in links_with_mass(c)}
    for link, module in learned.items():
        robot.make_link_param_learnable(link, "inertial", module)
    tau = robot.compute_inverse_dynamics(c.q, c.qd, c.qdd)
    mu = torch.randn(tau.shape, dtype=tau.dtype, generator=torch.Generator().manual_seed(1))
    tau.backward(mu)
    units = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])
    found = np.stack([(units * module.raw.grad.numpy()).sum((1, 2)) for module in learned.values()])
    expected = np.stack(list(c.oracle.inertial_gradient(c.q, c.qd, c.qdd, mu, list(learned)).values()))
    return relative_error(torch.from_numpy(found)[None], expected[None])


def pseudo_inertia(ten: np.ndarray) -> np.ndarray:
    """Return the 4x4 pseudo-inertia of m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz about the link's origin."""
    I = np.array([[ten[4], ten[5], ten[7]], [ten[5], ten[6], ten[8]], [ten[7], ten[8], ten[9]]])
    out = np.zeros((4, 4))
    out[:3, :3] = 0.5 * np.trace(I) * np.eye(3) - I
    out[:3, 3] = out[3, :3] = ten[1:4]
    out[3, 3] = ten[0]
    return out


def inertia_gradients(c: Case) -> float:
    """Compare gradients by mass, centre of mass and inertia of some links with the regressor through the chain rule."""
    robot = pb.RobotModel(c.robot.model, dtype=torch.float64)
    heavy = links_with_mass(c)
    links = sorted({heavy[0], heavy[len(heavy) // 2], heavy[-1]})
    names = ("mass", "com", "inertia_mat")
    learned = {(link, name): pb.UnconstrainedTensor() for link in links for name in names}
    for (link, name), module in learned.items():
        robot.make_link_param_learnable(link, name, module)
    tau = robot.compute_inverse_dynamics(c.q, c.qd, c.qdd)
    mu = torch.randn(tau.shape, dtype=tau.dtype, generator=torch.Generator().manual_seed(2))
    tau.backward(mu)
    worst = 0.0
    for link, by_ten in c.oracle.inertial_gradient(c.q, c.qd, c.qdd, mu, links).items():
        description = robot.model.links[robot.link_number(link)]
        values = [
            torch.tensor(x, dtype=torch.float64) for x in (description.mass, description.com, description.inertia)
        ]
        values = [x.requires_grad_() for x in values]
        (ten_numbers(*values) @ torch.from_numpy(by_ten)).backward()
        for name, value in zip(names, values):
            found, expected = learned[link, name].raw.grad, value.grad
            if name == "inertia_mat":
                # only its action on symmetric matrices has a meaning
                found, expected = found + found.mT, expected + expected.mT
            worst = max(worst, relative_error(found[None], expected[None].numpy()))
    return worst


def ten_numbers(mass: torch.Tensor, com: torch.Tensor, inertia: torch.Tensor) -> torch.Tensor:
    """Return m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz about the link's origin."""
    I = 0.5 * (inertia + inertia.T) + mass * (com @ com * torch.eye(3, dtype=com.dtype) - torch.outer(com, com))
    return torch.cat([mass[None], mass * com, torch.stack([I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]])])


# -- tests --------------------------------------------------------------------------------------------------------

COMPARISONS = (
    forward_kinematics,
    jacobian,
    inverse_dynamics,
    friction,
    non_linear_effects,
    mass_matrix,
    forward_dynamics,
    center_of_mass,
    centroidal_momentum,
    energies,
    integrate,
    integrate_tangent,
)


@pytest.mark.parametrize("compare", COMPARISONS, ids=lambda f: f.__name__)
def test_value(c, compare):
    assert compare(c) < VALUES


def test_total_mass(c):
    assert c.robot.compute_total_mass().item() == pytest.approx(c.oracle.total_mass(), rel=1e-12)


def test_forward_dynamics_derivatives(c):
    assert max(forward_dynamics_derivatives(c).values()) < DERIVATIVES


def test_inverse_dynamics_derivatives(c):
    assert max(inverse_dynamics_derivatives(c).values()) < DERIVATIVES


def test_inertial_gradients(c):
    assert pseudo_inertia_gradient(c) < DERIVATIVES
    assert inertia_gradients(c) < DERIVATIVES

"""Each parametrization keeps its promise whatever an optimiser does, and takes its place in a robot."""

import pytest
import torch
from torch import nn

import pullback as pb
from pullback.robot.parameters import SHAPES
from pullback.robot.parametrizations import pseudo_inertia, split_pseudo_inertia

# value -> raw -> value costs an exponential or a Cholesky factor and its square
ROUND_TRIP = {"rtol": 1e-12, "atol": 1e-14}

INERTIA = torch.tensor([[2.0, 0.1, 0.0], [0.1, 3.0, -0.2], [0.0, -0.2, 4.0]], dtype=torch.float64)
PSEUDO = pseudo_inertia(torch.tensor(2.0).double(), torch.tensor([0.1, -0.2, 0.3]).double(), INERTIA)

CASES = [
    pytest.param(pb.UnconstrainedTensor, torch.tensor([-1.0, 0.0, 2.0]).double(), id="unconstrained"),
    pytest.param(pb.PositiveScalar, torch.tensor(0.3).double(), id="positive"),
    pytest.param(lambda v=None: pb.PositiveScalar(v, minimum=0.2), torch.tensor(0.3).double(), id="above a minimum"),
    pytest.param(pb.SymmetricPositiveDefinite, INERTIA, id="positive definite"),
    pytest.param(pb.PhysicalInertia, INERTIA, id="inertia"),
    pytest.param(pb.PhysicalInertia, PSEUDO, id="pseudo-inertia"),
]


def arm(dtype: torch.dtype = torch.float64) -> pb.RobotModel:
    return pb.load("iiwa7", dtype=dtype)


@pytest.mark.parametrize(("make", "value"), CASES)
def test_a_value_comes_back(make, value):
    torch.testing.assert_close(make(value)(), value, **ROUND_TRIP)


@pytest.mark.parametrize(("make", "value"), CASES)
def test_a_batch_of_values_comes_back(make, value):
    batch = torch.stack([value, 2.0 * value, 3.0 * value])
    module = make(batch)
    torch.testing.assert_close(module(), batch, **ROUND_TRIP)
    assert len(module.raw) == 3


@pytest.mark.parametrize(("make", "value"), CASES)
def test_gradients_reach_the_raw_tensor(make, value):
    module = make(value)
    raw = module.raw.detach().clone().requires_grad_()

    def call(raw):
        return torch.func.functional_call(module, {"raw": raw}, ())

    assert torch.autograd.gradcheck(call, (raw,))


@pytest.mark.parametrize(("make", "value"), CASES)
def test_it_is_saved_and_loaded_even_into_one_without_a_value(make, value):
    saved = make(value).state_dict()
    for fresh in (make(2.0 * value), make(torch.stack([value, value])), make()):
        fresh.load_state_dict(saved)
        torch.testing.assert_close(fresh(), value, **ROUND_TRIP)
        assert isinstance(fresh.raw, nn.Parameter)


def random_raw(*shape: int) -> torch.Tensor:
    return 2.0 * torch.randn(500, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def test_a_positive_scalar_stays_above_its_minimum():
    module = pb.PositiveScalar(torch.ones(500, dtype=torch.float64), minimum=0.5)
    module.raw.data = 10.0 * random_raw()
    assert (module() >= 0.5).all()


def test_a_positive_definite_matrix_stays_one():
    module = pb.SymmetricPositiveDefinite(INERTIA)
    module.raw.data = random_raw(3, 3)
    value = module()
    assert torch.equal(value, value.mT)
    # rounding of eigenvalues far below the largest one
    eigenvalues = torch.linalg.eigvalsh(value)
    assert (eigenvalues[:, 0] > -1e-12 * eigenvalues[:, -1]).all()


def principal_moments_fault(inertia: torch.Tensor) -> torch.Tensor:
    """Return how far the two smaller principal moments fall short of the largest, relative to it."""
    moments = torch.linalg.eigvalsh(inertia)
    return (moments[:, 2] - moments[:, 0] - moments[:, 1]) / moments[:, 2]


def test_an_inertia_keeps_the_triangle_inequality():
    module = pb.PhysicalInertia(INERTIA)
    module.raw.data = random_raw(3, 3)
    assert (principal_moments_fault(module()) < 1e-12).all()
    # a matrix that is only positive definite breaks it
    only_definite = pb.SymmetricPositiveDefinite(INERTIA)
    only_definite.raw.data = random_raw(3, 3)
    assert (principal_moments_fault(only_definite()) > 0.1).any()


def test_a_pseudo_inertia_keeps_mass_and_triangle_inequality():
    module = pb.PhysicalInertia(PSEUDO)
    # moderate: the inertia about the centre is a difference of large numbers
    module.raw.data = 0.5 * random_raw(4, 4)
    mass, _, inertia = split_pseudo_inertia(module())
    assert (mass > 0.0).all()
    assert (principal_moments_fault(inertia) < 1e-9).all()


def test_pseudo_inertias_split_into_what_they_were_made_of():
    mass, com, inertia = split_pseudo_inertia(PSEUDO)
    torch.testing.assert_close(mass, torch.tensor(2.0).double())
    torch.testing.assert_close(com, torch.tensor([0.1, -0.2, 0.3]).double())
    torch.testing.assert_close(inertia, INERTIA)


STARTS = [
    ("mass", pb.PositiveScalar),
    ("com", pb.UnconstrainedTensor),
    ("inertia_mat", pb.SymmetricPositiveDefinite),
    ("inertia_mat", pb.PhysicalInertia),
    ("inertial", pb.PhysicalInertia),
    ("trans", pb.UnconstrainedTensor),
    ("rot_angles", pb.UnconstrainedTensor),
    ("joint_damping", pb.PositiveScalar),
]


@pytest.mark.parametrize(("parameter", "make"), STARTS)
def test_without_a_value_it_takes_the_links_and_changes_nothing(parameter, make):
    robot, learnable = arm(), arm()
    learnable.make_link_param_learnable("iiwa_link_4", parameter, make())
    torch.testing.assert_close(
        learnable.get_link_param("iiwa_link_4", parameter), robot.get_link_param("iiwa_link_4", parameter)
    )
    x = torch.linspace(-1.0, 1.0, 7, dtype=torch.float64)
    torques = [r.compute_inverse_dynamics(x, x, x, use_damping=True) for r in (robot, learnable)]
    torch.testing.assert_close(torques[1], torques[0])
    torques[1].square().sum().backward()
    (raw,) = learnable.parameters()
    assert raw.grad is not None
    assert raw.grad.norm() > 0.0


def test_every_parameter_can_be_learned_from_a_given_value():
    robot = arm()
    x = torch.ones(7, dtype=torch.float64)
    for parameter, shape in SHAPES.items():
        value = (
            torch.full(shape, 0.3, dtype=torch.float64) + torch.eye(shape[0])
            if len(shape) == 2
            else torch.full(shape, 0.3)
        )
        link = "iiwa_link_4" if parameter == "inertial" else "iiwa_link_5"
        robot.make_link_param_learnable(link, parameter, pb.UnconstrainedTensor(value))
        assert robot.get_link_param(link, parameter).shape == shape
    robot.compute_inverse_dynamics(x, x, x, use_damping=True, use_friction=True).sum().backward()


def test_it_becomes_of_the_robots_type():
    robot = arm(torch.float32)
    robot.make_link_param_learnable("iiwa_link_4", "mass", pb.PositiveScalar(torch.tensor(2.0).double()))
    assert robot.get_link_param("iiwa_link_4", "mass").dtype == torch.float32
    robot.to(torch.float64)
    assert robot.get_link_param("iiwa_link_4", "mass").dtype == torch.float64


def test_per_robot_values_have_per_robot_gradients():
    robot = arm()
    masses = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    robot.make_link_param_learnable("iiwa_link_7", "mass", pb.PositiveScalar(masses))
    q = robot.random_q(3, generator=torch.Generator().manual_seed(0))
    still = torch.zeros_like(q)
    together = robot.compute_inverse_dynamics(q, still, still)
    together[1].square().sum().backward()
    (raw,) = robot.parameters()
    assert raw.grad is not None
    assert raw.grad[1] != 0.0
    assert raw.grad[0] == raw.grad[2] == 0.0
    for k in range(3):
        alone = arm()
        alone.set_link_param("iiwa_link_7", "mass", masses[k])
        torch.testing.assert_close(alone.compute_inverse_dynamics(q[k], still[k], still[k]), together[k])


def test_a_robot_is_saved_and_loaded_with_what_it_learned():
    robot, other = arm(), arm()
    for r, mass in ((robot, 2.5), (other, 1.0)):
        r.make_link_param_learnable("iiwa_link_4", "mass", pb.PositiveScalar(mass))
        r.set_link_param("iiwa_link_5", "com", [0.1, 0.2, 0.3 * mass])
    other.load_state_dict(robot.state_dict())
    for link, parameter in (("iiwa_link_4", "mass"), ("iiwa_link_5", "com")):
        assert torch.equal(other.get_link_param(link, parameter), robot.get_link_param(link, parameter))


def test_names_with_a_dot_are_no_problem():
    robot = pb.load("allegro", dtype=torch.float64)
    robot.make_link_param_learnable("link_3.0", "mass", pb.PositiveScalar(0.1))
    assert robot.get_link_param("link_3.0", "mass").item() == pytest.approx(0.1)
    robot.load_state_dict(robot.state_dict())


class Doubled(nn.Module):
    """A user's own module: twice a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.5))

    def forward(self) -> torch.Tensor:
        return 2.0 * self.weight


class DampingOfState(nn.Module):
    """A network from the joint state to a damping."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(14, 8), nn.Tanh(), nn.Linear(8, 1), nn.Softplus())

    def forward(self, q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat([q, qd], -1))[:, 0]


def test_a_users_module_is_converted_and_learned():
    robot = arm()
    robot.make_link_param_learnable("iiwa_link_7", "mass", Doubled())
    assert robot.get_link_param("iiwa_link_7", "mass").item() == 1.0
    x = torch.ones(7, dtype=torch.float64)
    robot.compute_forward_dynamics(x, x, x).sum().backward()
    (weight,) = robot.parameters()
    assert weight.dtype == torch.float64
    assert weight.grad is not None
    assert weight.grad != 0.0


def test_a_network_of_the_state_gets_it_and_its_weights_get_gradients():
    torch.manual_seed(0)
    robot, plain = arm(), arm()
    network = DampingOfState()
    robot.make_link_param_learnable("iiwa_link_2", "joint_damping", network)
    plain.set_link_param("iiwa_link_2", "joint_damping", 0.0)
    q, qd, qdd = torch.randn(3, 5, 7, dtype=torch.float64)
    with_network, without = (r.compute_inverse_dynamics(q, qd, qdd, use_damping=True) for r in (robot, plain))
    torch.testing.assert_close((with_network - without)[:, 1], network(q, qd) * qd[:, 1])
    with_network.sum().backward()
    assert all(weight.grad is not None for weight in network.parameters())
    with pytest.raises(pb.PullbackError, match="asks for 'q', which this computation does not have"):
        robot.get_link_param("iiwa_link_2", "joint_damping")


def test_freezing_stops_the_gradient_and_thawing_restores_it():
    robot = arm()
    robot.make_link_param_learnable("iiwa_link_7", "mass", pb.PositiveScalar())
    robot.freeze_learnable_link_param("iiwa_link_7", "mass")
    x = torch.ones(7, dtype=torch.float64)
    assert not robot.compute_inverse_dynamics(x, x, x).requires_grad
    robot.unfreeze_learnable_link_param("iiwa_link_7", "mass")
    assert robot.compute_inverse_dynamics(x, x, x).requires_grad


def test_what_is_learned_is_printed(capsys):
    robot = arm()
    robot.print_learnable_params()
    assert "no learnable parameters" in capsys.readouterr().out
    robot.make_link_param_learnable("iiwa_link_7", "mass", pb.PositiveScalar(1.5))
    robot.set_link_param("iiwa_link_6", "mass", 2.5)
    robot.make_link_param_learnable("iiwa_link_2", "joint_damping", DampingOfState())
    robot.print_learnable_params()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["iiwa_link_7", "mass", "learning", "1.5"] in lines
    assert ["iiwa_link_6", "mass", "fixed", "2.5"] in lines
    assert any("DampingOfState," in line for line in lines)


def test_errors_name_the_choices():
    robot = arm()
    with pytest.raises(pb.PullbackError, match="no link named 'iiwa_link7' in iiwa7; did you mean"):
        robot.make_link_param_learnable("iiwa_link7", "mass", pb.PositiveScalar())
    with pytest.raises(pb.PullbackError, match="no link parameter named 'mas'; did you mean 'mass'"):
        robot.make_link_param_learnable("iiwa_link_7", "mas", pb.PositiveScalar())
    with pytest.raises(pb.PullbackError, match="mass of 'iiwa_link_7' was not made learnable; those that were: none"):
        robot.freeze_learnable_link_param("iiwa_link_7", "mass")


def test_errors_say_why_a_start_is_refused():
    robot = arm()
    with pytest.raises(pb.PullbackError, match=r"PositiveScalar starts from a value above 0.0, got 0; give one"):
        robot.make_link_param_learnable("iiwa_link_ee", "mass", pb.PositiveScalar())
    with pytest.raises(pb.PullbackError, match="SymmetricPositiveDefinite starts from a positive definite matrix"):
        pb.SymmetricPositiveDefinite(-torch.eye(3))
    with pytest.raises(pb.PullbackError, match="PhysicalInertia starts from a positive definite matrix"):
        pb.PhysicalInertia(torch.diag(torch.tensor([1.0, 1.0, 3.0])))


def test_a_value_of_the_wrong_shape_is_refused():
    robot = arm()
    with pytest.raises(pb.PullbackError, match=r"com of 'iiwa_link_7'.*shape \(2,\)"):
        robot.set_link_param("iiwa_link_7", "com", [1.0, 2.0])
    with pytest.raises(pb.PullbackError, match=r"the module for 'com' returned shape \(2,\); expected \(3,\)"):
        robot.make_link_param_learnable("iiwa_link_7", "com", pb.UnconstrainedTensor([1.0, 2.0]))
    assert not robot.learned

"""torch.func over every compute_*: vmap, grad, jacrev and nestings against a loop; no derivative is an error."""

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap

import pullback as pb
from tests.robot.operators import each_operator, random_inputs
from tests.robot.synthetic import TIP, synthetic_robot

# torch.func.hessian and jacfwd warn about torch itself
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

# the same kernels run on the same numbers, only sums over worlds may be ordered differently
ROUNDING = 1e-12


def assert_close(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.shape == expected.shape
    assert expected.abs().max().item() > 0.0
    assert (found - expected).abs().max().item() <= ROUNDING * max(1.0, expected.abs().max().item())


def loop_jacobian(compute, inputs: list[torch.Tensor], argument: int) -> torch.Tensor:
    """Return d output / d input of one state, one backward pass for each entry of the output."""
    given = [x.clone().requires_grad_(k == argument) for k, x in enumerate(inputs)]
    output = compute(*given)
    rows = [torch.autograd.grad(y, given[argument], retain_graph=True)[0] for y in output.flatten()]
    return torch.stack(rows).reshape(*output.shape, -1)


@each_operator
def test_vmap(robot, operator):
    x = random_inputs(robot, 4)
    inputs = [x[name] for name in operator.inputs]
    compute = lambda *given: operator.compute(robot, *given)  # noqa: E731
    expected = torch.stack([compute(*(i[k] for i in inputs)) for k in range(4)])
    assert_close(vmap(compute)(*inputs), expected)
    # mapped over the last dimension
    last = [i.mT.contiguous() for i in inputs]
    assert_close(vmap(compute, in_dims=-1)(*last), expected)
    # only the state is mapped
    fixed = [i[0] for i in inputs[1:]]
    expected = torch.stack([compute(q, *fixed) for q in inputs[0]])
    assert_close(vmap(lambda q: compute(q, *fixed))(inputs[0]), expected)


@each_operator
def test_vmap_over_batches_and_nested(robot, operator):
    x = random_inputs(robot, 2, 3)
    inputs = [x[name] for name in operator.inputs]
    compute = lambda *given: operator.compute(robot, *given)  # noqa: E731
    expected = compute(*inputs)
    assert_close(vmap(compute)(*inputs), expected)
    assert_close(vmap(vmap(compute))(*inputs), expected)


@each_operator
def test_jacrev(robot, operator):
    x = random_inputs(robot)
    inputs = [x[name] for name in operator.inputs]
    compute = lambda *given: operator.compute(robot, *given)  # noqa: E731
    found = jacrev(compute, argnums=tuple(range(len(inputs))))(*inputs)
    for k, jacobian in enumerate(found):
        assert_close(jacobian, loop_jacobian(compute, inputs, k))


@each_operator
def test_vmap_of_jacrev(robot, operator):
    x = random_inputs(robot, 3)
    inputs = [x[name] for name in operator.inputs]
    compute = lambda *given: operator.compute(robot, *given)  # noqa: E731
    found = vmap(jacrev(compute, argnums=tuple(range(len(inputs)))))(*inputs)
    for argument, jacobian in enumerate(found):
        expected = [loop_jacobian(compute, [i[k] for i in inputs], argument) for k in range(3)]
        assert_close(jacobian, torch.stack(expected))


@each_operator
def test_grad_and_vmap_of_grad(robot, operator):
    x = random_inputs(robot, 3)
    inputs = [x[name] for name in operator.inputs]
    loss = lambda *given: operator.compute(robot, *given).pow(2).sum()  # noqa: E731
    arguments = tuple(range(len(inputs)))
    leaves = [i.clone().requires_grad_() for i in inputs]
    expected = torch.autograd.grad(loss(*leaves), leaves)
    for found, right in zip(grad(loss, argnums=arguments)(*inputs), expected, strict=True):
        assert_close(found, right)
    for found, right in zip(vmap(grad(loss, argnums=arguments))(*inputs), expected, strict=True):
        assert_close(found, right)


class Torques(nn.Module):
    def __init__(self, robot: pb.RobotModel) -> None:
        super().__init__()
        self.robot = robot

    def forward(self, q: torch.Tensor, qd: torch.Tensor, qdd: torch.Tensor) -> torch.Tensor:
        return self.robot.compute_inverse_dynamics(q, qd, qdd)


def test_parameter_gradients_per_sample():
    robot = synthetic_robot()
    for link, parameter in (("hinge", "mass"), ("ball", "com"), ("wheel", "rot_angles"), ("base", "inertial")):
        robot.make_link_param_learnable(link, parameter, pb.UnconstrainedTensor())
    module = Torques(robot)
    x = random_inputs(robot, 5)
    state = (x["q"], x["qd"], x["qdd"])
    weights = {name: p.detach() for name, p in module.named_parameters()}

    def loss(weights, *state):
        return functional_call(module, weights, state).pow(2).sum()

    found = vmap(grad(loss), in_dims=(None, 0, 0, 0))(weights, *state)
    for k in range(5):
        module.zero_grad()
        module(*(s[k] for s in state)).pow(2).sum().backward()
        for name, parameter in module.named_parameters():
            assert_close(found[name][k], parameter.grad)


def test_an_ensemble_of_parameters():
    robot = synthetic_robot()
    robot.make_link_param_learnable("hinge", "mass", pb.UnconstrainedTensor())
    module = Torques(robot)
    x = random_inputs(robot, 3)
    state = (x["q"], x["qd"], x["qdd"])
    (name,) = (name for name, _ in module.named_parameters())
    masses = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64)
    found = vmap(lambda m: functional_call(module, {name: m}, state))(masses)
    for k, mass in enumerate(masses):
        robot.set_link_param("hinge", "mass", mass)
        assert_close(found[k], module(*state))


def test_a_robot_first_used_inside_a_transform_works_outside():
    robot, other = synthetic_robot(), synthetic_robot()
    x = random_inputs(robot, 2)
    jacobian = vmap(jacrev(robot.compute_center_of_mass))(x["q"])
    assert torch.equal(robot.compute_center_of_mass(x["q"]), other.compute_center_of_mass(x["q"]))
    q = x["q"].clone().requires_grad_()
    robot.compute_center_of_mass(q)[:, 0].sum().backward()
    assert_close(q.grad, jacobian[:, 0])


def test_a_robot_first_used_in_inference_mode_learns_afterwards():
    robot = synthetic_robot()
    x = random_inputs(robot, 2)
    with torch.inference_mode():
        expected = robot.compute_inverse_dynamics(x["q"], x["qd"], x["qdd"])
    q = x["q"].clone().requires_grad_()
    found = robot.compute_inverse_dynamics(q, x["qd"], x["qdd"])
    assert torch.equal(found, expected)
    found.sum().backward()
    assert q.grad.abs().max().item() > 0.0


# -- what has no derivative ---------------------------------------------------------------------------------------

SECOND = r"has a first derivative only, and a second one was asked for .*differentiate once"


@each_operator
def test_a_second_derivative_is_an_error(robot, operator):
    x = random_inputs(robot)
    others = [x[name] for name in operator.inputs[1:]]
    loss = lambda q: operator.compute(robot, q, *others).pow(2).sum()  # noqa: E731
    q = x["q"].clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(q), q, create_graph=True)
    with pytest.raises(pb.SecondDerivativeError, match=SECOND):
        first.sum().backward()
    with pytest.raises(pb.SecondDerivativeError, match=SECOND):
        jacrev(jacrev(loss))(x["q"])
    with pytest.raises(pb.SecondDerivativeError, match=SECOND):
        vmap(jacrev(grad(loss)))(x["q"][None])


def test_create_graph_is_harmless_until_it_is_used(robot):
    q = random_inputs(robot)["q"].requires_grad_()
    (first,) = torch.autograd.grad(robot.compute_center_of_mass(q).sum(), q, create_graph=True)
    (expected,) = torch.autograd.grad(robot.compute_center_of_mass(q).sum(), q)
    assert torch.equal(first.detach(), expected)


@each_operator
def test_forward_mode_is_an_error_not_a_zero(robot, operator):
    x = random_inputs(robot)
    others = [x[name] for name in operator.inputs[1:]]
    compute = lambda q: operator.compute(robot, q, *others)  # noqa: E731
    for derive in (jacfwd, hessian):
        with pytest.raises(pb.PullbackError, match=r"no forward mode .*first derivatives only"):
            derive(compute)(x["q"])


@pytest.mark.parametrize("requires_grad", [False, True])
def test_dual_numbers_are_an_error_not_a_zero(robot, requires_grad):
    q = random_inputs(robot)["q"].requires_grad_(requires_grad)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q, torch.ones_like(q))
        with pytest.raises(pb.PullbackError, match=r"no forward mode .*first derivatives only"):
            robot.compute_forward_kinematics(dual, TIP)

"""The robot layer on a GPU: the same values and gradients as on a CPU and as the reference."""

import copy

import pytest
import torch

import pullback as pb
from tests.reference import dynamics as reference
from tests.robot.operators import each_operator, inputs_of, random_inputs
from tests.robot.synthetic import learning_robot, synthetic_robot

# torch's own forward-mode differentiation, which the reference uses, warns about torch
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

# CUDA and CPU contract multiplications and additions differently, relative to the largest entry of a result
CUDA = {torch.float64: 1e-10, torch.float32: 3e-4}


# -- CUDA ---------------------------------------------------------------------------------------------------------


def value_and_gradients(robot, operator, x: dict[str, torch.Tensor]) -> list[torch.Tensor | None]:
    """Return the value and its gradients by inputs and parameters, brought to the CPU in float64."""
    leaves = [x[name].to(robot.device, robot.dtype).requires_grad_() for name in operator.inputs]
    output = operator.compute(robot, *leaves)
    assert (output.device, output.dtype) == (robot.device, robot.dtype)
    mu = cotangent(output.shape).to(output)
    gradients = torch.autograd.grad(output, [*leaves, *robot.parameters()], mu, allow_unused=True)
    return [None if g is None else g.detach().cpu().double() for g in (output, *gradients)]


def cotangent(shape: torch.Size) -> torch.Tensor:
    return torch.linspace(-1, 1, shape.numel(), dtype=torch.float64).reshape(shape)


def assert_agrees(found: list, expected: list, tolerance: float) -> None:
    value, *gradients = expected
    largest = [value.abs().max().item(), max(g.abs().max().item() for g in gradients if g is not None)]
    for k, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert (a is None) == (b is None)
        if b is not None:
            scale = max(b.abs().max().item(), 1e-3 * largest[k > 0])
            assert (a - b).abs().max().item() <= tolerance * scale


@pytest.mark.gpu
@each_operator
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("batch", [(), (3,), (200,)], ids=str)
def test_cuda_agrees_with_the_cpu(operator, dtype, batch):
    cpu = learning_robot(dtype)
    cuda = copy.deepcopy(cpu).to("cuda")
    x = random_inputs(cpu, *batch)
    assert_agrees(value_and_gradients(cuda, operator, x), value_and_gradients(cpu, operator, x), CUDA[dtype])


@pytest.mark.gpu
@each_operator
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_cuda_agrees_with_the_reference(operator, dtype):
    """Needs no kernels for the CPU."""
    robot = synthetic_robot(dtype=dtype, device="cuda")
    x = random_inputs(synthetic_robot(), 2)
    parameters = reference.description_parameters(robot.model)
    leaves = [x[name].requires_grad_() for name in operator.inputs]
    rows = [operator.expected(robot.model, parameters, *(leaf[k] for leaf in leaves)) for k in range(2)]
    value = torch.stack(rows)
    expected = [value.detach(), *torch.autograd.grad(value, leaves, cotangent(value.shape))]
    assert_agrees(value_and_gradients(robot, operator, {k: v.detach() for k, v in x.items()}), expected, CUDA[dtype])


@pytest.mark.gpu
@each_operator
def test_cuda_batches(operator):
    robot = synthetic_robot(device="cuda")
    inputs = inputs_of(operator, random_inputs(robot, 2, 3))
    expected = operator.compute(robot, *inputs)
    # torch's own sums round by how their terms lie in memory
    transposed = operator.compute(robot, *(i.mT.contiguous().mT for i in inputs))
    torch.testing.assert_close(transposed, expected, rtol=1e-14, atol=1e-13)
    torch.testing.assert_close(operator.compute(robot, *(i[1, 2] for i in inputs)), expected[1, 2])
    assert operator.compute(robot, *(i[:, :0] for i in inputs)).shape == (2, 0, *expected.shape[2:])


@pytest.mark.gpu
def test_cuda_runs_on_the_current_stream():
    robot = synthetic_robot(device="cuda")
    x = random_inputs(robot, 1000)
    expected = robot.compute_forward_dynamics(x["q"], x["qd"], x["tau"])
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        found = robot.compute_forward_dynamics(x["q"], x["qd"], x["tau"])
        doubled = 2.0 * found
    torch.cuda.synchronize()
    assert torch.equal(found, expected)
    assert torch.equal(doubled, 2.0 * expected)


@pytest.mark.gpu
def test_a_cuda_robot_refuses_cpu_tensors():
    robot = synthetic_robot(device="cuda")
    q = synthetic_robot().random_q(2)
    with pytest.raises(pb.PullbackError, match=r"q is torch.float64 on cpu, the robot is torch.float64 on cuda:0"):
        robot.compute_center_of_mass(q)

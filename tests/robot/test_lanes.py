"""Worlds in the lanes of vectors on a CPU: a world's results do not depend on its lane or on its neighbours."""

import pytest
import torch
import warp as wp

import pullback as pb
from pullback.core.errors import PullbackError
from pullback.core.lanes import Lanes
from pullback.core.launch import Launcher
from pullback.core.modules import kernel_module, made_once
from pullback.robot.topology import ARMATURE, DOF_ROWS, Topology
from tests.robot.operators import each_operator, inputs_of, random_inputs
from tests.robot.synthetic import learning_robot, synthetic_robot

BATCH = 37  # two whole groups in float32 on AVX-512, and a part of one
SUMS = 1e-13  # of the largest entry: sums over worlds are taken in another order
ANOTHER_PATH = 1e-12  # of the largest entry: the same inertia handed on by two formulas


def values_and_gradients(robot, operator, inputs, cotangent=None):
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = operator.compute(robot, *leaves)
    if cotangent is None:
        cotangent = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(3))
    return out.detach(), cotangent, torch.autograd.grad(out, leaves, cotangent)


@each_operator
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_world_has_the_same_bits_in_any_lane(operator, dtype):
    robot = synthetic_robot(dtype=dtype)
    inputs = inputs_of(operator, random_inputs(robot, BATCH))
    out, cotangent, gradients = values_and_gradients(robot, operator, inputs)
    for world in (0, 1, 7, 8, 31, 36):
        alone = [x[world : world + 1] for x in inputs]
        found, _, found_gradients = values_and_gradients(robot, operator, alone, cotangent[world : world + 1])
        assert torch.equal(found[0], out[world])
        for mine, all_ in zip(found_gradients, gradients):
            assert torch.equal(mine[0], all_[world])


@each_operator
def test_gradients_of_shared_parameters_are_sums_over_worlds(operator):
    robot = learning_robot()
    robot.make_link_param_learnable("slider", "trans", pb.UnconstrainedTensor())
    inputs = inputs_of(operator, random_inputs(robot, BATCH))
    _, cotangent, _ = values_and_gradients(robot, operator, inputs)

    def gradients(chosen: slice) -> list[torch.Tensor]:
        parameters = list(robot.parameters())
        out = operator.compute(robot, *(x[chosen] for x in inputs))
        found = torch.autograd.grad(out, parameters, cotangent[chosen], allow_unused=True)
        return [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found)]

    together = gradients(slice(0, BATCH))
    apart = [gradients(slice(world, world + 1)) for world in range(BATCH)]
    for mine, *others in zip(together, *apart):
        expected = torch.stack(others).sum(0)
        assert (mine - expected).abs().max() <= SUMS * max(1.0, float(expected.abs().max())) * BATCH


def test_neighbours_with_another_armature(robot):
    # a hinge without armature is a special case, taken where all lanes have none
    x = random_inputs(robot, BATCH)
    terms = robot._terms((BATCH,), x["q"], x["qd"], True, True, True, None, None, [])
    dofs = terms[-1].expand(BATCH, -1).clone()
    dofs[::3, ARMATURE::DOF_ROWS] = 0.0
    program = robot._programs.forward_dynamics()
    given = [x["q"], x["qd"], x["tau"], *terms[:-1], dofs]
    together = program(*given)
    apart = torch.cat(
        [program(*(i if i is None or len(i) == 1 else i[w : w + 1] for i in given)) for w in range(BATCH)]
    )
    assert (together - apart).abs().max() <= ANOTHER_PATH * apart.abs().max()


@made_once
def branching_kernel(real: type):
    a = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_branching", real, lanes=Lanes(writes=("y",))))
    def forward(topology: Topology, x: a, y: a, scratch: a):
        w = wp.tid()
        y[0, w] = x[0, w]
        if x[0, w] > real(0.0):
            y[0, w] = real(0.0)

    return forward


def test_a_kernel_that_branches_on_numbers_does_not_compile():
    launcher = Launcher(branching_kernel(wp.float64), "cpu", Topology())
    with pytest.raises(PullbackError, match="could not be compiled"):
        launcher([(0, 0, 0, 0, 0, False)] * 3, 1)

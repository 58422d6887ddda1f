"""Identities of rigid-body dynamics, and the gradients of every compute_* on a robot that has every joint type.

Gradients by state, forces and gravity: torch's gradcheck. By link parameters: autograd of tests/reference, and central
differences. By everything at once, batched: the dot-product test <mu, J dx> = <J^T mu, dx>.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.tree import Joint
from tests.reference import dynamics as reference
from tests.robot.operators import OPERATORS, Operator, each_operator, random_inputs
from tests.robot.synthetic import synthetic_robot

# torch's own forward-mode differentiation, which the reference uses, warns about torch
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

# float64 rounding through a tree of 15 links, relative to the largest entry
ROUNDING = 1e-11
# central differences in float64 with a step of 1e-6: rounding over step
DIFFERENCES = 2e-7
STEP = 1e-6
# float32 against float64: rounding of 6e-8 amplified by the condition of the mass matrix
SINGLE = 2e-4

PARAMETERS = {
    "mass": (),
    "com": (3,),
    "inertia_mat": (3, 3),
    "trans": (3,),
    "rot_angles": (3,),
    "joint_damping": (),
    "joint_friction": (),
    "joint_armature": (),
}


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    """Return whether the worst error is within tolerance of the largest entry."""
    assert found.shape == expected.shape
    scale = max(expected.abs().max().item(), 1e-12)
    return (found - expected).abs().max().item() <= tolerance * scale


def learnable_robot(
    robots: int | None = None, *, mimic: bool = False, dtype: torch.dtype = torch.float64
) -> tuple[pb.RobotModel, dict[tuple[str, str], pb.UnconstrainedTensor]]:
    """Return a robot with every parameter of every link learnable, given once or for each of `robots` robots."""
    robot = synthetic_robot(mimic=mimic, dtype=dtype)
    generator = torch.Generator().manual_seed(7)
    learned = {}
    for link, joint in zip(robot.get_link_names(), robot.model.link_joint):
        for parameter, shape in PARAMETERS.items():
            if not has_parameter(joint, parameter):
                continue
            module = pb.UnconstrainedTensor()
            if robots is not None:
                value = robot.get_link_param(link, parameter)
                spread = 0.02 * torch.rand(robots, *shape, dtype=dtype, generator=generator)
                module.set_value(value + (symmetric(spread) if parameter == "inertia_mat" else spread))
            robot.make_link_param_learnable(link, parameter, module)
            learned[link, parameter] = module
    return robot, learned


def has_parameter(joint: Joint | None, parameter: str) -> bool:
    """Return whether the link below a joint has a parameter: those of its joint must act on something."""
    if parameter in ("trans", "rot_angles"):
        return joint is not None
    if parameter == "joint_armature" and joint is not None and joint.type == "floating":
        return False
    return not parameter.startswith("joint_") or (joint is not None and joint.type != "fixed")


def symmetric(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * (x + x.mT)


def direction_like(module: pb.UnconstrainedTensor, parameter: str, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.randn(module.raw.shape, dtype=module.raw.dtype, generator=generator)
    return symmetric(drawn) if parameter == "inertia_mat" else drawn


@contextmanager
def threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# -- against the reference, and differences ------------------------------------------------------------------------


@each_operator
@pytest.mark.parametrize("mimic", [False, True], ids=["independent", "mimic"])
def test_values_are_the_reference(operator, mimic):
    robot = synthetic_robot(mimic=mimic)
    x = random_inputs(robot, 2)
    found = operator.compute(robot, *(x[name] for name in operator.inputs))
    parameters = reference.description_parameters(robot.model)
    for k in range(2):
        expected = operator.expected(robot.model, parameters, *(x[name][k] for name in operator.inputs))
        assert close(found[k], expected, ROUNDING)


@each_operator
def test_gradcheck_by_state_forces_and_gravity(robot, operator):
    x = random_inputs(robot, 2)
    inputs = [x[name].requires_grad_() for name in operator.inputs]
    compute = lambda *given: operator.compute(robot, *given)  # noqa: E731
    assert torch.autograd.gradcheck(compute, inputs, eps=STEP, atol=1e-6, rtol=1e-6)


@each_operator
@pytest.mark.parametrize("mimic", [False, True], ids=["independent", "mimic"])
def test_parameter_gradients_are_those_of_the_reference(operator, mimic):
    robot, learned = learnable_robot(mimic=mimic)
    x = random_inputs(robot, 2)
    found = operator.compute(robot, *(x[name] for name in operator.inputs))
    mu = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(4))
    found.backward(mu)
    parameters = {name: p.requires_grad_() for name, p in reference.description_parameters(robot.model).items()}
    for k in range(2):
        operator.expected(robot.model, parameters, *(x[name][k] for name in operator.inputs)).backward(mu[k])
    compared = 0
    for parameter, rows in parameters.items():
        expected = torch.zeros_like(rows) if rows.grad is None else rows.grad
        scale = max(expected.abs().max().item(), 1e-12)
        for link, row in zip(robot.get_link_names(), expected):
            if (link, parameter) not in learned:
                continue
            gradient = learned[link, parameter].raw.grad
            gradient = torch.zeros_like(row) if gradient is None else gradient
            if parameter == "inertia_mat":
                # only its action on symmetric matrices has a meaning
                gradient, row = symmetric(gradient), symmetric(row)
            assert (gradient - row).abs().max().item() <= ROUNDING * scale, (link, parameter)
            compared += bool(row.any())
    assert compared > 0


@each_operator
@pytest.mark.parametrize("parameter", PARAMETERS)
def test_parameter_gradients_are_differences(operator, parameter):
    robot, learned = learnable_robot()
    x = random_inputs(robot, 2)
    inputs = [x[name] for name in operator.inputs]
    found = operator.compute(robot, *inputs)
    mu = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(5))
    found.backward(mu)
    generator = torch.Generator().manual_seed(6)
    moved = [module for (_, name), module in learned.items() if name == parameter]
    directions = [direction_like(module, parameter, generator) for module in moved]
    ends = []
    with torch.no_grad():
        slope = sum((m.raw.grad * d).sum() for m, d in zip(moved, directions) if m.raw.grad is not None)
        for sign in (1.0, -1.0):
            for module, d in zip(moved, directions):
                module.raw += sign * STEP * d
            ends.append((operator.compute(robot, *inputs) * mu).sum())
            for module, d in zip(moved, directions):
                module.raw -= sign * STEP * d
    scale = max(1.0, (found.abs() * mu.abs()).sum().item())
    assert abs(slope - (ends[0] - ends[1]) / (2 * STEP)) <= 10 * DIFFERENCES * scale


# -- batches ------------------------------------------------------------------------------------------------------


@each_operator
@pytest.mark.parametrize("batch", [1, 3, 130])
@pytest.mark.parametrize("per_robot", [False, True], ids=["shared", "per_robot"])
def test_dot_product(operator, batch, per_robot):
    """Move every input and every parameter at once: <mu, J dx> by a central difference is <J^T mu, dx>."""
    robot, learned = learnable_robot(batch if per_robot else None)
    x = random_inputs(robot, batch)
    generator = torch.Generator().manual_seed(8)
    inputs = [x[name].requires_grad_() for name in operator.inputs]
    moves = [torch.randn(i.shape, dtype=i.dtype, generator=generator) for i in inputs]
    directions = {key: direction_like(module, key[1], generator) for key, module in learned.items()}
    found = operator.compute(robot, *inputs)
    mu = torch.randn(found.shape, dtype=found.dtype, generator=generator)
    found.backward(mu)
    ends = []
    with torch.no_grad():
        slope = sum((i.grad * d).sum() for i, d in zip(inputs, moves))
        slope += sum((learned[k].raw.grad * d).sum() for k, d in directions.items() if learned[k].raw.grad is not None)
        for sign in (1.0, -1.0):
            for key, d in directions.items():
                learned[key].raw += sign * STEP * d
            ends.append(operator.compute(robot, *(i + sign * STEP * d for i, d in zip(inputs, moves))))
            for key, d in directions.items():
                learned[key].raw -= sign * STEP * d
    difference = ((ends[0] - ends[1]) / (2 * STEP) * mu).sum()
    scale = ((ends[0] - ends[1]).abs() / (2 * STEP) * mu.abs()).sum().item()
    assert abs(slope - difference) <= DIFFERENCES * max(1.0, scale)


@each_operator
def test_parameters_per_robot_are_each_robots_own(operator):
    robot, learned = learnable_robot(3)
    x = random_inputs(robot, 3)
    together = operator.compute(robot, *(x[name] for name in operator.inputs))
    for k in range(3):
        alone, single = learnable_robot()
        for key, module in single.items():
            module.set_value(learned[key].raw[k])
        found = operator.compute(alone, *(x[name][k] for name in operator.inputs))
        assert close(found, together[k], ROUNDING)


@each_operator
def test_parameters_per_robot_serve_every_time(operator):
    """Of a batch (T, B) the last dimension counts the robots."""
    robot, learned = learnable_robot(3)
    x = random_inputs(robot, 2, 3)
    inputs = [x[name] for name in operator.inputs]
    together = operator.compute(robot, *inputs)
    mu = torch.randn(together.shape, dtype=together.dtype, generator=torch.Generator().manual_seed(11))
    together.backward(mu)
    found = {key: module.raw.grad for key, module in learned.items()}
    robot.zero_grad()
    for t in range(2):
        alone = operator.compute(robot, *(i[t] for i in inputs))
        assert torch.equal(alone, together[t])
        alone.backward(mu[t])
    for key, module in learned.items():
        assert (found[key] is None) == (module.raw.grad is None)
        if found[key] is not None:
            scale = max(1.0, module.raw.grad.abs().max().item())
            assert (found[key] - module.raw.grad).abs().max().item() <= ROUNDING * scale


@each_operator
def test_a_shared_parameter_gets_the_sum_over_robots(operator):
    batch = 130
    shared, one = learnable_robot()
    each, own = learnable_robot()
    for key, module in own.items():
        module.set_value(one[key].raw.expand(batch, *one[key].raw.shape))
    x = random_inputs(shared, batch)
    inputs = [x[name] for name in operator.inputs]
    found = operator.compute(shared, *inputs)
    mu = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(9))
    found.backward(mu)
    operator.compute(each, *inputs).backward(mu)
    sizes = {key: m.raw.grad.abs().sum(0).max().item() for key, m in own.items() if m.raw.grad is not None}
    compared = 0
    for key, module in one.items():
        if module.raw.grad is None:
            assert own[key].raw.grad is None
            continue
        terms = own[key].raw.grad
        # of a derivative that is zero only rounding is left, of terms as large as the others'
        scale = max(sizes[key], 0.01 * max(sizes.values()))
        assert (module.raw.grad - terms.sum(0)).abs().max().item() <= ROUNDING * scale, key
        compared += bool(terms.any())
    assert compared > 0


def test_inputs_without_a_batch_get_the_sum_over_the_batch(robot):
    x = random_inputs(robot, 130)
    single = random_inputs(robot)
    for name in ("q", "qd", "tau", "wrench", "gravity"):
        lone = single[name].requires_grad_()
        spread = single[name].detach().expand(130, -1).clone().requires_grad_()
        operator = next(o for o in OPERATORS if o.name == "forward_dynamics")
        inputs = x | {name: lone}, x | {name: spread}
        mu = x["qdd"]
        for given in inputs:
            operator.compute(robot, *(given[k] for k in operator.inputs)).backward(mu)
        scale = spread.grad.abs().sum(0).max().item()
        assert (lone.grad - spread.grad.sum(0)).abs().max().item() <= ROUNDING * scale


# -- types, threads, runs -----------------------------------------------------------------------------------------


def run(operator: Operator, robot: pb.RobotModel, x: dict[str, torch.Tensor], learned=None) -> list[torch.Tensor]:
    """Return the value, the gradients by the inputs and those by the parameters."""
    inputs = [x[name].detach().clone().requires_grad_() for name in operator.inputs]
    raws = [module.raw for module in (learned or {}).values()]
    value = operator.compute(robot, *inputs)
    mu = torch.randn(value.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(10)).to(value)
    found = torch.autograd.grad(value, [*inputs, *raws], mu, allow_unused=True)
    return [value.detach(), *(g for g in found if g is not None)]


@each_operator
def test_float32_is_close_to_float64(operator):
    double, by_double = learnable_robot()
    single, by_single = learnable_robot(dtype=torch.float32)
    x = random_inputs(double, 5)
    expected = run(operator, double, x, by_double)
    found = run(operator, single, {name: t.float() for name, t in x.items()}, by_single)
    largest = max(e.abs().max().item() for e in expected[1:])
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == torch.float32
        scale = max(e.abs().max().item(), 1e-3 * largest)
        assert (f.double() - e).abs().max().item() <= SINGLE * scale


@each_operator
def test_two_runs_give_the_same_bits(operator):
    robot, learned = learnable_robot()
    x = random_inputs(robot, 130)
    for first, second in zip(run(operator, robot, x, learned), run(operator, robot, x, learned), strict=True):
        assert torch.equal(first, second)


@each_operator
def test_threads_do_not_change_results(operator):
    robot, learned = learnable_robot()
    x = random_inputs(robot, 130)
    with threads(1):
        one = run(operator, robot, x, learned)
    with threads(2):
        two = run(operator, robot, x, learned)
    states = 1 + len(operator.inputs)
    for first, second in zip(one[:states], two[:states], strict=True):
        assert torch.equal(first, second)
    for first, second in zip(one[states:], two[states:], strict=True):
        # what the worlds share is summed in shards
        scale = max(1.0, np.sqrt(130) * first.abs().max().item())
        assert (first - second).abs().max().item() <= ROUNDING * scale

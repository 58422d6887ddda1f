"""What a user may pass and what comes back: batch shapes, memory layouts, copies, saved states, types."""

import copy
import pickle

import pytest
import torch

import pullback as pb
from tests.robot.operators import each_operator, inputs_of, random_inputs
from tests.robot.synthetic import learning_robot, synthetic_robot

# torch's own forward-mode differentiation, which the reference uses, warns about torch
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


# -- batches ------------------------------------------------------------------------------------------------------


@each_operator
def test_batch_shapes(robot, operator):
    x = random_inputs(robot, 2, 3)
    inputs = inputs_of(operator, x)
    expected = operator.compute(robot, *inputs)
    result = expected.shape[2:]
    flat = operator.compute(robot, *(i.reshape(6, -1) for i in inputs))
    assert flat.shape == (6, *result)
    assert torch.equal(flat.reshape(2, 3, *result), expected)
    for t in range(2):
        for b in range(3):
            single = operator.compute(robot, *(i[t, b] for i in inputs))
            assert single.shape == result
            assert torch.equal(single, expected[t, b])


@each_operator
def test_batch_dimensions_broadcast(robot, operator):
    x = random_inputs(robot, 2, 3)
    q, *others = inputs_of(operator, x)
    pairs = {
        "time first": (q, [i[0] for i in others]),
        "one for all": (q, [i[0, 0] for i in others]),
        "outer": (q[:, :1], [i[:1] for i in others]),
        "state without a batch": (q[0, 0], others),
    }
    for given_q, given in pairs.values():
        found = operator.compute(robot, given_q, *given)
        batch = torch.broadcast_shapes(given_q.shape[:-1], *(i.shape[:-1] for i in given))
        spread = [i.expand(*batch, i.shape[-1]) for i in (given_q, *given)]
        assert found.shape[: len(batch)] == batch
        assert torch.equal(found, operator.compute(robot, *(i.contiguous() for i in spread)))


@each_operator
def test_gradients_have_the_shapes_of_what_was_passed(robot, operator):
    q, *others = inputs_of(operator, random_inputs(robot, 2, 3))
    given = [q[:, :1].clone(), *(i[0].clone() for i in others)]
    leaves = [i.requires_grad_() for i in given]
    operator.compute(robot, *leaves).pow(2).sum().backward()
    batch = torch.broadcast_shapes(*(i.shape[:-1] for i in leaves))
    spread = [i.detach().expand(*batch, i.shape[-1]).clone().requires_grad_() for i in leaves]
    operator.compute(robot, *spread).pow(2).sum().backward()
    for leaf, full in zip(leaves, spread):
        assert leaf.grad.shape == leaf.shape
        torch.testing.assert_close(leaf.grad, full.grad.sum_to_size(leaf.shape), rtol=1e-11, atol=1e-11)


@each_operator
def test_an_empty_batch(robot, operator):
    leaves = [i.requires_grad_() for i in inputs_of(operator, random_inputs(robot, 0))]
    found = operator.compute(robot, *leaves)
    single = operator.compute(robot, *inputs_of(operator, random_inputs(robot)))
    assert found.shape == (0, *single.shape)
    found.sum().backward()
    assert all(leaf.grad.shape == leaf.shape for leaf in leaves)
    others = inputs_of(operator, random_inputs(robot))[1:]
    assert operator.compute(robot, torch.zeros(0, robot.nq, dtype=robot.dtype), *others).shape == found.shape


@each_operator
def test_inputs_in_any_memory_layout(robot, operator):
    inputs = inputs_of(operator, random_inputs(robot, 5))
    expected, expected_gradients = with_gradients(robot, operator, inputs)
    layouts = {
        "transposed": [i.t().contiguous().t() for i in inputs],
        "every second": [torch.stack([i, -i], 1).flatten(0, 1)[::2] for i in inputs],
        "a slice": [torch.cat([i, i], -1)[:, : i.shape[-1]] for i in inputs],
    }
    for given in layouts.values():
        assert any(not i.is_contiguous() for i in given)
        found, gradients = with_gradients(robot, operator, given)
        assert torch.equal(found, expected)
        assert all(torch.equal(a, b) for a, b in zip(gradients, expected_gradients))
    same = [i[:1].expand(5, -1) for i in inputs]
    found, _ = with_gradients(robot, operator, same)
    assert torch.equal(found, operator.compute(robot, *(i[:1] for i in inputs)).expand_as(found))


def with_gradients(robot, operator, inputs) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    given = [i.detach().requires_grad_() for i in inputs]
    found = operator.compute(robot, *given)
    # a cotangent that is no plain block of memory either
    mu = torch.linspace(-1, 1, found.numel(), dtype=found.dtype).reshape(found.shape[::-1]).permute(
        *reversed(range(found.ndim))
    )  # fmt: skip
    return found.detach(), torch.autograd.grad(found, given, mu)


@each_operator
def test_cotangents_may_be_expanded(robot, operator):
    """The cotangent of a sum is one number spread over the result with strides of zero."""
    inputs = [i.requires_grad_() for i in inputs_of(operator, random_inputs(robot, 3))]
    found = torch.autograd.grad(operator.compute(robot, *inputs).sum(), inputs)
    output = operator.compute(robot, *inputs)
    expected = torch.autograd.grad(output, inputs, torch.ones_like(output).contiguous())
    assert all(torch.equal(a, b) for a, b in zip(found, expected))


@each_operator
def test_nothing_passed_in_is_modified(robot, operator):
    inputs = inputs_of(operator, random_inputs(robot, 4))
    before = [i.clone() for i in inputs]
    leaves = [i.requires_grad_() for i in inputs]
    output = operator.compute(robot, *leaves)
    value, mu = output.detach().clone(), torch.ones_like(output)
    output.backward(mu, retain_graph=True)
    first = [i.grad.clone() for i in leaves]
    assert all(torch.equal(a.detach(), b) for a, b in zip(leaves, before))
    assert torch.equal(output.detach(), value)
    assert torch.equal(mu, torch.ones_like(mu))
    # a second backward pass adds the same once more
    output.backward(mu)
    assert all(torch.equal(i.grad, 2 * g) for i, g in zip(leaves, first))


def test_results_do_not_share_memory(robot):
    q = random_inputs(robot, 3)["q"]
    first = robot.compute_lagrangian_inertia_matrix(q)
    kept = first.clone()
    robot.compute_lagrangian_inertia_matrix(q + 0.1)
    assert torch.equal(first, kept)


# -- copies, saved states, types ----------------------------------------------------------------------------------


def torques(robot: pb.RobotModel) -> torch.Tensor:
    x = random_inputs(robot, 3)
    return robot.compute_inverse_dynamics(x["q"], x["qd"], x["qdd"], use_damping=True)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda robot: pickle.loads(pickle.dumps(robot))])
def test_copies_are_equal_and_independent(duplicate):
    robot = learning_robot()
    before = torques(robot)
    other = duplicate(robot)
    assert torch.equal(torques(other), before)
    torques(other).sum().backward()
    assert all(p.grad is None for p in robot.parameters())
    assert any(p.grad is not None for p in other.parameters())
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 0.1
    assert not torch.equal(torques(other), before)
    assert torch.equal(torques(robot), before)


def test_saved_states_restore():
    robot, other = learning_robot(), learning_robot()
    with torch.no_grad():
        for parameter in robot.parameters():
            parameter += 0.1
    assert not torch.equal(torques(robot), torques(other))
    other.load_state_dict(robot.state_dict())
    assert torch.equal(torques(robot), torques(other))
    plain = synthetic_robot()
    assert plain.state_dict() == {}
    with pytest.raises(RuntimeError, match=r"Unexpected key"):
        plain.load_state_dict(robot.state_dict())


def test_learnable_parameters_start_from_the_description(own):
    before = torques(own)
    robot = learning_robot()
    robot.set_link_param("slider", "joint_damping", own.get_link_param("slider", "joint_damping"))
    torch.testing.assert_close(torques(robot), before, rtol=1e-12, atol=1e-12)
    for parameter in ("mass", "com", "inertia_mat", "trans", "rot_angles", "joint_armature"):
        assert torch.equal(robot.get_link_param("branch", parameter), own.get_link_param("branch", parameter))
    torch.testing.assert_close(
        robot.get_link_param("ball", "inertia_mat"), own.get_link_param("ball", "inertia_mat"), rtol=1e-12, atol=1e-12
    )


def test_freezing_stops_the_gradient_and_keeps_the_value():
    robot = learning_robot()
    value = robot.get_link_param("hinge", "mass").detach()
    robot.freeze_learnable_link_param("hinge", "mass")
    torques(robot).sum().backward()
    assert robot.learned["hinge/mass"].raw.grad is None
    assert robot.learned["wheel/com"].raw.grad is not None
    assert torch.equal(robot.get_link_param("hinge", "mass"), value)
    robot.unfreeze_learnable_link_param("hinge", "mass")
    torques(robot).sum().backward()
    assert robot.learned["hinge/mass"].raw.grad is not None


def test_the_type_can_be_changed():
    robot = learning_robot(torch.float32)
    assert torques(robot).dtype == torch.float32
    double = learning_robot(torch.float64)
    single = torques(double.to(torch.float32))
    assert single.dtype == torch.float32
    assert all(p.dtype == torch.float32 for p in double.parameters())
    back = torques(double.to(torch.float64))
    assert back.dtype == torch.float64
    back.sum().backward()
    assert all(p.grad.dtype == torch.float64 for p in double.parameters())


def test_without_gradients_nothing_is_recorded(robot):
    x = random_inputs(robot, 3)
    q = x["q"].requires_grad_()
    with torch.no_grad():
        assert not robot.compute_center_of_mass(q).requires_grad
    assert not robot.compute_center_of_mass(q.detach()).requires_grad
    assert robot.compute_center_of_mass(q).requires_grad

"""torch's own ways to ask for derivatives: batched cotangents, gradcheck, transforms, compile."""

import pytest
import torch
from torch._dynamo.exc import Unsupported

import pullback as pb
from pullback.core.errors import SecondDerivativeError
from pullback.core.graph import register

F64 = torch.float64


@pytest.fixture(scope="module")
def sim() -> pb.Sim:
    world = pb.World()
    world.add_ground(friction=0.5)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0, 0, 0.0999))
    world.add(pb.load("panda", dtype=F64), name="arm", collision_links=[], position=(1, 0, 0))
    return world.compile(dt=1e-3, dtype=F64)


@pytest.fixture
def u(sim: pb.Sim) -> torch.Tensor:
    return torch.randn(2, sim.nu, dtype=F64, generator=torch.Generator().manual_seed(0))


def state_after(sim: pb.Sim, u: torch.Tensor) -> torch.Tensor:
    end = sim.step(sim.initial_state(2), u)
    return torch.cat([end.q, end.qd], -1)


def test_a_vectorized_jacobian_is_the_usual_one(sim, u):
    usual = torch.autograd.functional.jacobian(lambda x: state_after(sim, x), u)
    assert usual.abs().max() > 1e-4
    found = torch.autograd.functional.jacobian(lambda x: state_after(sim, x), u, vectorize=True)
    torch.testing.assert_close(found, usual, rtol=0.0, atol=1e-15)
    torch.testing.assert_close(torch.func.jacrev(lambda x: state_after(sim, x))(u), usual, rtol=0.0, atol=1e-15)


def test_batched_cotangents_of_what_worlds_share(sim, u):
    """Friction, one number for both worlds: its cotangents are summed over worlds and not over what is mapped."""
    mu = torch.tensor(0.5, dtype=F64, requires_grad=True)
    sim.world.set_shape("ground", friction=mu)
    start = sim.initial_state(2)
    start.qd[:, 3] = torch.tensor([1.0, -2.0])
    states = sim.rollout(start, u.expand(3, 2, -1)).q
    sim.world.set_shape("ground", friction=0.5)
    directions = torch.randn(4, *states.shape, dtype=F64, generator=torch.Generator().manual_seed(1))
    (found,) = torch.autograd.grad(states, mu, directions, is_grads_batched=True, retain_graph=True)
    one_by_one = [torch.autograd.grad(states, mu, d, retain_graph=True)[0] for d in directions]
    torch.testing.assert_close(found, torch.stack(one_by_one))
    assert found.abs().min() > 0.0


def test_gradcheck_with_batched_gradients(sim, u):
    inputs = u.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: state_after(sim, x), inputs, check_batched_grad=True)
    robot = pb.load("panda", dtype=F64)
    q = robot.random_q(2).requires_grad_()
    for f in (
        lambda q: robot.compute_forward_kinematics(q, "panda_link7"),
        lambda q: robot.compute_inverse_dynamics(q, q, q),
        lambda q: robot.compute_forward_dynamics(q, q, q),
    ):
        assert torch.autograd.gradcheck(f, q, check_batched_grad=True, fast_mode=True)


@pytest.mark.parametrize("transform", [torch.func.grad, lambda f: torch.func.vmap(torch.func.grad(f))])
def test_initial_states_inside_transforms(sim, u, transform):
    def loss(x: torch.Tensor) -> torch.Tensor:
        return state_after(sim, x).square().sum()

    x = u if transform is torch.func.grad else torch.stack([u, 2 * u])
    found = transform(loss)(x)
    for one, gradient in zip(x.view(-1, 2, sim.nu), found.view(-1, 2, sim.nu)):
        leaf = one.clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(leaf), leaf)
        torch.testing.assert_close(gradient, expected)


def test_a_second_derivative_is_refused_with_batched_cotangents(sim, u):
    x = u.clone().requires_grad_()
    y = state_after(sim, x)
    directions = torch.ones(2, *y.shape, dtype=F64)
    (found,) = torch.autograd.grad(y, x, directions, is_grads_batched=True, create_graph=True)
    with pytest.raises(SecondDerivativeError, match="first derivative only"):
        torch.autograd.grad(found.sum(), x)


def test_steps_and_rollouts_are_part_of_one_compiled_graph(sim, u):
    start = sim.initial_state(2)

    def two_steps(x: torch.Tensor) -> torch.Tensor:
        end = sim.step(sim.step(start, torch.tanh(x)), x)
        return end.qd.square().sum() + end.status.code.sum()

    def rollout(x: torch.Tensor) -> torch.Tensor:
        return sim.rollout(start, x.expand(4, 2, -1), checkpoint=3).q.square().sum()

    for loss in (two_steps, rollout):
        x = u.clone().requires_grad_()
        (expected,) = torch.autograd.grad(loss(x), x)
        torch._dynamo.reset()
        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
        (found,) = torch.autograd.grad(compiled(x), x)
        torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)


def test_a_compiled_step_reads_the_world_as_it_is_when_it_runs(sim, u):
    start = sim.initial_state(2)
    start.qd[:, 3] = 1.0
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: sim.step(start, x).qd, backend="aot_eager", fullgraph=True)
    slippery = []
    for friction in (0.5, 0.1):
        sim.world.set_shape("ground", friction=friction)
        torch.testing.assert_close(compiled(u), sim.step(start, u).qd, rtol=0.0, atol=0.0)
        slippery.append(compiled(u)[0, 3])
    assert slippery[1] > slippery[0]
    mu = torch.tensor(0.5, dtype=F64, requires_grad=True)
    sim.world.set_shape("ground", friction=mu)
    with pytest.raises(pb.PullbackError, match="requires a gradient, and in a compiled graph"):
        compiled(u)
    torch._dynamo.reset()
    with pytest.raises(Unsupported, match="leave out fullgraph=True"):
        torch.compile(lambda x: sim.step(start, x).qd, backend="aot_eager", fullgraph=True)(u)
    torch._dynamo.reset()
    # between compiled pieces its gradient is there
    pieces = torch.compile(lambda x: sim.step(start, torch.tanh(x)).qd.square().sum(), backend="aot_eager")
    (found,) = torch.autograd.grad(pieces(u), mu)
    sim.world.set_shape("ground", friction=0.5)
    assert found.abs() > 0.0


def test_functions_of_a_robot_are_part_of_one_compiled_graph(u):
    robot = pb.load("panda", dtype=F64)

    def everything(q: torch.Tensor) -> torch.Tensor:
        position, quat = robot.compute_forward_kinematics(q, "panda_link7")
        linear, angular = robot.compute_endeffector_jacobian(q, "panda_link3")
        force = q.new_ones(6)
        tau = robot.compute_inverse_dynamics(q, q, q, use_damping=True, external_forces={"panda_link5": force})
        qdd = robot.compute_forward_dynamics(q, q, tau)
        mass = robot.compute_lagrangian_inertia_matrix(q)
        energy = robot.compute_kinetic_energy(q, q) + robot.compute_potential_energy(q)
        rest = (
            position,
            quat,
            linear,
            angular,
            qdd,
            mass,
            energy,
            robot.integrate(q, q),
            robot.compute_center_of_mass(q),
        )
        return sum((x.square().sum() for x in rest), tau.square().sum())

    q = u.clone().requires_grad_()
    (expected,) = torch.autograd.grad(everything(q), q)
    torch._dynamo.reset()
    (found,) = torch.autograd.grad(torch.compile(everything, backend="aot_eager", fullgraph=True)(q), q)
    torch.testing.assert_close(found, expected, rtol=1e-14, atol=0.0)
    each = torch.func.vmap(lambda q: robot.compute_inverse_dynamics(q, q, q))
    torch._dynamo.reset()
    found = torch.compile(each, backend="aot_eager", fullgraph=True)(u[:, None])
    torch.testing.assert_close(found, each(u[:, None]))
    robot.make_link_param_learnable("panda_link3", "mass", pb.PositiveScalar())
    torch._dynamo.reset()
    with pytest.raises(Unsupported, match="leave out fullgraph=True"):
        torch.compile(everything, fullgraph=True, backend="aot_eager")(u)


def test_exported_programs_hold_launches(sim, u):
    start = sim.initial_state(2)

    class Controlled(torch.nn.Module):
        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return sim.rollout(start, torch.tanh(u).expand(3, 2, -1)).q

    for strict in (False, True):
        exported = torch.export.export(Controlled(), (u,), strict=strict)
        assert "pullback.launch" in str(exported.graph)
        torch.testing.assert_close(exported.module()(2 * u), Controlled()(2 * u), rtol=0.0, atol=0.0)


def test_torch_finds_no_fault_in_the_operators(sim, u):
    robot = pb.load("panda", dtype=F64)
    q = u.clone().requires_grad_()
    program = robot._programs.mass_matrix()
    kinematics, inertias, dofs = robot._rows(torch.Size([2]), {})
    given = [q, kinematics.placements, inertias, dofs]
    torch.library.opcheck(torch.ops.pullback.launch.default, (register(program), given))
    out = torch.ops.pullback.launch(register(program), given)[0]
    (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(SecondDerivativeError, match="inside a compiled graph"):
        torch.autograd.grad(first.sum(), q)

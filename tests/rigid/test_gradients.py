"""Gradients of rollouts as torch sees them: gradcheck, transforms, values per world, the same bits each time."""

import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64, load, toes_on_ground

Tensor = torch.Tensor
# sums over worlds in another order
ROUNDING = 1e-12


def sliding_ball(**surface) -> pb.Sim:
    """Return a ball that slides on the ground for as long as a test looks."""
    world = pb.World()
    world.add_ground(**({"friction": 0.1} | surface))
    world.add_sphere("ball", radius=0.1, mass=2.0, position=(0, 0, 0.0999))
    return world.compile(dt=1e-3, dtype=F64)


def start(sim: pb.Sim, batch: int = 1) -> pb.State:
    state = sim.initial_state(batch)
    state.qd[:, 3] = torch.linspace(0.7, 0.9, batch, dtype=F64)
    state.qd[:, 4] = 0.3
    return state


def standing_dog(batch: int) -> tuple[pb.Sim, pb.State, Tensor]:
    world = toes_on_ground(actuators=pb.PositionServo(kp=150, kd=3, limit=100))
    sim = world.compile(dt=1e-3, dtype=F64)
    pose = torch.tensor([0.2, 0.0, -0.5] * 4, dtype=F64)
    q = world.initial_q(dtype=F64).repeat(batch, 1)
    q[:, 2], q[:, 7:] = 0.4835, pose
    generator = torch.Generator().manual_seed(0)
    qd = 0.1 * torch.randn(batch, sim.nv, dtype=F64, generator=generator)
    return sim, pb.State(q, qd), pose.expand(10, batch, 12).clone()


def state_gradients(sim: pb.Sim, state: pb.State, controls: Tensor) -> tuple[Tensor, ...]:
    leaves = [x.clone().requires_grad_() for x in (state.q, state.qd, controls)]
    end = sim.rollout(pb.State(*leaves[:2]), leaves[2])[-1]
    return torch.autograd.grad(end.q.sum() + end.qd.square().sum(), leaves)


# -- torch's own checks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gradient", ["implicit", "unrolled"])
def test_gradcheck(gradient):
    friction = torch.tensor(0.1, dtype=F64, requires_grad=True)
    world = pb.World(contact=pb.PGS(iterations=200, tolerance=1e-14, gradient=gradient))
    world.add_ground(friction=friction)
    world.add_sphere("ball", radius=0.1, mass=2.0, position=(0, 0, 0.0999))
    sim = world.compile(dt=1e-3, dtype=F64)

    def end(q: Tensor, qd: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        states = sim.rollout(pb.State(q, qd), 5)
        return states.q[-1], states.qd[-1]

    state = start(sim, 2)
    inputs = (state.q.requires_grad_(), state.qd.requires_grad_(), friction)
    assert torch.autograd.gradcheck(end, inputs, eps=1e-7, atol=1e-5)


@pytest.mark.parametrize("friction", ["cone", "pyramid"])
def test_unrolled_sweeps_that_start_warm(friction):
    """Few sweeps, so that the impulses of one step matter to the next: contacts, a limit and dry friction."""
    torch.manual_seed(0)
    world = pb.World(contact=pb.PGS(iterations=3, gradient="unrolled", friction=friction, warm_start=True))
    world.add_box("box", size=(0.2, 0.3, 0.1), mass=1.0, position=(0, 0, 0.0499), friction=0.4)
    arm = pb.load("pendulum2", dtype=F64)
    for link in arm.get_link_names()[1:3]:
        arm.set_link_param(link, "joint_friction", torch.tensor(0.05, dtype=F64))
    world.add(arm, position=(2, 0, 1))
    world.add_ground()
    sim = world.compile(dt=1e-3, dtype=F64)
    start = sim.initial_state()
    assert start.impulses is not None
    qd = 0.1 * torch.randn(1, sim.nv, dtype=F64)
    qd[:, 3] = 1.0
    weights = torch.randn(1, sim.nq, dtype=F64), torch.randn(1, sim.nv, dtype=F64)

    def loss(qd: Tensor, u: Tensor) -> Tensor:
        end = sim.rollout(pb.State(start.q, qd, start.impulses), u)[-1]
        return (end.q * weights[0]).sum() + (end.qd * weights[1]).sum()

    u = 0.1 * torch.randn(8, 1, sim.nu, dtype=F64)
    assert torch.autograd.gradcheck(loss, (qd.requires_grad_(), u.requires_grad_()), eps=1e-6, atol=1e-7, rtol=1e-5)
    # and the impulses do matter
    (through,) = torch.autograd.grad(loss(qd, u), qd)
    first = sim.rollout(pb.State(start.q, qd, start.impulses), u[:4])[-1]
    again = pb.State(first.q, first.qd, first.impulses.detach())
    end = sim.rollout(again, u[4:])[-1]
    (cut,) = torch.autograd.grad((end.q * weights[0]).sum() + (end.qd * weights[1]).sum(), qd)
    assert (through - cut).abs().max() > 1e-6


def test_a_step_gives_the_gradient_of_a_rollout():
    sim, state, controls = standing_dog(2)
    expected = state_gradients(sim, state, controls[:3])
    leaves = [x.clone().requires_grad_() for x in (state.q, state.qd, controls[:3])]
    end = pb.State(*leaves[:2])
    for u in leaves[2]:
        end = sim.step(end, u)
    found = torch.autograd.grad(end.q.sum() + end.qd.square().sum(), leaves)
    for a, b in zip(found, expected):
        assert torch.allclose(a, b, rtol=ROUNDING, atol=ROUNDING)


def test_jacrev_and_vmap():
    sim = sliding_ball()
    state = start(sim)

    def end(qd: Tensor) -> Tensor:
        return sim.rollout(pb.State(state.q, qd[None]), 5).qd[-1, 0]

    jacobian = torch.func.jacrev(end)(state.qd[0])
    assert torch.allclose(jacobian, torch.autograd.functional.jacobian(end, state.qd[0]), rtol=0, atol=ROUNDING)
    many = start(sim, 4)
    assert torch.allclose(torch.func.vmap(end)(many.qd), sim.rollout(many, 5).qd[-1], rtol=0, atol=ROUNDING)


def test_jacobians_of_many_worlds():
    sim = sliding_ball()
    state = start(sim, 3)

    def end(q: Tensor, qd: Tensor) -> Tensor:
        return sim.rollout(pb.State(q[None], qd[None]), 5).q[-1, 0]

    per_world = torch.func.vmap(torch.func.jacrev(end, argnums=(0, 1)))(state.q, state.qd)
    for world in range(3):
        expected = torch.autograd.functional.jacobian(end, (state.q[world], state.qd[world]))
        for a, b in zip(per_world, expected):
            assert torch.allclose(a[world], b, rtol=0, atol=ROUNDING)


def test_second_derivatives_are_an_error():
    sim = sliding_ball()
    state = start(sim)
    qd = state.qd.requires_grad_()
    (gradient,) = torch.autograd.grad(sim.rollout(pb.State(state.q, qd), 3).q[-1].sum(), qd, create_graph=True)
    with pytest.raises(pb.SecondDerivativeError):
        gradient.sum().backward()


# -- a value for each world ------------------------------------------------------------------------------------------


def test_friction_of_each_world_has_its_own_gradient():
    many = torch.tensor([0.05, 0.1, 0.15], dtype=F64, requires_grad=True)
    sim = sliding_ball(friction=many)
    state = start(sim, 3)
    (found,) = torch.autograd.grad(sim.rollout(state, 20).q[-1, :, 0].sum(), many)
    for world in range(3):
        one = many[world].detach().requires_grad_()
        alone = sliding_ball(friction=one).rollout(state[world], 20)
        (expected,) = torch.autograd.grad(alone.q[-1, :, 0].sum(), one)
        assert float(expected) < 0.0
        assert float(found[world]) == pytest.approx(float(expected), rel=ROUNDING)


def test_mass_of_each_world_has_its_own_gradient():
    def gradient(masses: list[float], worlds: slice) -> Tensor:
        robot = load("pendulum2")
        link = robot.model.bodies[-1].joint.child
        robot.make_link_param_learnable(link, "mass", pb.UnconstrainedTensor(torch.tensor(masses, dtype=F64)))
        world = pb.World()
        world.add(robot, name="arm", collision_links=[])
        sim = world.compile(dt=5e-3, dtype=F64)
        state = sim.initial_state(3)
        state.q[:, 0] = torch.tensor([0.1, 0.2, 0.3], dtype=F64)
        end = sim.rollout(state[worlds], torch.ones(20, worlds.stop - worlds.start, sim.nu, dtype=F64))
        end.q[-1].sum().backward()
        return next(robot.parameters()).grad

    together = gradient([1.0, 2.0, 3.0], slice(0, 3))
    alone = [gradient([mass], slice(k, k + 1)) for k, mass in enumerate((1.0, 2.0, 3.0))]
    assert torch.allclose(together, torch.cat(alone), rtol=ROUNDING, atol=ROUNDING)
    assert float(together.abs().min()) > 0.0


def test_a_shared_value_sums_over_worlds():
    one = torch.tensor(0.1, dtype=F64, requires_grad=True)
    many = torch.full((3,), 0.1, dtype=F64, requires_grad=True)
    sums = []
    for friction in (one, many):
        sim = sliding_ball(friction=friction)
        (found,) = torch.autograd.grad(sim.rollout(start(sim, 3), 20).q[-1, :, 0].sum(), friction)
        sums.append(float(found.sum()))
    assert sums[0] == pytest.approx(sums[1], rel=ROUNDING)


# -- the same numbers each time --------------------------------------------------------------------------------------


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_gradients_are_the_same_bits_each_time():
    runs = [state_gradients(*standing_dog(5)) for _ in range(2)]
    for a, b in zip(*runs):
        assert torch.equal(a, b)


def test_gradients_do_not_depend_on_the_number_of_threads(threads):
    found = []
    for count in (1, 2):
        threads(count)
        found.append(state_gradients(*standing_dog(33)))
    for a, b in zip(*found):
        assert torch.equal(a, b)


def test_shared_gradients_are_the_same_bits_each_time(threads):
    threads(2)
    found = []
    for _ in range(2):
        friction = torch.tensor(0.1, dtype=F64, requires_grad=True)
        sim = sliding_ball(friction=friction)
        found.append(torch.autograd.grad(sim.rollout(start(sim, 33), 20).q[-1, :, 0].sum(), friction)[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("ground", ["first", "last"])
def test_bodies_that_touch_may_be_far_apart_in_the_list(ground):
    """Two stacks, the lower boxes listed before the upper ones, and a box that slides: by velocities and friction."""
    world = pb.World()
    # a lower box's pair with the ground comes before that with the upper box, or after it
    if ground == "first":
        world.add_ground()
    places = [(0.0, 0.1), (0.5, 0.1), (1.0, 0.1), (0.0, 0.3), (0.5, 0.3)]
    for k, (x, z) in enumerate(places):
        world.add_box(f"box{k}", size=(0.2, 0.2, 0.2), mass=1.0 + 0.1 * k, position=(x, 0.0, z))
    if ground == "last":
        world.add_ground()
    pushed = torch.zeros(1, 30, dtype=F64)
    # box 2 slides, box 4 on box 1
    pushed[0, 15], pushed[0, 27] = 1.0, 0.5
    pushed += 0.05 * torch.randn(1, 30, dtype=F64, generator=torch.Generator().manual_seed(0))
    way = torch.randn(1, 30, dtype=F64, generator=torch.Generator().manual_seed(1))

    def loss(step, friction):
        world.set_shape("box1", friction=friction)
        sim = world.compile(dt=2e-3, dtype=F64)
        motion = sim.rollout(pb.State(sim.initial_state().q, pushed + step * way), 12)
        weights = torch.linspace(1.0, 2.0, sim.nq, dtype=F64)
        return (motion.q[-1] * weights).sum()

    point = torch.zeros((), dtype=F64), torch.tensor(0.4, dtype=F64)
    leaves = [x.clone().requires_grad_() for x in point]
    loss(*leaves).backward()
    h = 1e-6
    for k, leaf in enumerate(leaves):
        ends = [loss(*(x + sign * h if j == k else x for j, x in enumerate(point))) for sign in (1, -1)]
        difference = ((ends[0] - ends[1]) / (2 * h)).item()
        assert abs(difference) > 1e-4
        assert leaf.grad.item() == pytest.approx(difference, rel=1e-5)

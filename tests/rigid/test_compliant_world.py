"""Compliant contact in worlds: statics, bounces, friction, energy, gradients, and what is said of long steps."""

import warnings

import numpy as np
import pytest
import scipy.integrate
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Shape, Tree
from tests.rigid.worlds import F64

G = 9.81


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values if len(values) != 1 else values[0], dtype=F64)


def ball(height: float, dt: float, *, mass: float = 2.0, **options) -> pb.Sim:
    """Return a ball over the ground."""
    world = pb.World(gravity=(0.0, 0.0, -G), contact=pb.Compliant(**options))
    world.add_ground(friction=0.5)
    world.add_sphere("ball", radius=0.1, mass=mass, position=(0.0, 0.0, 0.1 + height))
    return world.compile(dt=dt, dtype=F64)


def boxes(contact: pb.Compliant | None = None, friction: float | torch.Tensor = 0.4) -> pb.Sim:
    """Return a box on another on the ground."""
    world = pb.World(contact=contact or pb.Compliant(stiffness=2e4, tolerance=1e-13))
    world.add_ground(friction=friction)
    world.add_box("box", size=(0.2, 0.2, 0.1), mass=1.0, position=(0.0, 0.0, 0.05))
    world.add_box("top", size=(0.15, 0.1, 0.1), mass=0.5, position=(0.01, 0.0, 0.1501), friction=0.3)
    return world.compile(dt=1e-3, dtype=F64)


def moving_start(sim: pb.Sim) -> pb.State:
    """Return two boxes that slide apart, with small other velocities."""
    start = sim.initial_state()
    qd = 0.05 * torch.randn(1, sim.nv, dtype=F64, generator=torch.Generator().manual_seed(0))
    qd[0, 3] += 0.5
    qd[0, 9] -= 0.4
    return pb.State(start.q, qd)


@pytest.mark.parametrize("power", [1.0, 1.5])
def test_a_ball_rests_where_the_spring_carries_it(power):
    stiffness = 1e4 if power == 1.0 else 1e6
    sim = ball(0.0, 1e-3, stiffness=stiffness, damping=20.0, power=power)
    end = sim.rollout(sim.initial_state(), 2000)[-1]
    assert 0.1 - float(end.q[0, 2]) == pytest.approx((2.0 * G / stiffness) ** (1 / power), rel=1e-6)
    (contact,) = sim.contacts(end)[0]
    assert contact.force[2] == pytest.approx(2.0 * G, rel=1e-6)


@pytest.mark.parametrize(("damping", "power"), [(0.0, 1.0), (0.3, 1.0), (0.3, 1.5)])
def test_short_steps_follow_the_differential_equation(damping, power):
    """A bounce of the same force law by scipy's integrator; the error shrinks with the step."""
    stiffness, onset, time = 5e4, 1e-4, 0.12

    def ramp(x, width):
        return np.where(x >= width, x, np.maximum(x + width, 0.0) ** 2 / (4 * width))

    def rates(_, y):
        return [y[1], float(stiffness * ramp(-y[0], onset) ** power * ramp(1 - damping * y[1], 0.5)) / 2.0 - G]

    right = scipy.integrate.solve_ivp(rates, (0, time), [0.01, -0.4], rtol=1e-10, atol=1e-12, max_step=1e-3).y[:, -1]
    errors = []
    for steps in (3_000, 30_000):
        sim = ball(0.01, time / steps, stiffness=stiffness, damping=damping, power=power, onset=onset)
        start = sim.initial_state()
        start.qd[0, 5] = -0.4
        end = sim.rollout(start, steps, checkpoint=steps)[-1]
        errors.append(max(abs(float(end.q[0, 2]) - 0.1 - right[0]), 0.1 * abs(float(end.qd[0, 5]) - right[1])))
    assert errors[0] < 4e-3
    assert errors[1] < 0.2 * errors[0]


def test_an_undamped_contact_is_half_a_swing():
    """Without gravity: v(t) = -v0 cos(omega t) while it touches, and what the step takes is exp(-pi omega dt / 2)."""
    stiffness, mass = 5e4, 2.0
    omega = (stiffness / mass) ** 0.5
    contact = pb.Compliant(stiffness=stiffness, damping=0.0, onset=1e-7)
    for kept in (0.9, 0.97):
        dt = contact.time_step(mass, kept=kept)
        assert np.exp(-np.pi * omega * dt / 2) == pytest.approx(kept)
        world = pb.World(gravity=(0, 0, 0), contact=contact)
        world.add_ground()
        world.add_sphere("ball", radius=0.1, mass=mass, position=(0, 0, 0.1))
        sim = world.compile(dt=dt, dtype=F64)
        start = sim.initial_state()
        start.qd[0, 5] = -1.0
        states = sim.rollout(start, int(2 * np.pi / omega / dt))
        assert float(states.qd[-1, 0, 5]) == pytest.approx(kept, abs=0.15 * (1 - kept))
        deepest = float(0.1 - states.q[:, 0, 2].min())
        assert deepest == pytest.approx(kept**0.5 / omega, rel=0.01)
        middle = int(0.5 * np.pi / omega / dt)
        assert abs(float(states.qd[middle, 0, 5])) < 2 * omega * dt


def test_friction_is_that_of_coulomb_but_for_the_smoothing():
    world = pb.World(gravity=(0, 0, -G), contact=pb.Compliant(stiffness=1e4, damping=50.0))
    world.add_ground(friction=0.3)
    world.add_box("box", size=(0.2, 0.2, 0.1), mass=1.0, position=(0, 0, 0.05 - G / 4e4))
    sim = world.compile(dt=1e-3, dtype=F64)
    start = sim.initial_state()
    start.qd[0, 3] = 1.0
    states = sim.rollout(start, 200)
    assert not states.status.unconverged.any()
    speed = float(states.qd[100, 0, 3])
    force = np.sum([contact.force for contact in sim.contacts(states[100])[0]], 0)
    assert force[2] == pytest.approx(G, rel=1e-3)
    assert force[0] == pytest.approx(-0.3 * force[2] * speed / (speed**2 + 1e-6) ** 0.5, rel=1e-4)
    assert float(states.qd[200, 0, 3]) == pytest.approx(1.0 - 0.3 * G * 0.2, abs=2e-3)


def test_a_box_on_a_slope_creeps_as_derived():
    mu, tilt, speed = 0.6, 0.3, 1e-3
    world = pb.World(
        gravity=(G * np.sin(tilt), 0, -G * np.cos(tilt)), contact=pb.Compliant(stiffness=1e5, slip_speed=speed)
    )
    world.add_ground(friction=mu)
    world.add_box("box", size=(0.4, 0.4, 0.1), mass=1.0, position=(0, 0, 0.05))
    sim = world.compile(dt=1e-3, dtype=F64)
    end = sim.rollout(sim.initial_state(), 1000)[-1]
    creep = speed * np.tan(tilt) / (mu**2 - np.tan(tilt) ** 2) ** 0.5
    assert float(end.qd[0, 3]) == pytest.approx(creep, rel=0.02)


@pytest.mark.parametrize("dt", [1e-4, 1e-3, 2e-2])
def test_energy_never_grows(dt):
    """Of two balls that bounce, slide and roll on the ground and on each other; spring energy included."""
    stiffness, onset = 1e5, 1e-4
    # the margin holds the way of a step
    contact = pb.Compliant(stiffness=stiffness, damping=1.0, onset=onset, margin=0.05)
    world = pb.World(gravity=(0, 0, -G), contact=contact)
    world.add_ground(friction=0.5)
    world.add_sphere("low", radius=0.1, mass=2.0, position=(0, 0, 0.11))
    world.add_sphere("high", radius=0.1, mass=1.0, position=(0.02, 0.01, 0.33))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sim = world.compile(dt=dt, dtype=F64)
    start = sim.initial_state()
    start.qd[0, :6] = tensor(3.0, -4.0, 2.0, 0.5, 0.2, -1.0)
    states = sim.rollout(start, int(min(0.6, 3000 * dt) / dt))
    assert not states.status.unconverged.any()
    kinetic, potential = sim.energies(pb.State(states.q[:, 0], states.qd[:, 0]))
    low, high = states.q[:, 0, :3], states.q[:, 0, 7:10]
    gaps = torch.stack([low[:, 2] - 0.1, high[:, 2] - 0.1, (high - low).norm(dim=-1) - 0.2])
    inside = (onset - gaps).clamp(0, 2 * onset) ** 3 / (12 * onset)
    springs = stiffness * (inside + torch.where(gaps < -onset, (gaps**2 - onset**2) / 2, 0.0)).sum(0)
    total = kinetic + potential + springs
    assert gaps.min() < 0
    # but for the curvature of two balls, along which the gap of a long step is no straight line
    assert float(total.diff().max()) < (1e-9 if dt < 1e-2 else 1e-3)
    assert float(total[-1]) < float(total[0])


def test_gradients_agree_with_central_differences():
    """Over a hundred steps, with everything that contact depends on."""
    values = {"k": tensor(2e4), "d": tensor(3.0), "mu": tensor(0.4), "size": tensor(0.2, 0.2, 0.1)}
    values |= {"gravity": tensor(0.1, -0.2, -G)}
    like = boxes()
    start = moving_start(like)
    values |= {"q": start.q, "qd": start.qd}
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(like.nq + like.nv, dtype=F64, generator=generator)

    def loss(x):
        sim = boxes(pb.Compliant(stiffness=x["k"], damping=x["d"], tolerance=1e-13), x["mu"])
        sim.world.gravity = x["gravity"]
        sim.world.set_shape("box", size=x["size"])
        states = sim.rollout(pb.State(x["q"], x["qd"]), 100)
        assert not states.status.unconverged.any()
        return (weights * torch.cat([states.q[-1, 0], states.qd[-1, 0]])).sum()

    x = {name: value.clone().requires_grad_() for name, value in values.items()}
    gradients = torch.autograd.grad(loss(x), list(x.values()))
    for (name, value), gradient in zip(values.items(), gradients):
        size = 0.1 if name in ("q", "qd") else float(value.abs().mean())
        direction = size * torch.randn(value.shape, dtype=F64, generator=generator)
        ours = float((gradient * direction).sum())
        errors = []
        for h in (1e-5, 1e-6):
            ahead, behind = (float(loss({**values, name: value + s * h * direction})) for s in (1, -1))
            errors.append(abs((ahead - behind) / (2 * h) - ours))
        assert min(errors) < 1e-6 * abs(ours), name


def test_dot_products_of_a_step_and_its_linearization():
    """wᵀ (A dx) by linearize is (Aᵀ w)ᵀ dx by the adjoint, and differences of the step."""
    sim = boxes()
    states = sim.rollout(moving_start(sim), 40)
    for k in (5, 39):
        at = pb.State(states.q[k].clone(), states.qd[k].clone().requires_grad_())
        A = sim.linearize(at.detach(), torch.zeros(1, 1, sim.nu, dtype=F64)).A[0, 0]
        generator = torch.Generator().manual_seed(k)
        w, d = (torch.randn(sim.nv, dtype=F64, generator=generator) for _ in range(2))
        (adjoint,) = torch.autograd.grad((w * sim.step(at).qd[0]).sum(), at.qd)
        by_matrix = float(w @ A[sim.nv :, sim.nv :] @ d)
        assert float(adjoint[0] @ d) == pytest.approx(by_matrix, rel=1e-10)
        ahead, behind = (sim.step(pb.State(at.q, at.qd.detach() + h * d)).qd[0] for h in (1e-6, -1e-6))
        assert float(w @ (ahead - behind)) / 2e-6 == pytest.approx(by_matrix, rel=1e-6)


def test_a_limit_stops_a_joint_that_a_contact_pushes():
    """Rigid rows, of a limit and of dry friction, and a compliant contact in one problem."""
    links = [Link("rail"), Link("part", 1.0, inertia=1e-3 * np.eye(3), shapes=[Shape("sphere", (0.05,))])]
    joint = Joint("slide", "prismatic", "rail", "part", axis=np.array([1.0, 0.0, 0.0]))
    joint.limits, joint.friction = Limits(lower=-0.05, upper=0.05, effort=100.0), 0.5
    robot = pb.RobotModel(compile_tree(Tree("stop", links, [joint], source="stop")), dtype=F64)
    world = pb.World(gravity=(0, 0, 0), contact=pb.Compliant(stiffness=1e4, tolerance=1e-13))
    world.add(robot, name="stop", q={"slide": 0.048}, actuators={}, friction=0.3)
    world.add_sphere("ball", radius=0.05, mass=1.0, position=(-0.053, 0.01, 0.0), friction=0.3)
    sim = world.compile(dt=1e-3, dtype=F64)
    start = sim.initial_state()
    qd = tensor(0.0, 0.5, 0.2, 1.0, 1.0, 0.0, 0.1)[None]

    def run(qd):
        return sim.rollout(pb.State(start.q, qd), 18)

    states = run(qd)
    assert not states.status.unconverged.any()
    assert float(states.q[-1, 0, 0]) == pytest.approx(0.05, abs=1e-4)
    assert abs(float(states.qd[-1, 0, 0])) < 1e-2
    assert sim.contacts(states[-1])[0][0].force[0] != 0.0
    weights = torch.randn(sim.nv, dtype=F64, generator=torch.Generator().manual_seed(0))
    qd.requires_grad_()
    (gradient,) = torch.autograd.grad((weights * run(qd).qd[-1, 0]).sum(), qd)
    direction = torch.randn(qd.shape, dtype=F64, generator=torch.Generator().manual_seed(1))
    ahead, behind = (float((weights * run(qd.detach() + h * direction).qd[-1, 0]).sum()) for h in (1e-6, -1e-6))
    assert float((gradient * direction).sum()) == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)


def test_stiff_contacts_converge_by_newton():
    """Springs so stiff that sweeps behave like those of rigid contact: a stack, at rest and pushed."""
    with pytest.warns(UserWarning, match="is over in less than four steps"):
        sim = boxes(pb.Compliant(stiffness=1e8, slip_speed=1e-4, iterations=10))
    states = sim.rollout(moving_start(sim), 100)
    assert not states.status.unconverged.any()
    assert float(states.q[-1, 0, 2]) == pytest.approx(0.05, abs=1e-4)


def test_stiffness_may_differ_between_worlds():
    sim = ball(0.0, 1e-3, stiffness=tensor(1e4, 2e4), damping=tensor(20.0, 30.0))
    depth = 0.1 - sim.rollout(sim.initial_state(2), 2000)[-1].q[:, 2]
    torch.testing.assert_close(depth, 2.0 * G / tensor(1e4, 2e4), rtol=1e-6, atol=0)


def test_float32_follows_float64():
    ends = []
    for dtype in (F64, torch.float32):
        world = pb.World(contact=pb.Compliant(stiffness=1e4))
        world.add_ground(friction=0.4)
        world.add_box("box", size=(0.2, 0.2, 0.1), mass=1.0, position=(0, 0, 0.05))
        sim = world.compile(dt=1e-3, dtype=dtype)
        start = sim.initial_state()
        start.qd[0, 3] = 0.5
        states = sim.rollout(start, 100)
        assert not states.status.unconverged.any()
        ends.append(states.q[-1].double())
    torch.testing.assert_close(ends[1], ends[0], rtol=0, atol=2e-5)


def test_long_steps_and_restitution_are_told():
    with pytest.warns(UserWarning, match=r"ball/ball \(0\.01 kg\) on springs of 1e\+05 .* dt=2\.1e-05 keeps 90 %"):
        ball(0.0, 1e-3, mass=0.01)
    world = pb.World(contact=pb.Compliant())
    world.add_ground(restitution=0.5)
    world.add_sphere("ball", radius=0.1, mass=1.0, restitution=0.5)
    with pytest.warns(UserWarning, match="restitution has no part in compliant contact"):
        world.compile(dt=1e-4, dtype=F64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ball(0.0, 1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stiffness": 0.0}, "stiffness is 0; give more than 0"),
        ({"damping": -1.0}, "damping is -1; it cannot be negative"),
        ({"power": 0.5}, "power is 0.5; give at least 1"),
        ({"onset": 0.02}, "margin is 0.01 m; give more than the onset, 0.02 m"),
        ({"iterations": 0}, "iterations is 0; give a whole number from 1 on"),
    ],
)
def test_numbers_without_a_meaning_are_refused(options, message):
    with pytest.raises(pb.PullbackError, match=message):
        pb.Compliant(**options)


def test_an_advised_step_needs_a_share_and_a_mass():
    with pytest.raises(pb.PullbackError, match="kept is 1; give the share"):
        pb.Compliant().time_step(1.0, kept=1)
    with pytest.raises(pb.PullbackError, match=r"mass is 0\.0; a time step needs a positive mass"):
        pb.Compliant().time_step(0.0)

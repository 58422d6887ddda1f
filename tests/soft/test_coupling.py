"""Particles and bodies that push each other: momentum, gradients by everything, worlds of a batch, and bad input."""

from functools import cache

import pytest
import torch

import pullback as pb
from pullback import soft

CELL, DT = 0.02, 1e-3
ARM = "arm"


def jelly(**options):
    """Return a small ball of jelly about the origin."""
    rubber = soft.Elastic(youngs=4e3, poisson=0.3, density=1000.0, viscosity=0.5)
    ball = soft.ball((0.0, 0.0, 0.0), 0.04, spacing=0.01, name="ball", material=rubber)
    domain = soft.Domain((-0.4,) * 3, (0.4,) * 3, CELL, sides="open")
    return soft.SoftSim(domain, [ball], dt=DT, dtype=torch.float64, threads=1, **options)


def stones(gravity=(0.0, 0.0, 0.0)):
    """Return a world with two balls about the jelly, and a box."""
    world = pb.World(gravity=gravity)
    world.add_sphere("stone", radius=0.03, mass=0.3, position=(0.075, 0.01, 0.0), friction=0.3)
    world.add_sphere("rock", radius=0.04, mass=0.5, position=(-0.015, 0.01, 0.085), friction=0.6)
    return world


@cache
def two(substeps=1):
    return soft.Coupled(jelly(), stones().compile(dt=substeps * DT, dtype=torch.float64))


def thrown(coupled, worlds=1):
    """Return a state in which stones fly at the jelly and spin."""
    state = coupled.state(worlds)
    qd = torch.tensor([[0.0, 5.0, 0.0, -1.0, 0.0, 0.1, 3.0, 0.0, 1.0, 0.1, 0.0, -1.2]], dtype=torch.float64)
    qd = qd * torch.linspace(1.0, 0.8, worlds, dtype=torch.float64)[:, None]
    return state.replace(rigid=pb.State(state.rigid.q, qd, state.rigid.impulses))


@pytest.mark.parametrize("substeps", [1, 3])
def test_momentum_is_kept(substeps):
    coupled = two(substeps)
    state = thrown(coupled)
    run = coupled.rollout(state, 60 // substeps)
    before, after = coupled.momentum(state), coupled.momentum(run.final)
    for one, other in zip(before, after):
        assert torch.allclose(one, other, rtol=0.0, atol=1e-14)
    assert len(run.trajectory) == 60 // substeps + 1
    # and there was something to keep it through
    gained = (run.wrenches * coupled.rigid.dt).sum(0)[0]
    assert (gained[:, 3:].norm(dim=-1) > 0.02).all()
    assert (gained[:, :3].norm(dim=-1) > 1e-5).all()


def test_bodies_get_what_particles_lose_in_every_step():
    coupled = two()
    run = coupled.rollout(thrown(coupled), 25, frames=1)
    given = coupled.rigid.dt * run.wrenches
    linear, angular = coupled.soft.momentum(run.soft)
    motions = [coupled.motion.motion(coupled.motion.parameters(), q, qd) for q, qd in zip(run.q, run.qd)]
    origins, velocities = (torch.stack([motion[k] for motion in motions]) for k in (0, 2))
    moment = given[..., :3] + torch.linalg.cross(origins[:-1], given[..., 3:])
    assert torch.allclose(linear[:-1] - linear[1:], given[..., 3:].sum(2), rtol=0.0, atol=1e-15)
    assert torch.allclose(angular[:-1] - angular[1:], moment.sum(2), rtol=0.0, atol=1e-15)
    gained = torch.tensor([[0.3], [0.5]], dtype=torch.float64) * (velocities[1:] - velocities[:-1])[:, 0]
    assert torch.allclose(gained, given[:, 0, :, 3:], rtol=0.0, atol=1e-14)


def test_a_plate_comes_to_rest_on_jelly_by_its_weight():
    """Jelly in a tray carries a plate: the force between them is its weight, and it sits on the jelly's surface."""
    rubber = soft.Elastic(youngs=2e4, poisson=0.3, density=1000.0, viscosity=20.0)
    bed = soft.block((-0.08, -0.08, -0.08), (0.08, 0.08, 0.0), spacing=0.01, name="bed", material=rubber)
    domain = soft.Domain((-0.08, -0.08, -0.08), (0.08, 0.08, 0.2), CELL, sides="slip")
    sim = soft.SoftSim(domain, [bed], dt=5e-4, gravity=(0, 0, -9.81), drag=5.0, dtype=torch.float64, threads=1)
    world = pb.World()
    world.add_box("plate", size=(0.15, 0.15, 0.06), mass=1.0, position=(0.0, 0.0, 0.045))
    coupled = soft.Coupled(sim, world.compile(dt=1e-3, dtype=torch.float64))
    run = coupled.rollout(coupled.state(), 500)
    assert float(run.wrenches[-200:, 0, 0, 5].mean()) == pytest.approx(9.81, rel=0.02)
    x = run.final.soft.x[0]
    inner = (x[:, :2].abs() < 0.05).all(-1)
    surface = x[inner, 2].max() + 0.005
    assert abs(float(run.q[-1, 0, 2] - 0.03 - surface)) < 0.5 * CELL


# -- gradients -----------------------------------------------------------------------------------------------------


@cache
def armed():
    """Return jelly between two moving links of a pendulum with motors, and a free box, and what gradients go by."""
    world = pb.World(gravity=(0.0, 0.0, -5.0))
    robot = pb.load("pendulum2").to(torch.float64)
    q = {"joint0": 0.0, "joint1": 0.2}
    world.add(robot, name=ARM, position=(0.0, -0.99, -0.2), q=q, actuators=pb.Torque(limit=100.0), friction=0.4)
    world.add_box("box", size=(0.06, 0.05, 0.04), mass=0.4, position=(0.01, 0.0, 0.075), friction=0.5)
    mass = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    friction = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    size = torch.tensor([0.06, 0.05, 0.04], dtype=torch.float64, requires_grad=True)
    world.set_shape("box", friction=friction, size=size)
    coupled = soft.Coupled(jelly(gravity=(0.0, 0.0, -5.0)), world.compile(dt=2 * DT, dtype=torch.float64))
    return coupled, {"mass": mass, "friction": friction, "size": size}


def leaves_of(steps):
    coupled, world = armed()
    state = coupled.state()
    generator = torch.Generator().manual_seed(2)
    qd = state.rigid.qd.clone()
    qd[:, 1] = 3.0
    qd[:, 2:] = torch.tensor([1.0, 0.5, 0.3, 0.1, 0.05, -0.8])
    u = 2.0 * torch.randn(steps, 1, coupled.rigid.nu, generator=generator, dtype=torch.float64)
    values = {"q": state.rigid.q, "qd": qd, "u": u, "x": state.soft.x, "v": state.soft.v, "F": state.soft.F}
    values |= {"youngs": torch.tensor(4e3).double(), "density": torch.tensor(1000.0).double()}
    return {name: x.detach().clone().requires_grad_() for name, x in values.items()} | world


def loss_of(leaves, checkpoint=None):
    coupled, world = armed()
    for name, x in world.items():
        with torch.no_grad():
            x.copy_(leaves[name])
    coupled.rigid.world.robots[ARM].set_link_param("link1", "mass", leaves["mass"])
    state = coupled.state()
    particles = state.soft.replace(x=leaves["x"], v=leaves["v"], F=leaves["F"])
    state = soft.CoupledState(particles, pb.State(leaves["q"], leaves["qd"], state.rigid.impulses))
    material = soft.Elastic(youngs=leaves["youngs"], poisson=0.3, density=leaves["density"], viscosity=0.5)
    steps = len(leaves["u"])
    run = coupled.rollout(state, leaves["u"], materials={"ball": material}, frames=[steps // 2], checkpoint=checkpoint)
    outputs = [run.final.soft.x, run.final.soft.F, run.q, run.qd, run.soft.v, run.wrenches]
    generator = torch.Generator().manual_seed(4)
    weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in outputs]
    return sum((y * w).sum() for y, w in zip(outputs, weights)), run


NAMES = ["q", "qd", "u", "x", "v", "F", "youngs", "density", "mass", "friction", "size"]


@cache
def gradients(steps):
    leaves = leaves_of(steps)
    loss, run = loss_of(leaves)
    grads = torch.autograd.grad(loss, list(leaves.values()))
    return dict(zip(leaves, grads)), float(run.wrenches.detach()[..., 3:].abs().amax((0, 1, 3))[1:].min())


@pytest.mark.parametrize("name", NAMES)
def test_differences_over_50_steps(name):
    """A pendulum and a box against jelly, 100 soft steps: every gradient along a random direction."""
    steps = 50
    grads, least_force = gradients(steps)
    assert least_force > 0.1
    leaves = {key: x.detach().clone() for key, x in leaves_of(steps).items()}
    x = leaves[name]
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    scale = {"youngs": 4e3, "density": 1e3, "x": 1e-3, "v": 0.1, "F": 0.05, "q": 1e-3, "size": 1e-2, "u": 1.0}
    direction = scale.get(name, 0.1) * direction
    if name == "q":
        # quaternions stay of length 1 to first order
        direction[:, 5:] = 0.0

    def at(size):
        with torch.no_grad():
            return float(loss_of(leaves | {name: x + size * direction})[0])

    step = 1e-4
    slope = (8.0 * (at(step) - at(-step)) - (at(2.0 * step) - at(-2.0 * step))) / (12.0 * step)
    loss_of(leaves)
    assert float((grads[name] * direction).sum()) == pytest.approx(slope, rel=1e-5)


def test_pieces_of_any_length_give_the_same_gradient():
    leaves = leaves_of(10)
    found = [torch.autograd.grad(loss_of(leaves, k)[0], [leaves[n] for n in ("u", "x", "mass")]) for k in (1, 4, 100)]
    for other in found[1:]:
        for one, two_ in zip(found[0], other):
            assert torch.allclose(one, two_, rtol=1e-12, atol=0.0)


def test_worlds_of_a_batch_do_not_know_each_other():
    coupled = two()
    state = thrown(coupled, 2)
    q = state.rigid.q.detach().clone().requires_grad_()
    run = coupled.rollout(state.replace(rigid=pb.State(q, state.rigid.qd, state.rigid.impulses)), 30)
    (together,) = torch.autograd.grad(run.final.soft.x.square().sum(), q)
    for world in range(2):
        alone = soft.CoupledState(
            soft.SoftState(*[part[world : world + 1] for part in vars(state.soft).values()]),
            pb.State(q[world : world + 1], state.rigid.qd[world : world + 1], state.rigid.impulses),
        )
        one = coupled.rollout(alone, 30)
        assert torch.allclose(one.final.soft.x, run.final.soft.x[world : world + 1], rtol=0.0, atol=1e-14)
        (by_q,) = torch.autograd.grad(one.final.soft.x.square().sum(), q)
        assert torch.allclose(by_q[world], together[world], rtol=1e-10, atol=1e-16)


# -- bad input -----------------------------------------------------------------------------------------------------


def test_thin_and_unknown_shapes_are_named():
    world = stones()
    world.add_box("card", size=(0.1, 0.1, 0.005), mass=0.1, position=(0, 0, 0.3))
    with pytest.raises(pb.PullbackError, match=r"'card' is 0.005 m thin.*cell=0.005"):
        soft.Coupled(jelly(), world.compile(dt=DT, dtype=torch.float64))
    soft.Coupled(jelly(), world.compile(dt=DT, dtype=torch.float64), bodies=["stone"])
    world = stones()
    world.add_ellipsoid("egg", radii=(0.05, 0.04, 0.04), mass=0.1, position=(0, 0, 0.3))
    with pytest.raises(pb.PullbackError, match="'egg', of kind ellipsoid"):
        soft.Coupled(jelly(), world.compile(dt=DT, dtype=torch.float64))
    with pytest.raises(pb.PullbackError, match="pebble"):
        soft.Coupled(jelly(), world.compile(dt=DT, dtype=torch.float64), bodies=["pebble"])


def test_pairs_that_do_not_fit_are_refused():
    with pytest.raises(pb.PullbackError, match="whole number"):
        soft.Coupled(jelly(), stones().compile(dt=1.5 * DT, dtype=torch.float64))
    with pytest.raises(pb.PullbackError, match="make both alike"):
        soft.Coupled(jelly(), stones().compile(dt=DT))
    flat = soft.block((0.1, 0.1), (0.2, 0.2), spacing=0.01, material=soft.Elastic(youngs=1e3, poisson=0.3))
    plane = soft.SoftSim(soft.Domain((0, 0), (1, 1), 0.02), [flat], dt=DT, dtype=torch.float64)
    with pytest.raises(pb.PullbackError, match="2 dimensions"):
        soft.Coupled(plane, stones().compile(dt=DT, dtype=torch.float64))
    coupled = two()
    with pytest.raises(pb.PullbackError, match="same B worlds"):
        coupled.rollout(soft.CoupledState(coupled.soft.state(2), coupled.rigid.initial_state(1)), 3)


def test_a_light_body_is_named():
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add_sphere("feather", radius=0.03, mass=0.0002, position=(0.075, 0.01, 0.0))
    coupled = soft.Coupled(jelly(), world.compile(dt=DT, dtype=torch.float64))
    state = coupled.state()
    state.rigid.qd[:, 3] = -0.5
    with pytest.warns(pb.SimulationWarning, match="'feather' pushed particles"):
        coupled.rollout(state, 20)


def test_a_lost_particle_is_an_error_or_a_world_of_nan():
    coupled = two()
    state = thrown(coupled, 2)
    v = state.soft.v.clone()
    v[1] += torch.tensor([30.0, 0.0, 0.0])
    broken = state.replace(soft=state.soft.replace(v=v))
    with pytest.raises(pb.PullbackError, match="in world 1 would go more than a cell"):
        coupled.rollout(broken, 5)
    run = coupled.rollout(broken, 5, check=False)
    assert run.failed.tolist() == [False, True]
    assert torch.isnan(run.final.soft.x[1]).all()
    assert torch.isfinite(run.final.soft.x[0]).all()

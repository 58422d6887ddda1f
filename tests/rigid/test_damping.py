"""Damping and servos at the state after a step: stable however stiff, and differentiable like everything else."""

from math import exp

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Shape, Tree
from tests.rigid.worlds import F64, load

DT = 1e-2
BALL = Shape("sphere", (0.01,))


def damped(damping, kd=0.0, servo=False):
    """Return a pendulum without gravity with a damper in its joint, and a velocity servo if asked for."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    arm = load("pendulum1")
    link = arm.model.bodies[0].joint.child
    arm.set_link_param(link, "joint_damping", damping)
    world.add(arm, name="arm", actuators=pb.VelocityServo(kd=kd) if servo else pb.Torque())
    return world, arm


def last_speed(sim, steps=20):
    start = sim.initial_state()
    start.qd[0, 0] = 1.0
    return sim.rollout(start, steps).qd[-1, 0, 0]


def inertia(arm):
    return float(arm.compute_lagrangian_inertia_matrix(torch.zeros(1, dtype=F64))[0, 0])


def test_a_stiff_damper_stops_a_pendulum_and_explicitly_throws_it():
    world, arm = damped(100.0 * 5.0)
    ratio = DT * 500.0 / inertia(arm)
    assert ratio > 4
    assert last_speed(world.compile(dt=DT, dtype=F64, damping="implicit")) == pytest.approx((1 + ratio) ** -20)
    assert abs(last_speed(world.compile(dt=DT, dtype=F64, damping="explicit"))) > 1e6


def test_a_gentle_damper_is_an_exponential_either_way():
    world, arm = damped(0.5)
    expected = exp(-0.5 * 0.2 / inertia(arm))
    implicit, explicit = (
        float(last_speed(world.compile(dt=1e-4, dtype=F64, damping=d), 2000)) for d in ("implicit", "explicit")
    )
    assert implicit == pytest.approx(expected, rel=1e-3)
    assert explicit == pytest.approx(expected, rel=1e-3)
    assert (implicit - expected) * (explicit - expected) < 0


@pytest.mark.parametrize("substeps", [1, 3])
def test_gradients_by_damping_and_by_the_gain_of_a_servo(substeps):
    def speed(damping, kd):
        world, _ = damped(damping, kd, servo=True)
        return last_speed(world.compile(dt=DT, dtype=F64, damping="implicit", substeps=substeps), 10)

    values = [torch.tensor(x, dtype=F64, requires_grad=True) for x in (30.0, 20.0)]
    found = torch.autograd.grad(speed(*values), values)
    for k, gradient in enumerate(found):
        ends = [[x.item() + (i == k) * sign * 1e-3 for i, x in enumerate(values)] for sign in (1, -1)]
        difference = (speed(*ends[0]) - speed(*ends[1])) / 2e-3
        assert gradient == pytest.approx(float(difference), rel=1e-6)


def test_energies_do_not_know_of_it_and_a_typo_is_told():
    world, _ = damped(50.0)
    sims = [world.compile(dt=DT, dtype=F64, damping=d) for d in ("implicit", "explicit")]
    state = pb.State(torch.zeros(1, 1, dtype=F64), torch.ones(1, 1, dtype=F64))
    assert sims[0].energies(state) == sims[1].energies(state)
    with pytest.raises(pb.PullbackError, match="damping is 'implict'; choose 'explicit' or 'implicit'"):
        world.compile(dt=DT, damping="implict")
    with pytest.raises(pb.PullbackError, match=r"integrator is \{\}; choose 'semi_implicit'"):
        world.compile(dt=DT, integrator={})


# -- servos ----------------------------------------------------------------------------------------------------------


def servo(limit=float("inf"), kp=2000.0, kd=0.0):
    """Return a pendulum without gravity that a position servo holds."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    arm = load("pendulum1")
    world.add(arm, name="arm", actuators=pb.PositionServo(kp=kp, kd=kd, limit=limit))
    return world, arm


def test_a_servo_acts_at_the_state_after_the_step():
    world, arm = servo(kp=500.0, kd=20.0)
    sim = world.compile(dt=DT, dtype=F64)
    start = sim.initial_state()
    start.qd[0, 0] = 1.0
    after = sim.step(start, torch.tensor([[0.1]], dtype=F64))
    force = 500.0 * (0.1 - after.q) - 20.0 * after.qd
    assert float(inertia(arm) * (after.qd - start.qd) / DT) == pytest.approx(float(force))


def test_a_stiff_servo_without_damping_gains_no_energy():
    world, arm = servo(kp=1e6)
    assert DT**2 * 1e6 / inertia(arm) > 4
    sim = world.compile(dt=DT, dtype=F64)
    start = sim.initial_state()
    start.q[0, 0] = 0.1
    states = sim.rollout(start, torch.zeros(100, 1, 1, dtype=F64))
    energy = 0.5 * inertia(arm) * states.qd**2 + 0.5e6 * states.q**2
    assert (energy.diff(dim=0) <= 0).all()


@pytest.mark.parametrize("kd", [0.0, 50.0])
def test_a_servo_at_its_limit_has_no_stiffness(kd):
    world, arm = servo(limit=3.0, kp=5000.0, kd=kd)
    sim = world.compile(dt=DT, dtype=F64)
    after = sim.step(sim.initial_state(), torch.tensor([[1.0]], dtype=F64))
    assert float(after.qd) == pytest.approx(DT * 3.0 / inertia(arm))


@pytest.mark.parametrize("impacts", ["step", "split"])
@pytest.mark.parametrize(("target", "force"), [(0.05, 3.0), (1e-3, None), (-0.05, -3.0)])
def test_a_servo_beside_one_at_its_limit(target, force, impacts):
    """Unbounded, the first would throw the arm, and the second push back with all it has; neither happens."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    arm = load("pendulum2")
    world.add(arm, name="arm", actuators=pb.PositionServo(kp=5000.0, kd=20.0, limit=3.0), collision_links=[])
    sim = world.compile(dt=DT, dtype=F64, impacts=impacts)
    u = torch.tensor([[1.0, target]], dtype=F64)
    start, after = sim.initial_state(), sim.step(sim.initial_state(), u)
    forces = arm.compute_lagrangian_inertia_matrix(start.q)[0] @ after.qd[0] / DT
    wanted = 5000.0 * (u - after.q) - 20.0 * after.qd
    torch.testing.assert_close(forces, wanted[0].clamp(-3.0, 3.0), rtol=1e-9, atol=1e-9)
    assert wanted[0, 0] > 3.0
    assert abs(float(forces[1])) < 2.9 if force is None else float(forces[1]) == pytest.approx(force)
    by_u = torch.autograd.functional.jacobian(lambda x: sim.step(start, x).qd[0], u)[:, 0]
    assert (by_u[:, 0] == 0.0).all()
    assert bool((by_u[:, 1] != 0.0).all()) == (force is None)
    ends = [sim.step(start, u + torch.tensor([[0.0, sign * 1e-7]], dtype=F64)).qd[0] for sign in (1.0, -1.0)]
    torch.testing.assert_close(by_u[:, 1], (ends[0] - ends[1]) / 2e-7, rtol=1e-6, atol=1e-6)


def pressing(limit, kp=400.0, kd=1.0, restitution=0.0, **contact):
    """Return a slider of 0.05 kg that a servo presses against a wall, 1 mm away."""
    world = pb.World(gravity=(0.0, 0.0, 0.0), contact=pb.PGS(**contact))
    links = [Link("base", 1.0, inertia=np.eye(3)), Link("finger", 0.05, inertia=1e-4 * np.eye(3), shapes=[BALL])]
    joints = [Joint("slide", "prismatic", "base", "finger")]
    finger = pb.RobotModel(compile_tree(Tree("finger", links, joints, source="finger")), dtype=F64)
    world.add(finger, name="finger", actuators=pb.PositionServo(kp=kp, kd=kd, limit=limit))
    world.add_sphere("wall", radius=0.05, static=True, position=(0.0, 0.0, 0.061), restitution=restitution)
    return world


@pytest.mark.parametrize("limit", [1.0, 5.0, 100.0])
def test_a_servo_presses_on_a_wall_with_no_more_than_its_limit(limit):
    sim = pressing(limit).compile(dt=DT, dtype=F64)
    states = sim.rollout(sim.initial_state(), torch.full((100, 1, 1), 0.05, dtype=F64))
    forces = [float(contact.force[2]) for contact in sim.contacts(states[-1], torch.tensor([[0.05]], dtype=F64))[0]]
    wanted = 400.0 * (0.05 - float(states.q[-1, 0, 0]))
    assert abs(sum(forces)) == pytest.approx(min(limit, wanted), rel=1e-3)


SWEEPS = {"gradient": "unrolled", "iterations": 3, "tolerance": 0.0, "cfm": 0.5}


@pytest.mark.parametrize("contact", [{}, {"restitution": 0.7}, SWEEPS], ids=["solved", "bounces", "sweeps"])
@pytest.mark.parametrize("limit", [0.2, 3.0, 100.0])
def test_gradients_by_a_servo_that_meets_its_limit(limit, contact):
    """Steps within the limit and at it, before and after the wall is met."""

    def loss(kp, kd, bound, u):
        sim = pressing(bound, kp, kd, **contact).compile(dt=2e-3, dtype=F64)
        states = sim.rollout(sim.initial_state(), u.expand(12, 1, 1))
        return (states.q * torch.linspace(1.0, 2.0, 13, dtype=F64)[:, None, None]).sum() + 0.01 * states.qd.sum()

    values = [torch.tensor(x, dtype=F64, requires_grad=True) for x in (400.0, 1.0, limit, 0.02)]
    found = torch.autograd.grad(loss(*values), values)
    for k, gradient in enumerate(found):
        change = 1e-6 * values[k].item()
        ends = [[x.detach() + (i == k) * sign * change for i, x in enumerate(values)] for sign in (1, -1)]
        difference = (loss(*ends[0]) - loss(*ends[1])) / (2 * change)
        assert float(gradient) == pytest.approx(float(difference), rel=1e-5, abs=1e-9)


def test_the_jacobian_of_a_step_knows_servos_and_their_limits():
    world = pb.World()
    world.add(load("iiwa7"), name="arm", actuators=pb.PositionServo(kp=300.0, kd=5.0, limit=40.0))
    sim = world.compile(dt=DT, dtype=F64)
    draw = torch.Generator().manual_seed(0)
    q, qd, u = (torch.randn(1, 7, dtype=F64, generator=draw) for _ in range(3))
    found = sim.linearize(pb.State(q, qd), u[None])

    def after(q, qd, u):
        state = sim.step(pb.State(q, qd), u)
        return torch.cat([state.q, state.qd], -1)[0]

    by_q, by_qd, by_u = torch.func.jacrev(after, argnums=(0, 1, 2))(q, qd, u)
    torch.testing.assert_close(found.A[0, 0], torch.cat([by_q[:, 0], by_qd[:, 0]], -1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.B[0, 0], by_u[:, 0], rtol=1e-9, atol=1e-9)
    assert 0 < int((found.B[0, 0].abs().sum(0) == 0).sum()) < 7

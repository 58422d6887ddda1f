"""Gravity compensation: against MuJoCo and plain torch, gradients against differences, energy, linearize."""

from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

import pullback as pb
from checks.mujoco_forces import compare
from tests.reference import dynamics as reference
from tests.rigid.worlds import F64

# a free base with a hinge and a ball on it, beside an arm that is bolted down; fractions below, at and above one
MODEL = """<mujoco><option gravity="0.3 -0.2 -9.81"/><worldbody>
<body name="base" pos="0 0 1" gravcomp="0.4"><freejoint/>
<inertial pos="0.1 0 0.05" mass="2" diaginertia="0.1 0.12 0.08"/>
<body name="upper" pos="0 0 0.3" gravcomp="1"><joint name="hinge" axis="0 1 0.2" damping="0.1"/>
<inertial pos="0.2 0.1 0" mass="1.5" diaginertia="0.03 0.02 0.04"/>
<body name="lower" pos="0.4 0 0" gravcomp="1.3"><joint name="ball" type="ball"/>
<inertial pos="0 0.1 0.3" mass="0.7" diaginertia="0.01 0.02 0.015"/></body></body></body>
<body name="arm" pos="1 0 0"><joint name="slide" type="slide" axis="1 0 1"/>
<inertial pos="0 0 0.1" mass="1" diaginertia="0.01 0.01 0.01"/>
<body name="tool" gravcomp="0.9"><joint name="wrist" axis="1 0 0" pos="0 0 -0.2"/>
<inertial pos="0 0.2 0.1" mass="0.5" diaginertia="0.01 0.02 0.01"/></body></body>
</worldbody></mujoco>"""
AGREE = 1e-12
DIFFERENCES = 1e-6
DT = 2e-3


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "carried.xml"
    path.write_text(MODEL)
    return path


@pytest.fixture
def robot(file) -> pb.RobotModel:
    with pytest.warns(pb.DescriptionWarning, match="gravity"):
        return pb.load(file, dtype=F64)


def make_sim(robot: pb.RobotModel, **options) -> pb.Sim:
    world = pb.World(gravity=robot.gravity)
    world.add(robot, name="robot")
    return world.compile(dt=DT, dtype=F64, **options)


def some_state(robot: pb.RobotModel, batch: int = 3) -> pb.State:
    generator = torch.Generator().manual_seed(3)
    qd = torch.randn(batch, robot.nv, dtype=F64, generator=generator)
    return pb.State(robot.random_q(batch, generator=generator), qd)


def test_forces_are_mujocos(robot, file):
    errors, _ = compare(robot, file)
    assert errors.passive < AGREE


def test_forces_are_those_of_the_plain_reference(robot):
    q = some_state(robot).q
    zero = q.new_zeros(robot.nv)
    found = robot.compute_non_linear_effects(q, zero)
    parameters = reference.description_parameters(robot.model)
    carried = dict(parameters)
    fraction = torch.tensor([link.carried for link in robot.model.links], dtype=F64)
    carried["mass"] = parameters["mass"] * (1.0 - fraction)
    gravity = q.new_tensor(robot.gravity)
    for k in range(len(q)):
        expected = reference.inverse_dynamics(robot.model, carried, q[k], zero, zero, gravity=gravity)
        assert torch.allclose(found[k], expected, atol=1e-10)


def test_a_step_has_the_acceleration_of_the_robot(robot):
    state = some_state(robot)
    state.qd[:, :3] = 0.0  # the base's axes do not turn
    after = make_sim(robot, damping="explicit", integrator="explicit").step(state)
    qdd = robot.compute_forward_dynamics(state.q, state.qd, state.qd.new_zeros(robot.nv), use_damping=True)
    assert torch.allclose((after.qd - state.qd) / DT, qdd, atol=1e-9)


@pytest.mark.slow
def test_mujoco_gives_the_same_motion(robot):
    model = mujoco.MjModel.from_xml_string(MODEL)
    model.opt.timestep = 1e-4
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    data = mujoco.MjData(model)
    mujoco.mj_step(model, data, 1000)
    q, qd = robot.from_mujoco(torch.from_numpy(data.qpos), torch.from_numpy(data.qvel))
    for integrator in ("rk4", "midpoint"):
        sim = make_sim(robot, integrator=integrator)
        end = sim.rollout(sim.initial_state(), 50)[-1]
        tolerance = 1e-9 if integrator == "rk4" else 1e-4
        assert torch.allclose(end.q[0], q, atol=tolerance)
        assert torch.allclose(end.qd[0], qd, atol=10 * tolerance)


# kernels of other integrators take half a minute to compile
@pytest.mark.parametrize("integrator", ["semi_implicit", pytest.param("midpoint", marks=pytest.mark.slow)])
def test_gradients_are_those_of_differences(robot, integrator):
    mass = torch.tensor([1.5, 0.5], dtype=F64, requires_grad=True)
    state = some_state(robot)
    gravity = torch.tensor(robot.gravity, dtype=F64, requires_grad=True)
    weights = torch.randn(2, 3, robot.nv, dtype=F64, generator=torch.Generator().manual_seed(0))

    def loss(q: torch.Tensor, masses: torch.Tensor, field: torch.Tensor) -> torch.Tensor:
        world = pb.World(gravity=field)
        world.add(robot, name="robot")
        robot.set_link_param("upper", "mass", masses[0])
        robot.set_link_param("tool", "mass", masses[1])
        sim = world.compile(dt=DT, dtype=F64, integrator=integrator)
        last = sim.rollout(pb.State(q, state.qd), 4)[-1]
        moved = sim.manifold.difference(state.q, last.q)
        return (weights[0] * moved + weights[1] * last.qd).sum()

    q = state.q.clone().requires_grad_()
    gradients = torch.autograd.grad(loss(q, mass, gravity), (q, mass, gravity))
    generator = torch.Generator().manual_seed(1)
    for x, gradient, others in zip((q, mass, gravity), gradients, range(3)):
        way = torch.randn(x.shape, dtype=F64, generator=generator)
        if others == 0:
            # along the manifold
            way = torch.zeros_like(x)
            way[:, [0, 2, 7, 12, 13]] = torch.randn(len(x), 5, dtype=F64, generator=generator)
        ends = []
        for sign in (1.0, -1.0):
            inputs = [value.detach() for value in (q, mass, gravity)]
            inputs[others] = inputs[others] + sign * 1e-6 * way
            ends.append(float(loss(*inputs)))
        assert float((gradient * way).sum()) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=DIFFERENCES, abs=1e-7)


def test_linearize_is_the_jacobian_of_a_step(robot):
    sim, state = make_sim(robot), some_state(robot, 2)
    found = sim.linearize(state, torch.zeros(1, len(state.q), sim.nu, dtype=F64))
    for column in range(2 * robot.nv):
        dx = torch.zeros(2, 2 * robot.nv, dtype=F64)
        dx[:, column] = 1e-6
        ahead, behind = sim.step(sim.retract(state, dx)), sim.step(sim.retract(state, -dx))
        middle = sim.step(state)
        expected = (sim.difference(middle, ahead) - sim.difference(middle, behind)) / 2e-6
        assert torch.allclose(found.A[0, ..., column], expected, atol=1e-7)


@pytest.mark.slow
def test_energy_is_kept(robot):
    robot.set_link_param("upper", "joint_damping", torch.tensor(0.0, dtype=F64))
    sim = make_sim(robot, integrator="rk4")
    trajectory = sim.rollout(some_state(robot, 1), 100)
    first, last = (sum(sim.energies(pb.State(trajectory.q[k], trajectory.qd[k]))) for k in (0, -1))
    assert torch.allclose(first, last, rtol=1e-8)
    potential = robot.compute_potential_energy(trajectory.q[-1])
    assert torch.allclose(potential, sim.energies(trajectory[-1])[1], rtol=1e-12)


def test_bodies_that_are_carried_whole_float(tmp_path):
    path = tmp_path / "balloon.xml"
    path.write_text('<mujoco><worldbody><body gravcomp="1"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>')
    robot = pb.load(path, dtype=F64)
    sim = make_sim(robot)
    assert np.allclose(sim.rollout(sim.initial_state(), 20).q[-1], sim.initial_state().q, atol=1e-15)

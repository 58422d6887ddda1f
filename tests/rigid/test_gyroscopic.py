"""Bodies that tumble: energy and momentum, the exact solution, and gradients against differences."""

import mujoco
import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Tree
from tests.rigid.worlds import F64

Tensor = torch.Tensor
EXTENTS = np.diag([0.013, 0.02, 0.03])
AWAY = np.array([0.05, -0.03, 0.08])


def tumbler(com=(0.0, 0.0, 0.0), joint="free", armature=0.0) -> pb.World:
    """Return a lone body of 1.5 kg without gravity, on a free joint or on a ball joint."""
    body = Link("body", 1.5, np.array(com), EXTENTS)
    if joint == "ball":
        joints = [Joint("pivot", "ball", "base", "body", armature=armature)]
        model = compile_tree(Tree("top", [Link("base", 1.0), body], joints, source="top"))
    else:
        model = compile_tree(Tree("top", [body], [], source="top"), base="floating")
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    world.add(pb.RobotModel(model, dtype=F64), name="top")
    return world


def spinning(sim: pb.Sim, speed: float, worlds: int = 20) -> pb.State:
    """Return worlds that turn at `speed` [rad/s] about random axes, and fly at 1 m/s."""
    start = sim.initial_state(worlds)
    axes = torch.randn(worlds, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    start.qd[:, :3] = speed * axes / axes.norm(dim=-1, keepdim=True)
    if sim.nv == 6:
        start.qd[:, 3] = 1.0
    return start


BODIES = {
    "centred": {},
    "away": {"com": AWAY},
    "ball": {"joint": "ball", "com": AWAY},
    "ball with armature": {"joint": "ball", "com": AWAY, "armature": 0.01},
}


@pytest.mark.parametrize("name", BODIES)
def test_tumbling_keeps_its_energy(name):
    """100 rad/s at 10 ms, a radian a step, for 10 s."""
    sim = tumbler(**BODIES[name]).compile(dt=0.01, dtype=F64)
    start = spinning(sim, 100.0)
    end = sim.rollout(start, 1000, checkpoint=1000)[-1]
    before, after = (sim.energies(state)[0] for state in (start, end))
    torch.testing.assert_close(after, before, rtol=1e-9, atol=0.0)


def test_in_float32_energy_stays_within_a_percent():
    sim = tumbler(com=AWAY).compile(dt=0.01, dtype=torch.float32)
    start = spinning(sim, 100.0)
    start = pb.State(start.q.float(), start.qd.float())
    end = sim.rollout(start, 1000, checkpoint=1000)[-1]
    before, after = (sim.energies(state)[0] for state in (start, end))
    torch.testing.assert_close(after, before, rtol=1e-2, atol=0.0)


@pytest.mark.parametrize("speed", [300.0, 1000.0])
def test_faster_than_steps_can_follow_it_does_not_gain(speed):
    sim = tumbler(com=AWAY).compile(dt=0.01, dtype=F64)
    start = spinning(sim, speed)
    end = sim.rollout(start, 200, checkpoint=200)[-1]
    before, after = (sim.energies(state)[0] for state in (start, end))
    assert (after <= before * (1 + 1e-9)).all()


def test_the_length_of_the_angular_momentum_stays():
    sim = tumbler().compile(dt=0.01, dtype=F64)
    states = sim.rollout(spinning(sim, 100.0), 100)
    momentum = (states.qd[..., :3] @ torch.tensor(EXTENTS)).norm(dim=-1)
    torch.testing.assert_close(momentum, momentum[:1].expand_as(momentum), rtol=1e-11, atol=0.0)


def test_it_turns_as_the_exact_solution_does():
    """Against MuJoCo's fourth-order steps of 10 µs; rates are of second order in the step, attitudes of first."""
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><option gravity="0 0 0" timestep="1e-5" integrator="RK4"/><worldbody><body><freejoint/>'
        '<inertial pos="0 0 0" mass="1.5" diaginertia="0.013 0.02 0.03"/></body></worldbody></mujoco>'
    )
    data = mujoco.MjData(model)
    rate = np.array([0.5, 8.0, 0.3])
    data.qvel[3:] = rate
    for _ in range(100_000):
        mujoco.mj_step(model, data)
    errors = []
    for dt in (4e-3, 2e-3):
        sim = tumbler().compile(dt=dt, dtype=F64)
        start = sim.initial_state()
        start.qd[0, :3] = torch.tensor(rate)
        end = sim.rollout(start, round(1.0 / dt), checkpoint=1000)[-1]
        errors.append(float((end.qd[0, :3] - torch.tensor(data.qvel[3:])).norm()))
    assert errors[1] < 2e-3
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("name", BODIES)
def test_gradients_are_differences(name):
    """By the start, and by mass, centre of mass and inertia, over steps of a radian."""
    values = {
        "mass": torch.tensor([1.5], dtype=F64),
        "com": torch.tensor(AWAY[None] if name != "centred" else np.zeros((1, 3)), dtype=F64),
        "inertia_mat": torch.tensor(EXTENTS[None] + 1e-3, dtype=F64),
    }
    world = tumbler(**BODIES[name])
    sim = world.compile(dt=0.01, dtype=F64)
    start = spinning(sim, 100.0, 1)
    weights = torch.randn(2, sim.nq + sim.nv, dtype=F64, generator=torch.Generator().manual_seed(1))

    def loss(qd: Tensor, *numbers: Tensor) -> Tensor:
        for key, value in zip(values, numbers):
            world.robots["top"].set_link_param("body", key, value[0])
        states = sim.rollout(pb.State(start.q, qd), 3)
        both = torch.cat([states.q[:, 0], states.qd[:, 0]], -1)
        return (weights[0] * both[-1]).sum() + (weights[1] * both[1]).sum()

    inputs = [x.clone().requires_grad_() for x in (start.qd, *values.values())]
    found = torch.autograd.grad(loss(*inputs), inputs)
    for k, gradient in enumerate(found):
        for at in range(inputs[k].numel()):
            ends = []
            for sign in (1, -1):
                moved = [x.detach().clone() for x in inputs]
                moved[k].view(-1)[at] += sign * 1e-6
                if moved[k].dim() == 3:
                    moved[k] = 0.5 * (moved[k] + moved[k].mT)
                ends.append(loss(*moved))
            expected = (ends[0] - ends[1]) / 2e-6
            asked = gradient if gradient.dim() < 3 else 0.5 * (gradient + gradient.mT)
            assert float(asked.reshape(-1)[at]) == pytest.approx(float(expected), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", BODIES)
def test_the_jacobian_of_a_step_is_that_of_its_adjoint(name):
    sim = tumbler(**BODIES[name]).compile(dt=0.01, dtype=F64)
    start = spinning(sim, 100.0, 1)
    found = sim.linearize(start, torch.zeros(1, 1, 0, dtype=F64)).A[0, 0, sim.nv :, sim.nv :]
    expected = torch.func.jacrev(lambda qd: sim.step(pb.State(start.q, qd)).qd[0])(start.qd)[:, 0]
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)

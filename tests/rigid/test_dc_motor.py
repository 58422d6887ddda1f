"""DC motors: against MuJoCo and the analytic run-up, gradients by every number against central differences."""

from math import exp

import mujoco
import numpy as np
import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64, load

V, KT, R, GEAR, AMPS = 12.0, 0.05, 2.0, 6.0, 4.0
DT = 1e-3
AGREE = 1e-6
"""Central differences, relative."""


def rotor(**numbers):
    """Return a pendulum without gravity, driven by a motor, compiled, and its inertia."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    arm = load("pendulum1")
    given = {"voltage": V, "torque_constant": KT, "resistance": R, "gear": GEAR, **numbers}
    world.add(arm, name="arm", actuators=pb.DCMotor(**given))
    inertia = float(arm.compute_lagrangian_inertia_matrix(torch.zeros(1, dtype=F64))[0, 0])
    return world.compile(dt=DT, dtype=F64, damping="explicit"), inertia


def test_a_rotor_runs_up_to_its_no_load_speed():
    sim, inertia = rotor()
    steps = 2000
    end = sim.rollout(sim.initial_state(), torch.full((steps, 1, 1), 1e3, dtype=F64)).qd[-1, 0, 0]
    # inertia d qd/dt = slope (no-load speed - qd), one explicit step after the other
    slope, free = (GEAR * KT) ** 2 / R, V / (GEAR * KT)
    assert end == pytest.approx(free * (1 - (1 - DT * slope / inertia) ** steps), rel=1e-12)
    assert end == pytest.approx(free * (1 - exp(-DT * steps * slope / inertia)), rel=1e-2)


def test_the_current_limit_bounds_the_torque():
    sim, inertia = rotor(current_limit=AMPS)
    end = sim.step(sim.initial_state(), torch.full((1, 1), V, dtype=F64)).qd[0, 0]
    assert end == pytest.approx(DT * GEAR * KT * AMPS / inertia, rel=1e-12)
    assert GEAR * KT * AMPS < GEAR * KT * V / R


MODEL = f"""<mujoco>
<option gravity="0 0 0" timestep="{DT}" integrator="Euler"><flag eulerdamp="disable"/></option>
<worldbody><body><joint name="hinge" axis="0 1 0" damping="0"/>
<inertial pos="0 0 0.3" mass="1.5" diaginertia="0.1 0.12 0.05"/></body></worldbody>
<actuator><general joint="hinge" gaintype="fixed" gainprm="{GEAR * KT / R}"
biastype="affine" biasprm="0 0 {-(GEAR * KT) * (GEAR * KT) / R}"
ctrllimited="true" ctrlrange="{-V} {V}"
forcelimited="true" forcerange="{-GEAR * KT * AMPS} {GEAR * KT * AMPS}"/></actuator>
</mujoco>"""


def test_mujoco_gives_the_same_motion(tmp_path):
    path = tmp_path / "motor.xml"
    path.write_text(MODEL)
    model = mujoco.MjModel.from_xml_string(MODEL)
    data = mujoco.MjData(model)
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    motor = pb.DCMotor(voltage=V, torque_constant=KT, resistance=R, gear=GEAR, current_limit=AMPS)
    world.add(pb.load(path, dtype=F64), name="arm", actuators=motor)
    sim = world.compile(dt=DT, dtype=F64, damping="explicit")
    controls = 20.0 * np.sin(np.linspace(0.0, 9.0, 300))
    ours = sim.rollout(sim.initial_state(), torch.as_tensor(controls)[:, None, None]).qd[1:, 0, 0].numpy()
    theirs = []
    for u in controls:
        data.ctrl[0] = u
        mujoco.mj_step(model, data)
        theirs.append(data.qvel[0])
    # the range of controls, the limit of the force and the free range all occur
    assert abs(controls).max() > V
    assert np.abs(np.diff(theirs)).max() > 0.0
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def loss(values, u, dtype=F64):
    """Return a sum over the motion of a two-link pendulum with a motor in each joint."""
    world = pb.World()
    motor = pb.DCMotor(values["voltage"], values["kt"], values["R"], values["gear"], values["amps"])
    world.add(pb.load("pendulum2", dtype=dtype), name="arm", actuators=motor)
    sim = world.compile(dt=2e-3, dtype=dtype)
    states = sim.rollout(sim.initial_state(), u)
    return (states.q[-1] * torch.tensor([1.0, -0.7], dtype=dtype)).sum() + 0.1 * states.qd[-1].sum()


def start(dtype=F64):
    """Return numbers for each joint: one saturates its voltage, the other its current, some of the time."""
    numbers = {"voltage": (6.0, 30.0), "kt": (0.06, 0.05), "R": (1.5, 0.8), "gear": (-5.0, 8.0), "amps": (50.0, 6.0)}
    values = {name: torch.tensor([x], dtype=dtype) for name, x in numbers.items()}
    time = torch.linspace(0.0, 6.0, 60, dtype=dtype)
    return values, torch.stack([9.0 * torch.sin(time), 11.0 * torch.cos(time)], -1)[:, None]


def test_gradients_by_every_number_and_control():
    values, u = start()
    given = {name: x.clone().requires_grad_() for name, x in values.items()}
    controls = u.clone().requires_grad_()
    loss(given, controls).backward()
    assert (controls.grad == 0.0).any()
    assert (controls.grad != 0.0).any()
    generator = torch.Generator().manual_seed(0)
    for name in (*values, "u"):
        x = u if name == "u" else values[name]
        found = controls.grad if name == "u" else given[name].grad
        d = x.abs().mean() * torch.randn(x.shape, generator=generator, dtype=F64)

        def at(h, name=name, d=d):
            moved = {n: v + h * d if n == name else v for n, v in values.items()}
            return float(loss(moved, u + h * d if name == "u" else u))

        differences = [(at(h) - at(-h)) / (2 * h) for h in (1e-5, 1e-6, 1e-7)]
        ours = float((found * d).sum())
        assert abs(ours) > 1e-6, name
        assert min(abs(x - ours) for x in differences) < AGREE * abs(ours), name


def test_float32_follows_float64():
    values, u = start()
    single = {name: x.float() for name, x in values.items()}
    assert float(loss(single, u.float(), torch.float32)) == pytest.approx(float(loss(values, u)), rel=1e-3)


def test_the_jacobian_of_a_step_has_the_slope_of_the_torque_speed_curve():
    sim, inertia = rotor()
    state = sim.initial_state()
    A, B, *_ = sim.linearize(state, torch.tensor([[[1.0]]], dtype=F64))
    assert float(A[0, 0, 1, 1]) == pytest.approx(1 - DT * (GEAR * KT) ** 2 / R / inertia, rel=1e-12)
    assert float(B[0, 0, 1, 0]) == pytest.approx(DT * GEAR * KT / R / inertia, rel=1e-12)
    _, B, *_ = sim.linearize(state, torch.tensor([[[2 * V]]], dtype=F64))
    assert float(B.abs().max()) == 0.0


def test_bad_numbers_are_named():
    world = pb.World()
    with pytest.raises(pb.PullbackError, match="the actuator of 'arm': resistance is zero"):
        world.add(load("pendulum1"), name="arm", actuators=pb.DCMotor(V, KT, 0.0))
    with pytest.raises(pb.PullbackError, match="the actuator of 'arm': voltage is -12; it cannot be negative"):
        world.add(load("pendulum1"), name="arm", actuators=pb.DCMotor(-V, KT, R))


def test_one_number_may_be_learnt_while_the_others_are_plain():
    gear = torch.tensor(6.0, dtype=F64, requires_grad=True)
    sim, _ = rotor(gear=gear, current_limit=AMPS)
    sim.step(sim.initial_state(), torch.full((1, 1), 1.0, dtype=F64)).qd.sum().backward()
    assert gear.grad is not None
    assert float(gear.grad) != 0.0

"""A leg whose knee is driven by a crank and a pushrod, closed by `connect`; its keyframe opens the loop by 3 mm."""

import mujoco
import numpy as np
import pytest
import torch

import pullback as pb

F64 = torch.float64
LEG = """<mujoco model="leg">
<worldbody><body name="pelvis" pos="0 0 1"><freejoint/><geom size="0.08" mass="8"/>
<body name="thigh" pos="0 0.1 0"><joint name="hip" axis="0 1 0" range="-60 60"/>
<geom type="capsule" fromto="0 0 0 0.02 0 -0.4" size="0.03" mass="3"/>
<body name="crank" pos="0 0.03 -0.02"><joint name="motor" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 -0.06 0 0" size="0.01" mass="0.1"/>
<body name="rod" pos="-0.06 0 0"><joint name="rod" type="ball"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.42" size="0.008" mass="0.2"/></body></body>
<body name="shin" pos="0.02 0 -0.4"><joint name="knee" axis="0 1 0" range="-10 120"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.025" mass="1.5"/>
<body name="foot" pos="0 0 -0.3"><joint name="ankle" axis="0 1 0" stiffness="1250" damping="1"/>
<geom type="capsule" fromto="-0.08 0 0 0.1 0 0" size="0.02" mass="0.4"/></body></body></body></body></worldbody>
<equality><connect name="pushrod" body1="rod" body2="shin" anchor="0 0 -0.42"/></equality>
<keyframe><key name="crouch" qpos="0 0 0.9 1 0 0 0 0.61 0.36 0.99 0 -0.17 0 0.25 0.1"/></keyframe>
</mujoco>"""


@pytest.fixture
def leg(tmp_path) -> pb.RobotModel:
    path = tmp_path / "leg.xml"
    path.write_text(LEG)
    return pb.load(path, dtype=F64)


def opening(robot: pb.RobotModel, q: torch.Tensor) -> float:
    """Return how far the loop is open [m], by MuJoCo."""
    model = mujoco.MjModel.from_xml_string(LEG)
    data = mujoco.MjData(model)
    data.qpos[:] = robot.to_mujoco(q)[0].numpy()
    mujoco.mj_forward(model, data)
    return float(np.linalg.norm(data.efc_pos[:3]))


def test_a_keyframe_that_opens_a_loop_is_closed(leg):
    crouch = leg.keyframes["crouch"].q
    assert 2e-3 < opening(leg, crouch) < 4e-3
    world = pb.World()
    world.add(leg, name="leg", q=crouch)
    with pytest.raises(pb.PullbackError, match=r"robot.close_loops\(q\)"):
        world.compile(dt=1e-3, dtype=F64)
    closed = leg.close_loops(crouch)
    assert opening(leg, closed) < 1e-12
    torch.testing.assert_close(closed[:7], crouch[:7])
    assert float((closed - crouch).abs().max()) < 0.02


def test_the_closed_leg_moves_with_gradients(leg):
    closed = leg.close_loops(leg.keyframes["crouch"].q)
    world = pb.World()
    world.add(leg, name="leg", q=closed, actuators={"motor": pb.Torque()}, collision_links=[])
    sim = world.compile(dt=1e-3, dtype=F64)
    start = sim.initial_state()
    push = torch.full((20, 1, 1), 2.0, dtype=F64, requires_grad=True)
    last = sim.rollout(start, push)[-1]
    assert opening(leg, last.q[0].detach()) < 1e-4
    knee = leg.model.q_start["knee"]
    (gradient,) = torch.autograd.grad(last.q[0, knee], push)
    ends = [sim.rollout(start, push.detach() + sign * 1e-4).q[-1, 0, knee] for sign in (1, -1)]
    assert float(gradient.sum()) == pytest.approx(float(ends[0] - ends[1]) / 2e-4, rel=1e-5)
    assert abs(float(gradient.sum())) > 1e-4

"""Contacts in directions in which nothing can move, and rows that others make up for."""

import numpy as np
import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64

SLIDER = """
<mujoco>
  <worldbody>
    <body name="cart" pos="0 0 0.099">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""
HINGED = """
<mujoco>
  <worldbody>
    <body name="arm" pos="0 0 0.099">
      <joint name="turn" type="hinge" axis="0 0 1"/>
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""
SETTINGS = [(0.0, "cone", F64), (0.0, "pyramid", F64), (1e-4, "cone", torch.float32)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [SLIDER, HINGED])
@pytest.mark.parametrize(
    ("cfm", "friction", "dtype"), [(0.0, "cone", F64), (0.0, "pyramid", F64), (1e-4, "cone", torch.float32)]
)
def test_what_cannot_leave_the_ground_is_not_pressed_against_it(tmp_path, model, cfm, friction, dtype):
    """A cart on a rail that sinks into the ground by a millimetre: no impulse can lift it, none brakes it."""
    path = tmp_path / "robot.xml"
    path.write_text(model)
    world = pb.World(contact=pb.PGS(cfm=cfm, friction=friction))
    world.add_ground(friction=1.0)
    world.add(pb.load(path), name="robot")
    sim = world.compile(dt=1e-3, dtype=dtype)
    state = sim.initial_state()
    state.qd[:, 0] = 0.3
    assert sim.contacts(state)[0][0].force == pytest.approx((0.0, 0.0, 0.0), abs=1e-9)
    qd = state.qd.clone().requires_grad_()
    after = sim.rollout(pb.State(state.q, qd), 20)
    assert (after.status.code == 0).all()
    torch.testing.assert_close(after.qd[-1], state.qd)
    after.q[-1].sum().backward()
    assert qd.grad is not None
    np.testing.assert_allclose(qd.grad.numpy(), 20e-3, rtol=1e-5)


def test_redundant_contacts_without_softness_have_a_gradient():
    """Eight corners between two boxes: which of them carries the load does not matter to where a push leads."""
    grads = []
    for cfm in (0.0, 1e-9):
        world = pb.World(contact=pb.PGS(cfm=cfm, iterations=300))
        world.add_ground(friction=0.5)
        for name, place in (("low", (0, 0, 0.05)), ("high", (0.05, 0.01, 0.15))):
            world.add_box(name, size=(0.3, 0.2, 0.1), mass=1.0, position=place)
        sim = world.compile(dt=1e-3, dtype=F64)
        state = sim.initial_state()
        qd = state.qd.clone()
        qd[:, 3] = 0.3
        qd.requires_grad_()
        after = sim.rollout(pb.State(state.q, qd), 2)
        assert (after.status.code == 0).all()
        after.q[-1, 0, 0].backward()
        assert qd.grad is not None
        grads.append(qd.grad.numpy())
    assert np.isfinite(grads[0]).all()
    np.testing.assert_allclose(grads[0], grads[1], atol=1e-6)

"""Contacts in directions in which nothing can move, and rows that others make up for."""

import numpy as np
import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64

SLIDER = '<joint name="slide" type="slide" axis="1 0 0"/>'
HINGED = '<joint name="turn" type="hinge" axis="0 0 1"/>'
BALL = """
<mujoco>
  <worldbody>
    <body name="cart" pos="0 0 0.099">
      {joint}
      <geom type="sphere" size="0.1" mass="1"/>
    </body>
  </worldbody>
</mujoco>
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("joint", [SLIDER, HINGED])
@pytest.mark.parametrize(
    ("cfm", "friction", "dtype"), [(0.0, "cone", F64), (0.0, "pyramid", F64), (1e-4, "cone", torch.float32)]
)
def test_what_cannot_leave_the_ground_is_not_pressed_against_it(tmp_path, joint, cfm, friction, dtype):
    """A cart on a rail that sinks into the ground by a millimetre: no impulse can lift it, none brakes it."""
    path = tmp_path / "robot.xml"
    path.write_text(BALL.format(joint=joint))
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
    """Four corners under each of two boxes: which of them carries the load does not matter to where a push leads."""

    def push(cfm: float, speed: torch.Tensor) -> torch.Tensor:
        world = pb.World(contact=pb.PGS(cfm=cfm, iterations=300))
        world.add_ground(friction=0.5)
        for k in range(2):
            world.add_box(f"box{k}", size=(0.3, 0.2, 0.1), mass=1.0, position=(0.05 * k, 0.01 * k, 0.05 + 0.1 * k))
        sim = world.compile(dt=1e-3, dtype=F64)
        state = sim.initial_state()
        qd = state.qd + speed * torch.eye(sim.nv, dtype=F64)[3]
        after = sim.rollout(pb.State(state.q, qd), 2)
        assert (after.status.code == 0).all()
        return after.q[-1, 0, 0]

    speed = torch.tensor(0.3, dtype=F64, requires_grad=True)
    slopes = [float(torch.autograd.grad(push(cfm, speed), speed)[0]) for cfm in (0.0, 1e-9)]
    assert slopes[0] == pytest.approx(slopes[1], abs=1e-6)
    with torch.no_grad():
        ends = [float(push(0.0, speed + h)) for h in (1e-6, -1e-6)]
    assert slopes[0] == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)

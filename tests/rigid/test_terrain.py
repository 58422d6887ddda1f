"""Height fields of MJCF files: against MuJoCo's contacts on a slope and on hills, gradients, a ball at rest."""

import mujoco
import numpy as np
import pytest
import torch

import pullback as pb
from tests.rigid.worlds import F64

N = 33
RADIUS = 0.1
X, Y = np.meshgrid(np.linspace(-1, 1, N), np.linspace(-0.5, 0.5, N), indexing="xy")  # rows along y
GROUNDS = {"slope": 0.2 + 0.15 * X + 0.1 * Y, "hills": 0.3 + 0.1 * np.sin(3.0 * X) * np.cos(4.0 * Y)}
# gap [m] and normal: a slope is the same to MuJoCo's float32 samples; on hills splines and triangles differ by h² / 8
AGREE = {"slope": (1e-6, 1e-6), "hills": (5e-4, 3e-2)}
PLACES = [(-0.51, 0.21), (0.13, -0.17), (0.37, 0.05), (-0.2, -0.33)]


def model_text(kind: str) -> str:
    heights = GROUNDS[kind]
    samples = (heights - heights.min()) / np.ptp(heights)
    # MuJoCo reads the first row as the far end of y
    rows = " ".join(f"{x:.9g}" for x in samples[::-1].ravel())
    place = f"0.1 -0.05 {heights.min():.12g}"
    return f"""<mujoco><asset><hfield name="ground" nrow="{N}" ncol="{N}" size="1 0.5 {np.ptp(heights):.12g} 0.1"
elevation="{rows}"/></asset><worldbody>
<geom name="terrain" type="hfield" hfield="ground" pos="{place}" friction="0.7 0.005 0.0001"/>
<body name="ball"><freejoint/><geom size="{RADIUS}" friction="0.3 0.005 0.0001" mass="1"/></body>
</worldbody></mujoco>"""


@pytest.fixture
def make(tmp_path):
    def made(kind: str) -> tuple[pb.RobotModel, pb.World]:
        path = tmp_path / f"{kind}.xml"
        path.write_text(model_text(kind))
        robot = pb.load(path, dtype=F64)
        world = pb.World()
        world.add(robot, name="ball")
        assert world.add_terrain(robot) == ["terrain"]
        return robot, world

    return made


def height_at(kind: str, x: float, y: float) -> float:
    """Return the ground below a place, to the nearest sample."""
    return float(GROUNDS[kind][np.abs(Y[:, 0] - (y + 0.05)).argmin(), np.abs(X[0] - (x - 0.1)).argmin()])


@pytest.mark.parametrize("kind", [*GROUNDS])
def test_contacts_are_mujocos(make, kind):
    _, world = make(kind)
    sim = world.compile(dt=1e-3, dtype=F64)
    model = mujoco.MjModel.from_xml_string(model_text(kind))
    data = mujoco.MjData(model)
    gap_error, normal_error = AGREE[kind]
    for x, y in PLACES:
        z = height_at(kind, x, y) + 0.95 * RADIUS
        data.qpos[:3] = x, y, z
        mujoco.mj_forward(model, data)
        # the ball may touch several triangles: the deepest is the one of a smooth ground
        deepest = min(data.contact, key=lambda contact: contact.dist)
        state = pb.State(torch.tensor([[x, y, z, 0, 0, 0, 1]], dtype=F64), torch.zeros(1, 6, dtype=F64))
        (found,) = sim.contacts(state)[0]
        assert set(found.shapes) == {"ball/ball/0", "terrain"}
        assert found.gap == pytest.approx(deepest.dist, abs=gap_error)
        upward = np.sign(deepest.frame[2]) * deepest.frame[:3]
        assert np.allclose(np.sign(found.normal[2]) * np.array(found.normal), upward, atol=normal_error)


def test_friction_is_the_files_unless_given(make):
    robot, world = make("slope")
    assert [float(shape.friction) for item in world.items for shape in item.shapes] == [0.3, 0.7]
    other = pb.World()
    assert other.add_terrain(robot, friction=0.2) == ["terrain"]
    assert float(other.items[0].shapes[0].friction) == 0.2


def test_a_ball_comes_to_rest_in_a_valley_with_gradients(make):
    _, world = make("hills")
    sim = world.compile(dt=5e-3, dtype=F64)
    start = sim.initial_state()
    q = start.q.clone()
    q[:, :3] = torch.tensor([-0.42, -0.05, 0.5], dtype=F64)
    q.requires_grad_()
    end = sim.rollout(pb.State(q, start.qd), 60)[-1]
    (gradient,) = torch.autograd.grad(end.q[0, 0], q)
    ends = []
    for sign in (1.0, -1.0):
        moved = q.detach().clone()
        moved[0, 0] += sign * 1e-6
        ends.append(float(sim.rollout(pb.State(moved, start.qd), 60).q[-1, 0, 0]))
    assert float(gradient[0, 0]) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4)
    # above the lowest ground: sin(3 x) = -1 where x = -pi / 6 of the field
    assert float(end.q[0, 2]) == pytest.approx(0.2 + RADIUS, abs=0.02)

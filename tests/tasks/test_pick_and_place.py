"""The task pick-and-place: the gradient through the grasp turns a miss into a block that stands where it should."""

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.tasks.common.knots import knots_at
from pullback.tasks.pick_and_place import (
    DT,
    FINGERS,
    MOMENTS,
    Options,
    Task,
    build,
    draw_scenes,
    gripper,
    run,
)


@pytest.fixture(scope="module")
def sim():
    return build().compile(dt=DT, dtype=torch.float64)


def test_a_slow_arm_places_by_inverse_kinematics_alone_and_a_fast_one_misses(sim):
    scenes = draw_scenes(2, 0, "cpu")
    slow, fast = Task(sim, scenes, 3.5), Task(sim, scenes, 1.75)
    assert slow.judge(*slow.watch(slow.first_knots())).placed.all()
    missed = fast.judge(*fast.watch(fast.first_knots()))
    assert not missed.placed.any()
    assert missed.distance.min() > 0.1
    assert missed.lifted.max() < 0.05


def test_the_fingers_carry_the_block_by_friction(sim):
    task = Task(sim, draw_scenes(1, 0, "cpu"), 3.5)
    motion, controls = task.watch(task.first_knots())
    # half way, above the table
    t = round(0.55 * task.steps)
    contacts = sim.contacts(motion[t], controls[t])[0]
    touching = {
        shape.split("/")[1] for c in contacts if "block" in c.shapes and abs(c.force[2]) for shape in c.shapes[:1]
    }
    assert touching == set(FINGERS)
    upward = sum(-c.force[2] for c in contacts if "block" in c.shapes)
    assert upward == pytest.approx(0.1 * 9.81, abs=0.7)
    assert motion.q[t, 0, 11] > 0.1


def test_learning_moves_the_block_to_its_goal(tmp_path, capsys):
    found = run(Options(scenes=1, epochs=25, generations=0, out=tmp_path))
    assert not found.before.placed.any()
    assert found.found.losses.nan_to_num(nan=torch.inf).min() < 0.2 * found.found.losses[0, 0]
    assert found.after.lifted.item() > 0.08
    assert found.after.distance.item() < 0.02
    assert found.after.angle.item() < 10.0
    assert found.after.width.item() > 0.035
    assert "blocks placed after 25 epochs" in capsys.readouterr().out
    saved = np.load(tmp_path / "pick_and_place.npz")
    assert saved["u"].shape[1] == 8
    assert len(saved["q"]) == len(saved["u"]) + 1
    assert (tmp_path / "pick_and_place.png").read_bytes().startswith(b"\x89PNG")


def test_targets_pass_through_the_knots():
    between = knots_at(1000, MOMENTS)
    torch.testing.assert_close(between.sum(1), torch.ones(1000, dtype=torch.float64))
    values = torch.arange(len(MOMENTS), dtype=torch.float64)
    for knot, moment in enumerate(MOMENTS[:-1]):
        assert (between @ values)[round(1000 * moment)].item() == pytest.approx(knot, abs=1e-6)


def test_the_right_finger_follows_the_left_through_the_grasp(sim):
    task = Task(sim, draw_scenes(1, 0, "cpu"), 3.5)
    motion, _ = task.watch(task.first_knots())
    # the hand opens and closes, and holds a block between
    assert motion.q[:, 0, 7].amax() - motion.q[:, 0, 7].amin() > 0.015
    assert (motion.q[..., 7] - motion.q[..., 8]).abs().max() < 1e-6


def test_the_gradient_passes_through_the_grip(sim):
    task = Task(sim, draw_scenes(1, 0, "cpu"), 3.5)
    controls = task.controls(task.first_knots()).detach()
    grip, lift = round(0.35 * task.steps), round(0.38 * task.steps)
    with torch.no_grad():
        held = sim.rollout(task.state, controls[:grip])[-1]

    def height(change: torch.Tensor) -> torch.Tensor:
        """Return how high [m] the block is carried by friction, for a change of the servos' targets."""
        return sim.rollout(held, controls[grip:lift] + change).q[-1, 0, 11]

    change = torch.zeros(8, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(height(change), change)
    # bending the elbow raises the hand, and with it the block
    along = torch.tensor([0.0, -1.0, 0.0, 0.5, 0.0, 0.3, 0.0, -0.01], dtype=torch.float64)
    with torch.no_grad():
        difference = (height(1e-6 * along) - height(-1e-6 * along)) / 2e-6
    assert float(gradient @ along) > 0.05
    assert float(gradient @ along) == pytest.approx(float(difference), rel=1e-4)


def test_both_fingers_move_and_touch_with_their_tips():
    robot = gripper()
    assert (robot.nv, robot.model.nv_all) == (8, 9)
    shapes = {link.name: len(link.shapes) for link in robot.model.links}
    assert [shapes[name] for name in FINGERS] == [1, 1]


@pytest.mark.parametrize(("name", "value"), [("scenes", 0), ("epochs", 0), ("duration", 0.1), ("generations", -1)])
def test_what_cannot_be_placed_is_refused(name, value):
    with pytest.raises(pb.PullbackError, match=rf"{name} is {value}; give at least"):
        run(Options(**{name: value}))

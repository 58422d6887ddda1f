"""Tasks solved through contact by iLQR: short versions end well where the first guess does not; judges are strict."""

from math import pi, radians, sqrt

import pytest
import torch

import pullback as pb
from pullback.control.ilqr.iterate import SPREAD
from pullback.tasks import open_door, pivot_box, push_to_pose
from pullback.tasks.common.contact_rich import optimize


def test_a_box_is_pushed_to_its_pose_and_files_are_written(tmp_path, capsys):
    options = push_to_pose.Options(starts=2, bearing=8.0, turn=8.0, iterations=25, generations=3, out=tmp_path / "new")
    found = push_to_pose.run(options)
    assert found.successes == 2
    assert not found.guess_success.any()
    assert (found.search.costs[-1] < 0.05 * found.search.costs[0]).all()
    # simulated once more, the controls do what is reported
    sim = push_to_pose.build(pb.PGS()).compile(dt=push_to_pose.DT, dtype=torch.float64)
    again = sim.rollout(push_to_pose.random_starts(sim, options), found.controls)
    torch.testing.assert_close(again.q, found.motion.q, rtol=0.0, atol=0.0)
    assert found.baseline is not None
    assert len(found.baseline.curve) == 3
    text = capsys.readouterr().out
    assert "2 of 2 starts end well" in text
    for name in ("push_to_pose.npz", "push_to_pose.png"):
        assert (tmp_path / "new" / name).stat().st_size > 1000


def test_a_box_is_set_upright_against_the_wall():
    options = pivot_box.Options(starts=4, iterations=14, retries=1)
    found = optimize(pivot_box.scene(options), options)
    assert not found.guess_success.any()
    assert found.successes == 4
    assert (found.search.costs[-1] < 0.3 * found.search.costs[0]).all()


def test_a_door_opens():
    options = open_door.Options(starts=1, iterations=10, angle=25.0)
    found = optimize(open_door.scene(options), options)
    assert not found.guess_success.any()
    assert found.successes == 1
    # it was pulled by a finger
    scene, moment = open_door.scene(options), 70
    touching = scene.sim.contacts(found.motion[moment], found.controls[moment])[0]
    assert any("finger" in contact.shapes[1] for contact in touching)


def test_the_best_of_several_steps_never_raises_the_cost():
    options = push_to_pose.Options(starts=2, seed=3)
    scene = push_to_pose.scene(options)
    problem = scene.pose(scene.sim, scene.start, scene.guess)
    rows = pb.control.ilqr(problem, scene.guess, iterations=4, regularization=1e-3, search="best").table.rows
    costs = torch.stack([torch.as_tensor(row.cost) for row in rows])
    assert (costs.diff(dim=0) <= 0.0).all()
    assert (costs[-1] < costs[0]).all()
    steps = {float(step) for row in rows for step in row.step}
    assert steps <= {0.0, *SPREAD}
    with pytest.raises(pb.PullbackError, match="search is 'nearest'; choose 'longest' or 'best'"):
        pb.control.ilqr(problem, scene.guess, search="nearest")


@pytest.mark.parametrize(
    ("q", "speed", "good"),
    [
        ((0.005, 0.005, 0.0), 0.0, True),
        ((0.008, 0.008, 0.0), 0.0, False),
        ((0.0, 0.0, 4.0), 0.0, False),
        ((0.0, 0.0, -2.0), 0.0, True),
        ((0.0, 0.0, 0.0), 0.05, False),
    ],
)
def test_a_pose_is_judged_by_distance_angle_and_rest(q, speed, good):
    x, y, turn = q
    half = 0.5 * radians(turn)
    angle = torch.tensor([half], dtype=torch.float64)
    place = torch.tensor([[0.3, 0.0, x, y, 0.04, 0.0, 0.0, angle.sin(), angle.cos()]], dtype=torch.float64)
    qd = torch.zeros(1, 8, dtype=torch.float64)
    qd[0, 5] = speed
    assert push_to_pose.judge(pb.State(place, qd))[0].tolist() == [good]


def test_upright_and_open_are_judged_in_degrees():
    def lifted(degrees):
        half = 0.5 * radians(degrees)
        q = torch.zeros(1, 9, dtype=torch.float64)
        q[0, 6], q[0, 8] = -torch.tensor(half).sin(), torch.tensor(half).cos()
        return pb.State(q, torch.zeros(1, 8, dtype=torch.float64))

    assert [bool(pivot_box.judge(lifted(x))[0]) for x in (84.0, 86.0, 94.0, 96.0)] == [False, True, True, False]
    for degrees, good in ((41.0, False), (43.0, True), (49.0, False)):
        q = torch.zeros(1, 8, dtype=torch.float64)
        q[0, 7] = radians(degrees)
        assert bool(open_door.judge(pb.State(q, torch.zeros_like(q)), pi / 4)[0]) is good


def test_the_handle_is_where_the_door_has_it():
    door = pb.load(open_door.door(), dtype=torch.float64)
    angle = torch.tensor([0.0, 0.3, 0.9], dtype=torch.float64)
    position, quat = door.compute_forward_kinematics(angle[:, None], "panel")
    bar = torch.tensor([-open_door.STANDOFF, -open_door.REACH, open_door.BAR_HEIGHT], dtype=torch.float64)
    turn = -2.0 * torch.atan2(quat[:, 2], quat[:, 3])
    torch.testing.assert_close(turn, angle)
    x = turn.cos() * bar[0] + turn.sin() * bar[1]
    y = -turn.sin() * bar[0] + turn.cos() * bar[1]
    hinge = torch.tensor([*open_door.HINGE, 0.0], dtype=torch.float64)
    torch.testing.assert_close(open_door.handle(angle), position + hinge + torch.stack([x, y, 0 * x + bar[2]], -1))


def test_at_rest_the_ground_carries_the_box():
    sim = push_to_pose.build(pb.PGS()).compile(dt=push_to_pose.DT, dtype=torch.float64)
    forces = [c.force for c in sim.contacts(sim.initial_state())[0] if "ground" in c.shapes]
    assert len(forces) == 4
    assert sum(force[2] for force in forces) == pytest.approx(9.81 * push_to_pose.MASS, rel=1e-6)


@pytest.mark.parametrize(("name", "value"), [("starts", 0), ("iterations", 0), ("generations", -1)])
def test_what_cannot_be_solved_is_refused(name, value):
    for task in (push_to_pose, pivot_box, open_door):
        with pytest.raises(pb.PullbackError, match=rf"{name} is {value}; give at least"):
            task.run(task.Options(**{name: value}))
    with pytest.raises(pb.PullbackError, match="angle is 80 degrees; give more than ajar"):
        open_door.run(open_door.Options(angle=80.0))


def test_the_wall_faces_the_box():
    world = pivot_box.build(pb.PGS())
    sim = world.compile(dt=pivot_box.DT, dtype=torch.float64)
    start = sim.initial_state()
    start.qd[:, 5] = -1.0  # towards the wall
    after = sim.rollout(start, 20)[-1]
    assert after.q[0, 2].item() == pytest.approx(0.5 * pivot_box.LENGTH, abs=1e-3)
    assert sqrt(after.q[0, 3].item() ** 2) < 1e-3

"""Crocoddyl's public arm problem: the same cost, iteration by iteration (arm_manipulation_optctrl of its benchmark)."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.control import ControlCost, FramePose, Problem, StateCost
from pullback.control.ilqr.ilqr import ilqr
from tests.control.scenes import load_urdf

crocoddyl = pytest.importorskip("crocoddyl")
pinocchio = pytest.importorskip("pinocchio")
example_robot_data = pytest.importorskip("example_robot_data")

REAL = torch.float64
STEPS, DT = 100, 1e-3
START = np.array([0.173046, 1.0, -0.52366, 0.0, 0.0, 0.1, -0.005])
GOAL = np.array([0.0, 0.0, 0.4])


def solve_theirs(model):
    state = crocoddyl.StateMultibody(model)
    actuation = crocoddyl.ActuationModelFull(state)
    frame = model.getFrameId("gripper_left_joint")
    pose = crocoddyl.ResidualModelFramePlacement(state, frame, pinocchio.SE3(np.eye(3), GOAL), model.nv)

    def node(*terms):
        costs = crocoddyl.CostModelSum(state, model.nv)
        for number, (residual, weight) in enumerate(terms):
            costs.addCost(str(number), crocoddyl.CostModelResidual(state, residual), weight)
        dynamics = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, actuation, costs)
        dynamics.armature = np.full(7, 0.1)
        return crocoddyl.IntegratedActionModelEuler(dynamics, DT)

    rest = crocoddyl.ResidualModelState(state, state.zero(), model.nv)
    effort = crocoddyl.ResidualModelControl(state, model.nv)
    running, terminal = node((pose, 1.0), (rest, 1e-4), (effort, 1e-4)), node((pose, 1.0))
    problem = crocoddyl.ShootingProblem(np.concatenate([START, np.zeros(7)]), [running] * STEPS, terminal)
    solver = crocoddyl.SolverFDDP(problem)
    log = crocoddyl.CallbackLogger()
    solver.setCallbacks([log])
    solver.solve([], [], 10, False, 0.1)
    return solver, log


def our_problem(robot):
    """The same arm: fingers that follow others are fixed, and rotors add to the armature."""
    text = Path(robot.urdf).read_text(encoding="utf-8")
    text = re.sub(r"<joint .*?</joint>", fix_mimic, text, flags=re.S)
    inside = re.search(r"<robot[^>]*>(.*)</robot>", re.sub(r"<dynamics[^>]*/>", "", text), re.S)
    arm = load_urdf(re.sub(r"<(visual|collision|gazebo|transmission).*?</\1>", "", inside[1], flags=re.S))
    for body, rotor in zip(arm.model.bodies, robot.model.armature):
        arm.set_link_param(body.joint.child, "joint_armature", torch.tensor(0.1 + rotor, dtype=REAL))
    world = pb.World()
    world.add(arm, name="arm", actuators=pb.Torque(limit=float("inf")))
    sim = world.compile(dt=DT, dtype=REAL, without=["limits", "friction"])
    state = pb.State(torch.from_numpy(START)[None], torch.zeros(1, 7, dtype=REAL))
    zero = pb.State(torch.zeros(7, dtype=REAL), torch.zeros(7, dtype=REAL))
    pose = FramePose("arm/gripper_left_motor_double_link", GOAL, (0, 0, 0, 1), residual="screw")
    return Problem(sim, state, STEPS, DT * (pose + 1e-4 * (StateCost(zero) + ControlCost())), pose)


def fix_mimic(joint):
    return re.sub(r'type="\w+"', 'type="fixed"', joint[0], count=1) if "<mimic" in joint[0] else joint[0]


@pytest.mark.filterwarnings("ignore")
def test_same_cost_after_ten_iterations():
    robot = example_robot_data.load("talos_arm")
    theirs, log = solve_theirs(robot.model)
    zeros = torch.zeros(STEPS + 1, 1, 7, dtype=REAL)
    ours = ilqr(our_problem(robot), states=pb.State(zeros, zeros), iterations=10, regularization=0.1)
    assert ours.cost.item() == pytest.approx(theirs.cost, rel=1e-3)
    # the same way there, and the same gains at its end
    assert [row.step.item() for row in ours.table.rows] == list(log.steps)[-10:]
    costs = [row.cost.item() for row in ours.table.rows]
    assert costs[1:] == pytest.approx(list(log.costs)[-9:], rel=1e-3)

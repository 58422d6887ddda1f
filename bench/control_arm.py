"""Crocoddyl's public arm problem by `pb.control.ilqr` and by Crocoddyl, in one run: `python -m bench.control_arm`.

The left arm of Talos, seven joints with an armature of 0.1, reaches for a pose within 100 steps of 1 ms: weights 1 for
the pose, 1e-4 for state and torques, and the pose again at the end (arm_manipulation_optctrl.py of its benchmark).
Both start with the arm held in its first state and torques of zero, from a regularisation of 0.1, on one thread in
float64, and take turns. First both are shown to have the same problem: accelerations, pose, cost.

Options: `--quick` for a fast look; `--gpu` for 1,024 problems from other first states as one batch on a GPU in float32,
against one of them on a CPU core; `--parts` for where the time of an iteration goes.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pullback as pb
from bench.timing import time_in_turns

STEPS, DT, ITERATIONS = 100, 1e-3, 10
ARMATURE, REGULARIZATION = 0.1, 0.1
LINK = "gripper_left_motor_double_link"
MOVING = (*(f"arm_left_{k}_link" for k in range(2, 8)), LINK)
FRAME = "gripper_left_joint"
POSE = (0.0, 0.0, 0.4)
START = (0.173046, 1.0, -0.52366, 0.0, 0.0, 0.1, -0.005)
WEIGHTS = {"pose": 1.0, "state": 1e-4, "control": 1e-4}
BARS = {"cost": 0.01, "time": 1.5, "batch": 20.0}
PROBLEMS = 1024


# -- the problem, twice ----------------------------------------------------------------------------------------------


def arm_file() -> str:
    """Return the path of the arm's URDF."""
    data: Any = import_module("example_robot_data")
    return data.load_full("talos_arm")[2]


def ours(path: str, problems: int = 1, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Any:
    """Return the problem for `pb.control.ilqr`; several start from states that are moved at random."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arm = pb.load(path, base="fixed", dtype=dtype, device=device)
    for link in MOVING:
        arm.set_link_param(link, "joint_armature", ARMATURE)
        arm.set_link_param(link, "joint_damping", 0.0)
    world = pb.World()
    motor = pb.Torque(limit=1e9)
    world.add(arm, name="arm", actuators=motor)
    sim = world.compile(dt=DT, dtype=dtype, device=device, without=["contacts", "limits", "friction"])
    generator = torch.Generator().manual_seed(0)
    q = torch.tensor(START, dtype=torch.float64).repeat(problems, 1)
    if problems > 1:
        q += 0.1 * torch.randn(q.shape, generator=generator, dtype=torch.float64)
    q = q.to(device=device, dtype=dtype)
    control = pb.control
    pose = control.FramePose(
        f"arm/{LINK}", position=POSE, orientation=(0.0, 0.0, 0.0, 1.0), weights=WEIGHTS["pose"], residual="screw"
    )
    rest = pb.State(torch.zeros_like(q[:1]), torch.zeros_like(q[:1]))
    running = pose + control.StateCost(rest, WEIGHTS["state"]) + control.ControlCost(WEIGHTS["control"])
    return control.Problem(sim, pb.State(q, torch.zeros_like(q)), STEPS, DT * running, pose)


def theirs(path: str) -> tuple[Any, Any]:
    """Return Crocoddyl's problem and its solver, one thread."""
    crocoddyl: Any = import_module("crocoddyl")
    pinocchio: Any = import_module("pinocchio")
    model = pinocchio.buildModelFromUrdf(path)
    state = crocoddyl.StateMultibody(model)
    placement = pinocchio.SE3(np.eye(3), np.array(POSE))
    nu = model.nv
    pose = crocoddyl.ResidualModelFramePlacement(state, model.getFrameId(FRAME), placement, nu)
    residuals = {
        "pose": pose,
        "state": crocoddyl.ResidualModelState(state, state.zero(), nu),
        "control": crocoddyl.ResidualModelControl(state, nu),
    }

    def model_of(names: tuple[str, ...]) -> Any:
        cost = crocoddyl.CostModelSum(state, nu)
        for name in names:
            cost.addCost(name, crocoddyl.CostModelResidual(state, residuals[name]), WEIGHTS[name])
        free = crocoddyl.DifferentialActionModelFreeFwdDynamics(state, crocoddyl.ActuationModelFull(state), cost)
        free.armature = np.full(nu, ARMATURE)
        return crocoddyl.IntegratedActionModelEuler(free, DT)

    x0 = np.concatenate([np.array(START), np.zeros(nu)])
    problem = crocoddyl.ShootingProblem(x0, [model_of(tuple(WEIGHTS))] * STEPS, model_of(("pose",)))
    problem.nthreads = 1
    return problem, crocoddyl.SolverFDDP(problem)


def differences(mine: Any, peer: Any) -> dict[str, float]:
    """Return how far the two problems are from each other: a step, the pose, the cost of a random motion."""
    rng = np.random.default_rng(0)
    x = 0.3 * rng.standard_normal((STEPS + 1, 14))
    x[0] = np.concatenate([np.array(START), np.zeros(7)])
    u = rng.standard_normal((STEPS, 7))
    cost = peer.calc(list(x), list(u))
    steps = np.array([data.xnext for data in peer.runningDatas])
    states = pb.State(torch.from_numpy(x[:, :7].copy()), torch.from_numpy(x[:, 7:].copy()))
    found = mine.sim.step(pb.State(states.q[:-1], states.qd[:-1]), torch.from_numpy(u))
    motion = pb.Trajectory(states.q[:, None], states.qd[:, None], found.status, torch.arange(STEPS + 1))
    our_cost = mine.cost(motion, torch.from_numpy(u)[:, None])
    return {
        "step": float(np.abs(torch.cat([found.q, found.qd], 1).numpy() - steps).max()),
        "cost, relative": abs(float(our_cost) - cost) / abs(cost),
    }


# -- solving ---------------------------------------------------------------------------------------------------------


def held(problem: Any) -> pb.Trajectory:
    """Return the first guess: every state the first one."""
    q, qd = (x.expand(STEPS + 1, -1, -1).contiguous() for x in (problem.state.q, problem.state.qd))
    return pb.Trajectory(q, qd, problem.sim.rollout(problem.state, 1).status, torch.arange(STEPS + 1))


def solve_ours(problem: Any) -> Callable[[], Any]:
    """Return a call that does ITERATIONS iterations."""
    states = held(problem)
    options = {"iterations": ITERATIONS, "regularization": REGULARIZATION, "tolerance": 0.0, "gains": False}
    return lambda: pb.control.ilqr(problem, states=states, **options)


def solve_theirs(problem: Any, solver: Any) -> Callable[[], Any]:
    """Return a call that does ITERATIONS iterations."""
    xs, us = [np.array(problem.x0)] * (STEPS + 1), [np.zeros(7)] * STEPS
    return lambda: solver.solve(xs, us, ITERATIONS, False, REGULARIZATION)


def side_by_side(rounds: int) -> dict[str, float]:
    """Return costs and times of both on one thread."""
    path = arm_file()
    mine = ours(path)
    peer, solver = theirs(path)
    figures = {f"difference of the {name}": value for name, value in differences(mine, peer).items()}
    solve, solve_peer = solve_ours(mine), solve_theirs(peer, solver)
    result = solve()
    solve_peer()
    taken = time_in_turns({"ours": solve, "theirs": solve_peer}, rounds=rounds)
    figures["cost, ours"], figures["cost, Crocoddyl"] = float(result.cost), float(solver.cost)
    figures["ms an iteration, ours"] = 1e3 * taken["ours"] / ITERATIONS
    figures["ms an iteration, Crocoddyl"] = 1e3 * taken["theirs"] / ITERATIONS
    figures["times Crocoddyl"] = taken["ours"] / taken["theirs"]
    return figures


def parts(rounds: int) -> dict[str, float]:
    """Return what the parts of an iteration take [us], ours and Crocoddyl's."""
    from pullback.control.ilqr import approximate, best_policy
    from pullback.control.iterate import first_iterate, line_search

    path = arm_file()
    mine = ours(path)
    peer, solver = theirs(path)
    here = first_iterate(mine, torch.zeros(STEPS, 1, 7, dtype=torch.float64), None)
    A, B, cost = approximate(mine, here, "gauss_newton")
    damping, live = torch.full_like(here.cost, 1e-9), torch.ones_like(here.cost, dtype=torch.bool)
    policy, _ = best_policy(mine, here, A, B, cost, damping, live)
    solve_theirs(peer, solver)()
    xs, us = solver.xs.tolist(), solver.us.tolist()
    calls = {
        "linearize": lambda: mine.sim.linearize(here.states, here.controls),
        "derivatives of the cost": lambda: mine.expand(here.states, here.controls),
        "cost": lambda: mine.cost(here.states, here.controls),
        "backward pass": lambda: best_policy(mine, here, A, B, cost, damping, live),
        "feedback rollout": lambda: mine.sim.feedback_rollout(here.states[0], here.controls, policy.K, here.states),
        "line search": lambda: line_search(mine, here, policy, live),
        "Crocoddyl: calc": lambda: peer.calc(xs, us),
        "Crocoddyl: calcDiff": lambda: peer.calcDiff(xs, us),
        "Crocoddyl: backward pass": solver.backwardPass,
        "Crocoddyl: forward pass": lambda: solver.forwardPass(1.0),
    }
    return {f"{name} [us]": 1e6 * taken for name, taken in time_in_turns(calls, rounds=rounds).items()}


def batch_on_gpu(rounds: int) -> dict[str, float]:
    """Return times [s] of PROBLEMS problems on a GPU and of one on a CPU core."""
    path = arm_file()
    single = solve_ours(ours(path))
    many = solve_ours(ours(path, PROBLEMS, torch.float32, "cuda"))
    result, alone = many(), single()
    taken = time_in_turns({"one": single, "many": many}, rounds=rounds)
    return {
        "s for 10 iterations of one problem on a CPU core": taken["one"],
        f"s for 10 iterations of {PROBLEMS} problems on a GPU": taken["many"],
        "times one on a CPU core": taken["many"] / taken["one"],
        "median cost on the GPU": float(result.cost.median()),
        "cost of the one": float(alone.cost),
    }


def main() -> None:
    """Print the figures; write them to out/bench_control_arm.json."""
    torch.set_num_threads(1)
    rounds = 3 if "--quick" in sys.argv else 15
    task = batch_on_gpu if "--gpu" in sys.argv else parts if "--parts" in sys.argv else side_by_side
    figures = task(rounds)
    for name, value in figures.items():
        print(f"{name:55s} {value:.6g}")
    out = Path("out")
    out.mkdir(exist_ok=True)
    (out / f"bench_control_arm_{task.__name__}.json").write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()

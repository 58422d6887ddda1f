"""Crocoddyl's public arm problem by `pb.control.ilqr` and by Crocoddyl, in one run: `python -m bench.control arm`.

The left arm of Talos, seven joints, six with an armature of 0.1, reaches for a pose within 100 steps of 1 ms: weights 1
for the pose, 1e-4 for state and torques, and the pose again at the end. Both start with the arm held in its first state
by the torques that hold it, from a regularisation of 0.1, as arm_manipulation_optctrl.py of Crocoddyl's benchmark does
(its log: cost 1.286, then 0.212 after 10 iterations), on one thread in float64, and take turns. First both are shown to
have the same problem: steps, cost, torques.

On a GPU: 1,024 problems from other first states as one batch in float32, against one of them on a CPU core. The arm's
file may be named, where example-robot-data is not installed: `--urdf PATH`.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pullback as pb
from bench.robot import Rows, verdict
from bench.timing import time_in_turns

STEPS, DT, ITERATIONS = 100, 1e-3, 10
ARMATURES, REGULARIZATION = (*(0.1,) * 6, 0.0), 0.1
LINK = "gripper_left_motor_double_link"
MOVING = (*(f"arm_left_{k}_link" for k in range(2, 8)), LINK)
FRAME = "gripper_left_joint"
POSE = (0.0, 0.0, 0.4)
START = (0.173046, 1.0, -0.52366, 0.0, 0.0, 0.1, -0.005)
WEIGHTS = {"pose": 1.0, "state": 1e-4, "control": 1e-4}
ONE = "s for 10 iterations of one problem on a CPU core"
PROBLEMS = 1024


# -- the problem, twice ----------------------------------------------------------------------------------------------


def arm_file() -> str:
    """Return the path of the arm's URDF, which may be given."""
    if "--urdf" in sys.argv:
        return sys.argv[sys.argv.index("--urdf") + 1]
    data: Any = import_module("example_robot_data")
    return data.load_full("talos_arm")[2]


def ours(path: str, problems: int = 1, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Any:
    """Return the problem for `pb.control.ilqr`; several start from states that are moved at random."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arm = pb.load(path, base="fixed", dtype=dtype, device=device)
    for link, armature in zip(MOVING, ARMATURES):
        arm.set_link_param(link, "joint_armature", armature)
        arm.set_link_param(link, "joint_damping", 0.0)
    world = pb.World()
    motor = pb.Torque(limit=1e9)
    world.add(arm, name="arm", actuators=motor, collision_links=[])
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
        free.armature = np.array(ARMATURES)
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
    torques = peer.quasiStatic([x[0]] * STEPS)  # kept: its entries are views
    our_cost = mine.cost(motion, torch.from_numpy(u)[:, None])
    return {
        "step": float(np.abs(torch.cat([found.q, found.qd], 1).numpy() - steps).max()),
        "cost, relative": abs(float(our_cost) - cost) / abs(cost),
        "torques": float(np.abs(held(mine)[0][0, 0].numpy() - torques[0]).max()),
    }


# -- solving ---------------------------------------------------------------------------------------------------------


def held(problem: Any) -> tuple[torch.Tensor, pb.Trajectory]:
    """Return the first guess: every state the first one, and the torques that hold the arm there."""
    state, arm = problem.state, problem.sim.world.items[0].robot
    torques = arm.compute_inverse_dynamics(state.q, state.qd, torch.zeros_like(state.qd)).detach()
    q, qd = (x.expand(STEPS + 1, -1, -1).contiguous() for x in (state.q, state.qd))
    status = problem.sim.rollout(state, 1).status
    return torques.expand(STEPS, -1, -1).contiguous(), pb.Trajectory(q, qd, status, torch.arange(STEPS + 1))


def solve_ours(problem: Any) -> Callable[[], Any]:
    """Return a call that does ITERATIONS iterations."""
    controls, states = held(problem)
    options = {"iterations": ITERATIONS, "regularization": REGULARIZATION, "tolerance": 0.0, "gains": False}
    return lambda: pb.control.ilqr(problem, controls, states, **options)


def solve_theirs(problem: Any, solver: Any) -> Callable[[], Any]:
    """Return a call that does ITERATIONS iterations."""
    xs = [np.array(problem.x0)] * (STEPS + 1)
    us = problem.quasiStatic(xs[:-1])
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
    from pullback.control.ilqr.riccati import backward_pass

    path = arm_file()
    mine = ours(path)
    peer, solver = theirs(path)
    sim, start = mine.sim, mine.state
    controls, _ = held(mine)
    states = sim.rollout(start, controls)
    A, B, _ = sim.linearize(states, controls)
    damping = torch.full((1,), REGULARIZATION, dtype=torch.float64)
    backward = (A, B, torch.zeros_like(A[..., 0]), mine.expand(states, controls), controls, None, None, damping)
    gains = backward_pass(*backward).K
    solve_theirs(peer, solver)()
    xs, us = solver.xs.tolist(), solver.us.tolist()
    calls = {
        "linearize": lambda: sim.linearize(states, controls),
        "derivatives of the cost": lambda: mine.expand(states, controls),
        "cost": lambda: mine.cost(states, controls),
        "backward pass": lambda: backward_pass(*backward),
        "feedback rollout": lambda: sim.feedback_rollout(start, controls, gains, states),
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
        ONE: taken["one"],
        f"s for 10 iterations of {PROBLEMS} problems on a GPU": taken["many"],
        "times one on a CPU core": taken["many"] / taken["one"],
        "median cost on the GPU": float(result.cost.median()),
        "cost of the one": float(alone.cost),
    }


def draw(ours_taken: float, theirs_taken: float, path: Path) -> Path:
    """Draw what both cost after each iteration, by iteration and by time [s] of ITERATIONS of them; return the file."""
    from matplotlib.figure import Figure

    file = arm_file()
    mine = ours(file)
    peer, solver = theirs(file)
    result = solve_ours(mine)()
    log = import_module("crocoddyl").CallbackLogger()
    solver.setCallbacks([log])
    solve_theirs(peer, solver)()
    curves = {
        "pb.control.ilqr": (np.array([float(row.cost[0]) for row in result.table.rows]), ours_taken),
        "Crocoddyl, FDDP": (np.array(log.costs)[-ITERATIONS:], theirs_taken),
    }
    figure = Figure(figsize=(10, 4), layout="constrained")
    for axis, by_time in zip(figure.subplots(1, 2), (False, True)):
        for (name, (costs, taken)), style in zip(curves.items(), ("o-", "x--")):
            share = np.arange(1, len(costs) + 1)
            axis.plot(1e3 * taken * share / ITERATIONS if by_time else share, costs, style, label=name)
        axis.set(xlabel="wall-clock [ms]" if by_time else "iteration", ylabel="cost", yscale="log")
        axis.grid(alpha=0.3, which="both")
        axis.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path


def measure(*, quick: bool = False) -> tuple[Rows, dict[str, float]]:
    """Compare with Crocoddyl; where there is a GPU, also many problems with one."""
    rounds = 3 if quick else 15
    figures = side_by_side(rounds)
    cost, peer = figures["cost, ours"], figures["cost, Crocoddyl"]
    ms, peer_ms = figures["ms an iteration, ours"], figures["ms an iteration, Crocoddyl"]
    draw(1e-3 * ITERATIONS * ms, 1e-3 * ITERATIONS * peer_ms, Path("out/arm.png"))
    off, ratio = abs(cost / peer - 1.0), figures["times Crocoddyl"]
    rows: Rows = [
        ("arm: cost after 10 iterations", f"{cost:.6f}", f"Crocoddyl {peer:.6f}", f"1 % {verdict(off <= 0.01)}"),
        (
            "arm: an iteration",
            f"{ms:.2f} ms",
            f"Crocoddyl {peer_ms:.2f} ms",
            f"{ratio:.2f}x (1.5x) {verdict(ratio <= 1.5)}",
        ),
    ]
    if torch.cuda.is_available():
        more, found = measure_batch(quick=quick)
        rows += more
        figures |= found
    return rows, figures


def measure_batch(*, quick: bool = False) -> tuple[Rows, dict[str, float]]:
    """Compare many problems as one batch on a GPU with one on a CPU core."""
    figures = batch_on_gpu(3 if quick else 15)
    times = figures["times one on a CPU core"]
    what = f"arm: {PROBLEMS:,} problems on a GPU, 10 iterations"
    seconds, one = (figures[name] for name in (f"s for 10 iterations of {PROBLEMS} problems on a GPU", ONE))
    return [
        (what, f"{seconds:.3f} s", f"one on a CPU core {one:.3f} s", f"{times:.1f}x (20x) {verdict(times <= 20)}")
    ], figures

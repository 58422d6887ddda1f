"""Throw a ball with a 9-DoF Panda so that it ends at a target: gradients compared with CMA-ES.

The arm holds the ball in its two fingers, which open half a second in; at the end the ball must be at the target.
The variables are seven torques in every step, 3,150 in all, added to gravity compensation at the start pose and to
joint impedance control, as such arms are run. Torques are bounded. The loss is the squared distance at the end, the
gradient method L-BFGS, of which every trial counts as an iteration.

`--variant released` takes the numbers of the experiment in the code of Qiao et al. (ICML 2021): 1,000 steps of 10 ms,
gravity of 1/980 m/s² (near weightlessness, almost certainly a slip), every link's rotational inertia 0.1 kg·m² and the
ball's 1, friction 2, no force on the fingers, joints 6 and 7 kept within ±0.1 rad, torques that start as noise of
0.03 N·m, Adam with 1e-3, and the root mean square of the miss as loss. Different here: contact is solved by our engine,
limits are stops and not clamped coordinates, the ball sits midway between the fingers, the hand's mass is that of the
real one, and the fingers weigh 0.1 kg.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from rich.console import Console

from pullback.core.device import find_device
from pullback.description.assets.panda import LINKS as BARE_LINKS
from pullback.description.assets.rows import box, sphere
from pullback.description.load import read
from pullback.description.tree import Limits, Link, Tree
from pullback.rigid.sim import Sim
from pullback.rigid.state import Trajectory
from pullback.rigid.world.actuators import PositionServo, Torque
from pullback.rigid.world.world import World
from pullback.robot.load import load
from pullback.robot.model import RobotModel
from pullback.tasks.common import comparison as shared
from pullback.tasks.common.comparison import Comparison, Released, compare_torque_searches, draw_curves, report
from pullback.tasks.common.options import check_at_least
from pullback.tasks.common.outputs import cross, print_files, write_figure, write_motion, write_replay

Tensor = torch.Tensor

ARM = tuple(f"panda_joint{i}" for i in range(1, 8))
GRIP = ("panda_finger_joint1", "panda_finger_joint2")
FINGERS = ("panda_leftfinger", "panda_rightfinger")
SPEEDS = (2.175,) * 4 + (2.61,) * 3
"""The arm's own limits [rad/s]."""
STIFFNESS, DAMPING = (100.0,) * 4 + (30.0,) * 3, (30.0,) * 4 + (8.0,) * 3
"""Of the joint impedance [N·m/rad, N·m·s/rad]."""
MOST_TORQUE = (40.0,) * 4 + (4.0,) * 3
"""Bounds of the torques [N·m], well within the motors' limits."""
CLOSED, OPEN = 0.01, 0.04
"""Targets of the fingers [m]: closer than the ball allows, and wide open."""
NEAR = 0.01
"""A throw that ends closer to the target [m] counts as a hit."""
RELEASED_SEARCH = Released(noise=0.03, learning_rate=1e-3)


class Setting(NamedTuple):
    """The numbers in which the variants differ."""

    dt: float
    steps: int
    release: int
    """The step in which the fingers open."""
    gravity: float
    pose: tuple[float, ...]
    """Of the arm and the fingers."""
    tip: float
    """Where the ball is held: distance [m] from the hand along it."""
    radius: float
    friction: float
    target: tuple[float, float, float]


DEFAULT = Setting(
    2e-3, 450, 250, 9.81, (0, -0.3, 0, -2.0, 0, 1.9, 0.785, 0.02, 0.02), 0.10365, 0.02, 1.0, (0.9, 0.2, -0.3)
)
RELEASED = Setting(1e-2, 1000, 1000, 1 / 980, (0.0,) * 7 + (0.02, 0.02), 0.10177, 0.01, 2.0, (0.2679, 0.2135, 0.6616))


@dataclass
class Options(shared.Options):
    """How to throw."""

    iterations: int = 20
    """Iterations of the gradient method: rollouts with their backward pass."""
    cma_iterations: int = 60
    """Iterations of CMA-ES, each a population of rollouts; 0 leaves it out. The comparison of the paper has 500."""


@dataclass
class Throw:
    """The result: torques (T, 7) in the units of the search, the motion, its miss [m], both searches."""

    torques: Tensor
    motion: Trajectory
    miss: float
    comparison: Comparison
    fastest: float
    """The largest fraction of its speed limit that a joint of the arm reaches."""
    picture: Path
    replay: Path | None


def run(options: Options) -> Throw:
    """Throw by gradients and by CMA-ES, print both, and save the motion, a picture and a replay."""
    check_at_least(options, iterations=1, cma_iterations=0)
    console = Console()
    device = find_device(options.device)
    with console.status("compiling the kernels, once on a machine"):
        thrower = Thrower(options.variant, device)
        thrower.loss(thrower.rest().requires_grad_()).sum().backward()
    comparison = compare_torque_searches(thrower.loss, thrower.rest(), options, console, RELEASED_SEARCH)
    torques = comparison.gradient.best
    with torch.no_grad():
        controls = thrower.controls(torques[None])
        motion = thrower.sim.rollout(thrower.state, controls, check=True)
    miss = (thrower.ball(motion)[-1, 0] - thrower.target).norm().item()
    fastest = (motion.qd[:, 0, :7].abs().amax(0).cpu() / torch.tensor(SPEEDS)).max().item()
    report(
        comparison,
        console,
        f"distance of the ball from the target at the end ({options.variant}, {torques.numel():,} numbers)",
        NEAR,
    )
    console.print(
        f"the ball ends {1e3 * miss:.3g} mm from the target; joints reach {fastest:.0%} of their speed limits"
    )
    name = "throw" if options.variant == "default" else "throw_released"
    npz = write_motion(options.out / f"{name}.npz", thrower.sim, motion, controls[:, 0], **comparison.arrays)
    picture = draw(thrower, motion, comparison, options.out / f"{name}.png")
    shown = write_replay(
        thrower.sim, motion, options.out / f"{name}.html", console, controls=controls, title="throw a ball",
        paths=("ball", cross(thrower.setting.target)), fps=60.0,
    )  # fmt: skip
    print_files(console, trajectory=npz, picture=picture, replay=shown)
    return Throw(torques, motion, miss, comparison, fastest, picture, shown)


class Thrower:
    """The arm, the ball, and the loss of a throw."""

    def __init__(self, variant: str, device: torch.device | str = "cpu") -> None:
        self.released = variant == "released"
        self.setting = RELEASED if self.released else DEFAULT
        robot = load(panda(self.released), dtype=torch.float64)
        world = build(robot, self.setting, self.released)
        self.sim: Sim = world.compile(dt=self.setting.dt, dtype=torch.float64, device=device)
        self.state = self.sim.initial_state()
        self.target = torch.tensor(self.setting.target, dtype=torch.float64, device=device)
        self._base, self._scale = self._held(robot)

    def _held(self, robot: RobotModel) -> tuple[Tensor, Tensor]:
        """Return the controls (T, 9) that hold the ball and then release it, and the change of a control per torque."""
        setting, like = self.setting, self.target
        base = torch.zeros(setting.steps, 9).to(like)
        if self.released:
            return base, torch.ones(7).to(like)
        pose = torch.tensor([setting.pose], dtype=torch.float64)
        still = torch.zeros_like(pose)
        holding = robot.compute_inverse_dynamics(pose, still, still)[0, :7].to(like)
        stiffness = torch.tensor(STIFFNESS).to(like)
        # a servo's target that lies ahead by torque / stiffness
        base[:, :7] = pose[0, :7].to(like) + holding / stiffness
        base[:, 7:] = CLOSED
        base[setting.release :, 7:] = OPEN
        return base, torch.tensor(MOST_TORQUE).to(like) / stiffness

    def rest(self) -> Tensor:
        """Return zero torques (1, T, 7): no throw."""
        return torch.zeros(1, self.setting.steps, 7).to(self.target)

    def controls(self, torques: Tensor) -> Tensor:
        """Return the controls (T, B, 9) of torques (B, T, 7), as fractions of the bounds or, released, in N·m."""
        added = torch.nn.functional.pad(torques * self._scale, (0, 2))
        return (self._base + added).transpose(0, 1)

    def ball(self, motion: Trajectory) -> Tensor:
        """Return where the ball is (T + 1, B, 3)."""
        return motion.q[..., 9:12]

    def loss(self, torques: Tensor) -> Tensor:
        """Return the squared distance from the target at the end; released, the root of its mean over x, y and z."""
        motion = self.sim.rollout(self.state, self.controls(torques), checkpoint=50)
        squares = (self.ball(motion)[-1] - self.target).square()
        return squares.mean(-1).sqrt() if self.released else squares.sum(-1)


def panda(released: bool) -> Tree:
    """Return the arm with its hand, nine joints that move by themselves, and pads on the fingers that can touch."""
    tree = read("panda_gripper")
    for joint in tree.joints:
        joint.mimic = None
    for link in tree.links:
        if link.name in FINGERS:
            side = 1 if link.name == FINGERS[0] else -1
            link.shapes = [box((0.0175, 0.0152, 0.0185), (0, side * 0.00758, 0.04525))]
    if released:
        _release(tree)
    return tree


def _release(tree: Tree) -> None:
    """Give the arm the masses, inertias, pads and limits of the released experiment."""
    masses = {f"panda_link{i}": (mass, com) for i, (mass, com) in enumerate(BARE_LINKS)}
    for link in tree.links:
        if link.mass > 0.0:
            link.inertia = 0.1 * np.eye(3)
        if link.name in masses:
            link.mass, link.com = masses[link.name][0], np.array(masses[link.name][1], dtype=float)
        if link.name in FINGERS:
            link.mass, link.shapes = 0.1, [box((0.02, 0.02, 0.1), (0, 0, 0.05))]
    for joint in tree.joints:
        clamped = joint.name in ("panda_joint6", "panda_joint7", *GRIP)
        joint.limits = Limits(-0.1, 0.1) if clamped else Limits()
        joint.damping = 0.0


def build(robot: RobotModel, setting: Setting, released: bool) -> World:
    """Return a world with the arm and the ball between its fingers."""
    world = World(gravity=(0.0, 0.0, -setting.gravity))
    if released:
        actuators = {joint: Torque() for joint in (*ARM, *GRIP)}
    else:
        servos = zip(ARM, STIFFNESS, DAMPING)
        actuators = {joint: PositionServo(kp=kp, kd=kd) for joint, kp, kd in servos}
        actuators |= {joint: PositionServo(kp=1000.0, kd=4.0, limit=20.0) for joint in GRIP}
    pose = torch.tensor(setting.pose, dtype=torch.float64)
    world.add(
        robot, name="panda", q=pose, actuators=actuators, collision_links=FINGERS, friction=setting.friction
    )  # fmt: skip
    position, (x, y, z, w) = (part[0] for part in robot.compute_forward_kinematics(pose[None], "panda_hand"))
    along = torch.stack([2 * (x * z + y * w), 2 * (y * z - x * w), 1 - 2 * (x * x + y * y)])
    place = (position + setting.tip * along).tolist()
    if released:
        ball = Tree("ball", [Link("ball", 0.05, inertia=np.eye(3), shapes=[sphere(setting.radius)])], [], source="ball")
        world.add(load(ball, "floating", dtype=torch.float64), name="ball", position=place, friction=setting.friction)
    else:
        world.add_sphere("ball", radius=setting.radius, mass=0.05, position=place, friction=setting.friction)
    return world


def draw(thrower: Thrower, motion: Trajectory, comparison: Comparison, path: Path) -> Path:
    """Draw the throw from the side and from above, and the curves of both methods; return the file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15.0, 8.0), layout="constrained")
    axes = figure.subplot_mosaic([["side", "above"], ["iteration", "time"]])
    robot = thrower.sim.world.robots["panda"].to(motion.q)
    with torch.no_grad():
        links = robot.compute_forward_kinematics_all_links(motion.q[:, 0, :9])
    names = [f"panda_link{i}" for i in (0, 2, 3, 4, 5, 7)] + ["panda_hand_tcp"]
    arm = torch.stack([links[name][0].expand(len(motion), 3) for name in names], 1).cpu()
    ball, setting = thrower.ball(motion)[:, 0].cpu(), thrower.setting
    released = min(setting.release, setting.steps)
    for axis, (a, b), title in zip((axes["side"], axes["above"]), ((0, 2), (0, 1)), ("from the side", "from above")):
        for moment in torch.linspace(0, released, 6).long().tolist():
            shade = str(0.85 - 0.85 * moment / released)
            axis.plot(arm[moment, :, a], arm[moment, :, b], color=shade, linewidth=2, solid_capstyle="round")
        axis.plot(ball[:, a], ball[:, b], color="tab:blue", label="the ball")
        axis.plot(*ball[-1, [a, b]], "o", color="tab:blue", label="where it ends")
        axis.plot(setting.target[a], setting.target[b], "x", color="tab:red", markersize=12, label="target")
        axis.set(title=title, xlabel="x [m]", ylabel="z [m]" if b == 2 else "y [m]", aspect="equal")
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    draw_curves((axes["iteration"], axes["time"]), comparison, NEAR)
    return write_figure(figure, path)

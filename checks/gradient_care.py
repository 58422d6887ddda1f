"""Gradients where contacts begin and friction gives way, plain, downhill, smoothed: `python -m checks.gradient_care`.

Losses of one number. A carriage pushes a ball that it does not touch at first, or just touches; a block is pulled that
sticks at first. Writes the tables of docs/gradient_care.md to standard output, and its plot to
docs/images/gradient_care.png.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import torch

import pullback as pb
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Shape, Tree
from pullback.rigid.smoothing import ORDERS, Smoothing

F64 = torch.float64
DT, STEPS, FRICTION = 5e-3, 100, 0.5
# no rounding in sums of these: what is to touch exactly does
RADIUS, BALL = 0.0625, 0.125
PLOT = Path(__file__).resolve().parents[1] / "docs" / "images" / "gradient_care.png"
Losses = Callable[[torch.Tensor], torch.Tensor]
Kinks = Literal["computed", "downhill"]


def slider(*axes: tuple[float, float, float]) -> pb.RobotModel:
    """Return a sphere of 1 kg that moves along axes, without turning; two of them have half of it each."""
    names = ["rail", *(f"part{k}" for k in range(len(axes)))]
    links = [Link(name, 0.5 if k else 0.0, inertia=1e-3 * np.eye(3)) for k, name in enumerate(names)]
    links[-1].mass = 1.0 - 0.5 * (len(axes) - 1)
    links[-1].shapes.append(Shape("sphere", (RADIUS,)))
    free = Limits(lower=-9.0, upper=9.0, effort=100.0)
    joints = [
        Joint(f"j{k}", "prismatic", names[k], names[k + 1], axis=np.array(axis), limits=free)
        for k, axis in enumerate(axes)
    ]
    return pb.RobotModel(compile_tree(Tree("slider", links, joints, source="slider")))


def ball(gap: float = 0.1, servo: bool = True, kinks: Kinks = "computed") -> pb.Sim:
    """Return a carriage at x = 0 and a ball of 0.5 kg, `gap` away from it."""
    world = pb.World(contact=pb.PGS(kinks=kinks))
    world.add_ground(friction=FRICTION)
    drive = pb.PositionServo(kp=100.0, kd=20.0) if servo else pb.Torque()
    world.add(slider((1.0, 0.0, 0.0)), position=(0, 0, BALL), friction=0.0, actuators=drive)
    world.add_sphere("ball", radius=BALL, mass=0.5, position=(RADIUS + BALL + gap, 0.0, BALL), friction=FRICTION)
    return world.compile(dt=DT, dtype=F64)


def block(kinks: Kinks = "computed") -> pb.Sim:
    """Return a block of 1 kg on the ground, friction 0.5, of which a force along x pulls one half."""
    world = pb.World(contact=pb.PGS(kinks=kinks))
    world.add_ground(friction=FRICTION)
    drive = {"j1": pb.Torque()}
    world.add(
        slider((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)), position=(0, 0, RADIUS - 1e-6), friction=FRICTION, actuators=drive
    )
    return world.compile(dt=DT, dtype=F64)


def batch(sim: pb.Sim, worlds: int) -> pb.State:
    """Return the initial state of many worlds."""
    start = sim.initial_state()
    return pb.State(start.q.expand(worlds, -1), start.qd.expand(worlds, -1))


def pushing(sim: pb.Sim) -> Losses:
    """Return the squared distance [m²] of the ball from x = 0.6 m, over where the carriage's target moves to [m]."""
    ramp = torch.linspace(0.0, 1.0, STEPS, dtype=F64)[:, None, None]
    return lambda reach: (sim.rollout(batch(sim, len(reach)), ramp * reach)[-1].q[:, 1] - 0.6).square()


def pulling(sim: pb.Sim) -> Losses:
    """Return the squared distance [m²] of the block from x = 0.3 m, over the force [N] that pulls it."""
    ones = torch.ones(STEPS, 1, 1, dtype=F64)
    return lambda force: (sim.rollout(batch(sim, len(force)), ones * force)[-1].q[:, 1] - 0.3).square()


def smoothed(losses: Losses, x: float, sigma: float, smooth: Smoothing) -> tuple[float, float]:
    """Return the smoothed loss and its gradient."""
    point = torch.full((1,), x, dtype=F64, requires_grad=True)
    loss = smooth(losses, (point, sigma))
    loss.backward()
    assert point.grad is not None
    return loss.item(), point.grad.item()


def plain(losses: Losses, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return losses and gradients at many points."""
    x = torch.from_numpy(points)[:, None].requires_grad_()
    values = losses(x)
    values.sum().backward()
    assert x.grad is not None
    return values.detach().numpy(), x.grad[:, 0].numpy()


def show(
    axes: np.ndarray, losses: Losses, downhill: Losses, points: np.ndarray, sigma: float, what: tuple[str, str, str]
) -> None:
    """Draw a loss and its gradients; the downhill one of the losses of worlds that choose it."""
    values, slopes = plain(losses, points)
    truth = np.array([smoothed(losses, x, sigma, Smoothing(512, seed=1)) for x in points])
    axes[0].plot(points, values, "k", label="loss")
    axes[0].plot(points, truth[:, 0], "C0", label=f"smoothed, σ = {sigma:g} {what[2]}")
    axes[1].plot(points, slopes, "k", label="plain gradient")
    axes[1].plot(points, plain(downhill, points)[1], "C4+", markersize=7, label="downhill")
    axes[1].plot(points, truth[:, 1], "C0", label="of the smoothed loss (512 worlds)")
    # colours that the colour-blind tell apart, and a marker each
    for color, marker, order in zip(("#009e73", "#e69f00", "#d55e00"), "o^s", ORDERS):
        found = [smoothed(losses, x, sigma, Smoothing(32, order=order, seed=2))[1] for x in points]
        axes[1].plot(points, found, marker, color=color, markersize=3, label=f"{order} order, 32 worlds")
    for ax, label in zip(axes, ("loss [m²]", f"gradient [m²/{what[2]}]")):
        ax.set(xlabel=what[1], ylabel=label)
    axes[0].set_title(what[0])
    axes[0].legend(fontsize=8)


def table(losses: Losses, x: float, sigma: float, unit: str) -> None:
    """Print mean and deviation of each order's gradient over draws of 32 worlds."""
    slope = plain(losses, np.array([x]))[1][0]
    truth = smoothed(losses, x, sigma, Smoothing(5_000, seed=3))[1]
    print(f"\nat {x:g} {unit}, σ = {sigma:g} {unit}: plain {slope:.4f}, smoothed {truth:.4f} (5,000 worlds)\n")
    print("| order | mean of 100 draws | deviation of a draw | mean share of the first order |\n|---|---|---|---|")
    for order in ORDERS:
        smooth, shares, found = Smoothing(32, order=order, seed=4), [], []
        for _ in range(100):
            found.append(smoothed(losses, x, sigma, smooth)[1])
            shares += smooth.shares
        share = f"{np.mean(shares):.2f}" if order == "mixed" else ""
        print(f"| {order} | {np.mean(found):.4f} | {np.std(found):.4f} | {share} |")


def step_slope(sim: pb.Sim, force: float, dof: int, sign: float = 1.0) -> float:
    """Return sign times the gradient of a dof's velocity after one step by the force, for a loss of that sign."""
    u = torch.full((1, 1), force, dtype=F64, requires_grad=True)
    (slope,) = torch.autograd.grad(sign * sim.step(sim.initial_state(), u).qd[0, dof], u)
    return sign * slope.item()


def sides() -> None:
    """Print the gradient of the velocity after one step by the force, on the kink and beside it."""
    print(
        "\n| kink | just below | on it | just above | downhill, wants it faster | slower |\n|---|---|---|---|---|---|"
    )
    # what the ground carries in the first step decides how much friction holds; it gives way by the softness of a row
    stuck = block()
    load = stuck.contacts(stuck.initial_state())[0][0].force[2]
    limit = FRICTION * load * (1.0 + 0.5 * stuck.cfm)
    # the velocity of the ball along x, and that of the block
    for name, force, dof, sim, downhill in (
        ("ball touched, at rest", 0.0, 4, ball(0.0, False), ball(0.0, False, "downhill")),
        ("block about to slide", limit, 1, stuck, block("downhill")),
    ):
        found = [step_slope(sim, force + offset, dof) for offset in (-1e-4, 0.0, 1e-4)]
        found += [step_slope(downhill, force, dof, sign) for sign in (-1.0, 1.0)]
        print(f"| {name}, force {force:.4f} N | {' | '.join(f'{slope:.6f}' for slope in found)} |")


def ways() -> None:
    """Print what each way makes of a ball that is away and one that is touched, the carriage at rest."""
    print("\n| gradient [m²/m] | ball 0.1 m away | ball touched |\n|---|---|---|")
    rows: dict[str, list[float]] = {"0.1 mm back": [], "0.1 mm forth": [], "plain": [], "downhill": [], "mixed": []}
    for gap in (0.1, 0.0):
        losses, downhill = pushing(ball(gap)), pushing(ball(gap, kinks="downhill"))
        back, here, forth = plain(losses, np.array([-1e-4, 0.0, 1e-4]))[0]
        rows["0.1 mm back"].append((here - back) / 1e-4)
        rows["0.1 mm forth"].append((forth - here) / 1e-4)
        rows["plain"].append(plain(losses, np.zeros(1))[1][0])
        rows["downhill"].append(plain(downhill, np.zeros(1))[1][0])
        smooth = Smoothing(32, order="mixed", seed=4)
        rows["mixed"].append(float(np.mean([smoothed(losses, 0.0, 0.15, smooth)[1] for _ in range(100)])))
    for name, (away, touched) in rows.items():
        print(f"| {name} | {away:.4f} | {touched:.4f} |")


def cost(losses: Losses) -> None:
    """Print how long loss and gradient take for one world, and for 32."""

    def seconds(call: Callable[[], torch.Tensor]) -> float:
        times = []
        for _ in range(15):
            start = time.perf_counter()
            call().backward()
            times.append(time.perf_counter() - start)
        return median(times)

    x = torch.full((1,), 0.3, dtype=F64, requires_grad=True)
    one = seconds(lambda: losses(x[None]).mean())
    print(f"\nloss and gradient of {STEPS} steps, one thread, medians of 15: one world {1e3 * one:.2f} ms", end="")
    for order in ORDERS:
        smooth = Smoothing(32, order=order)
        print(f", {order} order with 32 worlds {1e3 * seconds(lambda: smooth(losses, (x, 0.1))):.2f} ms", end="")  # noqa: B023
    print()


def main() -> None:
    """Print the tables and write the plot."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    torch.set_num_threads(1)
    push, pull = pushing(ball()), pulling(block())
    table(push, 0.0, 0.15, "m")
    table(pull, 4.0, 1.0, "N")
    ways()
    sides()
    cost(push)
    figure, axes = plt.subplots(2, 3, figsize=(14, 7.4), layout="constrained")
    reach = np.linspace(-0.12, 0.8, 47)  # 0 among them
    reach[np.abs(reach).argmin()] = 0.0
    for column, gap, name in ((0, 0.1, "push a ball 0.1 m away"), (1, 0.0, "push a ball that is touched")):
        downhill = pushing(ball(gap, kinks="downhill"))
        show(axes[:, column], pushing(ball(gap)), downhill, reach, 0.15, (name, "where the carriage is sent [m]", "m"))
    downhill = pulling(block("downhill"))
    show(axes[:, 2], pull, downhill, np.linspace(2.0, 9.0, 41), 1.0, ("pull a block", "force [N]", "N"))
    # one legend for the lower row, below it: nothing hides a curve
    figure.legend(*axes[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6, fontsize=9)
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, dpi=110)
    print(f"\nwrote {PLOT.name}")


if __name__ == "__main__":
    main()

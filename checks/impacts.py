"""Is the gradient through an impact that of the physics? `make impacts` writes docs/impacts.md.

Gradients of the simulation are compared with derivatives of the motion in closed form, at four time steps and from 64
starts that put the touch to different places within a step; the worst counts. `impacts="step"` and `"split"` are shown
side by side.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

import pullback as pb
from checks.impact_cases import F64, GRAVITY, RADIUS, ImpactCase, all_cases, ground_world, rates, still
from pullback.rigid.world.integrators import Impacts

Tensor = torch.Tensor
Scatter = tuple[float, float]

PAGE = Path(__file__).parent.parent / "docs" / "impacts.md"
MODES: tuple[Impacts, ...] = ("step", "split")
STEPS = (4e-3, 2e-3, 1e-3, 2.5e-4)
OFFSETS = 64
JUDGED = 1e-3
"""The time step [s] that bars are for."""
CLOSE = 1e-2
"""The bar of errors there, relative to the largest derivative of the motion."""
FALLS = 0.6
"""Errors fall at least by this power of dt, from the largest to the smallest, or are rounding."""
ROUNDING = 1e-5
TOES = ("toeFR", "toeFL", "toeRR", "toeRL")


class Row(NamedTuple):
    """What was measured, by time step or as words, for each kind of step, and whether it is as it should be."""

    name: str
    before: str
    after: str
    bar: str
    passed: bool


def derivatives(function, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return values (B, k) of a function of worlds, and their derivatives (B, k, n) by its argument (B, n)."""
    x = x.detach().requires_grad_()
    y = function(x)
    rows = []
    for k in range(y.shape[1]):
        (slope,) = torch.autograd.grad(y[:, k].sum(), x, retain_graph=True, allow_unused=True)
        rows.append(torch.zeros_like(x) if slope is None else slope)
    return y.detach(), torch.stack(rows, 1)


def worst_error(case: ImpactCase, dt: float, impacts: Impacts) -> float:
    """Return the largest error of a derivative over all offsets, relative to the largest true one."""
    sim = case.world().compile(dt=dt, dtype=F64, impacts=impacts)
    steps = round(case.time / dt)

    def simulated(x: Tensor) -> Tensor:
        end = sim.rollout(pb.State(*case.start(x)), steps, checkpoint=pb.Binomial(16))
        return case.read(end.q[-1], end.qd[-1])

    x = case.where(torch.arange(OFFSETS, dtype=F64) / OFFSETS, dt)
    _, true = derivatives(case.outcome, x)
    _, found = derivatives(simulated, x)
    return float((found - true).abs().max() / (case.scale or true.abs().max()))


def judge_case(case: ImpactCase) -> Row:
    """Return the row of a case: its errors at all time steps."""
    errors = {impacts: [worst_error(case, dt, impacts) for dt in STEPS] for impacts in MODES}
    after = errors["split"]
    falls = after[-1] <= max(ROUNDING, after[0] * (STEPS[-1] / STEPS[0]) ** FALLS)
    passed = after[STEPS.index(JUDGED)] <= CLOSE and falls
    words = {impacts: ", ".join(f"{100.0 * e:.2g}" for e in errors[impacts]) for impacts in MODES}
    return Row(case.name, words["step"], words["split"], f"{100.0 * CLOSE:g} at 1 ms, falling", passed)


# -- more than one number ----------------------------------------------------------------------------------------------


def spikes(impacts: Impacts) -> float:
    """Return the largest derivative, in units of the mean, of a ball's height after a bounce, over 400 heights."""
    sim = ground_world(0.5, 0.0).compile(dt=1e-3, dtype=F64, impacts=impacts)
    heights = RADIUS + torch.linspace(0.2, 0.21, 400, dtype=F64)

    def simulated(x: Tensor) -> Tensor:
        start = pb.State(still(len(x), z=x[:, 0]), rates(len(x), 6))
        return sim.rollout(start, 230, checkpoint=pb.Binomial(16)).q[-1][:, 2:3]

    slopes = derivatives(simulated, heights[:, None])[1].abs().flatten()
    return float(slopes.max() / slopes.median())


def cradle(impacts: Impacts) -> tuple[float, float]:
    """Return the speed of the last of three balls, 0.2 mm apart, of which the first comes at 1 m/s, and the energy."""
    world = pb.World(gravity=(0.0, 0.0, 0.0))
    for k in range(3):
        place = (k * (2.0 * RADIUS + 2e-4), 0.0, 0.0)
        world.add_sphere(f"ball{k}", radius=RADIUS, mass=1.0, position=place, friction=0.0, restitution=1.0)
    sim = world.compile(dt=1e-3, dtype=F64, impacts=impacts)
    start = sim.initial_state(OFFSETS)
    q = start.q.clone()
    q[:, 0] -= 2e-3 + 1e-3 * torch.arange(OFFSETS, dtype=F64) / OFFSETS
    qd = start.qd.clone()
    qd[:, 3] = 1.0
    end = sim.rollout(pb.State(q, qd), 10).qd[-1]
    energy = end[:, 3::6].square().sum(1)
    worst = (end[:, 15] - 1.0).abs().argmax()
    return float(end[worst, 15]), float(energy[worst])


class DroppedDog:
    """A Laikago that lands on its toes under servos: its velocities 40 ms after the first touch, by its height."""

    speed = 1.5

    def __init__(self, dt: float, impacts: Impacts) -> None:
        world = pb.World(gravity=(0.0, 0.0, -GRAVITY))
        world.add_ground(friction=0.8)
        dog = pb.load("laikago", "floating", dtype=F64)
        servos = pb.PositionServo(kp=80.0, kd=2.0)
        world.add(dog, name="dog", position=(0.0, 0.0, 0.6), collision_links=TOES, actuators=servos)
        self.sim = world.compile(dt=dt, dtype=F64, impacts=impacts)
        self.state = self.sim.initial_state()

    def heights(self, dt: float) -> Tensor:
        """Return starts (OFFSETS, 1) that put the first touch to as many places of a step, after 20 ms."""
        gap = min(float(c.gap) for c in self.sim.contacts(_lowered(self.state, 0.1))[0]) + 0.1
        offsets = torch.arange(OFFSETS, dtype=F64)[:, None] / OFFSETS * dt
        return self.state.q[:, 2:3] - gap + self.speed * (0.02 + offsets)

    def __call__(self, x: Tensor) -> Tensor:
        """Return velocities (B, nv) at the end for heights (B, 1)."""
        q = torch.cat([self.state.q[:, :2].expand(len(x), -1), x, self.state.q[:, 3:].expand(len(x), -1)], 1)
        qd = torch.zeros(len(x), self.sim.nv, dtype=F64)
        qd[:, 5] = -self.speed
        targets = self.state.q[:, 7:].expand(round(0.06 / self.sim.dt), len(x), -1)
        return self.sim.rollout(pb.State(q, qd), targets).qd[-1]


@cache
def true_dog(dt: float) -> Tensor:
    """Return the derivatives (OFFSETS, nv) from the starts for a time step, by differences at one of 25 µs."""
    dog = DroppedDog(2.5e-5, "split")
    x = dog.heights(dt)
    with torch.no_grad():
        return (dog(x + 1e-7) - dog(x - 1e-7)) / 2e-7


@cache
def dropped_dog(dt: float, impacts: Impacts) -> tuple[Scatter, Scatter]:
    """Return how derivatives of a landing scatter over the starts, and how their errors do, median and worst.

    A scatter is a difference from their mean over the starts, relative to the derivative.
    """
    dog = DroppedDog(dt, impacts)
    true = true_dog(dt)
    found = derivatives(dog, dog.heights(dt))[1][..., 0]
    kinds = []
    for x in (found, found - true):
        scatter = (x - x.mean(0)).norm(dim=1) / true.norm(dim=1)
        kinds.append((float(scatter.median()), float(scatter.max())))
    return kinds[0], kinds[1]


def judge_dog(kind: int, name: str) -> Row:
    """Return the row of one measure of a landing: 0, scatter of derivatives; 1, of their errors."""
    dogs = {m: [dropped_dog(dt, m)[kind] for dt in (4e-3, 1e-3)] for m in MODES}
    (first, _), (median, most) = dogs["split"]
    words = {m: ", ".join(f"{100 * a:.2g} / {100 * b:.2g}" for a, b in dogs[m]) for m in MODES}
    passed = median <= 0.02 and most <= 0.1 and median < first
    name = f"Laikago dropped: scatter of {name}, median / worst [%], dt 4 ms, 1 ms"
    return Row(name, words["step"], words["split"], "2 / 10 at 1 ms, falling", passed)


def _lowered(state: pb.State, by: float) -> pb.State:
    q = state.q.clone()
    q[:, 2] -= by
    return pb.State(q, state.qd)


def judge_others() -> list[Row]:
    """Return the rows that are not of a table of derivatives."""
    largest = {m: spikes(m) for m in MODES}
    speeds = {m: cradle(m) for m in MODES}
    is_passed_on = all(abs(x - 1.0) <= CLOSE for x in speeds["split"])
    passed_on = {m: f"{v:.4f}, {e:.4f}" for m, (v, e) in speeds.items()}
    spike = {m: f"{x:.3g}" for m, x in largest.items()}
    measures = (
        ("bouncing ball, 400 heights: largest derivative, of the median", spike, "3", largest["split"] <= 3.0),
        ("cradle of three balls, gaps of 0.2 mm, dt 1 ms: last speed, energy", passed_on, "1 % of 1, 1", is_passed_on),
    )
    rows = [Row(name, words["step"], words["split"], bar, passed) for name, words, bar, passed in measures]
    return [*rows, judge_dog(0, "derivatives"), judge_dog(1, "errors")]


def page(cases: list[Row], others: list[Row]) -> str:
    """Return the page."""
    from checks.impact_page import TEXT

    head = '| motion | `impacts="step"` | `impacts="split"` | bar | |\n|---|---|---|---|---|\n'
    tables = [
        head
        + "\n".join(
            f"| {r.name} | {r.before} | {r.after} | {r.bar} | {'met' if r.passed else '**missed**'} |" for r in rows
        )
        for rows in (cases, others)
    ]
    return TEXT.replace("{cases}", tables[0]).replace("{others}", tables[1])


def main() -> int:
    """Measure all, write the page, and return 1 if a bar is missed."""
    # many small tensors: threads would wait for each other
    torch.set_num_threads(1)
    console = Console(width=200)

    def told(row: Row) -> Row:
        console.print(f"{'ok    ' if row.passed else 'MISSED'} {row.name}: {row.before} -> {row.after} (bar {row.bar})")
        return row

    cases = [told(judge_case(case)) for case in all_cases()]
    others = [told(row) for row in judge_others()]
    PAGE.write_text(page(cases, others), encoding="utf-8")
    console.print(f"written: {PAGE}")
    return 0 if all(row.passed for row in (*cases, *others)) else 1


if __name__ == "__main__":
    sys.exit(main())

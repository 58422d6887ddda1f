"""The gradient of a bouncing ball against the analytic one, for the conformance page."""

from __future__ import annotations

from math import sqrt

import torch

import pullback as pb

BOUNCE = 1e-3
"""Between the gradient of a bounce under gravity at the smallest step and the analytic one."""


def bounce(
    dt: float, *, gravity: float, height: float, speed: float, e: float, time: float, ceiling: float | None = None
) -> tuple[float, float]:
    """Return the last height of a ball that falls on the ground, and its derivative by the first one."""
    world = pb.World(gravity=(0.0, 0.0, -gravity), contact=pb.PGS(cfm=0.0))
    world.add_ground(restitution=e)
    if ceiling is not None:
        world.add_plane("ceiling", position=(0.0, 0.0, ceiling), orientation=(1.0, 0.0, 0.0, 0.0), restitution=e)
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.0, 0.0, 0.1 + height))
    sim = world.compile(dt=dt, dtype=torch.float64)
    start = sim.initial_state()
    start.qd[0, 5] = speed
    q = start.q.requires_grad_()
    end = sim.rollout(pb.State(q, start.qd), round(time / dt)).q[-1, 0, 2]
    (slope,) = torch.autograd.grad(end, q)
    return float(end.detach()) - 0.1, float(slope[0, 2])


def analytic_bounce(gravity: float, height: float, e: float, time: float) -> float:
    """Return dz(time)/dz(0) of a ball that was let go at a height and has bounced once.

    It falls for t = sqrt(2 z / g) and rises at e g t: z(T) = e g t (T - t) - g (T - t)^2 / 2, dt/dz = 1 / (g t).
    """
    t = sqrt(2.0 * height / gravity)
    return (e * (time - 2.0 * t) + time - t) / t


FALL = {"gravity": 9.81, "height": 0.3, "e": 0.7, "time": 0.4}


def measure_bounces() -> list[tuple[str, float, float, float]]:
    """Return what, gradient found, analytic gradient, bar."""
    rows = []
    for e in (0.5, 0.9):
        for bounces, ceiling in ((1, None), (2, 0.36)):
            _, slope = bounce(
                1e-3, gravity=0.0, height=0.0505, speed=-1.0, e=e, time=0.2 * bounces - 0.02, ceiling=ceiling
            )
            rows.append((f"weightless, e = {e:g}, {bounces} bounce{'s'[: bounces - 1]}", slope, (-e) ** bounces, 1e-9))
    expected = analytic_bounce(**FALL)
    steps = (4e-3, 1e-3, 2.5e-4, 6.25e-5)
    for dt in steps:
        _, slope = bounce(dt, speed=0.0, **FALL)
        rows.append(
            (f"falling 0.3 m, e = 0.7, dt = {dt:g} s", slope, expected, BOUNCE if dt == steps[-1] else float("inf"))
        )
    return rows

"""One step of sheets and ropes, forward and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from pullback.soft.cloth.equations import Equations, Given
from pullback.soft.cloth.solve import newton, solve_adjoint

Tensor = torch.Tensor


class Drive(NamedTuple):
    """What a step depends on beside its state: masses (B, n), gravity (B, 3), force (B, n, 3), pins (B, p, 3).

    numbers: those of elements, kind -> (B, m, k); shapes: rows of the shapes before and after the step (B K, 23) each.
    """

    masses: Tensor
    gravity: Tensor
    force: Tensor
    pins: Tensor
    numbers: Mapping[str, Tensor]
    shapes: tuple[Tensor, Tensor] | None


@dataclass
class After:
    """What a step leads to: positions, velocities (B, n, 3), what pins do (B, p, 3) [N], what shapes got (B K, 7)."""

    x: Tensor
    v: Tensor
    reaction: Tensor
    touch: Tensor | None
    solved: np.ndarray
    steps: np.ndarray


class Cotangents(NamedTuple):
    """Cotangents of the state before a step and of its drive; those of numbers are added up in `Equations`."""

    x: Tensor
    v: Tensor
    masses: Tensor
    gravity: Tensor
    force: Tensor
    pins: Tensor
    shapes: tuple[Tensor, Tensor] | None


def advance(equations: Equations, x: Tensor, v: Tensor, drive: Drive, skip: np.ndarray | None = None) -> After:
    """Do a step; in worlds that could not be solved, or to `skip` (B,), everything stays where it was."""
    before = _begin(equations, x, v, drive)
    layout, dt = equations.layout, equations.settings.dt
    pins = drive.pins.numpy()
    start = before + dt * v.numpy()
    start[:, layout.pins] = pins
    # where the first guess is folded beyond bounds, start from where things are
    wrong = ~np.isfinite(equations.energies(start))
    start[wrong] = before[wrong]
    start[:, layout.pins] = pins
    found = newton(equations, start, skip)
    after = np.where(found.solved[:, None, None], found.x, before)
    reaction = equations.residual(after)[:, layout.pins]
    touch = equations.shape_impulses() if equations.shapes else None
    velocity = torch.from_numpy((after - before) / dt)
    return After(torch.from_numpy(after), velocity, torch.from_numpy(reaction), touch, found.solved, found.steps)


def pull_back(
    equations: Equations,
    x: Tensor,
    v: Tensor,
    drive: Drive,
    after: Tensor,
    adj: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
) -> Cotangents:
    """Return cotangents given those of positions, velocities, pins' reactions, what shapes got: eq. (19) to (25)."""
    before = _begin(equations, x, v, drive)
    layout, settings = equations.layout, equations.settings
    free, pinned, dt = layout.free, layout.pins, settings.dt
    adj_x, adj_v, adj_reaction, adj_touch = adj
    end = after.numpy()
    equations.linearize(end, np.zeros(equations.worlds, bool))
    total = adj_x.numpy() + adj_v.numpy() / dt
    if equations.shapes:
        total = total + equations.shape_impulses_vjp(adj_touch)
    multiplier = np.zeros_like(end)
    right = total[:, free]
    if adj_reaction is not None and len(pinned):
        multiplier[:, pinned] = -adj_reaction.numpy()
        right = right - equations.times_matrix(multiplier)[:, free]
    multiplier[:, free] = solve_adjoint(equations, right)
    adj_pins = (total - equations.times_matrix(multiplier))[:, pinned]
    given, moved = equations.given, end - before
    cd = settings.drag * dt
    adj_before = -adj_v.numpy() / dt + (1.0 + cd) * equations.weight * multiplier
    adj_before = adj_before + equations.pull_back_elements(multiplier)
    adj_shapes = None
    if equations.shapes:
        more, *rows = equations.pull_back_contact(multiplier)
        adj_before = adj_before + more
        adj_shapes = rows[0], rows[1]
    acceleration = (moved - dt * given.v + cd * moved) / dt**2 - given.gravity[:, None]
    return Cotangents(
        torch.from_numpy(adj_before),
        torch.from_numpy(dt * equations.weight * multiplier),
        torch.from_numpy(-(multiplier * acceleration).sum(-1)),
        torch.from_numpy((given.masses[..., None] * multiplier).sum(1)),
        torch.from_numpy(multiplier),
        torch.from_numpy(adj_pins),
        adj_shapes,
    )


def _begin(equations: Equations, x: Tensor, v: Tensor, drive: Drive) -> np.ndarray:
    arrays = (y.contiguous().numpy() for y in (x, v, drive.masses, drive.gravity, drive.force))
    given = Given(*arrays)
    equations.begin(given, drive.numbers, drive.shapes)
    return given.x

"""Whether a passive world has gained energy by itself, in which step, and why it may have.

A world that nothing drives cannot gain energy: gravity and springs are in its potential, all else takes energy out.
What can is a step that is too long for how fast its joints turn, since velocity products are taken at its start
(docs/derivations/gyroscopic.md), and pushing out of shapes that overlap at the start, which is left out here.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch

from pullback.core.errors import SimulationWarning
from pullback.core.finite import is_readable
from pullback.description.joints import KIND_NUMBER
from pullback.rigid.compile.scene import ACTUATOR_ROWS
from pullback.rigid.state import ENERGY, State, Status, Trajectory

if TYPE_CHECKING:
    from pullback.rigid.sim import Sim

Tensor = torch.Tensor
Array = np.ndarray

LEAST_STEPS = 50
"""Shorter rollouts are not looked at: looking costs about as much as a few steps."""
ENDS = 5
"""States of the last tenth that are looked at first."""
GAIN = 0.01
"""Of the energy in play, above which a world has gained."""
FLOOR = 0.01
"""Height [m] by which the weight of a world is lifted in the least energy that gains are compared with."""
QUICK, CALM = 0.05, 0.02
"""A turn [rad] in a step that is a likely cause, and one that is not."""
HUGE = 1e200
"""Energy [J] that stands for all that is larger."""
DEEP = 1e-3
"""Overlap [m] at the start out of which shapes are pushed, and gain by it."""


def can_watch(sim: Sim, rows: Tensor, steps: int, is_driven: bool) -> bool:
    """Return whether a rollout is one of a passive world, long enough, and can be read.

    Without controls actuators do not drive, unless they hold a position.
    """
    passive = sim.nu == 0 or not is_driven
    if not passive or steps < LEAST_STEPS or sim.arrays.nloop > 0 or not is_readable(rows):
        return False
    numbers = sim.parameters().actuators.detach().unflatten(1, (-1, int(ACTUATOR_ROWS))) if sim.nu else None
    return numbers is None or not bool(numbers[..., 1].any())


def watch_energy(sim: Sim, states: Trajectory) -> Trajectory:
    """Return the states with a status that flags worlds which gained energy by themselves; warn of them, once."""
    last = max(1, (len(states) - 1) // 10)
    ends = np.unique(np.linspace(len(states) - last, len(states) - 1, min(last, ENDS)).round().astype(int))
    if not has_gained(*energies(sim, states, [0, *ends.tolist()]), len(ends), weight(sim)).any():
        return states
    # all states, for what potential energy varies by, and to see where it begins
    kinetic, potential = energies(sim, states, list(range(len(states))))
    gained = has_gained(kinetic, potential, last, weight(sim)) & ~overlaps(sim, states[0])
    if not gained.any():
        return states
    rows = states.status.rows_with(ENERGY, torch.from_numpy(gained))
    if ENERGY not in sim._warned:
        sim._warned.add(ENERGY)
        warnings.warn(gain_text(sim, states, kinetic + potential, gained), SimulationWarning, stacklevel=3)
    return Trajectory(states.q, states.qd, Status(rows, sim.substeps), states.steps, states.impulses)


def energies(sim: Sim, states: Trajectory, chosen: list[int]) -> tuple[Array, Array]:
    """Return kinetic and potential energies [J] of some states (T, B)."""
    B = states.q.shape[1]
    q, qd = states.q.detach()[chosen], states.qd.detach()[chosen]
    # a world that is not finite is told of elsewhere
    good = (q.isfinite().all(-1) & qd.isfinite().all(-1)).all(0)[:, None]
    q, qd = torch.where(good, q, q[:1]), torch.where(good, qd, qd[:1])
    with torch.no_grad():
        rows = sim.parameters()
        if max(x.shape[0] for x in rows) > 1:
            rows = type(rows)(*(x.repeat(len(chosen), 1) if x.shape[0] > 1 else x for x in rows))
        found = sim._energies(q.flatten(0, 1), qd.flatten(0, 1), rows)
    kinetic, potential = (x.view(-1, B).double().clamp(-HUGE, HUGE).numpy() for x in found)
    return kinetic, potential


def weight(sim: Sim) -> Array:
    """Return the weight [N] of all that moves, (B,) or (1,)."""
    rows = sim.parameters()
    mass = rows.inertias.detach().unflatten(1, (sim.arrays.nbody, -1))[:, :, 0].sum(1)
    return (mass * rows.gravity.detach().norm(dim=1)).double().numpy()


def has_gained(kinetic: Array, potential: Array, last: int, weight: Array) -> Array:
    """Return which worlds (B,) end above where they began, as the mean of the last so many states.

    Compared with the energy in play: the initial kinetic energy, what potential energy varies by, and a centimetre of
    the weight. The energy of joints swings about its mean by an error of first order in dt.
    """
    total = kinetic + potential
    in_play = kinetic[0] + potential.max(0) - potential.min(0) + FLOOR * weight
    gain = total[-last:].mean(0) - total[0]
    return gain > GAIN * np.maximum(in_play, 1e-9)


def overlaps(sim: Sim, start: State) -> Array:
    """Return in which worlds shapes overlap by more than a millimetre."""
    found = sim.contacts(start.detach())
    return np.array([any(contact.gap < -DEEP for contact in contacts) for contacts in found])


def gain_text(sim: Sim, states: Trajectory, total: Array, gained: Array) -> str:
    """Say which world gained energy, from when on, by how much, and what turned too fast."""
    worlds = np.flatnonzero(gained)
    first = int(worlds[0])
    energy = total[:, first]
    rise = max(float(energy[-1] - energy[0]), 0.0)
    at = int(np.argmax(energy - energy[0] > GAIN * rise))
    since = int(states.steps[max(at - 1, 0)])
    text = (
        f"world {first} is not driven and gained {rise:.3g} J by itself, from step {since} on ({len(worlds)} such "
        f"worlds in all)"
    )
    a = sim.arrays
    inner = np.flatnonzero((a.kind == KIND_NUMBER["free"]) & (a.parent >= 0))
    if len(inner):
        text += (
            f"; {a.body_names[int(inner[0])]} floats, but its place is given against another link that turns: added to "
            "the world as a robot of its own it would not gain"
        )
    speed = states.qd[:, first].detach().abs().amax(0).double().numpy()
    # bodies by themselves turn without gain
    has_parent = a.parent[a.dof_body] >= 0
    carries = np.isin(a.dof_body, a.parent)
    speed = np.where(has_parent | carries, speed, 0.0)
    dof = int(np.argmax(speed))
    step = sim.dt / sim.substeps
    if speed[dof] * step > QUICK:
        return (
            f"{text}; {a.body_names[int(a.dof_body[dof])]} moves by {speed[dof] * step:.2g} rad or m in a step, more "
            f"than its joints can follow: dt={CALM / speed[dof]:.2g} or as many substeps would do"
        )
    return f"{text}; a smaller dt or more substeps may do, or less restitution where friction jams"

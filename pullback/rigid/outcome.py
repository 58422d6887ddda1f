"""What becomes of a status: an error where contacts were left out, a warning, once, of what is not as it should be.

And of what goes in: an error where it is not finite.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from pullback.core.errors import PullbackError, SimulationWarning
from pullback.core.finite import are_finite, refuse_not_finite
from pullback.rigid.compile.scene import ACTUATOR_ROWS
from pullback.rigid.state import CONTACT_OVERFLOW, NAN, NOT_CONVERGED, TURNED_FAR, State, Status
from pullback.rigid.world.integrators import SMOOTH
from pullback.rigid.world.items import item_q
from pullback.robot.topology import DAMPING, DOF_ROWS

if TYPE_CHECKING:
    from pullback.rigid.sim import Sim

Tensor = torch.Tensor
Inputs = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]
"""What the kernels read: q, qd, impulses, controls and parameters."""


def refuse_inputs(inputs: Inputs) -> None:
    """Raise if coordinates, velocities or controls are not finite."""
    q, qd, _, u, _ = inputs
    if not are_finite(q, qd, u):
        for name, x in (("q", q), ("qd", qd), ("controls", u)):
            refuse_not_finite(name, x)


def warn_or_raise(sim: Sim, start: State, status: Status, states: Iterable[Tensor], check: bool | None) -> None:
    """Raise, or warn, of what a status shows; `states` are what a backward pass would start from.

    `check=False` leaves everything to the status, `check=True` raises where a world is not finite as well.
    """
    flags = status.shows()
    if check:
        status.check()
    if check is None and flags & CONTACT_OVERFLOW:
        raise PullbackError(overflow_text(sim, status))
    if check is None and flags & NAN and NAN not in sim._warned:
        sim._warned.add(NAN)
        warnings.warn(not_finite_text(sim, start, status), SimulationWarning, stacklevel=3)
    if check is not False and flags & TURNED_FAR and TURNED_FAR not in sim._warned:
        sim._warned.add(TURNED_FAR)
        warnings.warn(turned_far_text(sim, status), SimulationWarning, stacklevel=3)
    if check is not False and flags & NOT_CONVERGED and NOT_CONVERGED not in sim._warned and solves(sim):
        warn_in_backward(sim._warned, unsolved_text(status), states)


def solves(sim: Sim) -> bool:
    """Return whether a simulation means to solve its steps; sweeps that are differentiated as such do not."""
    solver = sim.world.contact
    return sim.integrator in SMOOTH or solver.polishing_rounds(double=sim.dtype == torch.float64) > 0


def warn_in_backward(warned: set[int], text: str, states: Iterable[Tensor]) -> None:
    """Warn when a gradient of one of the states is computed, if it is and no warning was given by then."""

    def warn(_: Tensor) -> None:
        if NOT_CONVERGED not in warned:
            warned.add(NOT_CONVERGED)
            warnings.warn(text, SimulationWarning, stacklevel=2)

    for x in states:
        if x.requires_grad:
            x.register_hook(warn)


def overflow_text(sim: Sim, status: Status) -> str:
    """Say which world had too many contacts, and how to give it room."""
    worlds = ((status.code & CONTACT_OVERFLOW) > 0).nonzero().flatten().tolist()
    a = sim.arrays
    why = "room was given" if sim._room_given else "with warm_start room is fixed by the state"
    return (
        f"world {worlds[0]} had more contacts than the {a.max_contacts} there is room for (step "
        f"{int(status.first_step[worlds[0]])}, {len(worlds)} such worlds in all; {why}); compile with a larger "
        f"max_contacts, {a.most_contacts} is enough for any state of these shapes, or pass check=False and look at "
        f"status.code"
    )


def turned_far_text(sim: Sim, status: Status) -> str:
    """Say in which world something turned so far in a step that it may have passed through what was beside it."""
    worlds = ((status.code & TURNED_FAR) > 0).nonzero().flatten().tolist()
    return (
        f"in world {worlds[0]} something turned by more than a whole turn in step "
        f"{int(status.first_step[worlds[0]])}, close to another shape ({len(worlds)} such worlds in all), and may have "
        f"passed through it; take a dt below {sim.dt / sim.substeps:g} s, or more substeps"
    )


def unsolved_text(status: Status) -> str:
    """Say which world has steps that are not solved."""
    counts = status.unconverged
    worlds = (counts > 0).nonzero().flatten().tolist()
    first = worlds[0]
    return (
        f"contact, or which servos are at their limits, is not solved in {int(counts[first])} substeps of world "
        f"{first}, the first of them in step {int(status.first_unconverged[first])} ({len(worlds)} such worlds in "
        f"all): forces and gradient are there those of the sweeps it stopped at; more iterations, a larger cfm, a "
        f"smaller dt or float64 may help"
    )


def not_finite_text(sim: Sim, start: State, status: Status) -> str:
    """Say which world is not finite, from when on, and what moved too fast, as far as a step from the start tells."""
    worlds = ((status.code & NAN) > 0).nonzero().flatten().tolist()
    first = worlds[0]
    text = f"world {first} became not finite in step {int(status.first_step[first])} ({len(worlds)} such worlds in all)"
    speed, dof = start.qd[min(first, len(start.qd) - 1)].detach().abs().max(0)
    body = sim.arrays.body_names[int(sim.arrays.dof_body[int(dof)])]
    turn = float(speed) * sim.dt / sim.substeps
    if turn > FAST:
        return (
            f"{text}; {body} starts at {float(speed):.3g} rad/s or m/s, {turn:.3g} in a step: "
            f"dt={FAST / float(speed):.2g} or as many substeps would do"
        )
    stiff = stiff_text(sim) if sim._is_explicit and sim.integrator not in SMOOTH else ""
    if stiff:
        return f"{text}; {stiff}"
    return f"{text}; take a smaller dt or more substeps, or look for forces that are too large for what they move"


def stiff_text(sim: Sim) -> str:
    """Name the joint whose damper or servo is stiffest for an explicit step, and the longest step for it; "": none.

    With inertia I, stiffness k and damping d, taken at the state before a step h, steps grow if h² k + 2 h d > 4 I.
    """
    rows = sim.parameters()
    damping = rows.dofs[0].detach().double().unflatten(0, (-1, int(DOF_ROWS)))[:, int(DAMPING)].cpu().clone()
    stiffness = torch.zeros_like(damping)
    servos = rows.actuators[0].detach().double().unflatten(0, (-1, int(ACTUATOR_ROWS))).cpu()
    drives = sim.arrays.drives
    for k, (kind, numbers) in enumerate(zip(drives.law, servos)):
        for at in range(drives.start[k], drives.start[k + 1]):
            dof, square = drives.dof[at], float(drives.share[at]) ** 2
            damping[dof] += square * numbers[2]
            if kind == 0:
                stiffness[dof] += square * numbers[1]
    inertia = []
    for item, robot in sim.parameters.robots:
        with torch.no_grad():
            M = robot.compute_lagrangian_inertia_matrix(item_q(item).to(robot.device, robot.dtype)).double().cpu()
        inertia.append(1.0 / torch.linalg.pinv(M, hermitian=True).diagonal())
    I = torch.cat(inertia)
    # the root of h² k + 2 h d = 4 I, in a form that k = 0 leaves whole
    longest = 4.0 * I / (damping + (damping.square() + 4.0 * stiffness * I).sqrt())
    least, dof = longest.nan_to_num(torch.inf).min(0)
    if float(least) >= sim.dt / sim.substeps:
        return ""
    name = sim.arrays.body_names[int(sim.arrays.dof_body[int(dof)])]
    return (
        f"dt is too long for the joint of {name}: its damping of {float(damping[dof]):.3g} and stiffness of "
        f"{float(stiffness[dof]):.3g} on an inertia of {float(I[dof]):.2g} need substeps below {float(least):.2g} s, "
        f"or damping='implicit'"
    )


FAST = 1.0
"""A change of a coordinate [rad, m] in a step that no step can follow."""

"""Steps as linear maps: the Jacobians of a trajectory in one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from pullback.core.errors import PullbackError
from pullback.rigid.outcome import refuse_inputs
from pullback.rigid.state import CONTACT_OVERFLOW, State, Status, Trajectory
from pullback.rigid.world.integrators import SMOOTH

if TYPE_CHECKING:
    from pullback.rigid.sim import Sim

Tensor = torch.Tensor


class Linearization(NamedTuple):
    """Steps as linear maps of small changes: d state' = A d state + B du, from each of T steps in B worlds.

    A change of state is (dq, dqd), with dq of the kind of qd: for a ball or free joint a small motion in the body's own
    axes, angular part first.
    """

    A: Tensor
    """(T, B, 2 nv, 2 nv)"""
    B: Tensor
    """(T, B, 2 nv, nu)"""
    status: Status
    """What happened in the steps, T B of them, step by step."""


def linearize(sim: Sim, states: Trajectory | State, controls: Tensor) -> Linearization:
    """Do what `Sim.linearize` says, in one launch."""
    if sim.world.contact.kinks != "computed":
        raise PullbackError(
            "linearize has no loss that could choose the side of a kink; compile a world whose contact has "
            "kinks='computed' for it"
        )
    if sim.integrator in SMOOTH:
        raise PullbackError(
            f"linearize is for integrator='semi_implicit', and this simulation has {sim.integrator!r}; "
            f"differentiate its step instead: torch.func.jacrev over sim.step, in one launch"
        )
    steps, worlds, flat = _flat_steps(sim, states, controls)
    parameters = sim.parameters.packed().detach()
    sim._check_worlds(worlds, parameters.shape[0], controls.shape[1])
    if parameters.shape[0] != 1:
        parameters = parameters.repeat(steps, 1)
    u = controls.detach().expand(steps, worlds, -1).reshape(steps * worlds, sim.nu)
    inputs = (flat.q, flat.qd, flat.impulses, u, parameters)
    refuse_inputs(inputs)
    both, rows = sim._programs.linearize().run(inputs)
    status = Status(rows, sim.substeps)
    while status.shows() & CONTACT_OVERFLOW and sim._make_room():
        both, rows = sim._programs.linearize().run(inputs)
        status = Status(rows, sim.substeps)
    both = both.reshape(steps, worlds, 2 * sim.nv, 2 * sim.nv + sim.nu)
    return Linearization(both[..., : 2 * sim.nv], both[..., 2 * sim.nv :], status)


def _flat_steps(sim: Sim, states: Trajectory | State, controls: Tensor) -> tuple[int, int, State]:
    """Return the numbers of steps and worlds, and the states before all steps as one batch, step by step."""
    steps = sim._check_controls(controls).shape[0]
    if isinstance(states, Trajectory):
        kept = (states.q, states.qd, states.impulses)
        first = [None if x is None else x.detach()[:steps].flatten(0, 1) for x in kept]
        flat = State(*first)  # pyright: ignore[reportArgumentType]
        fits = states.steps[:steps].tolist() == list(range(steps))
    elif isinstance(states, State):
        flat = states.detach()
        fits = True
    else:
        raise PullbackError(f"states is a {type(states).__name__}; expected a pb.Trajectory or a pb.State")
    count = sim._check_state(flat)
    worlds = count // max(steps, 1)
    if steps < 1 or not fits or steps * worlds != count or controls.shape[1] not in (1, worlds):
        raise PullbackError(
            f"controls {tuple(controls.shape)} do not go with states {tuple(states.q.shape)}; give controls "
            f"(T, B, {sim.nu}) and the trajectory of a rollout with checkpoint=1, or a state of T B worlds"
        )
    sim._check_type("controls", controls)
    return steps, worlds, flat

"""Steps and rollouts inside a graph of torch.compile or torch.export.

A launch is one operator there (core/graph.py). The world's numbers are read when it runs, as constants: where one of
them requires a gradient the graph is left. Nothing is looked at but that there was room for the contacts.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch

from pullback.core.compiling import leave_graph
from pullback.core.errors import PullbackError
from pullback.core.graph import MadeOnce, while_tracing
from pullback.core.program import Program
from pullback.rigid.compile.parameters import WorldParameters
from pullback.rigid.state import CONTACT_OVERFLOW, State, Status, Trajectory

if TYPE_CHECKING:
    from pullback.rigid.sim import Sim

Tensor = torch.Tensor


class GraphPrograms:
    """The rollouts of a simulation as graphs call them."""

    def __init__(self, parameters: WorldParameters, plan: Callable[[int, int], tuple[Program, Tensor]]) -> None:
        self._parameters = parameters
        self._plan = plan
        self.rollout = MadeOnce(self._rollout)

    def _rollout(self, steps: int, checkpoint: int, substeps: int, room: int) -> Program:
        """Return the program of so many steps; `room` for contacts may have grown since another was made."""
        program, _ = self._plan(steps, checkpoint)
        program.supply, program.watch = self._supply, lambda outputs: _refuse_overflow(outputs[-1], substeps)
        return program

    @while_tracing
    def kept(self, steps: int, checkpoint: int) -> list[int]:
        """Return before which steps the states that are returned are."""
        return self._plan(steps, checkpoint)[1].tolist()

    @while_tracing
    def learns(self) -> bool:
        """Tell whether a number of the world requires a gradient."""
        return self._parameters.requires_grad()

    def _supply(self) -> Tensor:
        if self._parameters.requires_grad():
            raise PullbackError(
                "a number of the world requires a gradient, and in a compiled graph these are constants; compile "
                "without fullgraph=True after it was set, or detach it"
            )
        return self._parameters.packed()


def _refuse_overflow(rows: Tensor, substeps: int) -> None:
    status = Status(rows, substeps)
    if status.shows() & CONTACT_OVERFLOW:
        status.check()


def can_trace(sim: Sim, checkpoint: Any = 1) -> bool:
    """Tell whether a launch can be part of the graph that is traced; else the graph ends here, or it is an error."""
    if type(checkpoint) is int and not sim._graph.learns():
        return True
    leave_graph()
    return False


def step(sim: Sim, state: State, u: Tensor | None) -> State:
    """Return the state after a step."""
    q, qd, impulses, rows = _launch(sim, state, u, 1, 1)
    nq, nv, ni, _ = sim._rows
    last = None if impulses is None else impulses[:, ni:]
    return State(q[:, nq:], qd[:, nv:], last, Status(rows, sim.substeps))


def rollout(sim: Sim, state: State, controls: Tensor | int, checkpoint: int) -> Trajectory:
    """Return the states of a rollout that are kept."""
    if isinstance(controls, Tensor):
        steps, flat = sim._flat_controls(controls)
    elif isinstance(controls, Integral) and not isinstance(controls, bool):
        steps, flat = int(controls), None
    else:
        steps, flat = sim._flat_controls(controls)
    if steps < 1:
        raise PullbackError(f"the rollout has {steps} steps; give controls for at least one")
    q, qd, impulses, rows = _launch(sim, state, flat, steps, checkpoint)
    kept = sim._graph.kept(steps, checkpoint)
    nq, nv, ni, _ = sim._rows
    return Trajectory(
        sim._unfold(q, len(kept), nq),
        sim._unfold(qd, len(kept), nv),
        status=Status(rows, sim.substeps),
        steps=torch.tensor(kept),
        impulses=None if impulses is None else sim._unfold(impulses, len(kept), ni),
    )


def _launch(sim: Sim, state: State, u: Tensor | None, steps: int, checkpoint: int) -> tuple[Any, ...]:
    sim._check_state(state)
    width = steps * sim._rows[3]
    if u is None:
        u = sim._like.new_zeros(1, width)
    if u.ndim != 2 or u.shape[1] != width:
        raise PullbackError(f"u is {tuple(u.shape)}; expected (B, {sim.nu}): {sim._driven()}")
    sim._check_type("controls", u)
    program = sim._graph.rollout(steps, checkpoint, sim.substeps, sim.arrays.max_contacts)
    return program.outputs(state.q, state.qd, state.impulses, u, None)

"""A rollout as a function of eight tensors, with its adjoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from pullback.core.errors import GradientError
from pullback.core.finite import are_finite
from pullback.rollout.checkpoint import Schedule
from pullback.soft.backward import Backward
from pullback.soft.forward import PARTS, Forward, Setup, copy

Tensor = torch.Tensor

INPUTS = (*PARTS, "numbers", "gravity", "actuation")

SPARE = 1.5
"""Arenas for each block that there is at the start."""


class Kept(NamedTuple):
    """What a backward pass needs of the forward one: states (K, numbers), and how many arenas were enough."""

    states: Tensor
    capacity: int


class SoftMarch:
    """Steps of particles as a function of state, numbers (B, n, 6), gravity (B, d) and actuation (N, B a).

    Returns the parts of the final state, then positions and velocities (S, B, n, d) at `frames`. Where particles failed
    `refuse` is called with their codes and positions; if there is none, their worlds come back as NaN.
    """

    name = "the soft simulation"

    def __init__(
        self,
        setup: Setup,
        steps: int,
        frames: Sequence[int],
        schedule: Schedule,
        refuse: Callable[[Tensor, Tensor], None] | None,
    ) -> None:
        self.setup, self.steps, self.schedule, self.refuse = setup, steps, schedule, refuse
        self.frames = {step: row for row, step in enumerate(frames)}
        self.failed = torch.zeros(setup.worlds, dtype=torch.bool, device=setup.device)
        self.code = setup.integers(setup.count)

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Kept]:
        """Do all steps; again with more room where particles spread over more blocks than there was room for."""
        given: dict[str, Tensor] = dict(zip(INPUTS, inputs))
        blocks = len(torch.unique(self.setup.block_keys(given["x"])))
        capacity = int(SPARE * blocks) + 8
        while True:
            found = self._forward(given, keep, capacity)
            if found is not None:
                return found
            capacity *= 2

    def _forward(self, given: dict[str, Tensor], keep: bool, capacity: int) -> tuple[tuple[Tensor, ...], Kept] | None:
        setup = self.setup
        run = Forward(setup, capacity, *_constants(given))
        run.begin(given)
        kept_steps = self.schedule.kept(self.steps).tolist() if keep else []
        kept = setup.new(len(kept_steps), len(run.flat))
        slot_of = {step: slot for slot, step in enumerate(kept_steps)}
        seen = [setup.new(len(self.frames), setup.count, setup.dim) for _ in range(2)]
        parts = setup.split(run.flat)
        for step in range(self.steps + 1):
            if step:
                run.advance(step - 1)
            if step in self.frames:
                for name, frames in zip(("x", "v"), seen):
                    copy(frames[self.frames[step]], parts[name])
            if step in slot_of:
                copy(kept[slot_of[step]], run.flat)
        if setup.halo.any(run.needs_room):
            return None
        code = run.tensors["code"]
        assert code is not None
        self.code = code
        if self.refuse is not None:
            self.refuse(code, parts["x"])
        shape = (setup.worlds, setup.particles)
        self.failed = (code != 0).view(shape).any(1)
        final = [parts[name].clone().reshape(*shape, *parts[name].shape[1:]) for name in PARTS]
        frames = [x.view(len(self.frames), *shape, setup.dim) for x in seen]
        for part in (*final, *[x.transpose(0, 1) for x in frames]):
            part[self.failed] = torch.nan
        return (*final, *frames), Kept(kept, capacity)

    def backward(
        self, kept: Kept, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Return the cotangents of the inputs; one that is not finite is an error."""
        cotangents = self.pull_back(kept, wanted, adj_outputs, inputs)
        if self.setup.device.type == "cpu":
            refuse_not_finite(cotangents, adj_outputs)
        return cotangents

    def pull_back(
        self, kept: Kept, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Walk back along the plan of checkpoints."""
        setup = self.setup
        given: dict[str, Tensor] = dict(zip(INPUTS, inputs))
        run = Backward(setup, kept.capacity, *_constants(given), wanted=wanted[len(PARTS) :])
        parts = setup.split(run.adj)
        *adj_final, adj_x, adj_v = adj_outputs

        def observe(step: int) -> None:
            if step == self.steps:
                for name, adj in zip(PARTS, adj_final):
                    if adj is not None:
                        parts[name].add_(adj.reshape(parts[name].shape))
            if step in self.frames:
                for name, adj in (("x", adj_x), ("v", adj_v)):
                    if adj is not None:
                        parts[name].add_(adj[self.frames[step]].reshape(parts[name].shape))

        found: dict[str, Any] = run.run(self.schedule.plan(self.steps), kept.states, observe)
        found["numbers"] = run.adj_numbers
        gravity = run.adj_gravity
        found["gravity"] = None if gravity is None else gravity.view(setup.worlds, setup.particles, setup.dim).sum(1)
        found["actuation"] = run.adj_actuation
        return tuple(
            found[name].reshape(given[name].shape) if want and found[name] is not None else None
            for name, want in zip(INPUTS, wanted)
        )


def refuse_not_finite(found: Sequence[Tensor | None], asked: Sequence[Tensor | None]) -> None:
    """Raise if a gradient is not finite although what was asked is."""
    gradients, seeds = ([x.reshape(1, -1) for x in each if x is not None] for each in (found, asked))
    if gradients and not are_finite(*gradients) and are_finite(*seeds):
        raise GradientError(
            "the gradient of the soft simulation is not finite; shorten the rollout or the step, or soften contact: it "
            "grew from step to step, or a particle is where its material has no derivative"
        )


def _constants(given: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor | None]:
    numbers = given["numbers"]
    actuation = given["actuation"].contiguous()
    return (
        numbers.reshape(-1, numbers.shape[-1]).contiguous(),
        given["gravity"].contiguous(),
        actuation if actuation.numel() else None,
    )

"""A rollout whose particles are shared among ranks: each computes those of its blocks.

Steps are done in segments. Before each, particles move to the rank that then owns their block, so that ranks have about
equally many and borders stay short; inside of one they stay with their rank wherever they go, and `SharedHalo` adds up
what ranks give to the same nodes. Every rank is given the whole state and gets the whole result, and its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from pullback.core.bisect import bisect
from pullback.core.errors import GradientError
from pullback.core.ranks import Ranks
from pullback.rollout.checkpoint import Every
from pullback.soft.forward import PARTS, Setup
from pullback.soft.march import INPUTS, Kept, SoftMarch, refuse_not_finite
from pullback.soft.variant_kernels import REASONS

Tensor = torch.Tensor

STAY = 16
"""Steps for which particles stay with their rank, at least."""


@dataclass(frozen=True, eq=False)
class Migration:
    """Which rows go where: own rows that stay, from and to, and rows to and from other ranks."""

    ranks: Ranks
    count: int
    """Rows afterwards."""
    stay: tuple[Tensor, Tensor]
    send: list[tuple[int, Tensor]]
    receive: list[tuple[int, Tensor]]

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows (n, w) of particles as they are after it."""
        return self._move(rows, self.count, self.stay, self.send, self.receive)

    def backward(self, rows: Tensor, count: int) -> Tensor:
        """Return rows as they were before it, when there were `count`: the transpose."""
        return self._move(rows, count, (self.stay[1], self.stay[0]), self.receive, self.send)

    def _move(
        self,
        rows: Tensor,
        count: int,
        stay: tuple[Tensor, Tensor],
        send: list[tuple[int, Tensor]],
        receive: list[tuple[int, Tensor]],
    ) -> Tensor:
        found = rows.new_empty(count, rows.shape[1])
        found[stay[1]] = rows[stay[0]]
        coming = [(rank, rows.new_empty(len(index), rows.shape[1])) for rank, index in receive]
        self.ranks.swap([(rank, rows[index]) for rank, index in send], coming)
        for (_, index), (_, x) in zip(receive, coming):
            found[index] = x
        return found


class Segment(NamedTuple):
    """Steps first to last on particles `ids` (m,), which came here by a migration; what the way back needs of them."""

    first: int
    last: int
    ids: Tensor
    migration: Migration
    march: SoftMarch
    kept: Kept


class SharedMarch:
    """As `SoftMarch`, of one world, on all ranks together.

    whole: the setup of all particles; setup_of(ids): that of particles ids (m,) of this rank. frames: steps to be
    looked at. interval: one state is kept every so many steps.
    """

    name = "the soft simulation"

    def __init__(
        self,
        ranks: Ranks,
        whole: Setup,
        setup_of: Callable[[Tensor], Setup],
        steps: int,
        frames: Sequence[int],
        interval: int,
        refuse: Callable[[Tensor, Tensor], None] | None,
    ) -> None:
        self.ranks, self.whole, self.setup_of, self.refuse = ranks, whole, setup_of, refuse
        self.steps, self.frames = steps, list(frames)
        self.schedule = Every(interval)
        length = interval * -(-STAY // interval)
        starts = range(0, max(steps, 1), length)
        self.bounds = [(first, min(first + length, steps)) for first in starts]
        self.failed = torch.zeros(1, dtype=torch.bool)
        self.migrated = 0
        """Particles of this rank that came from another one after the first segment."""

    # -- forward -------------------------------------------------------------------------------------------------------

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], list[Segment]]:
        """Do all segments, and return whole states on every rank."""
        given: dict[str, Tensor] = dict(zip(INPUTS, inputs))
        x = given["x"]
        total, dim = x.shape[1:]
        ids = torch.arange(total, device=x.device)[self.ranks.own(total)]
        rows = torch.cat([given[name][0].reshape(total, -1) for name in PARTS], 1)[ids]
        seen = [x.new_zeros(len(self.frames), 1, total, dim) for _ in range(2)]
        segments: list[Segment] = []
        for first, last in self.bounds:
            ids, migration = self._migrate(ids, rows[:, :dim])
            rows = migration.forward(rows)
            self.migrated += sum(len(index) for _, index in migration.receive) if first else 0
            here = [k for k, frame in enumerate(self.frames) if first < frame <= last or frame == first == 0]
            march = SoftMarch(
                self.setup_of(ids), last - first, [self.frames[k] - first for k in here], self.schedule, None
            )
            local = self._local(given, ids, rows, first, last)
            (*final, local_x, local_v), kept = march.forward(local, keep)
            if self._has_failed(march, ids, first, rows[:, :dim], total):
                self.failed = torch.ones_like(self.failed)
                return self._lost(given, seen), []
            rows = torch.cat([part[0].reshape(len(ids), -1) for part in final], 1)
            for whole, part in zip(seen, (local_x, local_v)):
                for row, k in enumerate(here):
                    whole[k, 0, ids] = part[row, 0]
            segments.append(Segment(first, last, ids, migration, march, kept))
        state = self._split(self._whole(rows, ids, total), given)
        return (*state, *[self.ranks.sum(x) for x in seen]), segments if keep else []

    def _migrate(self, ids: Tensor, x: Tensor) -> tuple[Tensor, Migration]:
        """Return which particles are here from now on, and how they get here; so far ids (m,) are, at x (m, d)."""
        key = self.whole.block_keys(x).cpu().numpy()
        blocks, work = np.unique(key, return_counts=True)
        told = self.ranks.gather((blocks, work))
        everywhere, index = np.unique(np.concatenate([keys for keys, _ in told]), return_inverse=True)
        total = np.bincount(index.ravel(), np.concatenate([work for _, work in told]), len(everywhere))
        places = np.stack(np.unravel_index(everywhere, self.whole.blocks), 1).astype(np.float64)
        owner = bisect(places, total, self.ranks.count)
        target = owner[np.searchsorted(everywhere, key)]
        coming = {
            rank: int(work[owner[np.searchsorted(everywhere, keys)] == self.ranks.rank].sum())
            for rank, (keys, work) in enumerate(told)
            if rank != self.ranks.rank
        }
        mine = ids.cpu()
        going = [(rank, torch.as_tensor(np.flatnonzero(target == rank))) for rank in coming]
        parts = {rank: torch.empty(count, dtype=torch.int64) for rank, count in coming.items() if count}
        going = [(rank, index) for rank, index in going if len(index)]
        self.ranks.swap([(rank, mine[index]) for rank, index in going], list(parts.items()))
        kept = torch.as_tensor(np.flatnonzero(target == self.ranks.rank))
        after = torch.cat([mine[kept], *parts.values()]).sort().values
        device = ids.device

        def place(some: Tensor) -> Tensor:
            return torch.searchsorted(after, some).to(device)

        return after.to(device), Migration(
            self.ranks,
            len(after),
            (kept.to(device), place(mine[kept])),
            [(rank, index.to(device)) for rank, index in going],
            [(rank, place(found)) for rank, found in parts.items()],
        )

    def _local(self, given: dict[str, Tensor], ids: Tensor, rows: Tensor, first: int, last: int) -> list[Tensor]:
        """Return the inputs of a segment: state (1, m, ...), numbers, gravity and actuation of its steps."""
        actuation = given["actuation"]
        return [
            *self._split(rows, given),
            given["numbers"][:, ids],
            given["gravity"],
            actuation[first:last] if len(actuation) else actuation,
        ]

    def _split(self, rows: Tensor, like: dict[str, Tensor]) -> list[Tensor]:
        """Return rows (m, w) as the parts of a state (1, m, ...)."""
        sizes = [like[name][0, 0].numel() for name in PARTS]
        parts = rows.split(sizes, 1)
        return [part.reshape(1, len(rows), *like[name].shape[2:]).contiguous() for name, part in zip(PARTS, parts)]

    def _whole(self, rows: Tensor, ids: Tensor, total: int) -> Tensor:
        """Return rows of all particles (n, ...) on every rank."""
        whole = rows.new_zeros(total, *rows.shape[1:])
        whole[ids] = rows
        return self.ranks.sum(whole)

    def _has_failed(self, march: SoftMarch, ids: Tensor, first: int, x: Tensor, total: int) -> bool:
        """Return whether a particle of some rank failed, unless that is an error, which is then raised on all."""
        if not march.setup.halo.any(bool(march.failed.any())):
            return False
        code = torch.where(march.code > 0, march.code + int(REASONS) * first, 0)
        code, x = self._whole(code, ids, total), self._whole(x, ids, total)
        if self.refuse is not None:
            self.refuse(code, x)
        return True

    def _lost(self, given: dict[str, Tensor], seen: list[Tensor]) -> tuple[Tensor, ...]:
        return tuple(torch.full_like(x, torch.nan) for x in (*[given[name] for name in PARTS], *seen))

    # -- backward ------------------------------------------------------------------------------------------------------

    def backward(
        self,
        kept: list[Segment],
        wanted: Sequence[bool],
        adj_outputs: Sequence[Tensor | None],
        inputs: Sequence[Tensor],
    ) -> tuple[Tensor | None, ...]:
        """Walk back through the segments; cotangents of outputs are whole, and the same on every rank."""
        if not kept:
            raise GradientError("the gradient of a soft rollout in which particles failed is not defined")
        given: dict[str, Tensor] = dict(zip(INPUTS, inputs))
        found = {name: torch.zeros_like(given[name]) for name in INPUTS}
        *adj_final, adj_x, adj_v = adj_outputs
        total = given["x"].shape[1]
        adj = torch.cat(
            [
                (torch.zeros_like(given[name]) if part is None else part)[0].reshape(total, -1)
                for name, part in zip(PARTS, adj_final)
            ],
            1,
        )[kept[-1].ids]
        before = [len(range(total)[self.ranks.own(total)]), *[len(segment.ids) for segment in kept[:-1]]]
        for segment, count in zip(reversed(kept), reversed(before)):
            first, last, ids, migration, march, states = segment
            here = [k for k, frame in enumerate(self.frames) if first < frame <= last or frame == first == 0]
            frames = [None if part is None else part[here][:, :, ids] for part in (adj_x, adj_v)]
            rows = states.states.new_zeros(len(ids), adj.shape[1])
            local = self._local(given, ids, rows, first, last)
            outputs = [*self._split(adj, given), *frames]
            asked = [*[True] * len(PARTS), *wanted[len(PARTS) :]]
            back: dict[str, Any] = dict(zip(INPUTS, march.pull_back(states, asked, outputs, local)))
            adj = torch.cat([back[name][0].reshape(len(ids), -1) for name in PARTS], 1)
            adj = migration.backward(adj, count)
            if back["numbers"] is not None:
                found["numbers"][:, ids] += back["numbers"]
            if back["gravity"] is not None:
                found["gravity"] += back["gravity"]
            if back["actuation"] is not None:
                found["actuation"][first:last] = back["actuation"]
        own = torch.arange(total, device=adj.device)[self.ranks.own(total)]
        found |= dict(zip(PARTS, self._split(self._whole(adj, own, total), given)))
        for name in INPUTS[len(PARTS) :]:
            self.ranks.sum(found[name])
        cotangents = [found[name] if want else None for name, want in zip(INPUTS, wanted)]
        refuse_not_finite(cotangents, adj_outputs)
        return tuple(cotangents)

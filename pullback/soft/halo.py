"""Blocks at the border between ranks: what the particles of others give to nodes is added to what one's own give.

See docs/derivations/decomposition.md, section "Particles".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pullback.core.ranks import Ranks

Tensor = torch.Tensor


class Halo:
    """All particles are here: nothing to exchange."""

    def add_ghosts(self, tensors: dict[str, Tensor | None], slots: int) -> int:
        """Give slots to blocks of other ranks that touch one's own; return how many slots to go over."""
        return slots

    def sum(self, rows: Tensor) -> None:
        """Add the arenas of other ranks to rows (capacity arena, d + 1) of own blocks and ghosts."""

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set on some rank."""
        return flag


class SharedHalo(Halo):
    """The blocks that one of several ranks has in common with others, found anew in each step.

    blocks: their number along each axis of the domain, the same on all ranks; arena: nodes of each block's arena.
    """

    def __init__(self, ranks: Ranks, blocks: Sequence[int], arena: int) -> None:
        self.ranks, self.blocks, self.arena = ranks, tuple(blocks), arena
        self.others = [rank for rank in range(ranks.count) if rank != ranks.rank]
        self._own = np.zeros(0, dtype=np.int32)
        self._theirs = dict.fromkeys(self.others, self._own)
        self._ghosts = self._own
        self._capacity = -1
        # slots of blocks to send, and of those that come, by rank; own blocks that are in sums
        self._send: list[tuple[int, Tensor]] = []
        self._receive: list[tuple[int, Tensor]] = []
        self._summed = torch.zeros(0, dtype=torch.int64)

    def add_ghosts(self, tensors: dict[str, Tensor | None], slots: int) -> int:
        """Learn the blocks of others, and give slots to those that share nodes with own ones."""
        count, table, all_keys = tensors["count"], tensors["table"], tensors["keys"]
        assert count is not None
        assert table is not None
        assert all_keys is not None
        capacity = len(all_keys)
        slots = min(int(count[0]), capacity)
        own = all_keys[:slots].cpu().numpy().copy()
        theirs = self._keys_of_others(own)
        same = capacity == self._capacity and np.array_equal(own, self._own)
        if not same or not all(np.array_equal(theirs[rank], self._theirs[rank]) for rank in self.others):
            self._own, self._theirs, self._capacity = own, theirs, capacity
            self._make_lists(table.device)
        room = capacity - slots
        ghosts = torch.as_tensor(self._ghosts[:room]).to(table)
        all_keys[slots : slots + len(ghosts)] = ghosts
        table[ghosts.long()] = torch.arange(slots, slots + len(ghosts), dtype=table.dtype, device=table.device)
        count[0] = slots + len(ghosts)
        if len(self._ghosts) > room:
            count[1] = 1
        return slots + len(ghosts)

    def _keys_of_others(self, own: np.ndarray) -> dict[int, np.ndarray]:
        """Return the keys of the blocks of each other rank, in the order of their slots there."""
        size = torch.tensor([len(own)])
        sizes = {rank: torch.empty_like(size) for rank in self.others}
        self.ranks.swap([(rank, size) for rank in self.others], list(sizes.items()))
        keys = torch.as_tensor(own)
        found = {rank: torch.empty(int(count), dtype=keys.dtype) for rank, count in sizes.items()}
        self.ranks.swap(
            [(rank, keys) for rank in self.others if len(keys)], [(r, x) for r, x in found.items() if len(x)]
        )
        return {rank: x.numpy() for rank, x in found.items()}

    def _make_lists(self, device: torch.device) -> None:
        own, theirs = self._own, self._theirs
        wanted = {rank: keys[self._touch(keys, own)] for rank, keys in theirs.items()}
        sent = {rank: own[self._touch(own, keys)] for rank, keys in theirs.items()}
        coming = np.concatenate(list(wanted.values()))
        self._ghosts = np.setdiff1d(coming, own)
        known = np.concatenate([own, self._ghosts])
        order = np.argsort(known)

        def slots(keys: np.ndarray) -> Tensor:
            # what is beyond the room there is comes to nothing: the steps are done again with more
            found = np.minimum(order[np.searchsorted(known[order], keys)], self._capacity - 1)
            return torch.as_tensor(found, dtype=torch.int64, device=device)

        self._send = [(rank, slots(keys)) for rank, keys in sent.items() if len(keys)]
        self._receive = [(rank, slots(keys)) for rank, keys in wanted.items() if len(keys)]
        self._summed = slots(own[np.isin(own, coming)])

    def _touch(self, keys: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return which blocks are among others or next to one of them, and so have nodes in common with it."""
        wide = [size + 2 for size in self.blocks]

        def padded(keys: np.ndarray) -> np.ndarray:
            return np.ravel_multi_index([c + 1 for c in np.unravel_index(keys, self.blocks)], wide)

        steps = padded(np.arange(1)) - np.ravel_multi_index(np.indices((3,) * len(wide)), wide).reshape(1, -1)
        return np.isin(padded(keys), padded(others)[:, None] + steps)

    def sum(self, rows: Tensor) -> None:
        """Add up the arenas of all ranks in the order of ranks: the same bits on each."""
        if not self._receive:
            return
        arenas = rows.view(-1, self.arena * rows.shape[1])
        receive = [(rank, arenas.new_empty(len(index), arenas.shape[1])) for rank, index in self._receive]
        self.ranks.swap([(rank, arenas[index]) for rank, index in self._send], receive)
        mine = arenas[self._summed]
        arenas[self._summed] = 0.0
        parts = [(rank, index, x) for (rank, index), (_, x) in zip(self._receive, receive)]
        for _, index, x in sorted([*parts, (self.ranks.rank, self._summed, mine)], key=lambda part: part[0]):
            arenas.index_add_(0, index, x)

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set on some rank."""
        return bool(self.ranks.sum(torch.tensor([int(flag)]))[0])

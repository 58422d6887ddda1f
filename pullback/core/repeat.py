"""A small launch repeated: for tensors of the same shapes only addresses change, which saves 30 µs of Python a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pullback.core.arrays import LaunchArrays
from pullback.core.group_launch import GroupKernel
from pullback.core.launch import Launcher
from pullback.core.threads import WORLDS_PER_SHARD

Tensor = torch.Tensor

SMALL = 1 << 14
"""Numbers, at most, that a launch writes for it to be kept."""


class Repeat:
    """A launch on one CPU thread, repeated for tensors of the same shapes, type and layout.

    Its kernel takes the tensors it reads, then those it writes, then scratch. What it writes are new tensors in every
    launch, zeros at first if `zeroed`. `plain` of the last ones are not given to autograd: they are new only if they
    differ from those of the launch before. `waited` is the kernel for groups of worlds that will take its place, and
    how long a launch takes until then.
    """

    @staticmethod
    def is_worth(
        arrays: LaunchArrays, launcher: Launcher, reads: Sequence[Tensor | None], writes: Sequence[Tensor | None]
    ) -> bool:
        """Return whether a launch was small, on one CPU thread, and read contiguous tensors only."""
        if not arrays.on_cpu or not 0 < arrays.worlds <= WORLDS_PER_SHARD or arrays.shards > 1:
            return False
        if launcher.is_long(arrays.worlds):
            return False
        is_small = sum(x.numel() for x in writes if x is not None) <= SMALL
        return is_small and all(x is None or x.is_contiguous() for x in reads)

    def __init__(
        self,
        arrays: LaunchArrays,
        launcher: Launcher,
        reads: Sequence[Tensor | None],
        writes: Sequence[Tensor | None],
        *,
        zeroed: bool = False,
        plain: int = 0,
        waited: tuple[GroupKernel, float] | None = None,
    ) -> None:
        self.waited = waited
        self.kept = arrays.kept
        self.dtype = arrays.dtype
        self.shapes = [None if x is None else x.shape for x in reads]
        self.launch, self.addresses, places = launcher.copy()
        self.reads_at, writes_at = places[: len(reads)], places[len(reads) :]
        self.make: Any = torch.zeros_like if zeroed else torch.empty_like
        first_plain = len(writes) - plain
        self.like = [None if x is None else torch.empty_like(x) for x in writes[:first_plain]]
        self.new_at = list(zip(writes_at, self.like))
        self.plain = [_PlainOutput(x) for x in writes[first_plain:] if x is not None]
        for place, x in zip(writes_at[first_plain:], self.plain):
            self.addresses[place] = x.written.data_ptr()

    def fits(self, reads: Sequence[Tensor | None]) -> bool:
        """Return whether tensors have the shapes, type and layout of those of the first launch."""
        if self.waited is not None and self.waited[0].is_ready:
            return False
        dtype = self.dtype
        for x, shape in zip(reads, self.shapes):
            if x is None or shape is None:
                if x is not shape:
                    return False
            elif x.shape != shape or x.dtype is not dtype or not x.is_cpu or not x.is_contiguous():
                return False
        return True

    def __call__(self, reads: Sequence[Tensor | None]) -> tuple[Any, ...]:
        """Launch, and return what was written."""
        addresses = self.addresses
        for place, x in zip(self.reads_at, reads):
            if x is not None:
                addresses[place] = x.data_ptr()
        make, written = self.make, []
        for place, x in self.new_at:
            if x is not None:
                # 2 µs less than `torch.empty`
                x = make(x)
                addresses[place] = x.data_ptr()
            written.append(x)
        self.launch()
        if self.waited is not None:
            self.waited[0].spend(self.waited[1])
        for x in self.plain:
            written.append(x.current())
        return tuple(written)


class _PlainOutput:
    """An output without a gradient: the kernel writes to one buffer, which is copied when it has changed."""

    def __init__(self, first: Tensor) -> None:
        self.written = first.clone()
        self.bytes = self.written.numpy().data
        self._keep(first)

    def _keep(self, copy: Tensor) -> None:
        self.copy, self.copied_bytes = copy, copy.numpy().data

    def current(self) -> Tensor:
        """Return a tensor with what the buffer holds now, which no later launch changes."""
        if self.bytes != self.copied_bytes:
            self._keep(self.written.clone())
        return self.copy

"""Where the states live that a rollout keeps for its backward pass: in the device's memory, in the host's, on a disk.

A state is written once, on the way forward, and read on the way back, the last one first. Disks and the host's memory
are slow but large; a thread writes behind the computation and reads ahead of it, so that as long as a state is written
faster than the next is computed nothing waits. With such a store a schedule may keep every state, and nothing is
computed twice.
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.rollout.checkpoint import Every, Plan, Schedule

Tensor = torch.Tensor

STAGES = 3
"""States on their way to or from a disk at once."""


class Store(Protocol):
    """Kept states by their slot."""

    def write(self, slot: int, state: Tensor) -> None:
        """Keep a copy of a state."""
        ...

    def read(self, slot: int) -> Tensor:
        """Return a kept state, valid until the next one is read; the one before it is likely to be read next."""
        ...


class MemoryStore:
    """States in the memory of their device."""

    def __init__(self, slots: int, like: Tensor) -> None:
        self.states = like.new_empty(slots, *like.shape)

    def write(self, slot: int, state: Tensor) -> None:
        """Keep a copy of a state."""
        self.states[slot].copy_(state)

    def read(self, slot: int) -> Tensor:
        """Return a kept state."""
        return self.states[slot]


class HostStore:
    """States in the memory of the host, pinned, so that copies run beside the computation of a GPU."""

    def __init__(self, slots: int, like: Tensor) -> None:
        self.states = torch.empty(slots, *like.shape, dtype=like.dtype, pin_memory=not like.is_cpu)
        self.device = like.device

    def write(self, slot: int, state: Tensor) -> None:
        """Keep a copy of a state."""
        # on the stream of the computation: the state is not overwritten before it is copied
        self.states[slot].copy_(state, non_blocking=True)

    def read(self, slot: int) -> Tensor:
        """Return a kept state."""
        return self.states[slot].to(self.device, non_blocking=True)


class DiskStore:
    """States in a file without a name, which is gone when it is closed, however that happens."""

    def __init__(self, slots: int, like: Tensor, folder: Path | None) -> None:
        self.device, self.bytes = like.device, like.numel() * like.element_size()
        self._folder = tempfile.gettempdir() if folder is None else folder
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            os.posix_fallocate(self._file.fileno(), 0, max(1, slots * self.bytes))
        except OSError as error:
            raise self._failed(error, slots) from error
        self._stages = [torch.empty(like.shape, dtype=like.dtype) for _ in range(STAGES)]
        self._busy: list[Future[Any] | None] = [None] * STAGES
        self._holds = [-1] * STAGES
        self._turn, self._slots = 0, slots
        self._thread = ThreadPoolExecutor(1, "pullback states")

    def write(self, slot: int, state: Tensor) -> None:
        """Copy a state and write it behind the computation."""
        stage = self._next_stage()
        self._stages[stage].copy_(state)
        self._holds[stage] = slot
        self._busy[stage] = self._thread.submit(self._move, os.pwrite, stage, slot)

    def read(self, slot: int) -> Tensor:
        """Return a kept state, and read the one before it ahead."""
        stage = self._holds.index(slot) if slot in self._holds else self._fetch(slot)
        self._wait(stage)
        found = self._stages[stage]
        if slot > 0 and slot - 1 not in self._holds:
            # not into the stage that is about to be used
            self._turn = (stage + 1) % STAGES
            self._fetch(slot - 1)
        return found.to(self.device)

    def _fetch(self, slot: int) -> int:
        stage = self._next_stage()
        self._holds[stage] = slot
        self._busy[stage] = self._thread.submit(self._move, os.preadv, stage, slot)
        return stage

    def _next_stage(self) -> int:
        stage, self._turn = self._turn, (self._turn + 1) % STAGES
        self._wait(stage)
        return stage

    def _wait(self, stage: int) -> None:
        future, self._busy[stage] = self._busy[stage], None
        if future is not None:
            try:
                future.result()
            except OSError as error:
                raise self._failed(error, self._slots) from error

    def _move(self, call: Any, stage: int, slot: int) -> None:
        """Write or read a state, all of it; a call may do less than it was asked for."""
        data = self._stages[stage].numpy().reshape(-1).view(np.uint8).data
        done, start = 0, slot * self.bytes
        while done < self.bytes:
            rest = data[done:]
            moved = call(self._file.fileno(), [rest] if call is os.preadv else rest, start + done)
            if moved <= 0:
                raise OSError(f"the file ends after {start + done} bytes")
            done += moved

    def _failed(self, error: OSError, slots: int) -> PullbackError:
        size = slots * self.bytes / 1e9
        return PullbackError(
            f"states cannot be kept in {self._folder} ({error.strerror or error}); {slots} of them are {size:.3g} GB: "
            f"give a folder with more room, OnDisk(..., folder=...), or keep fewer, OnDisk(Every(k))"
        )


@dataclass(frozen=True)
class OnDisk:
    """A schedule whose kept states are on a disk: `checkpoint=OnDisk()` keeps all, `OnDisk(Every(10))` one in ten.

    folder: where, by default that of temporary files. The file has no name and is gone when the run is.
    """

    schedule: Schedule = field(default_factory=Every)
    folder: str | Path | None = None

    def kept(self, n: int) -> np.ndarray:
        """Return the states that the forward pass keeps."""
        return self.schedule.kept(n)

    def plan(self, n: int) -> Plan:
        """Return what the backward pass of n steps does."""
        return self.schedule.plan(n)

    def open(self, slots: int, like: Tensor) -> Store:
        """Return a store of so many states."""
        return DiskStore(slots, like, None if self.folder is None else Path(self.folder))


@dataclass(frozen=True)
class OnHost:
    """A schedule whose kept states are in the host's memory, for computations on a GPU."""

    schedule: Schedule = field(default_factory=Every)

    def kept(self, n: int) -> np.ndarray:
        """Return the states that the forward pass keeps."""
        return self.schedule.kept(n)

    def plan(self, n: int) -> Plan:
        """Return what the backward pass of n steps does."""
        return self.schedule.plan(n)

    def open(self, slots: int, like: Tensor) -> Store:
        """Return a store of so many states."""
        return HostStore(slots, like)


def open_store(schedule: Schedule, slots: int, like: Tensor) -> Store:
    """Return where a schedule keeps its states: in the device's memory unless it says otherwise."""
    return schedule.open(slots, like) if isinstance(schedule, (OnDisk, OnHost)) else MemoryStore(slots, like)

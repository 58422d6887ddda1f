"""One kernel over the items of a large field, launched again and again: a pass."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import byref
from typing import Any

from pullback.core.launch import packet_type
from pullback.core.modules import record
from pullback.core.tensors import kernel_arguments
from pullback.core.threads import Sharing, run_side_by_side


class Pass:
    """A kernel with its arguments in place: from launch to launch only integers change.

    The kernel's first parameter is the first item; `integers` others, given in each call, come next; `arguments` are
    all that follow, by name: tensors, structs and numbers. On a CPU up to `threads` threads share the items, each a
    contiguous range.
    """

    ITEMS_PER_THREAD = 1024
    """A thread is worth waking for at least this many items."""

    def __init__(
        self,
        kernel: Any,
        arguments: Mapping[str, Any],
        device: str,
        *,
        integers: int = 0,
        threads: int = 1,
        stream: Any = None,
    ) -> None:
        self.arguments = arguments
        self.stream = stream
        self.on_cpu = device == "cpu"
        self.threads = threads if self.on_cpu else 1
        values = kernel_arguments(kernel, arguments, 1 + integers)
        self.command = command = record(kernel, [*[0] * (1 + integers), *values], device)
        self.count = -1
        self.sharing = Sharing()
        if self.on_cpu:
            packet = packet_type(command)
            self.run = command.hooks.forward
            self.names = [name for name, _ in packet._fields_[1 : 1 + integers]]
            self.shards = []
            for _ in range(self.threads):
                bounds = type(command.bounds).from_buffer_copy(command.bounds)
                packed: Any = packet(*command.params[1:])
                self.shards.append((bounds, packed, (byref(bounds), byref(packed))))
        else:
            self.places = command.params[1 : 2 + integers]

    def __call__(self, first: int, count: int, *integers: int) -> None:
        """Run the kernel over `count` items from `first` on."""
        if count <= 0:
            return
        if not self.on_cpu:
            if count != self.count:
                self.command.set_dim(count)
                self.count = count
            for place, value in zip(self.places, (first, *integers)):
                place.value = value
            self.command.launch(self.stream)
            return
        shards = min(self.threads, max(1, count // self.ITEMS_PER_THREAD))
        for shard in range(shards):
            bounds, packet, _ = self.shards[shard]
            start, stop = count * shard // shards, count * (shard + 1) // shards
            bounds.shape[0] = bounds.size = stop - start
            packet.argument0 = first + start
            for name, value in zip(self.names, integers):
                setattr(packet, name, value)
        if shards == 1:
            self.run(*self.shards[0][2])
        else:
            run_side_by_side(self.run, [pointers for _, _, pointers in self.shards[:shards]], self.sharing)

"""Work of many small kernels that is done again and again: on a GPU it is recorded once, as a CUDA graph.

An update of small networks is some 200 launches of a few microseconds each, which Python cannot issue as fast as a GPU
takes them. Recorded, they are one launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Tensor = torch.Tensor

FIRST = 3
"""Calls before the recording; they make what is made once, as torch asks for."""
RECOMPILED = 256
"""How many versions of a function torch.compile may keep."""


class Recorded:
    """A function of tensors, which it reads in place and changes state by; on a CPU simply called.

    All tensors that it uses but its arguments stay where they are, or `forget` is called; arguments keep their shapes.
    Random numbers come from `random` alone. Nothing in it may wait for the GPU.
    """

    def __init__(self, work: Callable[..., None], device: torch.device, random: torch.Generator | None = None) -> None:
        self._work, self._random = work, random
        self._on_gpu = device.type == "cuda"
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._arguments: tuple[Tensor, ...] = ()

    def forget(self) -> None:
        """Record anew with the next call: a tensor that was used is no longer the one that is used now."""
        self._graph = None

    def __call__(self, *arguments: Tensor) -> None:
        """Do the work once."""
        if not self._on_gpu:
            self._work(*arguments)
        elif self._calls < FIRST:
            self._calls += 1
            self._apart(*arguments)
        else:
            graph = self._graph or self._record(*arguments)
            for kept, given in zip(self._arguments, arguments):
                kept.copy_(given)
            graph.replay()

    def _apart(self, *arguments: Tensor) -> None:
        """Do the work on a stream of its own, as recording will."""
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            self._work(*arguments)
        current.wait_stream(stream)

    def _record(self, *arguments: Tensor) -> torch.cuda.CUDAGraph:
        """Record the work, which does not do it."""
        self._arguments = tuple(x.clone() for x in arguments)
        graph = self._graph = torch.cuda.CUDAGraph()
        if self._random is not None:
            graph.register_generator_state(self._random)
        # other threads may compile kernels meanwhile
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self._work(*self._arguments)
        return graph


def adam(parameters: list[Tensor], rate: float) -> torch.optim.Adam:
    """Return Adam for tensors of one device, whose steps can be recorded."""
    on_gpu = parameters[0].device.type == "cuda"
    optimizer = torch.optim.Adam(parameters, rate, fused=True, capturable=on_gpu)
    # the first steps come before the recording: no reason for torch to warn
    optimizer._warned_capturable_if_run_uncaptured = True  # pyright: ignore[reportAttributeAccessIssue]
    return optimizer


def descend(optimizer: torch.optim.Optimizer, parameters: list[Tensor], loss: Tensor) -> None:
    """Take one step of an optimiser along the gradient of a loss, by these parameters only."""
    for parameter, slope in zip(parameters, torch.autograd.grad(loss, parameters)):
        # compiled code may lay out a gradient otherwise, which a fused step of Adam refuses
        same = slope.stride() == parameter.stride()
        parameter.grad = slope if same else torch.empty_like(parameter).copy_(slope)
    optimizer.step()


@contextmanager
def rounding(tf32: bool) -> Iterator[None]:
    """Let matrix products on an NVIDIA GPU round their factors to 11 bits for a while, which is faster."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32 or before
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def fused(work: Callable[..., Any], device: torch.device, *, compiled: bool) -> Callable[..., Any]:
    """Return a function of tensors whose elementwise work is compiled into few kernels, where that is asked for.

    The first calls take torch.compile's time, a minute or so; a program may have any number of such functions.
    """
    if not compiled or device.type == "cpu":
        return work
    inner = torch.compile(work, dynamic=False)
    # the limit counts functions of the same source, and runs with other sizes have theirs
    limit = torch._dynamo.config.patch(recompile_limit=RECOMPILED)  # pyright: ignore[reportPrivateUsage]

    def call(*arguments: Any) -> Any:
        with limit:
            return inner(*arguments)

    return call

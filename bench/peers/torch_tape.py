"""The Laikago's steps in PyTorch with its autograd: eager, with a checkpoint at each step, or by `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from bench.peers import laikago_step
from bench.peers.contestant import Functions, Job, run, time_of

Tensor = torch.Tensor


class Library:
    """The functions of PyTorch that a step asks for."""

    stack, concat, cross = staticmethod(torch.stack), staticmethod(torch.cat), staticmethod(torch.linalg.cross)
    sin, cos, sqrt = staticmethod(torch.sin), staticmethod(torch.cos), staticmethod(torch.sqrt)
    where: Any = staticmethod(torch.where)
    greater: Any = staticmethod(torch.gt)

    @staticmethod
    def minimum(x: Tensor, most: float) -> Tensor:
        """Return x, at most so much."""
        return x.clamp(max=most)

    @staticmethod
    def maximum(x: Tensor, least: float) -> Tensor:
        """Return x, at least so much."""
        return x.clamp(min=least)

    @staticmethod
    def solve(M: Tensor, columns: Tensor) -> Tensor:
        """Return M^-1 columns by Cholesky."""
        return torch.cholesky_solve(columns, torch.linalg.cholesky(M))

    @staticmethod
    def repeat(n: int, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """Return x after n applications of a function."""
        for _ in range(n):
            x = function(x)
        return x


def prepare(job: Job) -> Functions:
    """Return the functions, compiled where asked for."""
    torch.set_num_threads(1)
    if job.settings.get("compile"):
        # in two parts: a step as a whole, with all its sweeps, is not compiled within minutes
        for name in ("equations", "sweep"):
            setattr(laikago_step, name, torch.compile(getattr(laikago_step, name), fullgraph=True, dynamic=False))
    robot = job.constants(torch.tensor)
    leaves = [torch.tensor(x, requires_grad=True) for x in (job.q, job.qd, job.controls)]

    def one(q: Tensor, qd: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        return laikago_step.step(Library, robot, (q, qd), u)

    def rollout(steps: int) -> tuple[Tensor, Tensor]:
        q, qd, controls = leaves
        for u in controls[:steps]:
            if job.settings.get("checkpoint"):
                # the other kind keeps every step's nodes of the graph, which are most of the memory here
                q, qd = checkpoint(one, q, qd, u, use_reentrant=True)
            else:
                q, qd = one(q, qd, u)
        return q, qd

    def gradient(steps: int) -> Any:
        for leaf in leaves:
            leaf.grad = None
        loss: Any = sum(x.square().sum() for x in rollout(steps))
        loss.backward()
        return [x.grad.numpy() for x in leaves if x.grad is not None]

    steps = len(job.controls)
    _, seconds = time_of(lambda: gradient(2))
    return Functions(
        lambda: tuple(x.detach().numpy() for x in rollout(steps)),
        lambda: gradient(steps),
        seconds if job.settings.get("compile") else 0.0,
    )


if __name__ == "__main__":
    run(prepare, ("torch",))

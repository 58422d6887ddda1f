"""The Laikago's steps by Pullback: `sim.rollout` and its adjoint."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

import pullback as pb
from bench.laikagos import stand
from bench.peers.contestant import Functions, Job, run, time_of

Tensor = torch.Tensor


def prepare(job: Job) -> Functions:
    """Return the functions; kernels are compiled, or taken from where they are kept."""
    torch.set_num_threads(1)
    contact = replace(pb.PGS(iterations=50), **job.settings.get("contact", {}))
    sim = stand(contact=contact).sim
    start = [torch.tensor(x)[None].requires_grad_() for x in (job.q, job.qd)]
    controls = torch.tensor(job.controls)[:, None].requires_grad_()

    def rollout(controls: Tensor) -> tuple[Tensor, Tensor]:
        states = sim.rollout(pb.State(start[0], start[1]), controls, checkpoint=job.settings.get("checkpoint", 1))
        return states.q[-1], states.qd[-1]

    def gradient(controls: Tensor) -> Any:
        loss: Any = sum(x.square().sum() for x in rollout(controls))
        return [x.squeeze(y).numpy() for x, y in zip(torch.autograd.grad(loss, [*start, controls]), (0, 0, 1))]

    _, seconds = time_of(lambda: gradient(controls[:2].detach().requires_grad_()))
    return Functions(
        lambda: tuple(x[0].detach().numpy() for x in rollout(controls)), lambda: gradient(controls), seconds
    )


if __name__ == "__main__":
    run(prepare, ("torch", "warp-lang"))

"""The Laikago's steps by tests/reference/step.py: plain PyTorch, to be read and not to be fast."""

from __future__ import annotations

from typing import Any

import torch

import pullback as pb
from bench.laikagos import FRICTION, SERVO, TOES
from bench.peers.contestant import Functions, Job, run
from tests.reference.actuators import actuators
from tests.reference.dynamics import description_parameters
from tests.reference.step import Settings, ground_pairs, rollout


def prepare(job: Job) -> Functions:
    """Return the functions."""
    torch.set_num_threads(1)
    model = pb.load("laikago", base="floating").model
    parameters = description_parameters(model)
    friction, none = (torch.tensor(x, dtype=torch.float64) for x in (FRICTION, 0.0))
    options: dict[str, Any] = {
        "gravity": torch.tensor([0.0, 0.0, -9.81], dtype=torch.float64),
        "settings": Settings(),
        "pairs": [pair for pair in ground_pairs(model, friction, none) if model.links[pair.a.link].name in TOES],
        "driven": actuators(model, gain=SERVO["kp"], kp=SERVO["kp"], kd=SERVO["kd"], limit=SERVO["limit"]),
    }
    leaves = [torch.tensor(x, requires_grad=True) for x in (job.q, job.qd, job.controls)]

    def final() -> tuple[torch.Tensor, torch.Tensor]:
        q, qd = rollout(model, parameters, *leaves, **options)
        return q[-1], qd[-1]

    def gradient() -> Any:
        loss: Any = sum(x.square().sum() for x in final())
        return [x.numpy() for x in torch.autograd.grad(loss, leaves)]

    return Functions(lambda: tuple(x.detach().numpy() for x in final()), gradient)


if __name__ == "__main__":
    run(prepare, ("torch",))

"""Pullback on the engine benchmark's scene: `sim.rollout` and its adjoint."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

import pullback as pb
from bench.laikago_arrays import laikago_arrays
from bench.laikagos import stand
from bench.peers import torch_tape
from bench.peers.contestant import Job, time_of
from bench.peers.engine import WORLDS, Engine, Scene, run


def prepare(scene: Scene) -> Engine:
    """Return the loss and its gradient."""
    torch.set_num_threads(1)
    standing = stand()
    exact = stand(contact=pb.PGS(iterations=1000, tolerance=1e-15)).sim

    def loss_of(controls: torch.Tensor, sim: pb.Sim = standing.sim) -> torch.Tensor:
        states = sim.rollout(standing.state, controls)
        return states.q[-1].square().sum() + states.qd[-1].square().sum()

    def loss(controls: np.ndarray, sim: pb.Sim = standing.sim) -> float:
        with torch.no_grad():
            return float(loss_of(torch.tensor(controls)[:, None], sim))

    def gradient(controls: np.ndarray) -> np.ndarray:
        leaf = torch.tensor(controls)[:, None].requires_grad_()
        return torch.autograd.grad(loss_of(leaf), leaf)[0][:, 0].numpy()

    def autograd(controls: np.ndarray) -> np.ndarray:
        q, qd = (x[0].numpy() for x in (standing.state.q, standing.state.qd))
        return torch_tape.prepare(Job(laikago_arrays(), q, qd, controls, {})).gradient()[2]

    groups = standing.sim._programs.step().groups(standing.sim.dtype)
    state = pb.State(standing.state.q.repeat(WORLDS, 1), standing.state.qd.repeat(WORLDS, 1))

    def batch(controls: np.ndarray) -> None:
        with torch.no_grad():
            standing.sim.rollout(state, torch.tensor(controls).transpose(0, 1))

    # kernels are loaded here
    _, seconds = time_of(lambda: gradient(scene.controls[:2]))
    if groups is not None:
        groups.prepare()
    return Engine(loss, gradient, "", seconds, partial(loss, sim=exact), autograd, batch)


if __name__ == "__main__":
    run(prepare, ("torch", "warp-lang"))

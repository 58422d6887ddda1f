"""Physics at the pace of a clock: steps of a simulation, and a spring that pulls at a body."""

from __future__ import annotations

import time

import numpy as np
import torch

from pullback.rigid.sim import Sim
from pullback.rigid.state import State

Tensor = torch.Tensor

CHUNK = 1.0 / 120.0
"""Seconds that are simulated in one launch, between which a spring is computed anew."""
FREQUENCY = 12.0
"""Of the spring and the mass it pulls at [rad/s]."""


class Physics:
    """A simulation that runs in real time, or as fast as the machine can."""

    def __init__(self, sim: Sim, state: State) -> None:
        self.sim = sim
        self.start = self.state = state.detach()
        self.time = 0.0
        self.steps = max(1, round(CHUNK / sim.dt))
        self.controls = torch.zeros(1, sim.nu, dtype=sim.dtype, device=sim.device)
        self.debt = 0.0
        """Seconds that the clock is ahead."""

    def reset(self) -> None:
        """Go back to the start."""
        self.state, self.time, self.debt = self.start, 0.0, 0.0

    def advance(self, seconds: float, pull: Pull | None = None) -> bool:
        """Simulate so many seconds, or what can be done in them; return whether the worlds are finite."""
        self.debt = min(self.debt + seconds, 0.1)
        chunk, begin = self.steps * self.sim.dt, time.perf_counter()
        while self.debt >= chunk and time.perf_counter() - begin < max(seconds, CHUNK):
            state = self.state if pull is None else pull.apply(self.sim, self.state, chunk)
            u = self.controls.expand(self.steps, -1, -1)
            with torch.no_grad():
                motion = self.sim.rollout(state, u.contiguous(), checkpoint=self.steps, check=False)
            if not bool(torch.isfinite(motion.q[-1]).all() & torch.isfinite(motion.qd[-1]).all()):
                return False
            self.state = motion[-1].detach()
            self.debt -= chunk
            self.time += chunk
        return True


class Pull:
    """A spring between a point of a link and a target, in one of the worlds.

    Its impulse over `dt` is λ = dt (k (target − x − dt v⁺) − d v⁺), where v⁺ = v + A λ is the point's velocity after
    it and A = J M⁻¹ Jᵀ: implicit, and so stable however long dt is. k and d follow from the mass it pulls at, 3/tr(A).
    """

    def __init__(self, link: str, offset: np.ndarray, world: int = 0) -> None:
        self.link, self.offset, self.world = link, offset, world
        self.target = np.zeros(3)

    def point(self, sim: Sim, state: State) -> np.ndarray:
        """Return where the point is [m]."""
        position, _ = sim.link_poses(state, [self.link], self._offset(sim))
        return position[self.world, 0].double().cpu().numpy()

    def _offset(self, sim: Sim) -> Tensor:
        return torch.as_tensor(self.offset, dtype=sim.dtype, device=sim.device)

    def apply(self, sim: Sim, state: State, dt: float) -> State:
        """Return the state with the velocity that the spring's impulse leaves."""
        J, Minv_Jt, A = self._mobility(sim, state)
        x = torch.as_tensor(self.point(sim, state), dtype=sim.dtype, device=sim.device)
        target = torch.as_tensor(self.target, dtype=sim.dtype, device=sim.device)
        mass = 3.0 / torch.trace(A).clamp_min(1e-9)
        k, d = mass * FREQUENCY**2, 2.0 * mass * FREQUENCY
        v = J @ state.qd[self.world]
        eye = torch.eye(3, dtype=sim.dtype, device=sim.device)
        impulse = torch.linalg.solve(eye + dt * (k * dt + d) * A, dt * (k * (target - x - dt * v) - d * v))
        return self._pushed(state, Minv_Jt @ impulse)

    def push(self, sim: Sim, state: State, velocity: np.ndarray) -> State:
        """Return the state after an impulse at the point that would give it this velocity [m/s] if it were alone."""
        _, Minv_Jt, A = self._mobility(sim, state)
        mass = 3.0 / torch.trace(A).clamp_min(1e-9)
        impulse = mass * torch.as_tensor(velocity, dtype=sim.dtype, device=sim.device)
        return self._pushed(state, Minv_Jt @ impulse)

    def _pushed(self, state: State, dv: Tensor) -> State:
        qd = state.qd.clone()
        qd[self.world] += dv
        return State(state.q, qd, state.impulses)

    def _mobility(self, sim: Sim, state: State) -> tuple[Tensor, Tensor, Tensor]:
        """Return J (3, nv) of the point, M⁻¹ Jᵀ (nv, 3), and J M⁻¹ Jᵀ."""
        J = sim.link_jacobian(state, self.link, self._offset(sim))[self.world, :3].detach()
        Minv_Jt = torch.linalg.solve(inertia_matrix(sim, state, self.world), J.mT)
        return J, Minv_Jt, J @ Minv_Jt


def inertia_matrix(sim: Sim, state: State, world: int) -> Tensor:
    """Return M (nv, nv) of all robots and bodies of a world: the gradient of ½ vᵀ M v by v, at every unit velocity."""
    worlds = len(state.q)
    unit = torch.eye(sim.nv, dtype=sim.dtype, device=sim.device)
    if sim.parameters.packed().shape[0] == 1:
        return _momenta(sim, state.q[world].expand(sim.nv, -1), unit, state.impulses)
    rows = [_momenta(sim, state.q, row.expand(worlds, -1), state.impulses)[world] for row in unit]
    return torch.stack(rows)


def _momenta(sim: Sim, q: Tensor, qd: Tensor, impulses: Tensor | None) -> Tensor:
    """Return M v (B, nv), the gradient of the kinetic energy by v."""
    with torch.enable_grad():
        moving = qd.detach().clone().requires_grad_()
        kept = None if impulses is None else impulses.new_zeros(len(q), impulses.shape[1])
        kinetic, _ = sim.energies(State(q.detach().contiguous(), moving, kept))
        (momenta,) = torch.autograd.grad(kinetic.sum(), moving)
    return momenta

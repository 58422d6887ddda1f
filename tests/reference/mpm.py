"""Material points in plain torch, float64, on a dense grid: docs/derivations/mpm.md, one line an equation.

Gradients are autograd's. Eigenvectors are torch's, so gradients of what flows plastically need distinct eigenvalues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

import torch

Tensor = torch.Tensor

Collide = Callable[[Tensor, Tensor, Tensor], Tensor]

KINDS = ("neo_hookean", "fixed_corotated", "fluid", "von_mises", "drucker_prager")


@dataclass
class Scene:
    """A grid that starts in `origin`, walls (normal, offset, kind, friction), and what particles are made of.

    kind (n,) of KINDS by number; mass, volume (n,); numbers (n, 3): mu, lam, kappa, or K, k of a fluid; viscosity (n,);
    fibre (n, d); actuator (n,), -1: none.
    """

    cell: float
    dt: float
    origin: Tensor
    shape: tuple[int, ...]
    kind: Tensor
    mass: Tensor
    volume: Tensor
    numbers: Tensor
    viscosity: Tensor
    gravity: Tensor
    fibre: Tensor | None = None
    actuator: Tensor | None = None
    walls: list[tuple[Tensor, float, str, float]] = field(default_factory=list)
    drag: float = 0.0


@dataclass
class State:
    """x, v (n, d), C, F (n, d, d), history (n,)."""

    x: Tensor
    v: Tensor
    C: Tensor
    F: Tensor
    history: Tensor

    def tensors(self) -> list[Tensor]:
        return [self.x, self.v, self.C, self.F, self.history]


def at_rest(x: Tensor, v: Tensor | None = None) -> State:
    n, d = x.shape
    eye = torch.eye(d, dtype=x.dtype).expand(n, d, d).clone()
    return State(x, torch.zeros_like(x) if v is None else v, torch.zeros_like(eye), eye, torch.zeros(n, dtype=x.dtype))


def weights(scene: Scene, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return flat node numbers (n, 3^d), weights, and offsets d_i (n, 3^d, d), eq. (1)."""
    n, d = x.shape
    s = (x - scene.origin) / scene.cell
    base = torch.floor(s.detach() - 0.5)
    f = s - base - 1.0
    per_axis = torch.stack([0.5 * (0.5 - f) ** 2, 0.75 - f**2, 0.5 * (0.5 + f) ** 2], 1)
    nodes, values, offsets = [], [], []
    for corner in product(range(3), repeat=d):
        index = base.long() + torch.tensor(corner)
        flat = torch.zeros(n, dtype=torch.long)
        w = torch.ones(n, dtype=x.dtype)
        for axis in range(d):
            flat = flat * scene.shape[axis] + index[:, axis]
            w = w * per_axis[:, corner[axis], axis]
        nodes.append(flat)
        values.append(w)
        offsets.append((torch.tensor(corner, dtype=x.dtype) - 1.0 - f) * scene.cell)
    return torch.stack(nodes, 1), torch.stack(values, 1), torch.stack(offsets, 1)


def rotation_of(F: Tensor) -> Tensor:
    """Return R of F = W R by Newton's iteration."""
    R = F
    for _ in range(12):
        R = 0.5 * (R + torch.linalg.inv(R).mT)
    return R


def strain_of(F: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logarithmic strains (n, d) and their directions, columns of (n, d, d)."""
    b, N = torch.linalg.eigh(F @ F.mT)
    return 0.5 * torch.log(b), N


def stress(scene: Scene, state: State, actuation: Tensor | None) -> Tensor:
    """Return Kirchhoff's stress, eq. (22) to (30)."""
    F, C = state.F, state.C
    d = F.shape[-1]
    eye = torch.eye(d, dtype=F.dtype)
    one, two, _ = scene.numbers.unbind(-1)
    one, two = one[:, None, None], two[:, None, None]
    b, J = F @ F.mT, torch.linalg.det(F)[:, None, None]
    tau = torch.zeros_like(F)
    for number, name in enumerate(KINDS):
        mine = (scene.kind == number)[:, None, None]
        if not mine.any():
            continue
        if name == "neo_hookean":
            each = one * (b - eye) + two * torch.log(J) * eye
        elif name == "fixed_corotated":
            each = 2.0 * one * (b - rotation_of(F) @ F.mT) + two * J * (J - 1.0) * eye
        elif name == "fluid":
            volume = F[:, :1, :1]
            each = -one / two * (volume ** (-two) - 1.0) * volume * eye
        else:
            # others may have equal eigenvalues, whose gradient would not be a number even times zero
            epsilon, N = strain_of(torch.where(mine, F, _plain(F)))
            trace = epsilon.sum(-1, keepdim=True)[..., None]
            each = N @ (2.0 * one * torch.diag_embed(epsilon) + two * trace * eye) @ N.mT
        tau = torch.where(mine, each, tau)
    tau = tau + scene.viscosity[:, None, None] * (C + C.mT)
    if actuation is not None and scene.actuator is not None and scene.fibre is not None:
        pull = torch.where(scene.actuator >= 0, actuation[scene.actuator.clamp(min=0)], torch.zeros(()).to(F))
        Ff = (F @ scene.fibre[..., None])[..., 0]
        tau = tau + pull[:, None, None] * Ff[:, :, None] * Ff[:, None, :]
    return tau


def _plain(F: Tensor) -> Tensor:
    return torch.diag(torch.linspace(1.0, 1.2, F.shape[-1], dtype=F.dtype)).expand_as(F)


def returned(scene: Scene, F: Tensor, history: Tensor, C: Tensor, old: Tensor) -> tuple[Tensor, Tensor]:
    """Return F and history after the return to the yield surface, eq. (28), (31)."""
    d = F.shape[-1]
    new_F, new_history = F, history
    for number, name in enumerate(KINDS):
        mine = scene.kind == number
        if name in ("neo_hookean", "fixed_corotated") or not mine.any():
            continue
        if name == "fluid":
            J = old[:, 0, 0] * (1.0 + scene.dt * C.diagonal(dim1=1, dim2=2).sum(-1))
            each = torch.diag_embed(torch.cat([J[:, None], torch.ones_like(C[:, 0, 1:])], 1))
            later = history
        else:
            safe = torch.where(mine[:, None, None], F, _plain(F))
            epsilon, N = strain_of(safe)
            e = epsilon - epsilon.mean(-1, keepdim=True)
            norm = e.norm(dim=-1)
            kappa = scene.numbers[:, 2]
            if name == "von_mises":
                flows = norm > kappa
                s = torch.where(flows, 1.0 - kappa / norm, torch.zeros_like(norm))
                log_g = -s[:, None] * e
                later = torch.where(flows, history + norm - kappa, history)
            else:
                z = epsilon.sum(-1) + history
                torn = z >= 0
                s = torch.where(norm > -kappa * z, 1.0 + kappa * z / norm, torch.zeros_like(norm))
                log_g = torch.where(torn[:, None], -epsilon, (history / d)[:, None] - s[:, None] * e)
                later = torch.where(torn, z, torch.zeros_like(z))
            each = N @ torch.diag_embed(torch.exp(log_g)) @ N.mT @ safe
        new_F = torch.where(mine[:, None, None], each, new_F)
        new_history = torch.where(mine, later, new_history)
    return new_F, new_history


def walls(scene: Scene, X: Tensor, v: Tensor) -> Tensor:
    """Return node velocities after the walls, eq. (12)."""
    for normal, offset, kind, friction in scene.walls:
        behind = (X @ normal <= offset + 1e-3 * scene.cell)[:, None]
        vn = (v @ normal)[:, None]
        vt = v - vn * normal
        if kind == "stick":
            after = torch.zeros_like(v)
        elif kind == "slip":
            after = vt
        else:
            length = torch.sqrt((vt * vt).sum(-1, keepdim=True) + (vt.abs().amax(-1, keepdim=True) == 0))
            slides = -friction * vn < length
            after = torch.where(slides, vt + friction * vn * vt / length, torch.zeros_like(v))
            behind = behind & (vn < 0)
        v = torch.where(behind, after, v)
    return v


def step(scene: Scene, state: State, actuation: Tensor | None = None, collide: Collide | None = None) -> State:
    """Return the state after a step, eq. (5) to (11); collide(X, v, M) -> v acts before the walls."""
    d = state.x.shape[-1]
    h, dt = scene.cell, scene.dt
    sigma = 1.0 - scene.drag * dt
    node, w, offset = weights(scene, state.x)
    m = scene.mass[:, None]
    u = sigma * state.v + dt * scene.gravity
    A = sigma * m[..., None] * state.C - 4.0 * dt / h**2 * scene.volume[:, None, None] * stress(scene, state, actuation)
    count = 1
    for size in scene.shape:
        count *= size
    momentum = w[..., None] * ((m * u)[:, None, :] + (A[:, None] @ offset[..., None])[..., 0])
    P = torch.zeros(count, d, dtype=state.x.dtype).index_add(0, node.flatten(), momentum.reshape(-1, d))
    M = torch.zeros(count, dtype=state.x.dtype).index_add(0, node.flatten(), (w * m).flatten())
    filled = M > 0
    v = torch.where(filled[:, None], P / torch.where(filled, M, torch.ones_like(M))[:, None], torch.zeros_like(P))
    X = torch.cartesian_prod(*[torch.arange(size, dtype=state.x.dtype) for size in scene.shape]) * h + scene.origin
    if collide is not None:
        v = collide(X, v, M)
    v = walls(scene, X, v)
    seen = v[node]
    new_v = (w[..., None] * seen).sum(1)
    C = 4.0 / h**2 * torch.einsum("nk,nka,nkb->nab", w, seen, offset)
    F = state.F + dt * C @ state.F
    new_F, history = returned(scene, F, state.history, C, state.F)
    return State(state.x + dt * new_v, new_v, C, new_F, history)


def rollout(scene: Scene, state: State, steps: int, actuation: Tensor | None = None) -> list[State]:
    """Return all states, the first included; actuation (steps, actuators)."""
    states = [state]
    for k in range(steps):
        states.append(step(scene, states[-1], None if actuation is None else actuation[k]))
    return states


def energy(scene: Scene, state: State) -> Tensor:
    """Return kinetic, elastic and potential energy [J] of elastic materials, the affine motion's share included."""
    d = state.x.shape[-1]
    mu, lam, _ = scene.numbers.unbind(-1)
    J = torch.linalg.det(state.F)
    b = state.F @ state.F.mT
    trace = b.diagonal(dim1=1, dim2=2).sum(-1)
    neo = 0.5 * mu * (trace - d) - mu * torch.log(J) + 0.5 * lam * torch.log(J) ** 2
    fixed = mu * (torch.linalg.svdvals(state.F) - 1.0).square().sum(-1) + 0.5 * lam * (J - 1.0) ** 2
    psi = torch.where(scene.kind == 0, neo, fixed)
    kinetic = 0.5 * scene.mass * (state.v.square().sum(-1) + scene.cell**2 / 4.0 * state.C.square().sum((1, 2)))
    return (kinetic + scene.volume * psi - scene.mass * (state.x @ scene.gravity)).sum()

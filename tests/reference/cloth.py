"""A step of sheets and ropes in plain torch: energies as they are defined, Newton's method with dense matrices.

Gradients: one more Newton step with the graph, whose matrix is held, which has the derivative of the solution.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tests.reference.touch import distance

Tensor = torch.Tensor


@dataclass
class Mesh:
    """Triangles with material coordinates (m, 3, 2), hinges, segments with lengths, bends."""

    triangles: Tensor
    coordinates: Tensor
    hinges: Tensor
    hinge_weights: Tensor
    segments: Tensor
    lengths: Tensor
    bends: Tensor
    bend_lengths: Tensor


def green_strain(x: Tensor, mesh: Mesh) -> Tensor:
    """Return E11, E22, 2 E12 of each triangle (m, 3), from edges and material edges."""
    p = x[mesh.triangles]
    now = torch.stack([p[:, 1] - p[:, 0], p[:, 2] - p[:, 0]], -1)
    c = mesh.coordinates
    rest = torch.stack([c[:, 1] - c[:, 0], c[:, 2] - c[:, 0]], -1)
    F = now @ torch.linalg.inv(rest)
    E = 0.5 * (F.mT @ F - torch.eye(2, dtype=x.dtype))
    return torch.stack([E[:, 0, 0], E[:, 1, 1], 2.0 * E[:, 0, 1]], -1)


def angles(x: Tensor, mesh: Mesh) -> Tensor:
    """Return the angle between the triangles of each hinge (h,)."""
    a, b, c, d = (x[mesh.hinges[:, k]] for k in range(4))
    e = torch.nn.functional.normalize(b - a, dim=-1)
    n = torch.nn.functional.normalize(torch.linalg.cross(b - a, c - a), dim=-1)
    m = torch.nn.functional.normalize(torch.linalg.cross(d - a, b - a), dim=-1)
    return torch.atan2((torch.linalg.cross(n, m) * e).sum(-1), (n * m).sum(-1))


def stretches(x: Tensor, mesh: Mesh) -> Tensor:
    """Return ½ (l²/L² - 1) of each segment (s,)."""
    e = x[mesh.segments[:, 1]] - x[mesh.segments[:, 0]]
    return 0.5 * (e.square().sum(-1) / mesh.lengths**2 - 1.0)


def curvatures(x: Tensor, mesh: Mesh) -> Tensor:
    """Return the curvature vector of each inner vertex of a rope (b, 3)."""
    e, f = (x[mesh.bends[:, k + 1]] - x[mesh.bends[:, k]] for k in range(2))
    product = mesh.bend_lengths.prod(-1)
    return 2.0 * torch.linalg.cross(e, f) / (product + (e * f).sum(-1))[:, None]


def elastic(x: Tensor, x0: Tensor, mesh: Mesh, numbers: dict[str, Tensor], dt: float) -> Tensor:
    """Return elastic energy and the potential of damping."""
    total = x.new_zeros(())
    if len(mesh.triangles):
        n = numbers["triangle"]
        e = mesh.coordinates[:, 1:] - mesh.coordinates[:, :1]
        area = 0.5 * torch.linalg.det(e).abs()
        C = torch.zeros(len(n), 3, 3, dtype=x.dtype)
        C[:, 0, 0], C[:, 0, 1], C[:, 1, 0] = n[:, 0], n[:, 1], n[:, 1]
        C[:, 1, 1], C[:, 2, 2] = n[:, 2], n[:, 3]
        for s, share in ((green_strain(x, mesh), 1.0), (green_strain(x, mesh) - green_strain(x0, mesh), n[:, 4] / dt)):
            total = total + (0.5 * share * area * (s[:, None] @ C @ s[..., None])[:, 0, 0]).sum()
    scalars = (
        ("segment", stretches, mesh.segments, mesh.lengths),
        ("hinge", angles, mesh.hinges, mesh.hinge_weights),
        ("bend", curvatures, mesh.bends, 2.0 / mesh.bend_lengths.sum(-1)),
    )
    for kind, strain, elements, weight in scalars:
        if len(elements):
            n = numbers[kind]
            rest = n[:, 2] if kind != "bend" else 0.0
            for s, share in ((strain(x, mesh) - rest, 1.0), (strain(x, mesh) - strain(x0, mesh), n[:, 1] / dt)):
                square = s.square() if s.ndim == 1 else s.square().sum(-1)
                total = total + (0.5 * share * weight * n[:, 0] * square).sum()
    return total


@dataclass
class Contact:
    """Shapes' kinds as names, and the numbers of contact; slip [m] of one step."""

    kinds: list[str]
    reach: float
    stiffness: float
    slip: float

    def energies(self, x: Tensor, x0: Tensor, drive: dict[str, Tensor], dt: float) -> list[Tensor]:
        """Return the energy of push and friction, the limit of which is that before the step, shape by shape."""
        found = []
        for kind, before, after in zip(self.kinds, drive["before"], drive["after"]):
            gap, _ = _place(kind, after, x)
            push = self.stiffness / (3.0 * self.reach) * (self.reach - gap).clamp(min=0.0) ** 3
            gap, normal = _place(kind, before, x0)
            limit = before[22] * self.stiffness / self.reach * (self.reach - gap).clamp(min=0.0) ** 2
            carried = before[12:15] + torch.linalg.cross(before[15:18].expand_as(x0), x0 - before[:3])
            moved = x - x0 - dt * carried
            slip = moved - (moved * normal).sum(-1, keepdim=True) * normal
            rub = limit * ((slip.square().sum(-1) + self.slip**2).sqrt() - self.slip)
            found.append((push + rub).sum())
        return found

    def touch(self, x: Tensor, x0: Tensor, drive: dict[str, Tensor], dt: float) -> Tensor:
        """Return what shapes got, torque about where they were and impulse (K, 6)."""
        rows = []
        with torch.enable_grad():
            y = x if x.requires_grad else x.detach().requires_grad_()
            for before, energy in zip(drive["before"], self.energies(y, x0, drive, dt)):
                j = dt * torch.autograd.grad(energy, y, create_graph=True)[0]
                rows.append(torch.cat([torch.linalg.cross(x0 - before[:3], j).sum(0), j.sum(0)]))
        return torch.stack(rows)


def _place(kind: str, row: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return distances and normals in the world's axes."""
    R = row[3:12].view(3, 3)
    gap, normal = distance((x - row[:3]) @ R, row[18:21], row[21], kind)
    return gap, normal @ R.mT


@dataclass
class Step:
    """A step of one world: everything but the state and the drive."""

    mesh: Mesh
    pins: np.ndarray
    dt: float
    drag: float = 0.0
    contact: Contact | None = None

    def energy(self, x: Tensor, x0: Tensor, v0: Tensor, drive: dict[str, Tensor]) -> Tensor:
        """Return what the step makes least."""
        m, dt = drive["masses"][:, None], self.dt
        aim = x0 + dt * v0 + dt**2 * drive["gravity"]
        total = (0.5 * m / dt**2 * ((x - aim) ** 2 + self.drag * dt * (x - x0) ** 2)).sum() - (drive["force"] * x).sum()
        total = total + elastic(x, x0, self.mesh, drive, dt)
        if self.contact is not None:
            total = total + torch.stack(self.contact.energies(x, x0, drive, dt)).sum()
        return total

    def residual(self, x: Tensor, x0: Tensor, v0: Tensor, drive: dict[str, Tensor], graph: bool) -> Tensor:
        """Return the derivative of the energy (n, 3)."""
        with torch.enable_grad():
            leaf = x if x.requires_grad else x.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.energy(leaf, x0, v0, drive), leaf, create_graph=graph)
        return found

    def matrix(self, x: Tensor, x0: Tensor, v0: Tensor, drive: dict[str, Tensor]) -> Tensor:
        """Return the second derivative (3n, 3n)."""
        plain = {name: y.detach() for name, y in drive.items()}

        def of(y: Tensor) -> Tensor:
            return self.energy(y.view(-1, 3), x0.detach(), v0.detach(), plain)

        return torch.autograd.functional.hessian(of, x.detach().reshape(-1))  # pyright: ignore[reportReturnType]

    def __call__(
        self, x0: Tensor, v0: Tensor, drive: dict[str, Tensor], start: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return x, v and what pins do; `start` is where Newton's method starts."""
        free = np.setdiff1d(np.arange(len(x0)), self.pins)
        index = torch.as_tensor((3 * free[:, None] + np.arange(3)).ravel())
        plain = {name: y.detach() for name, y in drive.items()}
        x = start.detach().clone()
        x[self.pins] = plain["pins"]
        H = torch.zeros(0)
        for _ in range(80):
            r = self.residual(x, x0.detach(), v0.detach(), plain, False).reshape(-1)[index]
            H = self.matrix(x, x0, v0, drive)[index][:, index]
            values, vectors = torch.linalg.eigh(H)
            move = -vectors @ ((vectors.T @ r) / values.abs().clamp(min=1e-6 * float(values.abs().max())))
            begin, length = float(self.energy(x, x0.detach(), v0.detach(), plain)), 1.0
            while length > 1e-9:
                trial = x.reshape(-1).clone()
                trial[index] += length * move
                now = float(self.energy(trial.view(-1, 3), x0.detach(), v0.detach(), plain))
                if now <= begin + 1e-13 * abs(begin):
                    break
                length *= 0.5
            x = trial.view(-1, 3)
            if float(move.abs().max()) < 1e-12:
                break
        # x as a function of everything: pins are given, the others by one Newton step with the graph
        base = x.detach().clone()
        led = base.index_put((torch.as_tensor(self.pins),), drive["pins"]) if len(self.pins) else base
        r = self._graph_residual(led, x0, v0, drive).reshape(-1)[index]
        flat = led.reshape(-1)
        solved = flat.index_put((index,), flat[index] - torch.linalg.solve(H.detach(), r))
        after = solved.view(-1, 3)
        reaction = self._graph_residual(after, x0, v0, drive)[self.pins]
        return after, (after - x0) / self.dt, reaction

    def _graph_residual(self, x: Tensor, x0: Tensor, v0: Tensor, drive: dict[str, Tensor]) -> Tensor:
        with torch.enable_grad():
            y = x if x.requires_grad else x.detach().requires_grad_()
            (found,) = torch.autograd.grad(self.energy(y, x0, v0, drive), y, create_graph=True)
        return found

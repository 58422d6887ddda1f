"""Heat in a growing part, in plain float64 torch: dense matrices, every element and every face at every step.

Written from the equations of docs/derivations/thermal.md without a look at the package: its own quadrature, its own
free faces, no lists, no renumbering. Implicit relations are solved without torch looking, and one Newton step that
torch sees gives them their derivatives.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch

SIGMA = 5.670374419e-8
SIGNS = [(-1, -1, -1), (1, -1, -1), (1, 1, -1), (-1, 1, -1), (-1, -1, 1), (1, -1, 1), (1, 1, 1), (-1, 1, 1)]
SIDES = [(0, 3, 2, 1), (4, 5, 6, 7), (0, 1, 5, 4), (1, 2, 6, 5), (2, 3, 7, 6), (3, 0, 4, 7)]


def element_matrices(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ∫ ∇N_i · ∇N_j (8, 8) and ∫ N_i (8,) for corners x (8, 3)."""
    K, V = np.zeros((8, 8)), np.zeros(8)
    for p in itertools.product((-(3**-0.5), 3**-0.5), repeat=3):
        N = np.array([np.prod([1 + s * q for s, q in zip(sign, p)]) / 8 for sign in SIGNS])
        dN = np.zeros((8, 3))
        for a, sign in enumerate(SIGNS):
            for k in range(3):
                others = [1 + sign[j] * p[j] for j in range(3) if j != k]
                dN[a, k] = sign[k] * others[0] * others[1] / 8
        J = dN.T @ x
        gradient = dN @ np.linalg.inv(J).T
        K += gradient @ gradient.T * np.linalg.det(J)
        V += N * np.linalg.det(J)
    return K, V


def face_quadrature(x: np.ndarray, points: int):
    """Return positions (q, 3), area vectors (q, 3) and shape functions (q, 4) of a face with corners x (4, 3)."""
    where, weight = np.polynomial.legendre.leggauss(points)
    rows = []
    for (a, wa), (b, wb) in itertools.product(zip(where, weight), repeat=2):
        N = np.array([(1 - a) * (1 - b), (1 + a) * (1 - b), (1 + a) * (1 + b), (1 - a) * (1 + b)]) / 4
        da = np.array([-(1 - b), 1 - b, 1 + b, -(1 + b)]) / 4
        db = np.array([-(1 - a), -(1 + a), 1 + a, 1 - a]) / 4
        rows.append((N @ x, np.cross(da @ x, db @ x) * wa * wb, N))
    return tuple(np.array(column) for column in zip(*rows))


class Table:
    """A material: integrals of its tables, differentiable in the tables' values."""

    def __init__(self, temperatures, conductivity, heat_capacity, latent_heat, solidus, liquidus, density):
        self.T = torch.as_tensor(np.array(temperatures), dtype=torch.float64)
        self.k, self.cp = conductivity, heat_capacity
        self.latent, self.solidus, self.liquidus, self.density = latent_heat, solidus, liquidus, density

    def integral(self, values, T):
        """Return the integral of the interpolated values from the first temperature to T."""
        knots = self.T
        total = (T - knots[0]).clamp(max=0.0) * values[0] + (T - knots[-1]).clamp(min=0.0) * values[-1]
        for j in range(len(knots) - 1):
            width = knots[j + 1] - knots[j]
            d = (T - knots[j]).clamp(min=0.0)
            d = torch.minimum(d, width)
            total = total + values[j] * d + (values[j + 1] - values[j]) * d * d / (2 * width)
        return total

    def value(self, values, T):
        """Return the interpolated values at T."""
        knots = self.T
        out = torch.zeros_like(T) + values[0]
        for j in range(len(knots) - 1):
            width = knots[j + 1] - knots[j]
            x = ((T - knots[j]) / width).clamp(0.0, 1.0)
            out = out + (values[j + 1] - values[j]) * x
        return out

    def enthalpy(self, T):
        """Return h [J/kg]."""
        x = ((T - self.solidus) / (self.liquidus - self.solidus)).clamp(0.0, 1.0)
        return self.integral(self.cp, T) + self.latent * x * x * (3 - 2 * x)

    def capacity(self, T):
        """Return dh/dT."""
        x = ((T - self.solidus) / (self.liquidus - self.solidus)).clamp(0.0, 1.0)
        return self.value(self.cp, T) + self.latent * 6 * x * (1 - x) / (self.liquidus - self.solidus)


class GrowingPart:
    """The matrices of a part at every state; births [s], material (elements,), held: node -> temperature."""

    def __init__(self, nodes, elements, births, dt, steps, material=None, held=None, points=3):
        self.nodes, self.elements, self.dt, self.steps = np.asarray(nodes), np.asarray(elements), dt, steps
        self.births = np.asarray(births)
        self.material = np.zeros(len(elements), int) if material is None else np.asarray(material)
        self.materials = int(self.material.max()) + 1
        self.held = dict(held or {})
        self.matrices = [element_matrices(self.nodes[e]) for e in self.elements]
        sides: dict[tuple, list] = {}
        for e, element in enumerate(self.elements):
            for side in SIDES:
                nodes_of = element[list(side)]
                sides.setdefault(tuple(sorted(nodes_of)), []).append((e, nodes_of))
        self.sides = list(sides.values())
        self.points = points
        self._cache: dict[tuple, tuple] = {}

    def alive(self, state):
        """Return which elements are there."""
        return self.births <= (state + 1e-6) * self.dt

    def at(self, state):
        """Return K (materials, n, n), volumes (materials, n), areas (n,), and beam points of a state."""
        alive = self.alive(state)
        key = tuple(np.flatnonzero(alive))
        if key not in self._cache:
            self._cache[key] = self._assemble(alive)
        return self._cache[key]

    def _assemble(self, alive):
        n = len(self.nodes)
        K, V, A = np.zeros((self.materials, n, n)), np.zeros((self.materials, n)), np.zeros(n)
        for e in np.flatnonzero(alive):
            index, m = self.elements[e], self.material[e]
            K[m][np.ix_(index, index)] += self.matrices[e][0]
            V[m][index] += self.matrices[e][1]
        where, size, share = [], [], []
        for owners in self.sides:
            there = [owner for owner in owners if alive[owner[0]]]
            if len(there) != 1:
                continue
            index = there[0][1]
            _, area, N = face_quadrature(self.nodes[index], 2)
            A[index] += np.linalg.norm(area, axis=1) @ N
            position, area, N = face_quadrature(self.nodes[index], self.points)
            for q in range(len(N)):
                if area[q, 2] > 1e-6 * np.linalg.norm(area[q]):
                    row = np.zeros(n)
                    row[index] = N[q]
                    where.append(position[q])
                    size.append(area[q, 2])
                    share.append(row)
        return tuple(torch.as_tensor(np.array(x)) for x in (K, V, A, where, size, share))

    def beam(self, state, position, radius):
        """Return each node's share (n,) of the absorbed power."""
        *_, where, size, share = self.at(state)
        r2 = ((where - position) ** 2).sum(1)
        intensity = torch.exp(-2 * (r2 - r2.detach().min()) / radius**2) * size
        return (intensity @ share) / intensity.sum()


def run(part: GrowingPart, tables: list[Table], power, positions, on, *, radius, absorptivity, convection, emissivity,
        ambient, initial, birth_temperature, theta: float = 0.0) -> torch.Tensor:  # fmt: skip
    """Return all states (steps + 1, n); theta = 0 is the explicit step."""
    n = len(part.nodes)
    held = torch.zeros(n, dtype=torch.bool)
    held_at = torch.zeros(n, dtype=torch.float64)
    for node, temperature in part.held.items():
        held[node], held_at[node] = True, temperature
    density = torch.stack([table.density.reshape(()) for table in tables])

    def mass(V):
        return density[:, None] * V

    def heat(M, T):
        return sum(M[m] * table.enthalpy(T) for m, table in enumerate(tables))

    def capacity(M, T):
        return sum(M[m] * table.capacity(T) for m, table in enumerate(tables))

    def inflow(matrices, T, source):
        K, _, A = matrices[:3]
        flow = -sum(K[m] @ table.integral(table.k, T) for m, table in enumerate(tables))
        return flow + A * (convection * (ambient - T) + emissivity * SIGMA * (ambient**4 - T**4)) + source

    def slope(matrices, T):
        K, _, A = matrices[:3]
        J = -sum(K[m] * table.value(table.k, T)[None, :] for m, table in enumerate(tables))
        return J - torch.diag(A * (convection + 4 * emissivity * SIGMA * T**3))

    def solve(residual, jacobian, T, free):
        with torch.no_grad():
            x = T.detach().clone()
            for _ in range(200):
                r = residual(x)[free]
                step = torch.linalg.solve(jacobian(x)[free][:, free], r)
                scale = min(1.0, 40.0 / max(float(step.abs().max()), 1e-300))
                x[free] -= scale * step
                if float(step.abs().max()) < 1e-12 * float(x.abs().max()):
                    break
            J = jacobian(x)[free][:, free]
        new = T.clone()
        new[free] = x[free] - torch.linalg.solve(J, residual(x)[free])
        return new

    alive = part.at(0)[1].sum(0) > 0
    T = torch.where(alive, initial * torch.ones(n, dtype=torch.float64), birth_temperature * torch.ones(n).double())
    T = torch.where(held, held_at, T)
    states = [T]
    for step in range(part.steps):
        now, then = part.at(step), part.at(step + 1)
        M, M_then = mass(now[1]), mass(then[1])
        source = torch.zeros(n, dtype=torch.float64)
        if on[step]:
            source = absorptivity * power[step] * part.beam(step, positions[step], radius)
        free = (now[1].sum(0) > 0) & ~held
        E = heat(M, T) + part.dt * (1 - theta) * inflow(now, T, source)

        def residual(x, M=M, E=E, now=now, source=source):
            return heat(M, x) - part.dt * theta * inflow(now, x, source) - E

        def jacobian(x, M=M, now=now):
            return torch.diag(capacity(M, x)) - part.dt * theta * slope(now, x)

        T = solve(residual, jacobian, T, free)
        gained = then[1] - now[1]
        grows = (gained.sum(0) > 1e-18) & ~held
        if bool(grows.any()):
            old = now[1].sum(0) > 0
            E = heat(M, T) + heat(mass(gained), birth_temperature * torch.ones(n).double())

            def mixed(x, M=M_then, E=E):
                return heat(M, x) - E

            def mixed_slope(x, M=M_then):
                return torch.diag(capacity(M, x))

            T = solve(mixed, mixed_slope, T, grows & old)
            T = torch.where(grows & ~old, birth_temperature * torch.ones(n).double(), T)
        states.append(T)
    return torch.stack(states)

"""Closed forms of the heat equation: what marching has to come close to, in plain numpy.

Notation: k conductivity [W/(m K)], rho density [kg/m³], cp heat capacity [J/(kg K)], alpha = k/(rho cp) [m²/s].
"""

from __future__ import annotations

from math import erf, erfc, exp, pi, sqrt

import numpy as np

SIGMA = 5.670374419e-8


class Manufactured:
    """T = middle + amplitude sin(πx/L) sin(πy/L) cos(πz/L) exp(−t/tau) in the cube [0, L]³, and the source it needs.

    k and cp are linear in T: value at `middle`, slope [per K]. The sides x and y are held at `middle`, no heat passes
    top and bottom.
    """

    def __init__(self, L, tau, middle, amplitude, k, cp, rho):
        self.L, self.tau, self.middle, self.amplitude, self.k, self.cp, self.rho = L, tau, middle, amplitude, k, cp, rho

    def temperature(self, x: np.ndarray, t: float) -> np.ndarray:
        """Return T at points (n, 3) [K]."""
        a, b, c = (x * pi / self.L).T
        return self.middle + self.amplitude * np.sin(a) * np.sin(b) * np.cos(c) * exp(-t / self.tau)

    def source(self, x: np.ndarray, t: float) -> np.ndarray:
        """Return rho cp ∂T/∂t − ∇·(k ∇T) = −rho cp θ/tau + 3 (π/L)² k θ − k' |∇T|² with θ = T − middle [W/m³]."""
        a, b, c = (x * pi / self.L).T
        size = self.amplitude * exp(-t / self.tau)
        theta = size * np.sin(a) * np.sin(b) * np.cos(c)
        slopes = np.stack([np.cos(a) * np.sin(b) * np.cos(c), np.sin(a) * np.cos(b) * np.cos(c),
                           np.sin(a) * np.sin(b) * np.sin(c)])  # fmt: skip
        steepness = ((size * pi / self.L * slopes) ** 2).sum(0)
        k, cp = (v + slope * theta for v, slope in (self.k, self.cp))
        return -self.rho * cp * theta / self.tau + 3 * (pi / self.L) ** 2 * k * theta - self.k[1] * steepness


def kirchhoff_cosines(x, t, sides, waves, alpha, start, mean, amplitude, slope):
    """Return T where k and cp are both proportional to 1 + slope (T − start), in a box that no heat leaves.

    Then θ = (T − start) + slope (T − start)²/2 obeys the linear heat equation: mean + amplitude Π cos(waves π x/sides)
    exp(−alpha Σ (waves π/sides)² t).
    """
    numbers = np.asarray(waves) * pi / np.asarray(sides)
    theta = mean + amplitude * np.cos(x * numbers).prod(1) * exp(-alpha * (numbers**2).sum() * t)
    return start + (np.sqrt(1.0 + 2.0 * slope * theta) - 1.0) / slope


def slab_between(x, length, left, right, start, slope):
    """Return the steady T between walls held at `left` and `right`, k proportional to 1 + slope (T − start)."""
    a, b = ((T - start) + slope * (T - start) ** 2 / 2 for T in (left, right))
    return start + (np.sqrt(1.0 + 2.0 * slope * (a + (b - a) * x / length)) - 1.0) / slope


def moving_gaussian(points, time, edges, where, radius, alpha, heat_capacity, nodes=12):
    """Return the rise at `time` per watt absorbed in each interval, (points, intervals) [K/W]: half-space z < 0.

    The beam, of 1/e² radius `radius`, is at where(t) (n, 2) on z = 0, no heat leaves. Heat that came in s ago has
    spread to a Gaussian of variance radius²/4 + 2 alpha s along the surface, and below it as in one dimension; s = w²
    takes the root's singularity away. edges (N + 1,) [s], none beyond `time`; heat_capacity: rho cp [J/(m³ K)].
    """
    x, w = np.polynomial.legendre.leggauss(nodes)
    low, high = np.sqrt(time - edges[1:]), np.sqrt(time - edges[:-1])
    roots = (0.5 * (low + high))[:, None] + 0.5 * (high - low)[:, None] * x
    weights = 0.5 * (high - low)[:, None] * w
    s = roots**2
    spread = radius**2 / 4 + 2 * alpha * s
    beam = where((time - s).ravel()).reshape(*s.shape, 2)
    rises = np.empty((len(points), len(edges) - 1))
    for row, (px, py, pz) in zip(rises, points):
        away = (px - beam[..., 0]) ** 2 + (py - beam[..., 1]) ** 2
        # 2 w dw / sqrt(pi alpha) w
        kernel = np.exp(-away / (2 * spread) - pz**2 / (4 * alpha * s)) / (2 * pi * spread) * 2 / sqrt(pi * alpha)
        row[:] = (kernel * weights).sum(1) / heat_capacity
    return rises


def rosenthal(ahead, aside, below, power, speed, k, alpha):
    """Return the steady rise [K] at an offset [m] from a point source that moves over a half-space at `speed`."""
    d = np.sqrt(ahead**2 + aside**2 + below**2)
    return power / (2 * pi * k * d) * np.exp(-speed * (d + ahead) / (2 * alpha))


class Stefan:
    """Neumann's solution: a solid half-space at `cold` melts at `melting` from a wall at `hot`, both phases alike.

    The front is at 2 λ sqrt(alpha t), with hot·exp(−λ²)/erf λ − cold·exp(−λ²)/erfc λ = λ sqrt(π), hot and cold being
    the Stefan numbers cp ΔT / L of the two sides.
    """

    def __init__(self, hot, melting, cold, k, rho, cp, latent):
        self.hot, self.melting, self.cold, self.k, self.alpha = hot, melting, cold, k, k / (rho * cp)
        above, below = cp * (hot - melting) / latent, cp * (melting - cold) / latent

        def excess(x):
            return exp(-x * x) * (above / erf(x) - below / erfc(x)) - x * sqrt(pi)

        self.factor = bisected(excess, 1e-6, 3.0)

    def front(self, t: float) -> float:
        """Return how deep it has molten [m]."""
        return 2 * self.factor * sqrt(self.alpha * t)

    def temperature(self, x: np.ndarray, t: float) -> np.ndarray:
        """Return T at depths x [m]."""
        z = x / (2 * sqrt(self.alpha * t))
        liquid = self.hot - (self.hot - self.melting) * np.array([erf(v) for v in z]) / erf(self.factor)
        solid = self.cold + (self.melting - self.cold) * np.array([erfc(v) for v in z]) / erfc(self.factor)
        return np.where(z < self.factor, liquid, solid)

    def heat(self, t: float) -> float:
        """Return the heat that has come through the wall [J/m²]."""
        return 2 * self.k * (self.hot - self.melting) / erf(self.factor) * sqrt(t / (pi * self.alpha))


def cooled_by_air(t, start, ambient, rate):
    """Return T of a body that loses rate (T − ambient), rate = h A / C [1/s]."""
    return ambient + (start - ambient) * np.exp(-rate * t)


def cooled_by_radiation(t, start, ambient, rate):
    """Return T of a body that loses rate (T⁴ − ambient⁴), rate = ε σ A / C [1/(s K³)].

    With a = ambient the time it takes is 4 a³ rate t = ln[(T + a)(T0 − a) / ((T − a)(T0 + a))] + 2 arctan(T/a)
    − 2 arctan(T0/a); the T whose time it is, is searched.
    """
    a = ambient

    def takes(T):
        logs = np.log((T + a) / (T - a)) - np.log((start + a) / (start - a))
        return (logs / 4 + (np.arctan(T / a) - np.arctan(start / a)) / 2) / (a**3 * rate)

    return np.array([start if v == 0 else bisected(lambda T, v=v: takes(T) - v, a * (1 + 1e-12), start) for v in t])


def fin(x, length, m, tip):
    """Return (T − ambient)/(T_root − ambient) along a fin, m² = h perimeter / (k area), tip = h/(m k)."""
    below = np.cosh(m * length) + tip * np.sinh(m * length)
    return (np.cosh(m * (length - x)) + tip * np.sinh(m * (length - x))) / below


def bisected(function, low, high):
    """Return the root of a falling function."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) > 0 else (low, middle)
    return 0.5 * (low + high)

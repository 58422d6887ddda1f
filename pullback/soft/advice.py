"""Steps that are stable, and errors that say which particle and what to do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.soft.body import Body
from pullback.soft.material_kernels import FIXED_COROTATED
from pullback.soft.materials import Material
from pullback.soft.variant_kernels import INVERTED, LEFT, REASONS, TOO_FAST

Tensor = torch.Tensor


def longest_steps(material: Material, numbers: Tensor, dim: int, cell: float) -> Tensor:
    """Return the longest stable steps (B, n) [s] of numbers (B, n, 6): docs/derivations/mpm.md, eq. (38)."""
    with torch.no_grad():
        density = numbers[..., 0] / numbers[..., 1]
        squared = 4.0 / cell**2 * material.stiffness(dim, numbers) / density
        damping = 8.0 / cell**2 * numbers[..., 5] / density
        return 4.0 / (damping + torch.sqrt(damping**2 + 4.0 * squared))


def check_step(dt: float, bodies: Sequence[Body], materials: Sequence[Material], numbers: Sequence[Tensor],
               dim: int, cell: float) -> None:  # fmt: skip
    """Raise if a step is longer than what is stable for some particle."""
    for body, material, each in zip(bodies, materials, numbers):
        longest = longest_steps(material, each, dim, cell)
        least = float(longest.min())
        if dt > least * (1.0 + 1e-6):
            particle = int(longest.argmin()) % len(body)
            raise PullbackError(
                f"dt = {dt:.3g} s is too long for body {body.name!r}: particle {particle} needs at most {least:.3g} s "
                f"with cells of {cell:g} m; use dt = {0.5 * least:.2g}, larger cells, or a softer or denser material"
            )


def refuse_failures(
    code: Tensor, x: Tensor, bodies: Sequence[Body], dt: float, cell: float, stable: float, worlds: int
) -> None:
    """Raise for the first particle that was taken out, from codes (B n,) and positions (B n, d)."""
    bad = torch.nonzero(code).flatten()
    if not len(bad):
        return
    first = int(bad[code[bad].argmin()])
    step, reason = divmod(int(code[first]), REASONS)
    world, particle = divmod(first, len(code) // worlds)
    where = ", ".join(f"{c:.4g}" for c in x[first].tolist())
    who = _name(particle, bodies) + (f" in world {world}" if worlds > 1 else "")
    others = f"; {len(bad) - 1} others failed as well" if len(bad) > 1 else ""
    advice = f"dt = {dt:.3g} s; {stable:.3g} s is the longest stable step at rest, so try {0.5 * min(dt, stable):.2g} s"
    told = {
        LEFT: f"left the domain in step {step} at ({where}): close that side, make the domain larger, or, if it was "
        f"thrown out, shorten the step ({advice})",
        TOO_FAST: f"would go more than a cell of {cell:g} m in step {step - 1} at ({where}): shorten the step "
        f"({advice})",
        INVERTED: f"was turned inside out in step {step - 1} at ({where}): shorten the step ({advice}), take stiffer "
        f"material or smaller loads, or for elastic bodies model='fixed_corotated', which bears it",
    }
    raise PullbackError(f"{who} {told[reason]}{others}")


def check_inside(x: Tensor, bodies: Sequence[Body], low: Sequence[float], high: Sequence[float]) -> None:
    """Raise if a particle (B, n, d) starts outside of the domain."""
    inside = (x >= x.new_tensor(low)).all(-1) & (x <= x.new_tensor(high)).all(-1)
    if bool(inside.all()):
        return
    world, particle = (int(i) for i in np.argwhere(~inside.cpu().numpy())[0])
    where = ", ".join(f"{c:.4g}" for c in x[world, particle].tolist())
    raise PullbackError(
        f"{_name(particle, bodies)} starts at ({where}), outside of the domain from {tuple(low)} to {tuple(high)}; "
        f"move the body or make the domain larger"
    )


def check_deformation(F: Tensor, bodies: Sequence[Body]) -> None:
    """Raise if a particle starts with a deformation (B, n, d, d) that its material cannot have."""
    first = 0
    for body in bodies:
        each = F[:, first : first + len(body)]
        det = torch.linalg.det(each)
        bears_all = body.material.kind == FIXED_COROTATED
        bad = ~torch.isfinite(det) if bears_all else ~(torch.isfinite(det) & (det > 0.0))
        if bool(bad.any()):
            world, particle = (int(i) for i in np.argwhere(bad.cpu().numpy())[0])
            raise PullbackError(
                f"{_name(first + particle, bodies)}{f' in world {world}' if len(F) > 1 else ''} starts with det F = "
                f"{float(det[world, particle]):.4g}; expected {'a number' if bears_all else 'above 0: it is inverted'}"
            )
        first += len(body)


def _name(particle: int, bodies: Sequence[Body]) -> str:
    """Return which particle of which body the one of this number among all is."""
    number, body = particle, bodies[0]
    for body in bodies:
        if number < len(body):
            break
        number -= len(body)
    return f"particle {number} of body {body.name!r}"

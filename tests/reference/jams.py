"""Impacts within a step, and those that would add energy (docs/derivations/contact_step.md, section 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tests.reference.step import Contact, Settings

Tensor = torch.Tensor
SLACK = 1e-3
"""What impacts may add, of the kinetic energy without them."""


def bounces(contact: Contact, approach: Tensor, settings: Settings) -> bool:
    """Return whether the bodies meet within this step, and fast enough to bounce."""
    meets = contact.gap + settings.dt * approach < 0.0
    return bool(contact.pair.restitution > 0.0 and approach < -settings.restitution_threshold and meets)


def time_of_impact(contact: Contact, approach: Tensor, dt: float) -> Tensor:
    """Return the fraction of the step that passes before the bodies meet."""
    if contact.gap <= 0.0:
        return torch.zeros_like(contact.gap)
    return torch.clamp(contact.gap / -approach, 0.0, dt) / dt


def impacts_gain(
    M: Tensor, velocities: tuple[Tensor, Tensor, Tensor], lam: Tensor, bias: Tensor, is_impact: list[bool]
) -> bool:
    """Return whether impulses add energy, for velocities without, after, and that coordinates move by: eq. (5a)."""
    if not any(bounces and lam[3 * c] > 0.0 for c, bounces in enumerate(is_impact)):
        return False
    n = 3 * len(is_impact)
    others = ~torch.tensor(is_impact).repeat_interleave(3)
    asked = (-lam[:n] * bias[:n].clamp(max=0.0))[others].sum() + (lam[n:] * bias[n:]).abs().sum()
    before, after, moving = (0.5 * x @ M @ x for x in velocities)
    return bool(torch.maximum(after, moving) > (1.0 + SLACK) * before + asked)

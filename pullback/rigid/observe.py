"""What can be seen of a state, as tensors with gradients: links and contacts; and contacts as a user reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from pullback.core.errors import PullbackError, unknown_name
from pullback.core.finite import is_readable
from pullback.rigid.state import Contact, State
from pullback.rigid.world.integrators import SMOOTH

if TYPE_CHECKING:
    from pullback.rigid.observations import Inputs
    from pullback.rigid.sim import Sim

Tensor = torch.Tensor


class ContactTensors(NamedTuple):
    """The contacts of B worlds with room for C each; those that are not there have pair -1, and zeros."""

    pair: Tensor
    """(B, C): which two shapes touch, a row of `Sim.pair_names`."""
    gap: Tensor
    """[m] (B, C)"""
    point: Tensor
    """[m] (B, C, 3)"""
    normal: Tensor
    """From the second shape to the first (B, C, 3)."""
    force: Tensor
    """On the first shape [N] in world axes (B, C, 3)."""
    couple: Tensor
    """Torques [N·m] about `point` on the first and on the second shape (B, C, 2, 3): none but where a step is split at
    touches, and forces act at other points during it."""


def contact_tensors(sim: Sim, inputs: Inputs) -> ContactTensors:
    """Return the contacts that a step from this state resolves, differentiable in state, controls and parameters."""
    if sim.integrator in SMOOTH:
        raise PullbackError(
            f"integrator={sim.integrator!r} is for motion without contact, so there are no contact forces; compile "
            f"with integrator='semi_implicit'"
        )
    report = sim._programs.contacts()(*inputs)
    found = report[:, 0].detach()
    while is_readable(found) and len(found) and int(found.max()) > sim.arrays.max_contacts:
        if not sim._make_room(int(found.max())):
            raise_overflow(int(found.max()), sim.arrays.max_contacts)
        report = sim._programs.contacts()(*inputs)
        found = report[:, 0].detach()
    room = sim.arrays.max_contacts
    records = report[:, 1:].unflatten(1, (room, sim._programs.record_rows))
    there = torch.arange(room, device=found.device) < found[:, None]
    records = torch.where(there[..., None], records, torch.zeros_like(records))
    pair = torch.where(there, records[..., 0].detach(), -torch.ones_like(found[:, None])).long()
    # on a GPU nothing is looked at: contacts without room show
    force = records[..., 8:11]
    force = torch.where((found > room)[:, None, None], torch.full_like(force, torch.nan), force)
    couple = force.new_zeros(*force.shape[:2], 2, 3)
    if sim._programs.splits:
        moment, arm = records[..., 12:].unflatten(2, (2, 2, 3)).unbind(2)
        couple = moment - torch.linalg.cross(arm, force[:, :, None].expand_as(arm))
    return ContactTensors(pair, records[..., 1], records[..., 2:5], records[..., 5:8], force, couple)


def contact_wrenches(
    sim: Sim, contacts: ContactTensors, origins: Tensor, links: Sequence[str], other: str | None
) -> tuple[Tensor, Tensor]:
    """Return the sums of contact forces [N] and of their torques [N·m] about origins (B, n, 3), (B, n, 3) each."""
    signs = np.stack([pair_signs(sim, link, other) for link in links], -1)
    # contacts that are not there take the last row
    weights = torch.as_tensor(np.concatenate([signs, np.zeros((1, len(links)))]), dtype=sim.dtype, device=sim.device)
    sign = weights[contacts.pair][..., None]
    force = sign * contacts.force[:, :, None]
    arm = contacts.point[:, :, None] - origins[:, None]
    first, second = contacts.couple[:, :, None].unbind(3)
    torque = torch.linalg.cross(arm, force) + torch.where(sign > 0, first, second) * sign
    return force.sum(1), torque.sum(1)


def pair_signs(sim: Sim, body: str, other: str | None) -> np.ndarray:
    """Return the sign of each pair's force, which acts on its first shape: 1, -1 for the reaction, or 0."""
    a, b = owned_shapes(sim, body), np.ones(sim.arrays.nshape, bool) if other is None else owned_shapes(sim, other)
    first, second = sim.arrays.pair_a, sim.arrays.pair_b
    signs = (a[first] & b[second]).astype(int) - (a[second] & b[first])
    if not signs.any():
        them = f"{body!r} and {other!r}" if other is not None else f"{body!r} and anything else"
        raise PullbackError(
            f"no contact between {them} is computed in this world, so there is no force; look at group, mask, "
            f"self_collision, and compile(without=...)"
        )
    return signs


def owned_shapes(sim: Sim, name: str) -> np.ndarray:
    """Return which shapes belong to a body, or to a name below it."""
    shapes = sim.arrays.shape_names
    owned = np.array([shape == name or shape.startswith(f"{name}/") for shape in shapes], bool)
    if not owned.any():
        # shapes of links are numbered
        bodies = dict.fromkeys("/".join(shape.split("/")[:2]) for shape in shapes)
        raise unknown_name("body with a collision shape", name, bodies)
    return owned


def raise_overflow(found: int, room: int) -> None:
    """Raise: there are more contacts than there is room for."""
    raise PullbackError(f"{found} contacts where there is room for {room}; compile with max_contacts={found} or more")


# -- plain numbers ---------------------------------------------------------------------------------------------------


def report(sim: Sim, state: State, inputs: Inputs) -> list[tuple[int, list[Contact]]]:
    """Return for each world how many contacts there are, and those there is room for."""
    if sim.integrator in SMOOTH:
        return [(0, [])] * len(state.q)
    with torch.no_grad():
        (rows,) = sim._programs.contacts().run(inputs)
    worlds, size = [], sim._programs.record_rows
    for found, *numbers in rows.tolist():
        present = range(min(int(found), sim.arrays.max_contacts))
        records = [numbers[size * c : size * (c + 1)] for c in present]
        worlds.append((int(found), [_contact(sim, record) for record in records]))
    return worlds


def _contact(sim: Sim, record: Sequence[float]) -> Contact:
    pair, names = int(record[0]), sim.arrays.shape_names
    shapes = names[sim.arrays.pair_a[pair]], names[sim.arrays.pair_b[pair]]
    x, y, z, nx, ny, nz, fx, fy, fz = record[2:11]
    return Contact(shapes, record[1], (x, y, z), (nx, ny, nz), (fx, fy, fz))

"""Starting the solver from the last step's impulses, a part of the state (docs/derivations/contact_step.md, section 7).

    impulses    6 rows a contact    pair + 1 (0: none), the two features, normal and tangential impulses
                1 row a limit       its impulse, negative at the upper end
                1 row a dry friction
                1 row a row of a loop

A contact goes on from the one of the same pair and features, if there was one; the tangents may have turned a little.
"""

from typing import Any

import warp as wp

from pullback.rigid.compile.scene import CONTACT_ROWS, FEATURE_A, FEATURE_B, PAIR, Scene
from pullback.rigid.step.constraint_kernels import DOF, LOWER, SCALAR_ROWS, SIGN, is_limit
from pullback.spatial.arrays import load3, store

IMPULSE_ROWS = wp.constant(6)
IMPULSE = wp.constant(3)


@wp.func
def slot_of_contact(scene: Scene, contacts: wp.array2d(dtype=Any), c: int, impulses: wp.array2d(dtype=Any), w: int):
    """Return the row at which the impulse of the same contact in the step before stands, -1: none."""
    row = c * CONTACT_ROWS
    pair = contacts[row + PAIR, w] + contacts.dtype(1.0)
    found = int(-1)
    for k in range(scene.max_contacts):
        at = k * IMPULSE_ROWS
        if (
            impulses[at, w] == pair
            and impulses[at + 1, w] == contacts[row + FEATURE_A, w]
            and impulses[at + 2, w] == contacts[row + FEATURE_B, w]
        ):
            found = at + IMPULSE
    return found


@wp.func
def slot_of_scalar(scene: Scene, scalars: wp.array2d(dtype=Any), s: int, w: int):
    """Return the row of the impulse of scalar row s: of a loop, a coupling, a limit or a dry friction."""
    v = int(scalars[s * SCALAR_ROWS + DOF, w])
    at = int(scene.max_contacts * IMPULSE_ROWS)
    slot = int(-1)
    if s < scene.nloop_row + scene.ncoupling:
        slot = at + scene.nlimit + scene.nfriction + s
    elif is_limit(scalars, s, w):
        for k in range(scene.nlimit):
            if scene.limit_dof[k] == v:
                slot = at + k
    else:
        for k in range(scene.nfriction):
            if scene.friction_dof[k] == v:
                slot = at + scene.nlimit + k
    return slot


@wp.func
def load_impulses(
    scene: Scene, nc: int, ns: int, contacts: wp.array2d(dtype=Any), scalars: wp.array2d(dtype=Any),
    impulses: wp.array2d(dtype=Any), w: int, lam: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the impulses to start from."""
    zero = lam.dtype(0.0)
    for c in range(nc):
        slot = slot_of_contact(scene, contacts, c, impulses, w)
        start = wp.vector(zero, zero, zero)
        if slot >= 0:
            start = load3(impulses, slot, w)
        store(lam, 3 * c, w, start)
    for s in range(ns):
        start_scalar = impulses[slot_of_scalar(scene, scalars, s, w), w]
        if is_limit(scalars, s, w):
            row = s * SCALAR_ROWS
            start_scalar = wp.max(start_scalar * scalars[row + SIGN, w], scalars[row + LOWER, w])
        lam[3 * nc + s, w] = start_scalar


@wp.func
def load_impulses_vjp(
    scene: Scene, nc: int, ns: int, contacts: wp.array2d(dtype=Any), scalars: wp.array2d(dtype=Any),
    impulses: wp.array2d(dtype=Any), adj_lam: wp.array2d(dtype=Any), w: int, adj_impulses: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents of the impulses of the step before."""
    for c in range(nc):
        slot = slot_of_contact(scene, contacts, c, impulses, w)
        if slot >= 0:
            store(adj_impulses, slot, w, load3(adj_impulses, slot, w) + load3(adj_lam, 3 * c, w))
    for s in range(ns):
        slot = slot_of_scalar(scene, scalars, s, w)
        adj = adj_lam[3 * nc + s, w]
        if is_limit(scalars, s, w):
            sign = scalars[s * SCALAR_ROWS + SIGN, w]
            adj = adj * sign
            if impulses[slot, w] * sign <= scalars[s * SCALAR_ROWS + LOWER, w]:
                adj = sign - sign
        adj_impulses[slot, w] = adj_impulses[slot, w] + adj


@wp.func
def store_impulses(
    scene: Scene, nc: int, ns: int, contacts: wp.array2d(dtype=Any), scalars: wp.array2d(dtype=Any),
    lam: wp.array2d(dtype=Any), w: int, impulses: wp.array2d(dtype=Any),
):  # fmt: skip
    """Write the impulses for the step after this one."""
    zero = lam.dtype(0.0)
    for c in range(scene.max_contacts):
        row = c * IMPULSE_ROWS
        impulses[row, w] = zero
        if c < nc:
            impulses[row, w] = contacts[c * CONTACT_ROWS + PAIR, w] + lam.dtype(1.0)
            impulses[row + 1, w] = contacts[c * CONTACT_ROWS + FEATURE_A, w]
            impulses[row + 2, w] = contacts[c * CONTACT_ROWS + FEATURE_B, w]
            store(impulses, row + IMPULSE, w, load3(lam, 3 * c, w))
    first = int(scene.max_contacts * IMPULSE_ROWS)
    for k in range(scene.nlimit + scene.nfriction + scene.nloop_row + scene.ncoupling):
        impulses[first + k, w] = zero
    for s in range(ns):
        value = lam[3 * nc + s, w]
        if is_limit(scalars, s, w):
            value = value * scalars[s * SCALAR_ROWS + SIGN, w]
        impulses[slot_of_scalar(scene, scalars, s, w), w] = value


@wp.func
def add_store_impulses_vjp(
    scene: Scene, nc: int, ns: int, scalars: wp.array2d(dtype=Any), adj_impulses: wp.array2d(dtype=Any), w: int,
    adj_lam: wp.array2d(dtype=Any),
):  # fmt: skip
    """Add the cotangents that the impulses get from the step after this one."""
    for c in range(nc):
        stored = load3(adj_impulses, c * IMPULSE_ROWS + IMPULSE, w)
        store(adj_lam, 3 * c, w, load3(adj_lam, 3 * c, w) + stored)
    for s in range(ns):
        adj = adj_impulses[slot_of_scalar(scene, scalars, s, w), w]
        if is_limit(scalars, s, w):
            adj = adj * scalars[s * SCALAR_ROWS + SIGN, w]
        adj_lam[3 * nc + s, w] = adj_lam[3 * nc + s, w] + adj

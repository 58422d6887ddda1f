"""What to tell a user whose world has compliant contact: steps too long for it, and numbers without a meaning."""

from __future__ import annotations

import warnings

import numpy as np

from pullback.description.compile import WORLD
from pullback.rigid.compile.compile import SceneArrays
from pullback.rigid.compile.parameters import Rows
from pullback.rigid.compile.scene import PAIR_ROWS
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.solvers.compliant_time_step import contact_frequency
from pullback.robot.topology import INERTIA_ROWS

LONGEST = 1.0
"""Radians of a contact's oscillation that a step may be long before a warning: then a contact lasts three steps."""
NAMED = 3
"""Bodies that a warning names, at most."""


def warn_of_compliance(contact: Compliant, arrays: SceneArrays, rows: Rows, dt: float) -> None:
    """Warn if a step [s] is long for contacts of light bodies, and of restitution, which has no part in them."""
    if arrays.npair and bool((rows.pairs[:, 1 :: int(PAIR_ROWS)] > 0.0).any()):
        warnings.warn(
            "restitution has no part in compliant contact, and is left out; lower pb.Compliant(damping=...) for "
            "higher bounces",
            stacklevel=4,
        )
    masses = rows.inertias.detach()[:, :: int(INERTIA_ROWS)].amin(0).cpu().numpy()
    lightest = _reduced_masses(arrays, masses)
    stiffness = contact.stiffest()
    late = {
        body: mass
        for body, mass in lightest.items()
        if mass > 0.0 and contact_frequency(stiffness=stiffness, mass=mass, power=contact.power) * dt > LONGEST
    }
    if not late:
        return
    named = sorted(late, key=lambda body: late[body])
    told = ", ".join(f"{arrays.body_names[body]} ({late[body]:.3g} kg)" for body in named[:NAMED])
    more = f" and {len(named) - NAMED} more" if len(named) > NAMED else ""
    advised = contact.time_step(late[named[0]])
    warnings.warn(
        f"contact of {told}{more} on springs of {stiffness:.3g} is over in less than four steps of {dt:.3g} s: it "
        f"holds, but the step swallows its bounces; dt={advised:.2g} keeps 90 % of a rebound, and a smaller stiffness "
        f"allows a longer step",
        stacklevel=4,
    )


def _reduced_masses(arrays: SceneArrays, masses: np.ndarray) -> dict[int, float]:
    """Return for each body that may touch something the smallest mass [kg] that one of its contacts may have."""
    found: dict[int, float] = {}
    for a, b in zip(arrays.pair_a, arrays.pair_b):
        bodies = [int(arrays.shape_body[k]) for k in (a, b) if arrays.shape_body[k] != WORLD]
        # links without mass move with others
        if all(masses[body] > 0.0 for body in bodies):
            mass = 1.0 / sum(1.0 / masses[body] for body in bodies)
            for body in bodies:
                found[body] = min(mass, found.get(body, mass))
    return found

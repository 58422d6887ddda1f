"""Cases of the conformance matrix with compliant contact: those of rigid contact, on springs."""

from __future__ import annotations

from dataclasses import replace

import torch

import pullback as pb
from checks.conformance_cases import Case, Values, free_body, moving, on_another, on_ground, tensor

STIFFNESS = 2e4
DAMPING = 1.5
BAR = 1e-5


def compliant(case: Case) -> Case:
    """Return a case on springs, with two more quantities to differentiate by."""
    values = {name: value for name, value in case.values.items() if name != "restitution"}
    values |= {"stiffness": tensor(STIFFNESS), "contact damping": tensor(DAMPING)}

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        world = case.make(x, contact, dtype)
        world.contact = pb.Compliant(
            stiffness=x["stiffness"], damping=x["contact damping"], tolerance=contact.tolerance, onset=1e-4
        )
        return world

    holds = "touching" if case.holds else ""
    return replace(case, mode=f"compliant, {case.mode}", values=values, make=make, holds=holds, bar=BAR)


def compliant_cases() -> list[Case]:
    """Return the rows of the matrix that have compliant contact."""
    still, turning = torch.zeros(6).double(), tensor(0.0, 0.0, 0.4, 0.9, 0.4, 0.0)
    down = tensor(3.0, -2.0, 1.0, 0.5, -0.2, -1.0)
    cases = [
        on_ground("revolute", "sticking", "sticking", mu=2.0, velocity=(0.0, 0.0, 0.0)),
        on_ground("prismatic", "sliding", "sliding", mu=0.1, velocity=(0.6, 0.4, 0.0)),
        on_ground("ball", "impact", "", mu=0.3, velocity=(0.3, 0.2, -1.0)),
        on_ground("chain", "sliding", "sliding", mu=0.1, velocity=(0.6, 0.4, 0.0)),
        moving("revolute", "joint limit", 1e-4, limit=0.02, speed=0.5),
        moving("chain", "dry friction, slipping", 1e-4, friction=0.1, speed=2.0),
        free_body("box", "sticking", "sticking", still, mu=0.5),
        free_body("box", "sliding", "sliding", turning, mu=0.1),
        free_body("sphere", "impact", "", down, mu=0.05, gap=0.0054, steps=30),
        free_body("box", "sliding", "touching", turning, on="box", mu=0.1, steps=30),
        free_body("mesh", "sliding", "sliding", turning, mu=0.1),
        free_body("sphere", "sliding", "touching", turning, on="dish", mu=0.1),
        on_another(),
    ]
    return [compliant(case) for case in cases]

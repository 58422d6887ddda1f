"""Steps that are split where something touches, for the conformance page: the impacts there are, and joint limits."""

from __future__ import annotations

from dataclasses import replace

from checks.conformance_cases import CHAINS, Case, free_body, moving, on_ground, tensor

SPLIT = 1e-5
"""The bar: no kink is within reach of the differences."""


def split_cases() -> list[Case]:
    """Return the rows of split steps."""
    down = tensor(3.0, -2.0, 1.0, 0.5, -0.2, -1.0)
    cases = [on_ground(kind, "impact", "", mu=0.3, velocity=(0.3, 0.2, -1.0)) for kind in CHAINS]
    cases += [
        on_ground(kind, "impact with restitution", "", mu=0.1, velocity=(0.3, 0.2, -1.0), e=0.6) for kind in CHAINS
    ]
    cases += [
        moving("revolute", "joint limit", 1e-4, limit=0.02, speed=0.5),
        free_body("sphere", "impact", "", down, mu=0.05, gap=0.0054, steps=30),
        free_body("sphere", "impact with restitution", "", down, mu=0.05, gap=0.0054, e=0.7, steps=30),
        free_body("capsule", "impact with restitution", "", down, mu=0.05, gap=0.0054, e=0.7, steps=30),
        free_body("box", "impact with restitution", "", down, mu=0.05, gap=0.0054, e=0.7, steps=30),
    ]
    return [replace(case, mode=f"{case.mode}, split", bar=SPLIT, options={"impacts": "split"}) for case in cases]

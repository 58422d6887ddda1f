"""What some random worlds have besides: cylinders, meshes and fields, closed loops, compliant contact.

Drawn from a generator of their own, so that a world that gets none of it is the same as without this file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import pullback as pb
from pullback.description.tree import Shape

SHARES = {"shapes": 0.06, "loops": 0.06, "compliant": 0.06}
"""How many worlds have each; some have two or all."""
EXTRAS = {"shapes": "cylinders, meshes or fields", "loops": "closed loops", "compliant": "compliant contact"}
NEW_SHAPES = ("cylinder", "mesh", "field")


class Extras:
    """What a world has besides, and a generator of it."""

    def __init__(self, seed: int, *, plain: bool) -> None:
        self.rng = np.random.default_rng([seed, 2025])
        drawn = {name: self.rng.random() < share for name, share in SHARES.items()}
        self.features = {name for name, is_drawn in drawn.items() if is_drawn and not plain}

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return bool(self.rng.random() < probability)

    def length(self, low: float = 0.03, high: float = 0.25, size: Any = None) -> Any:
        """Return lengths whose logarithms are spread evenly."""
        return np.exp(self.rng.uniform(np.log(low), np.log(high), size))

    def contact(self, contact: pb.PGS) -> pb.PGS | pb.Compliant:
        """Return the solver to take instead of a drawn one."""
        if "compliant" in self.features:
            return pb.Compliant(
                stiffness=float(self.length(1e3, 1e6)),
                damping=float(self.rng.choice((0.0, 0.5, 2.0))),
                power=float(self.rng.choice((1.0, 1.0, 1.5))),
                iterations=contact.iterations,
                margin=max(contact.margin, 0.002),
            )
        if "loops" in self.features and contact.cfm == 0.0:
            return replace(contact, cfm=1e-6)
        return contact

    def shape(self, shape: Shape) -> Shape:
        """Return a cylinder instead of some of the capsules."""
        if "shapes" in self.features and shape.type == "capsule" and self.chance(0.5):
            return replace(shape, type="cylinder")
        return shape

    # -- bodies --------------------------------------------------------------------------------------------------

    def add_bodies(self, world: pb.World, places: Any) -> None:
        """Add one to three cylinders, meshes and fields, some of them static; `places` draws options."""
        if "shapes" not in self.features:
            return
        for k in range(int(self.rng.integers(1, 4))):
            kind = NEW_SHAPES[int(self.rng.integers(3))]
            static, mass = self.chance(0.3), float(self.length(0.05, 5.0))
            options = {**places(), **({"static": True} if static else {"mass": mass})}
            name = f"{kind}{k}"
            if kind == "cylinder":
                radius, length = map(float, self.length(size=2))
                world.add_cylinder(name, radius=radius, length=length, **options)
            elif kind == "mesh":
                points = self.rng.normal(size=(int(self.rng.integers(5, 20)), 3))
                world.add_mesh(name, points * self.length(0.03, 0.12, 3), **options)
            else:
                half = self.length(0.04, 0.15, 3)
                if not static:
                    options["inertia"] = mass / 3 * np.diag(half @ half - half**2)
                world.add_field(name, self.field(half), **options)

    def field(self, half: np.ndarray) -> pb.sdf.Shape:
        """Return a signed distance that fills about a box of these half lengths."""
        box, least = pb.sdf.box(tuple(half)), float(half.min())
        hole = pb.sdf.cylinder(0.5 * float(half[:2].min()), 4.0 * float(half[2]))
        ball = pb.sdf.sphere(1.2 * least)
        torus = pb.sdf.torus(float(half.max()), 0.5 * least)
        return (box, box - hole, (box | ball.at((0.0, 0.0, float(half[2])))).blend(0.3 * least), torus)[
            int(self.rng.integers(4))
        ]

    def add_ground(self, world: pb.World, height: float, surface: dict[str, Any]) -> bool:
        """Add hills instead of a ground, sometimes; tell whether."""
        if "shapes" not in self.features or not self.chance(0.4):
            return False
        hills = pb.sdf.heights(self.rng.uniform(-0.05, 0.05, (6, 7)), (2.0, 2.0))
        world.add_field("hills", hills, static=True, position=(0.0, 0.0, height), **surface)
        return True

    # -- loops ---------------------------------------------------------------------------------------------------

    def close_loops(self, world: pb.World) -> None:
        """Hold links together, or to the world, by one or two loops where there are links."""
        if "loops" not in self.features:
            return
        links = [
            f"{name}/{robot.model.links[k].name}"
            for name, robot in world.robots.items()
            for k, body in enumerate(robot.model.link_body)
            if body >= 0
        ]
        for _ in range(int(self.rng.integers(1, 3)) if links else 0):
            a, b = (str(name) for name in self.rng.choice(links, 2))
            kind = ("connect", "connect", "hinge", "weld")[int(self.rng.integers(4))]
            frames: dict[str, Any] = {"position_a": self.rng.uniform(-0.1, 0.1, 3).tolist()}
            if kind == "hinge":
                frames["axis"] = self.rng.normal(size=3).tolist()
            try:
                getattr(world, kind)(a, None if self.chance(0.3) else b, **frames)
            except pb.PullbackError:  # both on one body
                continue

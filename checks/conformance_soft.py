"""Gradients of material points among bodies: each material, each kind of contact, by each quantity.

A ball is thrown at a small block, and a plate on a slide, driven by a servo, presses on it from above; 40 steps. The
loss is a weighted sum of the last state of particles and bodies and of the forces between them. Its gradient times a
random direction is compared in float64 with differences of fourth order of three step sizes, the best of which counts.
`python -m checks.conformance_soft` prints the table of docs/soft.md.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any

import torch

import pullback as pb
from pullback import soft
from pullback.description.assets.rows import Z, box, joint, link
from pullback.description.tree import Tree
from pullback.robot.load import load

Tensor = torch.Tensor

CELL, DT, STEPS = 0.02, 5e-4, 40
BAR = 1e-4
"""Through contact, relative."""
SIZES = (3e-4, 1e-4, 3e-5)
STIFF = {"poisson": 0.3, "density": 1000.0, "viscosity": 0.2}
MATERIALS: dict[str, Any] = {
    "neo-Hookean": soft.Elastic(youngs=4e3, **STIFF),
    "fixed corotated": soft.Elastic(youngs=4e3, model="fixed_corotated", **STIFF),
    "fluid": soft.Fluid(bulk=4e3, density=1000.0, viscosity=0.2),
    "von Mises": soft.Plastic(youngs=4e3, yield_stress=60.0, **STIFF),
    "Drucker–Prager": soft.Sand(youngs=4e3, friction_angle=0.5, **STIFF),
}
LAWS = ("separate", "slip", "stick")
LENGTHS = {"x": 2e-4, "v": 0.02, "F": 0.01, "q": 2e-4, "qd": 0.05, "u": 0.01}
"""Of directions; those of other quantities are of the quantity's own size."""
COLUMNS = ("x", "v", "F", "stiffness", "poisson", "exponent", "yield_stress", "friction_angle", "density", "viscosity",
           "q", "qd", "u", "mass", "friction", "radius")  # fmt: skip


def slide() -> Tree:
    """Return a plate on a vertical slide."""
    links = [link("post"), link("plate", 0.2, (0.0, 0.0, 0.0), (1e-4,) * 3, box((0.1, 0.1, 0.04)))]
    return Tree("slide", links, [joint("down", "prismatic", "post", "plate", axis=Z)], source="slide")


def stiffness_of(material: Any) -> str:
    """Return the name of the number that says how stiff a material is."""
    return "bulk" if isinstance(material, soft.Fluid) else "youngs"


class Case:
    """A material and a kind of contact: the leaves of the gradient, and the loss."""

    def __init__(self, material: str, law: str) -> None:
        self.material = MATERIALS[material]
        body = soft.block((-0.03,) * 3, (0.03,) * 3, spacing=0.01, name="block", material=self.material)
        generator = torch.Generator().manual_seed(3)
        shaken = body.points + 1e-3 * torch.randn(body.points.shape, generator=generator).numpy()
        domain = soft.Domain((-0.2,) * 3, (0.2,) * 3, CELL, sides="open")
        body = soft.Body("block", shaken, body.volume, self.material)
        particles = soft.SoftSim(domain, [body], dt=DT, gravity=(0.0, 0.0, -2.0), dtype=torch.float64, threads=1)
        # one set of kernels for all materials
        particles.variant = particles.variant._replace(kinds=tuple(range(len(MATERIALS))))
        numbers = {"mass": 0.1, "friction": 0.4, "radius": 0.03}
        self.world = {name: torch.tensor(x, dtype=torch.float64, requires_grad=True) for name, x in numbers.items()}
        world = pb.World(gravity=(0.0, 0.0, -2.0))
        servo = {"down": pb.PositionServo(500.0, 10.0)}
        world.add(load(slide()), name="press", position=(0.0, 0.0, 0.052), actuators=servo, friction=0.3)
        world.add_sphere("ball", radius=0.03, mass=0.1, position=(0.06, 0.005, 0.0), friction=0.4)
        world.set_shape("ball", friction=self.world["friction"], radius=self.world["radius"])
        rigid = world.compile(dt=DT, dtype=torch.float64)
        rigid.world.robots["ball"].set_link_param("ball", "mass", self.world["mass"])
        self.coupled = soft.Coupled(particles, rigid, kind=law)

    def leaves(self) -> dict[str, Tensor]:
        """Return what gradients go by."""
        state = self.coupled.state()
        generator = torch.Generator().manual_seed(5)
        F = state.soft.F + 0.02 * torch.randn(state.soft.F.shape, generator=generator, dtype=torch.float64)
        if isinstance(self.material, soft.Sand):
            F = 0.95 * F
        if isinstance(self.material, soft.Fluid):
            # the first entry is the volume ratio
            F = torch.eye(3, dtype=torch.float64).expand(F.shape).clone()
            F[..., 0, 0] = 0.98
        qd = state.rigid.qd.clone()
        qd[:, 0], qd[:, 4] = -0.3, -0.8
        qd[:, 1:4] = torch.tensor([2.0, -1.0, 3.0])
        u = -0.01 * torch.ones(STEPS, 1, 1, dtype=torch.float64)
        values = {"x": state.soft.x, "v": state.soft.v, "F": F, "q": state.rigid.q, "qd": qd, "u": u}
        for each in fields(self.material):
            if isinstance(getattr(self.material, each.name), float):
                name = "stiffness" if each.name == stiffness_of(self.material) else each.name
                values[name] = torch.tensor(getattr(self.material, each.name), dtype=torch.float64)
        return {name: x.detach().clone().requires_grad_() for name, x in values.items()} | self.world

    def loss(self, leaves: dict[str, Tensor]) -> Tensor:
        """Return a weighted sum of what comes of the leaves."""
        for name, x in self.world.items():
            with torch.no_grad():
                x.copy_(leaves[name].detach())
        names = {each.name for each in fields(self.material)}
        given = {name: x for name, x in leaves.items() if name in names}
        given[stiffness_of(self.material)] = leaves["stiffness"]
        state = self.coupled.state()
        start = soft.CoupledState(
            state.soft.replace(**{name: leaves[name] for name in ("x", "v", "F")}),
            pb.State(leaves["q"], leaves["qd"], state.rigid.impulses),
        )
        run = self.coupled.rollout(start, leaves["u"], materials={"block": replace(self.material, **given)})
        self.forces = run.wrenches.detach()[..., 3:].norm(dim=-1).mean((0, 1))
        generator = torch.Generator().manual_seed(4)
        outputs = [10.0 * run.final.soft.x, run.final.soft.v, run.final.rigid.q, run.final.rigid.qd, run.wrenches]
        weights = [torch.randn(y.shape, generator=generator, dtype=torch.float64) for y in outputs]
        return sum(((y * w).sum() for y, w in zip(outputs, weights)), torch.zeros((), dtype=torch.float64))


def measure(
    material: str, law: str, only: tuple[str, ...] | None = None, sizes: tuple[float, ...] = SIZES
) -> dict[str, float]:
    """Return the relative error of the gradient by each quantity."""
    case = Case(material, law)
    leaves = case.leaves()
    grads = dict(zip(leaves, torch.autograd.grad(case.loss(leaves), list(leaves.values()), allow_unused=True)))
    if not bool((case.forces > 0.05).all()):
        raise pb.PullbackError(f"{material}, {law}: a body touches nothing, forces are {case.forces.tolist()} N")
    plain = {name: x.detach().clone() for name, x in leaves.items()}
    found = {}
    for name in only or [n for n in COLUMNS if n in leaves and (n != "friction" or law == "separate")]:
        x = plain[name]
        direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
        direction = LENGTHS.get(name, float(x.abs().max())) * direction
        if name == "F" and isinstance(case.material, soft.Fluid):
            direction[..., 1:] = direction[..., 1:, :] = 0.0
        if name == "q":
            # quaternions stay of length 1 to first order
            direction[:, 4:] = 0.0
        grad = grads[name]
        mine = 0.0 if grad is None else float((grad * direction).sum())
        slopes = [slope_along(case, plain, name, direction, size) for size in sizes]
        found[name] = min(abs(mine - slope) / max(abs(slope), 1e-6) for slope in slopes)
    return found


@torch.no_grad()
def slope_along(case: Case, leaves: dict[str, Tensor], name: str, direction: Tensor, size: float) -> float:
    """Return the derivative of the loss along a direction of one leaf by differences of fourth order."""

    def loss(s: float) -> float:
        return float(case.loss(leaves | {name: leaves[name] + s * direction}))

    one, two = (loss(s) - loss(-s) for s in (size, 2.0 * size))
    return (8.0 * one - two) / (12.0 * size)


@cache
def table() -> dict[tuple[str, str], dict[str, float]]:
    """Return all errors."""
    return {(material, law): measure(material, law) for material in MATERIALS for law in LAWS}


def main() -> int:
    """Print the table; return 1 where a bar is missed."""
    print("| material | contact | " + " | ".join(COLUMNS) + " |\n" + "|---" * (len(COLUMNS) + 2) + "|")
    for (material, law), errors in table().items():
        cells = [f"{errors[name]:.0e}" if name in errors else "" for name in COLUMNS]
        print(f"| {material} | {law} | " + " | ".join(cells) + " |", flush=True)
    worst = max(max(errors.values()) for errors in table().values())
    print(f"\nworst {worst:.1e}, bar {BAR:g}")
    return int(worst > BAR)


if __name__ == "__main__":
    raise SystemExit(main())

"""Unknowns of an identification: parameters of links and shapes, or any other, within bounds.

An unknown's value is a function of unbounded variables z, zero at the start and of order one for a relevant change:
lower + (start - lower) exp(z), a logistic curve between two bounds, start + scale z without any, and for inertias the
log-Cholesky factor of the pseudo-inertia.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import nn

from pullback.core.errors import PullbackError, unknown_name
from pullback.rigid.sim import Sim
from pullback.rigid.world.shapes import SHAPE_KINDS
from pullback.rigid.world.world import World
from pullback.robot.model import RobotModel
from pullback.robot.parameters import SHAPES
from pullback.robot.parametrizations import PhysicalInertia, split_pseudo_inertia

Tensor = torch.Tensor

SURFACES = ("friction", "restitution", "size", "position")
"""Possible unknowns of a collision shape; of a link it is every parameter of `set_link_param`."""
POSITIVE = ("mass", "joint_damping", "joint_friction", "joint_armature", "friction", "size")
INERTIAS = ("inertial", "inertia_mat")
AXES = "xyz"


@dataclass(frozen=True)
class Unknown:
    """A parameter to identify: `Unknown("arm/link2", "mass")`, `Unknown("block", "friction", start=0.3)`.

    `target` is a link, `robot/link` or the name of a free body, or a shape; `parameter` one of its parameters.
    """

    target: str
    parameter: str
    start: float | Sequence[float] | Tensor | None = None
    """Where the search starts; by default the value that the world has."""
    lower: float | None = None
    """Lower bound; by default 0 for parameters that cannot be negative."""
    upper: float | None = None
    """Upper bound; by default 1 for restitution only."""
    scale: float | None = None
    """The size of a relevant change, without bounds; by default the magnitude of the start, or 1."""
    solid: bool = False
    """For a mass: scale the inertia in proportion, as a change of density would."""
    apply: Callable[[Tensor], None] | None = None
    """For other parameters: a function that sets values (B, *shape), one per world; `target` is then only a name."""

    @property
    def name(self) -> str:
        """The name in messages: `mass of arm/link2`."""
        return f"{self.parameter} of {self.target}"


class Connected(nn.Module):
    """A link parameter whose values (B, *shape) are set from outside."""

    value: Tensor

    def forward(self) -> Tensor:
        """Return the values."""
        return self.value


@dataclass
class Variable:
    """An unknown of a world: the map from variables z (N, size) to values (N, *shape), and how to set them."""

    unknown: Unknown
    start: Tensor
    size: int
    value: Callable[[Tensor], Tensor]
    put: Callable[[Tensor], None]
    settle: Callable[[Tensor], None]
    """Sets one value for all worlds permanently."""

    @property
    def entries(self) -> list[str]:
        """A name for each number that `numbers` returns."""
        return [part + " of " + self.unknown.target for part in _parts(self.unknown.parameter, self.start.shape)]

    def numbers(self, value: Tensor) -> Tensor:
        """Return values (N, *shape) as readable numbers (N, n): of an inertia its mass, com and moments."""
        if self.unknown.parameter == "inertial":
            mass, com, inertia = split_pseudo_inertia(value)
            return torch.cat([mass[:, None], com, _upper(inertia)], -1)
        return _upper(value) if self.unknown.parameter == "inertia_mat" else value.reshape(len(value), -1)


class Unknowns:
    """All unknowns of a simulation's world as one vector of variables z (N, size), one row per world or one for all."""

    def __init__(self, sim: Sim, unknowns: Sequence[Unknown]) -> None:
        if not unknowns:
            raise PullbackError("there is nothing to find; give unknowns, for instance [Unknown('block', 'mass')]")
        for given in unknowns:
            if not isinstance(given, Unknown):
                raise PullbackError(f"unknowns are pb.control.Unknown(target, parameter), got {given!r}")
        names = [given.name for given in unknowns]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise PullbackError(f"{twice} is given twice; give each unknown once")
        self.variables = [_variable(sim, given) for given in unknowns]
        self.entries = [entry for variable in self.variables for entry in variable.entries]
        self.size = sum(variable.size for variable in self.variables)

    def connect(self, z: Tensor) -> None:
        """Set the world's parameters to the values of z (N, size)."""
        for variable, part in zip(self.variables, self._split(z)):
            variable.put(variable.value(part))

    def settle(self, z: Tensor) -> None:
        """Leave the values of z (size,) in the world."""
        for name, value in self.values(z).items():
            next(v for v in self.variables if v.unknown.name == name).settle(value)

    def values(self, z: Tensor) -> dict[str, Tensor]:
        """Return the values of z (size,) by the names of the unknowns."""
        with torch.no_grad():
            return {v.unknown.name: v.value(part)[0] for v, part in zip(self.variables, self._split(z[None]))}

    def numbers(self, z: Tensor) -> Tensor:
        """Return the numbers (n,) that `entries` names."""
        return torch.cat([v.numbers(v.value(part))[0] for v, part in zip(self.variables, self._split(z[None]))])

    def slope(self, z: Tensor) -> Tensor:
        """Return the derivative (n, size) of the numbers by z (size,)."""
        return torch.autograd.functional.jacobian(self.numbers, z)  # pyright: ignore[reportReturnType]

    def _split(self, z: Tensor) -> tuple[Tensor, ...]:
        return z.split([variable.size for variable in self.variables], -1)


def _parts(parameter: str, shape: torch.Size) -> list[str]:
    """Return a name for each number of a parameter."""
    moments = [AXES[i] + AXES[j] for i in range(3) for j in range(i, 3)]
    if parameter == "inertial":
        return ["mass", *("com " + axis for axis in AXES), *("inertia " + moment for moment in moments)]
    if parameter == "inertia_mat":
        return ["inertia " + moment for moment in moments]
    if not shape:
        return [parameter]
    axes = AXES if shape == (3,) else range(shape.numel())
    return [f"{parameter} {axis}" for axis in axes] if len(axes) > 1 else [parameter]


def _upper(matrix: Tensor) -> Tensor:
    """Return the six entries (N, 6) of symmetric matrices (N, 3, 3)."""
    i, j = torch.triu_indices(3, 3).unbind(0)
    return matrix[:, i, j]


# -- setting values ----------------------------------------------------------------------------------------------


def _variable(sim: Sim, given: Unknown) -> Variable:
    """Resolve an unknown in a world, and check its start and bounds."""
    world = sim.world
    if given.apply is not None:
        if given.start is None:
            raise PullbackError(f"{given.name} has its own apply and no start; give start=...")
        put = settle = given.apply
        start = _tensor(sim, given, given.start)
    elif given.parameter in SURFACES:
        put, start = _on_shape(sim, given)
        settle = put
    elif given.parameter in SHAPES:
        put, settle, start = _on_link(sim, given)
    else:
        raise unknown_name("parameter", given.parameter, [*SHAPES, *SURFACES], f"{given.target!r}")
    if given.solid and given.parameter != "mass":
        raise PullbackError(f"{given.name} is given as solid, which only a mass can be")
    if not bool(start.isfinite().all()):
        raise PullbackError(f"the start of {given.name} is {start.tolist()}; give finite numbers")
    if given.parameter in INERTIAS and given.apply is None:
        size, value = _inertia_value(given, start)
    else:
        size, value = start.numel(), _bounded_value(world, given, start)
    return Variable(given, start, size, value, put, settle)


def _tensor(sim: Sim, given: Unknown, value: Any) -> Tensor:
    try:
        return torch.as_tensor(value).detach().to(sim.device, sim.dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PullbackError(f"the start of {given.name} is {value!r}; give numbers") from error


def _check_shape(given: Unknown, start: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the start as a tensor of a shape; a single number may have any shape."""
    if start.numel() == 1 and torch.Size(shape).numel() == 1:
        return start.reshape(shape)
    if tuple(start.shape) != shape:
        raise PullbackError(f"the start of {given.name} has shape {tuple(start.shape)}; expected {shape}")
    return start


def _on_shape(sim: Sim, given: Unknown) -> tuple[Callable[[Tensor], None], Tensor]:
    """Return the function that sets a parameter of the shapes below a name, and its start."""
    world, field = sim.world, given.parameter
    shapes = (shape for item in world.items for shape in item.shapes)
    found = [s for s in shapes if s.name == given.target or s.name.startswith(f"{given.target}/")]
    if not found:
        raise unknown_name("shape", given.target, world.shape_names)
    kind = found[0].kind
    numbers = len(SHAPE_KINDS[kind].sizes)
    if field == "size" and (not numbers or any(shape.kind != kind for shape in found)):
        raise PullbackError(f"{given.name} cannot be found: it is a {kind}, or several shapes of different kinds")
    shape = {"size": (numbers,), "position": (3,)}.get(field, ())
    present = getattr(found[0], field) if given.start is None else given.start
    if present is None:
        raise PullbackError(f"{given.name} has no value to start from; give start=...")
    start = _check_shape(given, _tensor(sim, given, present), shape)

    def put(value: Tensor) -> None:
        world.set_shape(given.target, **{field: value})

    return put, start


def _on_link(sim: Sim, given: Unknown) -> tuple[Callable[[Tensor], None], Callable[[Tensor], None], Tensor]:
    """Return functions that set a link's parameter for a search and permanently, and its start."""
    robot, link = _find_link(sim.world, given)
    robot.to(device=sim.device, dtype=sim.dtype)
    parameter = given.parameter
    with torch.no_grad():
        present = robot.get_link_param(link, parameter) if given.start is None else _tensor(sim, given, given.start)
        start = _check_shape(given, present, SHAPES[parameter])
        mass, inertia = robot.get_link_param(link, "mass"), robot.get_link_param(link, "inertia_mat")
    modules = {name: Connected() for name in (parameter, *(["inertia_mat"] if given.solid else []))}

    def values_of(value: Tensor) -> dict[str, Tensor]:
        both = {parameter: value}
        return both | {"inertia_mat": (value / mass)[..., None, None] * inertia} if given.solid else both

    def put(value: Tensor) -> None:
        for name, each in values_of(value).items():
            modules[name].value = each
            if robot.learned._modules.get(robot._key(link, name)) is not modules[name]:
                robot.make_link_param_learnable(link, name, modules[name])

    def settle(value: Tensor) -> None:
        for name, each in values_of(value).items():
            robot.set_link_param(link, name, each)

    return put, settle, start.clone()


def _find_link(world: World, given: Unknown) -> tuple[RobotModel, str]:
    """Return the robot and the link that a target names."""
    name, _, link = given.target.partition("/")
    if name not in world.robots:
        raise unknown_name("robot or free body", name, world.robots)
    robot = world.robots[name]
    if not link:
        heavy = [each.name for each in robot.model.links if each.mass > 0.0]
        if len(heavy) != 1:
            few = ", ".join(f"{name}/{each}" for each in heavy[:6])
            raise PullbackError(f"{given.name}: {name!r} has {len(heavy)} links with a mass; say which: {few}")
        link = heavy[0]
    robot.link_number(link)
    return robot, link


# -- bounds ------------------------------------------------------------------------------------------------------


def _bounded_value(world: World, given: Unknown, start: Tensor) -> Callable[[Tensor], Tensor]:
    """Return the function from z (N, size) to values (N, *shape) between the bounds."""
    known = given.apply is None
    lower = 0.0 if given.lower is None and known and given.parameter in (*POSITIVE, "restitution") else given.lower
    upper = 1.0 if given.upper is None and known and given.parameter == "restitution" else given.upper
    low, high = (-torch.inf if lower is None else lower), (torch.inf if upper is None else upper)
    if not low < high:
        raise PullbackError(f"{given.name} has the bounds {low:g} and {high:g}; the lower must be below the upper")
    if not bool(((start > low) & (start < high)).all()):
        raise PullbackError(
            f"{given.name} starts at {start.tolist()}, which is not between {low:g} and {high:g}; give start=... inside"
        )
    shape = start.shape
    if lower is not None and upper is not None:
        middle = ((start - low) / (high - start)).log()
        return lambda z: low + (high - low) * (middle + z.reshape(-1, *shape)).sigmoid()
    if lower is not None:
        return lambda z: low + (start - low) * z.reshape(-1, *shape).exp()
    if upper is not None:
        return lambda z: high - (high - start) * (-z.reshape(-1, *shape)).exp()
    scale = given.scale or float(start.abs().max()) or 1.0
    return lambda z: start + scale * z.reshape(-1, *shape)


def _inertia_value(given: Unknown, start: Tensor) -> tuple[int, Callable[[Tensor], Tensor]]:
    """Return the number of variables of a physical inertia, and the function from z (N, size) to it."""
    if given.lower is not None or given.upper is not None:
        raise PullbackError(f"{given.name} is always physical; leave out lower and upper")
    module = PhysicalInertia(start)
    raw = module.raw.detach()
    n = raw.shape[-1]
    places = [(i, j) for i, j in product(range(n), range(n)) if j <= i]
    rows, columns = (torch.tensor(x, device=raw.device) for x in zip(*places))
    # off-diagonal changes are relative to the diagonal of their row
    scale = torch.where(rows == columns, 1.0, raw.diagonal().exp()[rows])

    def value(z: Tensor) -> Tensor:
        factors = raw.expand(len(z), n, n).index_put((torch.arange(len(z))[:, None], rows, columns), scale * z, True)
        return torch.func.functional_call(module, {"raw": factors})

    return len(places), value

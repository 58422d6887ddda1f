"""Particles on their way through steps: the state in one buffer, the blocks of the grid, and the passes of a step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from pullback.core.passes import Pass
from pullback.core.tensors import current_stream, device_name, view
from pullback.soft.block_kernels import block_kernels
from pullback.soft.grid_kernels import blocks_before, grid_kernels
from pullback.soft.halo import Halo
from pullback.soft.step_kernels import step_kernels
from pullback.soft.variant_kernels import EDGE, Variant

Tensor = torch.Tensor

PARTS = ("x", "v", "C", "F", "history")
"""The state of a particle, in the order of the buffer."""


@dataclass(frozen=True, eq=False)
class Setup:
    """What no rollout changes, on the device; particles of all worlds one after the other.

    origin (d,) of the grid and its nodes along each axis; walls (w, d + 3): normal, offset, friction, kind; kind and
    actuator (B n,), fibre (B n, d); actuator_starts (B a + 1,) and actuator_particles list the particles of each.
    """

    variant: Variant
    worlds: int
    particles: int
    dt: float
    cell: float
    drag: float
    origin: tuple[float, ...]
    nodes: tuple[int, ...]
    walls: Tensor
    kind: Tensor
    actuators: int
    actuator: Tensor | None
    fibre: Tensor | None
    actuator_starts: Tensor | None
    actuator_particles: Tensor | None
    dtype: torch.dtype
    device: torch.device
    threads: int
    halo: Halo = field(default_factory=Halo)
    """What other ranks give to the grid."""

    @property
    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.variant.dim

    @property
    def blocks(self) -> tuple[int, ...]:
        """Return the number of blocks along each axis of the table."""
        return tuple(-(-nodes // EDGE[self.dim]) for nodes in self.nodes)

    @property
    def count(self) -> int:
        """Return the number of particles of all worlds."""
        return self.worlds * self.particles

    @property
    def width(self) -> int:
        """Return the numbers of a particle's state."""
        return 2 * self.dim + 2 * self.dim**2 + 1

    def new(self, *shape: int) -> Tensor:
        """Return zeros of the floating-point type."""
        return torch.zeros(*shape, dtype=self.dtype, device=self.device)

    def integers(self, count: int, value: int = 0) -> Tensor:
        """Return equal integers."""
        return torch.full((count,), value, dtype=torch.int32, device=self.device)

    def split(self, flat: Tensor) -> dict[str, Tensor]:
        """Return the parts of a state's buffer (count width,) as views."""
        n, d = self.count, self.dim
        shapes = {"x": (n, d), "v": (n, d), "C": (n, d, d), "F": (n, d, d), "history": (n,)}
        parts, at = {}, 0
        for name, shape in shapes.items():
            size = torch.Size(shape).numel()
            parts[name] = flat[at : at + size].view(shape)
            at += size
        return parts

    def block_keys(self, x: Tensor) -> Tensor:
        """Return which block each particle (B, n, d), or some of one world, is in, numbered over all worlds."""
        place = ((x.reshape(-1, self.dim) - x.new_tensor(self.origin)) / self.cell - 0.5).floor().long()
        place = place.div(EDGE[self.dim], rounding_mode="floor")
        key = torch.arange(len(place), device=x.device) // max(self.particles, 1)
        for axis, size in enumerate(self.blocks):
            key = key * size + place[:, axis].clamp(0, size - 1)
        return key


def filled(struct: Any, **values: Any) -> Any:
    """Return a struct of Warp with fields from tensors and numbers; whoever calls keeps the tensors."""
    made = struct()
    for name, value in values.items():
        if value is not None:
            setattr(made.__ctype__(), name, value)
    return made


class PiecePass(Pass):
    """A pass over pieces of the particles."""

    ITEMS_PER_THREAD = 1


def sorts_on(device: torch.device) -> bool:
    """Whether particles are sorted by block, for threads that take whole blocks, or a thread takes a particle."""
    return device.type == "cpu"


def copy(target: Tensor, source: Tensor) -> None:
    """Copy a buffer; on a CPU by numpy, as torch would wake threads that spin on where ours should run."""
    if target.is_cpu:
        np.copyto(target.numpy(), source.numpy())
    else:
        target.copy_(source)


class Forward:
    """Does steps: `flat` is the state's buffer, `code` says which particles were taken out and why."""

    def __init__(self, setup: Setup, capacity: int, numbers: Tensor, gravity: Tensor, actuation: Tensor | None) -> None:
        self.setup, self.capacity = setup, capacity
        self.types = types = setup.variant.types
        n, d = setup.count, setup.dim
        self.sorts = sorts_on(setup.device)
        self.pieces = setup.threads if self.sorts else n
        self.flat = setup.new(n * setup.width)
        self.numbers, self.gravity, self.actuation = numbers, gravity, actuation
        blocks = torch.Size(setup.blocks).numel() * setup.worlds
        self.tensors = {
            "base": torch.zeros(n, d, dtype=torch.int32, device=setup.device),
            "key": setup.integers(n),
            "slot": setup.integers(n, -1),
            "code": setup.integers(n),
            "order": setup.integers(n) if self.sorts else None,
            "pieces": setup.integers(self.pieces + 1) if self.sorts else None,
            "cursor": setup.integers(capacity + 1),
            "count": setup.integers(2),
            "table": setup.integers(blocks, -1),
            "keys": setup.integers(capacity),
            "neighbours": setup.integers(capacity * 3**d),
            "about": setup.integers(capacity),
            "before": torch.tensor(blocks_before(setup.variant), dtype=torch.int32, device=setup.device),
            "momentum": setup.new(capacity * setup.variant.arena, d + 1),
            "velocity": setup.new(capacity * setup.variant.arena, d + 1),
            "cotangent": None,
        }
        self.job = filled(
            types.Job,
            particles=setup.particles,
            dt=setup.dt,
            cell=setup.cell,
            inverse=1.0 / setup.cell,
            keep=1.0 - setup.drag * setup.dt,
            pressing=4.0 * setup.dt / setup.cell**2,
            origin=types.vec(*setup.origin),
            nodes=types.ints(*setup.nodes),
            blocks=types.ints(*setup.blocks),
            capacity=capacity,
            actuators=setup.actuators,
            walls=view(setup.walls, types.wall),
            kind=view(setup.kind),
            actuator=view(setup.actuator),
            fibre=view(setup.fibre, types.vec),
            numbers=view(numbers, types.numbers),
            gravity=view(gravity, types.vec),
            actuation=view(actuation),
        )
        self.points = self.points_of(self.flat)
        self.make_passes()

    def make_passes(self) -> None:
        """Record the launches of a step."""
        variant, types = self.setup.variant, self.types
        vectors = {"base": types.ints, "momentum": types.row, "velocity": types.row, "cotangent": types.row}
        views = {name: view(x, vectors.get(name)) for name, x in self.tensors.items()}
        self.grid = grid = filled(types.Grid, **views)
        blocks, nodes, step = block_kernels(variant.plain), grid_kernels(variant.plain), step_kernels(variant)
        self.find_keys = self.make(blocks.find_keys, self.job, self.points, grid, integers=1)
        if self.sorts:
            self.sort_blocks = self.make(blocks.sort_blocks, self.job, grid, integers=2)
        else:
            self.forget_blocks = self.make(blocks.forget_blocks, self.job, grid)
            self.claim_blocks = self.make(blocks.claim_blocks, self.job, grid)
            self.read_slots = self.make(blocks.read_slots, self.job, grid)
        self.find_neighbours = self.make(blocks.find_neighbours, self.job, grid)
        self.clear_momentum = self.make(nodes.clear, grid, views["momentum"])
        self.move_nodes = self.make(nodes.move_nodes, self.job, grid)
        self.to_grid = self.make(step.to_grid, self.job, self.points, grid, integers=1, fine=False)
        self.from_grid = self.make(step.from_grid, self.job, self.points, grid, integers=1, fine=False)

    def points_of(self, flat: Tensor) -> Any:
        """Return a state's buffer as kernels see it."""
        vectors = {"x": self.types.vec, "v": self.types.vec, "C": self.types.mat, "F": self.types.mat}
        parts = self.setup.split(flat)
        return filled(self.types.Points, **{name: view(x, vectors.get(name)) for name, x in parts.items()})

    def make(self, kernel: Any, *arguments: Any, integers: int = 0, fine: bool = True) -> Pass:
        """Return a pass over many items, or over pieces of the particles, each of which is worth a thread."""
        setup = self.setup
        kind = Pass if fine else PiecePass
        device, stream = device_name(setup.device), current_stream(setup.device)
        names = [argument.label for argument in kernel.adj.args][1 + integers :]
        given = dict(zip(names, arguments))
        return kind(kernel, given, device, integers=integers, threads=setup.threads, stream=stream)

    def begin(self, state: dict[str, Tensor]) -> None:
        """Start from a state, parts (B, n, ...)."""
        for name, part in self.setup.split(self.flat).items():
            part.copy_(state[name].reshape(part.shape))

    def sort(self, step: int) -> int:
        """Find the blocks of all particles; return how many arenas to go over."""
        n = self.setup.count
        self.find_keys(0, n, step)
        if self.sorts:
            self.sort_blocks(0, 1, n, self.pieces)
            slots = int(self.tensors["count"][0])
        else:
            self.forget_blocks(0, self.capacity)
            self.tensors["count"][:1].zero_()
            self.claim_blocks(0, n)
            self.read_slots(0, n)
            slots = self.capacity
        slots = self.setup.halo.add_ghosts(self.tensors, slots)
        self.find_neighbours(0, slots)
        return slots * self.setup.variant.arena

    def fill_grid(self, step: int) -> int:
        """Compute the velocities of all nodes; return how many rows there are."""
        rows = self.sort(step)
        self.clear_momentum(0, rows)
        self.to_grid(0, self.pieces, step)
        self.setup.halo.sum(self.tensors["momentum"])
        self.move_nodes(0, rows)
        return rows

    def advance(self, step: int) -> None:
        """Do one step."""
        self.fill_grid(step)
        self.from_grid(0, self.pieces, step)

    @property
    def needs_room(self) -> bool:
        """Whether a step had more blocks than there are arenas."""
        return bool(self.tensors["count"][1])

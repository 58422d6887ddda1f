"""The equations of a step in all worlds: energy, residual, matrix, and what their adjoint needs.

docs/derivations/cloth.md. Everything is float64: in float32 the residual of a stiff sheet is rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from pullback.core.passes import Pass
from pullback.core.tensors import REAL, view
from pullback.soft.cloth.contact_kernels import contact_kernels
from pullback.soft.cloth.element_kernels import cloth_types, element_kernels, gather_kernels
from pullback.soft.cloth.layout import Layout, Sums
from pullback.soft.cloth.strain_kernels import KINDS
from pullback.soft.forward import filled
from pullback.soft.shape_kernels import SHAPE_NUMBERS
from pullback.soft.touch_kernels import TOUCH_NUMBERS
from pullback.soft.variant_kernels import Variant

Tensor = torch.Tensor

F64 = torch.float64


@dataclass(frozen=True)
class Settings:
    """Length of a step [s], drag [1/s], contact: reach [m], stiffness [N/m], speed of slip [m/s]; threads."""

    dt: float
    drag: float
    reach: float
    stiffness: float
    slip_speed: float
    threads: int


class Given(NamedTuple):
    """What a step starts from and what drives it: x, v (B, n, 3), masses (B, n), gravity (B, 3), force (B, n, 3)."""

    x: np.ndarray
    v: np.ndarray
    masses: np.ndarray
    gravity: np.ndarray
    force: np.ndarray


class Equations:
    """Buffers and kernels for B worlds; `geometry`: the shapes that are touched, as kernels number them, None: none."""

    def __init__(self, layout: Layout, worlds: int, settings: Settings, geometry: Tensor | None) -> None:
        self.layout, self.worlds, self.settings = layout, worlds, settings
        self.types = types = cloth_types(REAL[F64])
        n = layout.vertices
        self.x, self.before, self.multiplier, self.sums = (_new(worlds * n, 3) for _ in range(4))
        self.vector, self.block = _new(worlds * layout.vectors, 3), _new(worlds * layout.blocks, 3, 3)
        self.energy, self.entries = _new(worlds * layout.energies), _new(worlds * len(layout.matrix.indices))
        self.project = torch.zeros(worlds, dtype=torch.int32)
        self.fields = {
            "energy": self._fields(vector=None, block=None),
            "force": self._fields(block=None),
            "all": self._fields(),
        }
        self.kinds = [kind for kind in KINDS if layout.counts[kind]]
        self.kept: list[Any] = []
        self.numbers, self.adj_numbers, self.elements = {}, {}, {}
        for kind in self.kinds:
            self.elements[kind] = self._elements(kind)
        self.kernels = {kind: element_kernels(kind, types.real) for kind in self.kinds}
        self.evaluate = {name: self._passes("evaluate", fields) for name, fields in self.fields.items()}
        self.multiply = self._passes("multiply", self.fields["all"])
        self.elements_vjp = self._passes("pull_back", self.fields["all"])
        gather = gather_kernels(types.real)
        vectors = self._sources(gather, layout.gather, layout.vectors, None)
        blocks = self._sources(gather, layout.matrix.blocks, layout.blocks, layout.matrix.place)
        self.add_vectors = self._pass(gather.add_vectors, s=vectors, rows=self.vector, sums=self.sums)
        self.add_blocks = self._pass(gather.add_blocks, s=blocks, rows=self.block, entries=self.entries)
        self.matrices: dict[int, Any] = {}
        self.shapes = 0 if geometry is None else len(geometry)
        if geometry is not None:
            self._make_contact(geometry)

    # -- buffers -------------------------------------------------------------------------------------------------------

    def _pass(self, kernel: Any, **arguments: Any) -> Pass:
        return Pass(kernel, arguments, "cpu", threads=self.settings.threads)

    def _passes(self, name: str, fields: Any) -> list[tuple[Pass, int]]:
        return [
            (self._pass(getattr(self.kernels[kind], name), c=self.elements[kind], f=fields), self._count(kind))
            for kind in self.kinds
        ]

    def _count(self, kind: str) -> int:
        return self.worlds * self.layout.counts[kind]

    def _fields(self, **others: Any) -> Any:
        vec, mat = self.types.vec, self.types.mat
        views = {name: view(getattr(self, name), vec) for name in ("x", "before", "multiplier", "vector")}
        views |= {"block": view(self.block, mat), "energy": view(self.energy), "project": view(self.project)}
        return filled(self.types.Fields, **(views | others))

    def _elements(self, kind: str) -> Any:
        layout, part = self.layout, self.layout.parts[kind]
        ends, rest = torch.as_tensor(part.ends).to(torch.int32), torch.as_tensor(part.rest).contiguous()
        self.numbers[kind] = _new(self._count(kind), KINDS[kind].numbers)
        self.adj_numbers[kind] = _new(self._count(kind), KINDS[kind].numbers)
        self.kept += [ends, rest]
        return filled(
            self.types.Elements,
            count=layout.counts[kind],
            vertices=layout.vertices,
            vectors=layout.vectors,
            blocks=layout.blocks,
            energies=layout.energies,
            first_vector=layout.first_vector[kind],
            first_block=layout.first_block[kind],
            first_energy=layout.first_energy[kind],
            rate=1.0 / self.settings.dt,
            ends=view(ends),
            rest=view(rest),
            numbers=view(self.numbers[kind]),
            adj_numbers=view(self.adj_numbers[kind]),
        )

    def _sources(self, kernels: Any, sums: Sums, rows: int, place: np.ndarray | None) -> Any:
        tensors = [None if x is None else torch.as_tensor(x) for x in (sums.starts, sums.sources, place)]
        self.kept += tensors
        return filled(
            kernels.Sources,
            count=len(sums.starts) - 1,
            rows=rows,
            entries=len(self.layout.matrix.indices),
            **{name: view(x) for name, x in zip(("starts", "sources", "place"), tensors)},
        )

    def _make_contact(self, geometry: Tensor) -> None:
        layout, settings = self.layout, self.settings
        kernels = contact_kernels(Variant(self.types.real, 3, ()))
        rows, n = self.worlds * self.shapes, self.worlds * layout.vertices
        self.shape_rows = {name: _new(rows, SHAPE_NUMBERS) for name in ("before", "after")}
        self.adj_rows = {name: _new(1, rows, SHAPE_NUMBERS) for name in ("before", "after")}
        self.touch, self.adj_touch = _new(1, rows, TOUCH_NUMBERS), _new(rows, TOUCH_NUMBERS)
        self.adj_x, self.adj_x0 = _new(n, 3), _new(n, 3)
        self.kept.append(geometry)
        contact = filled(
            kernels.Contact,
            count=self.shapes,
            **{name: getattr(layout, name) for name in ("vertices", "vectors", "blocks", "energies")},
            dt=settings.dt,
            reach=settings.reach,
            stiffness=settings.stiffness,
            slip=settings.slip_speed * settings.dt,
            geometry=view(geometry),
            **{name: view(x) for name, x in self.shape_rows.items()},
            **{f"adj_{name}": view(x) for name, x in self.adj_rows.items()},
            touch=view(self.touch),
            adj_touch=view(self.adj_touch),
            adj_x=view(self.adj_x, self.types.vec),
            adj_x0=view(self.adj_x0, self.types.vec),
        )
        self.push = {name: self._pass(kernels.push, c=contact, f=fields) for name, fields in self.fields.items()}
        rest = {"c": contact, "f": self.fields["all"]}
        self._impulses, self._impulses_vjp = (
            self._pass(kernels.shape_impulses, **rest),
            self._pass(kernels.shape_impulses_vjp, **rest),
        )
        self.contact_vjp = self._pass(kernels.pull_back, **rest)

    def by_world(self, x: Tensor) -> np.ndarray:
        """Return a buffer as an array whose first axis is the world; it shares memory."""
        return x.numpy().reshape(self.worlds, -1, *x.shape[1:])

    # -- a step --------------------------------------------------------------------------------------------------------

    def begin(self, given: Given, numbers: Mapping[str, Tensor], shapes: tuple[Tensor, Tensor] | None) -> None:
        """Take what a step depends on."""
        self.given, dt = given, self.settings.dt
        self.by_world(self.before)[:] = given.x
        self.weight = given.masses[..., None] / dt**2
        self.aim = given.x + dt * given.v + dt**2 * given.gravity[:, None]
        for kind in self.kinds:
            np.copyto(self.numbers[kind].numpy(), numbers[kind].numpy().reshape(self.numbers[kind].shape))
        if self.shapes and shapes is not None:
            for name, rows in zip(("before", "after"), shapes):
                np.copyto(self.shape_rows[name].numpy(), rows.numpy())

    def energies(self, x: np.ndarray) -> np.ndarray:
        """Return the energy (B,) that a step makes least, eq. (1), at positions (B, n, 3)."""
        return self._evaluate("energy", x)

    def elastic_energies(self, x: np.ndarray, numbers: Mapping[str, Tensor]) -> np.ndarray:
        """Return the elastic energy (B,) at positions (B, n, 3)."""
        still, masses = np.zeros_like(x), np.zeros(x.shape[:2])
        self.begin(Given(x, still, masses, still[:, 0], still), {k: y.detach() for k, y in numbers.items()}, None)
        return self.energies(x)

    def _evaluate(self, what: str, x: np.ndarray) -> np.ndarray:
        n, cd = self.layout.vertices, self.settings.drag * self.settings.dt
        self.by_world(self.x)[:] = x
        off, moved = x - self.aim, x - self.given.x
        energy, vector, block = (self.by_world(y)[:, :n] for y in (self.energy, self.vector, self.block))
        kinetic = 0.5 * self.weight * (off**2 + cd * moved**2) - self.given.force * x
        energy[:] = kinetic.sum(-1)
        if what != "energy":
            vector[:] = self.weight * (off + cd * moved) - self.given.force
        if what == "all":
            block[:] = ((1.0 + cd) * self.weight)[..., None] * np.eye(3)
        for run, count in self.evaluate[what]:
            run(0, count)
        if self.shapes:
            self.push[what](0, self.worlds * n)
        return self.by_world(self.energy).sum(1)

    def residual(self, x: np.ndarray) -> np.ndarray:
        """Return the residual (B, n, 3), eq. (2): minus the forces that are missing for balance."""
        self._evaluate("force", x)
        return self._sum()

    def linearize(self, x: np.ndarray, project: np.ndarray) -> np.ndarray:
        """Return the residual, and fill the matrix, made positive in worlds where `project` (B,) says so."""
        self.project.numpy()[:] = project
        self._evaluate("all", x)
        self.add_blocks(0, self.worlds * (len(self.layout.matrix.blocks.starts) - 1))
        return self._sum()

    def _sum(self) -> np.ndarray:
        self.add_vectors(0, self.worlds * self.layout.vertices)
        return self.by_world(self.sums).copy()

    def matrix(self, world: int) -> Any:
        """Return the matrix of one world's free vertices, a view of what `linearize` fills."""
        from scipy.sparse import csc_matrix

        if world not in self.matrices:
            pattern, n = self.layout.matrix, 3 * len(self.layout.free)
            entries = self.by_world(self.entries)[world]
            self.matrices[world] = csc_matrix((entries, pattern.indices, pattern.indptr), shape=(n, n))
            # scipy copies what is a small part of a larger array
            self.matrices[world].data = entries
        return self.matrices[world]

    # -- its adjoint ---------------------------------------------------------------------------------------------------

    def times_matrix(self, multiplier: np.ndarray) -> np.ndarray:
        """Return the matrix of all vertices times (B, n, 3), after `linearize`."""
        self.by_world(self.multiplier)[:] = multiplier
        n = self.layout.vertices
        for run, count in self.multiply:
            run(0, count)
        blocks = self.by_world(self.block)[:, :n]
        self.by_world(self.vector)[:, :n] = (blocks @ multiplier[..., None])[..., 0]
        return self._sum()

    def pull_back_elements(self, multiplier: np.ndarray) -> np.ndarray:
        """Add to `adj_numbers`; return cotangents of x before the step by way of damping (B, n, 3)."""
        self.by_world(self.multiplier)[:] = multiplier
        self.by_world(self.vector)[:, : self.layout.vertices] = 0.0
        for run, count in self.elements_vjp:
            run(0, count)
        return self._sum()

    def shape_impulses(self) -> Tensor:
        """Return impulses on shapes and the mass that touches them (B K, 7), in the step whose end `x` holds."""
        self.touch.zero_()
        self._impulses(0, self.worlds * self.shapes)
        return self.touch[0].clone()

    def shape_impulses_vjp(self, adj_touch: Tensor | None) -> np.ndarray:
        """Return the cotangent of x after the step by way of the impulses on shapes."""
        self.adj_touch.zero_() if adj_touch is None else np.copyto(self.adj_touch.numpy(), adj_touch.numpy())
        self.adj_x.zero_()
        self._impulses_vjp(0, self.worlds * self.layout.vertices)
        return self.by_world(self.adj_x).copy()

    def pull_back_contact(self, multiplier: np.ndarray) -> tuple[np.ndarray, Tensor, Tensor]:
        """Return cotangents of x before the step, and of the shapes' numbers before and after it."""
        self.by_world(self.multiplier)[:] = multiplier
        for target in (self.adj_x0, *self.adj_rows.values()):
            target.zero_()
        self.contact_vjp(0, self.worlds * self.shapes)
        rows = self.adj_rows
        return self.by_world(self.adj_x0).copy(), rows["before"][0].clone(), rows["after"][0].clone()


def _new(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=F64)

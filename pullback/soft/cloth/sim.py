"""A simulation of sheets and ropes, and rollouts that can be differentiated in whatever sets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Any

import numpy as np
import torch

from pullback.core.custom_vjp import call
from pullback.core.errors import PullbackError, unknown_name
from pullback.core.tensors import REAL
from pullback.core.threads import get_num_threads
from pullback.rollout.checkpoint import Every, Schedule, schedule_from
from pullback.soft.cloth.equations import Equations, Settings
from pullback.soft.cloth.layout import Layout
from pullback.soft.cloth.march import ClothMarch
from pullback.soft.cloth.materials import Cord, Fabric, spread
from pullback.soft.cloth.mesh import numbers_of
from pullback.soft.cloth.pieces import Rope, Sheet, velocities
from pullback.soft.cloth.strain_kernels import KINDS, SEGMENT, TRIANGLE
from pullback.soft.frames import checked_frames
from pullback.soft.materials import tensor_like

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class ClothState:
    """Positions [m] and velocities [m/s] of vertices, (n, 3) or (B, n, 3) for B worlds."""

    x: Tensor
    v: Tensor

    def replace(self, **parts: Tensor) -> ClothState:
        """Return a state with other parts."""
        return replace(self, **parts)

    def detach(self) -> ClothState:
        """Return the same state without gradients."""
        return ClothState(self.x.detach(), self.v.detach())


@dataclass(frozen=True, eq=False)
class ClothRollout:
    """What a rollout of N steps returns: the final state, and x, v (S, [B,] n, 3) at the steps of `frames` (S,).

    reactions (N, [B,] p, 3): the force [N] of each pin on its vertex in each step; failed ([B]): worlds in which a step
    could not be solved, all NaN; newton (N, [B]): Newton's steps.
    """

    final: ClothState
    x: Tensor
    v: Tensor
    reactions: Tensor
    failed: Tensor
    newton: np.ndarray
    frames: np.ndarray
    dt: float

    @property
    def times(self) -> np.ndarray:
        """Return the times of the frames [s]."""
        return self.frames * self.dt


class ClothSim:
    """Sheets and ropes, made ready to run on a CPU.

    Args:
        pieces: one or more `Sheet` and `Rope` of different names; vertices and pins are numbered through them in order.
        dt: length of a step [s], implicit: any length is stable, long steps damp motion.
        gravity: [m/s²], (3,).
        drag: velocities lose this share of themselves a second [1/s].
        contact_range: bodies push vertices that are nearer than this [m]; None: a quarter of the mean edge.
        contact_stiffness: of a vertex [N/m]; its push is stiffness · depth²/range.
        slip_speed: speed [m/s] of slip at which friction is 0.7 of its limit.
        self_contact: only False: sheets and ropes pass through themselves and each other.
        dtype: of states and gradients; steps are solved in float64.
        threads: CPU threads, by default `pb.get_num_threads()`.
    """

    def __init__(
        self,
        pieces: Sequence[Sheet | Rope],
        *,
        dt: float,
        gravity: Sequence[float] | Tensor | None = None,
        drag: float = 0.0,
        contact_range: float | None = None,
        contact_stiffness: float = 100.0,
        slip_speed: float = 1e-3,
        self_contact: bool = False,
        dtype: torch.dtype = torch.float32,
        threads: int | None = None,
    ) -> None:
        if self_contact:
            raise PullbackError(
                "self_contact=True: sheets and ropes do not touch themselves or each other here; keep layers apart "
                "by pins or bodies, or use material points (soft.SoftSim), which touch each other"
            )
        if dtype not in REAL:
            raise PullbackError(f"dtype is {dtype}; expected torch.float32 or torch.float64")
        self.pieces, self.dtype, self.device, self.dim = tuple(pieces), dtype, torch.device("cpu"), 3
        self._check_pieces()
        self.layout = layout = Layout(self.pieces)
        self.vertices, self.pins = layout.vertices, layout.pins
        reach = 0.25 * layout.edge if contact_range is None else contact_range
        _check_positive(dt=dt, contact_range=reach, contact_stiffness=contact_stiffness, slip_speed=slip_speed)
        if not (np.isfinite(drag) and drag >= 0.0):
            raise PullbackError(f"drag is {drag}; expected 0 or more [1/s]")
        threads = get_num_threads() if threads is None else int(threads)
        self.dt, self.contact_range = float(dt), float(reach)
        self.settings = Settings(self.dt, float(drag), self.contact_range, contact_stiffness, slip_speed, threads)
        self.gravity = self._tensor(torch.zeros(3) if gravity is None else gravity)
        if self.gravity.shape != (3,):
            raise PullbackError(f"gravity has shape {tuple(self.gravity.shape)}; expected (3,)")
        self._equations: dict[tuple[int, ...], Equations] = {}
        self._numbers({}, 1)

    def _check_pieces(self) -> None:
        if not self.pieces:
            raise PullbackError("a cloth simulation without pieces; give one or more sheets or ropes")
        names = [piece.name for piece in self.pieces]
        for name in names:
            if names.count(name) > 1:
                raise PullbackError(f"two pieces are called {name!r}; give each a name of its own")
        for piece in self.pieces:
            if not isinstance(piece.material, Fabric if isinstance(piece, Sheet) else Cord):
                raise PullbackError(
                    f"{piece.name!r} is made of {piece.material}; a sheet needs a Fabric, a rope a Cord"
                )

    def _tensor(self, value: Any) -> Tensor:
        return tensor_like(value, torch.zeros((), dtype=torch.float64))

    # -- what there is -------------------------------------------------------------------------------------------------

    def state(self, worlds: int | None = None) -> ClothState:
        """Return all pieces where they were put, as one world or as `worlds` equal ones."""
        parts = [np.concatenate([p.points for p in self.pieces]), np.concatenate([velocities(p) for p in self.pieces])]
        tensors = [torch.as_tensor(x).to(self.dtype) for x in parts]
        if worlds is not None:
            tensors = [x.expand(worlds, *x.shape) for x in tensors]
        return ClothState(*[x.contiguous() for x in tensors])

    def of(self, name: str) -> slice:
        """Return which vertices are those of a piece."""
        for number, piece in enumerate(self.pieces):
            if piece.name == name:
                first = self.layout.first_vertex
                return slice(int(first[number]), int(first[number + 1]))
        raise unknown_name("piece", name, [piece.name for piece in self.pieces])

    @property
    def triangles(self) -> np.ndarray:
        """Return the triangles of all sheets (m, 3), for pictures."""
        return self.layout.parts[TRIANGLE].ends

    @property
    def segments(self) -> np.ndarray:
        """Return the segments of all ropes (m, 2), for pictures."""
        return self.layout.parts[SEGMENT].ends

    def masses(self, materials: Mapping[str, Fabric | Cord] | None = None, worlds: int = 1) -> Tensor:
        """Return the vertices' masses [kg], (n,), or (worlds, n) for more worlds than one."""
        like = torch.zeros((), dtype=torch.float64)
        parts = []
        for piece, (ends, sizes) in zip(self.pieces, self.layout.shares):
            density = self._material(piece, materials or {}).density
            each = spread([tensor_like(density, like)], f"density of {piece.name!r}", worlds, len(sizes))[..., 0]
            share = each * torch.as_tensor(sizes) / ends.shape[1]
            index = torch.as_tensor(ends).reshape(-1)
            rows = share[..., None].expand(-1, -1, ends.shape[1]).reshape(worlds, -1)
            parts.append(torch.zeros(worlds, len(piece), dtype=torch.float64).index_add(1, index, rows))
        found = torch.cat(parts, 1).to(self.dtype)
        return found[0] if worlds == 1 else found

    def momentum(self, state: ClothState) -> tuple[Tensor, Tensor]:
        """Return linear [kg m/s] and angular momentum about the origin [kg m²/s], (.., 3) each."""
        m = self.masses()[:, None]
        return (m * state.v).sum(-2), torch.linalg.cross(state.x, m * state.v).sum(-2)

    def energy(self, state: ClothState, materials: Mapping[str, Fabric | Cord] | None = None) -> Tensor:
        """Return kinetic, elastic energy and that in gravity [J], (3,) or (B, 3); without gradients."""
        x, v = (y.detach().double().reshape(-1, self.vertices, 3) for y in (state.x, state.v))
        worlds = len(x)
        equations = self._equations_for(worlds)
        masses = self.masses(materials, worlds).detach().double().reshape(worlds, -1)
        elastic = equations.elastic_energies(x.numpy(), dict(zip(KINDS, self._numbers(materials or {}, worlds))))
        kinetic = 0.5 * (masses * v.square().sum(-1)).sum(-1)
        hanging = -(masses * (x @ self.gravity)).sum(-1)
        found = torch.stack([kinetic, torch.as_tensor(elastic), hanging], -1).to(self.dtype)
        return found[0] if state.x.ndim == 2 else found

    # -- what happens --------------------------------------------------------------------------------------------------

    def rollout(
        self,
        state: ClothState,
        steps: int,
        *,
        pins: Tensor | None = None,
        forces: Tensor | None = None,
        gravity: Tensor | None = None,
        materials: Mapping[str, Fabric | Cord] | None = None,
        masses: Tensor | None = None,
        frames: Sequence[int] | int | None = None,
        checkpoint: int | Schedule | None = None,
        check: bool = True,
    ) -> ClothRollout:
        """Return what comes of a state after so many steps.

        Args:
            state: parts (n, 3) or (B, n, 3).
            pins: where pins are at the end of each step [m], (N, p, 3) or (N, B, p, 3); None: they stay.
            forces: [N] on vertices, (n, 3), (B, n, 3) or in each step (N, B, n, 3).
            gravity: (3,) or (B, 3), in the place of the simulation's own.
            materials: piece -> material in the place of its own; numbers may want gradients.
            masses: [kg], (n,) or (B, n), in the place of what the materials give.
            frames: steps before which positions and velocities are kept, N: after the last; k: every k steps.
            checkpoint: which states are kept for the gradient: k for one every k steps, a schedule, None: every √N.
            check: raise for a step that cannot be solved; if not, its world is NaN.
        """
        if int(steps) != steps or steps < 0:
            raise PullbackError(f"steps is {steps!r}; expected an integer, 0 or more")
        steps = int(steps)
        single = state.x.ndim == 2
        x, v = self._parts(state)
        worlds = len(x)
        kept = checked_frames(frames, steps)
        schedule = schedule_from(Every(max(1, isqrt(max(steps, 1)))) if checkpoint is None else checkpoint)
        drive = self._drive(worlds, masses, gravity, forces, materials or {})
        drive.insert(3, self._pins(pins, x, steps))
        refuse = self._refuse if check else None
        march = ClothMarch(self._equations_for(worlds), steps, kept, schedule, refuse)
        outputs = call(march, x, v, *drive)
        failed = torch.from_numpy(march.failed)
        final_x, final_v, xs, vs, reactions = (y.to(self.dtype) for y in outputs)
        if single:
            final_x, final_v, failed = final_x[0], final_v[0], failed[0]
            xs, vs, reactions = xs[:, 0], vs[:, 0], reactions[:, 0]
        newton = march.newton[:, 0] if single else march.newton
        return ClothRollout(ClothState(final_x, final_v), xs, vs, reactions, failed, newton, np.asarray(kept), self.dt)

    def _parts(self, state: ClothState) -> tuple[Tensor, Tensor]:
        """Return positions and velocities as (B, n, 3) in float64, checked."""
        shape = (self.vertices, 3)
        for name, part in (("x", state.x), ("v", state.v)):
            if part.shape[-2:] != shape or part.ndim > 3 or part.shape != state.x.shape:
                raise PullbackError(
                    f"{name} of the state has shape {tuple(part.shape)}; expected {shape}, or "
                    f"(B, {shape[0]}, 3) for B worlds"
                )
            if part.dtype != self.dtype or part.device.type != "cpu":
                raise PullbackError(
                    f"{name} of the state is {part.dtype} on {part.device}; pass {name}.to('cpu', sim.dtype)"
                )
            if not bool(torch.isfinite(part).all()):
                raise PullbackError(f"{name} of the state is not finite everywhere")
        x, v = (part.double() if part.ndim == 3 else part.double()[None] for part in (state.x, state.v))
        return x, v

    def _drive(
        self,
        worlds: int,
        masses: Tensor | None,
        gravity: Tensor | None,
        forces: Tensor | None,
        materials: Mapping[str, Fabric | Cord],
    ) -> list[Tensor]:
        """Return masses (B, n), gravity (B, 3), forces (1 or N, B, n, 3) and the numbers of all kinds."""
        n = self.vertices
        m = self.masses(materials, worlds) if masses is None else masses
        given = self.gravity if gravity is None else gravity
        shapes = {"masses": (m, ((n,), (worlds, n))), "gravity": (given, ((3,), (worlds, 3)))}
        for name, (value, allowed) in shapes.items():
            if tuple(value.shape) not in allowed:
                raise PullbackError(f"{name} has shape {tuple(value.shape)}; expected {allowed[0]} or {allowed[1]}")
        if not bool((m.detach() > 0.0).all()):
            raise PullbackError(f"masses are {float(m.detach().min()):g} kg at least; expected above 0")
        f = torch.zeros(n, 3) if forces is None else forces
        if f.shape[-2:] != (n, 3) or f.ndim > 4 or (f.ndim > 2 and f.shape[-3] not in (1, worlds)):
            raise PullbackError(
                f"forces have shape {tuple(f.shape)}; expected ({n}, 3), ({worlds}, {n}, 3) or (N, {worlds}, {n}, 3)"
            )
        f = f.double() if f.ndim == 4 else f.double().expand(1, worlds, n, 3)
        return [
            m.double().expand(worlds, n),
            self._tensor(given).expand(worlds, 3),
            f.expand(-1, worlds, n, 3),
            *self._numbers(materials, worlds),
        ]

    def _pins(self, pins: Tensor | None, x: Tensor, steps: int) -> Tensor:
        p, worlds = len(self.pins), len(x)
        if pins is None:
            return x[:, torch.as_tensor(self.pins)].expand(steps, worlds, p, 3)
        led = pins.double()[:, None] if pins.ndim == 3 else pins.double()
        if led.ndim != 4 or led.shape[0] != steps or led.shape[1] not in (1, worlds) or led.shape[2:] != (p, 3):
            raise PullbackError(
                f"pins have shape {tuple(pins.shape)}; expected ({steps}, {p}, 3) or ({steps}, {worlds}, {p}, 3): "
                f"where each of {p} pins is after each step"
            )
        return led.expand(steps, worlds, p, 3)

    def _material(self, piece: Sheet | Rope, materials: Mapping[str, Fabric | Cord]) -> Fabric | Cord:
        for name in materials:
            self.of(name)
        found = materials.get(piece.name, piece.material)
        if type(found) is not type(piece.material):
            raise PullbackError(f"{piece.name!r} is made of {piece.material} and was given {found}")
        return found

    def _numbers(self, materials: Mapping[str, Fabric | Cord], worlds: int) -> list[Tensor]:
        """Return numbers (B, m, k) of the elements of each kind."""
        like = torch.zeros((), dtype=torch.float64)
        found: dict[str, list[Tensor]] = {kind: [] for kind in KINDS}
        at = dict.fromkeys(KINDS, 0)
        for number, piece in enumerate(self.pieces):
            material, name = self._material(piece, materials), f"{type(piece.material).__name__} of {piece.name!r}"
            for kind, rows in numbers_of(material, like).items():
                count = self.layout.owned[kind][number]
                strain = torch.as_tensor(self.layout.parts[kind].strain[at[kind] : at[kind] + count])
                at[kind] += count
                found[kind].append(spread([*rows, strain][: KINDS[kind].numbers], name, worlds, count))
        empty = {kind: torch.zeros(worlds, 0, row.numbers, dtype=torch.float64) for kind, row in KINDS.items()}
        return [torch.cat([empty[kind], *found[kind]], 1) for kind in KINDS]

    def _equations_for(self, worlds: int) -> Equations:
        return self.equations_among(worlds, None)

    def equations_among(self, worlds: int, geometry: Tensor | None) -> Equations:
        """Return the equations of a step among shapes, as kernels number their kinds; they are made once."""
        key = (worlds, *(() if geometry is None else geometry.tolist()))
        if key not in self._equations:
            self._equations[key] = Equations(self.layout, worlds, self.settings, geometry)
        return self._equations[key]

    def _refuse(self, step: int, failed: np.ndarray, x: Tensor) -> None:
        world = int(np.flatnonzero(failed)[0])
        raise PullbackError(
            f"step {step} of the cloth could not be solved in world {world}: forces or pins ask for more than it "
            f"bears, or a rope is folded flat; use a smaller dt, slower pins or more bending (check=False: NaN there)"
        )


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not (np.isfinite(value) and value > 0.0):
            raise PullbackError(f"{name} is {value}; expected a number above 0")

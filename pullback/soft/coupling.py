"""Particles or cloth and the bodies of a `World` in one scene: each pushes the other, in every step."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt

import numpy as np
import torch

from pullback.core.custom_vjp import call
from pullback.core.errors import PullbackError, SimulationWarning, unknown_name
from pullback.rigid.compile.shape_rows import FRICTION
from pullback.rigid.observe import owned_shapes
from pullback.rigid.shape_motion import ShapeMotion
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Status, Trajectory
from pullback.rigid.world.items import CollisionShape
from pullback.soft.cloth.materials import Cord, Fabric
from pullback.soft.cloth.side import ClothSide
from pullback.soft.cloth.sim import ClothSim, ClothState
from pullback.soft.domain import KINDS
from pullback.soft.frames import checked_frames
from pullback.soft.materials import Material
from pullback.soft.particle_side import ParticleSide
from pullback.soft.piece import Constants, Piece
from pullback.soft.shape_kernels import CORE, CYLINDER, PLANE
from pullback.soft.sim import SoftSim
from pullback.soft.state import SoftState
from pullback.soft.touch import ShapeKinds

Tensor = torch.Tensor

GEOMETRIES = {"sphere": CORE, "capsule": CORE, "box": CORE, "cylinder": CYLINDER, "plane": PLANE}
"""Shapes that particles can touch, and how kernels see them."""


@dataclass(frozen=True, eq=False)
class CoupledState:
    """Particles or cloth, and bodies, at one moment."""

    soft: SoftState | ClothState
    rigid: State

    def replace(self, **parts: SoftState | ClothState | State) -> CoupledState:
        """Return a state with other parts."""
        return replace(self, **parts)

    def detach(self) -> CoupledState:
        """Return the same state without gradients."""
        return CoupledState(self.soft.detach(), self.rigid.detach())


@dataclass(frozen=True, eq=False)
class CoupledRollout:
    """What a rollout of T steps of the world returns.

    q (T+1, B, nq), qd (T+1, B, nv): the bodies; soft: states of particles or cloth, (S, B, n, ...), at the steps of
    `frames` (S,); wrenches (T, B, K, 6): mean torque [N·m] about its origin and force [N] that each of `shapes` got in
    each step, in world axes; failed (B,): worlds that failed, all NaN.
    """

    final: CoupledState
    q: Tensor
    qd: Tensor
    soft: SoftState | ClothState
    wrenches: Tensor
    shapes: list[str]
    failed: Tensor
    frames: np.ndarray
    dt: float

    @property
    def times(self) -> np.ndarray:
        """Return the times of the frames [s]."""
        return self.frames * self.dt

    @property
    def trajectory(self) -> Trajectory:
        """Return the motion of the bodies as `Sim.rollout` would, for a replay."""
        return Trajectory(self.q, self.qd, Status.fine(self.q.shape[1], 1), torch.arange(len(self.q)))


class Coupled:
    """A soft simulation and a world that share one space.

    Args:
        soft: particles, in space, where walls of the domain stand still; or cloth.
        rigid: the compiled world, of the same type and device; its `dt` is a whole number of soft steps.
        bodies: those whose shapes are touched, `robot/link` or names of bodies; None: all.
        kind: what shapes do to particles that touch them, as for `Wall`; one for all, or body -> kind. Cloth separates.
        hold: body -> pins of the cloth, by their numbers in `cloth.pins`, that move with it from where they are at the
            start of a rollout; the body gets their forces.

    Friction is that of the shape, 1 where it has none.
    """

    def __init__(
        self,
        soft: SoftSim | ClothSim,
        rigid: Sim,
        *,
        bodies: Sequence[str] | None = None,
        kind: str | Mapping[str, str] = "separate",
        hold: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.soft, self.rigid = soft, rigid
        self._check_pair()
        self.substeps = round(rigid.dt / soft.dt)
        every = [shape for item in rigid.world.items for shape in item.shapes]
        chosen = np.ones(len(every), bool)
        if bodies is not None:
            chosen = np.any([owned_shapes(rigid, name) for name in bodies], axis=0)
        numbers = np.flatnonzero(chosen).tolist()
        if not numbers:
            raise PullbackError("no shape for particles to touch; add bodies with shapes, or name others in bodies=")
        self.shapes = [every[k].name for k in numbers]
        given = [every[k] for k in numbers]
        self._check_shapes(given)
        self.motion = ShapeMotion(rigid, numbers)
        geometry = [int(GEOMETRIES[shape.kind]) for shape in given]
        self._kinds = ShapeKinds(
            torch.tensor(geometry, dtype=torch.int32, device=soft.device),
            torch.tensor(self._laws(kind, numbers), dtype=torch.int32, device=soft.device),
        )
        self._has_edges = self._like([[float(shape.kind in ("box", "cylinder"))] for shape in given])
        self._given = given
        self._held = self._holders(hold or {}, numbers)

    def _holders(self, hold: Mapping[str, Sequence[int]], numbers: Sequence[int]) -> dict[int, int]:
        """Return pin -> shape, the first that its body has among those that are touched."""
        held: dict[int, int] = {}
        if hold and (not isinstance(self.soft, ClothSim)):
            raise PullbackError("hold: particles have no pins; cloth has")
        for body, pins in hold.items():
            shapes = np.flatnonzero(owned_shapes(self.rigid, body)[numbers])
            if not len(shapes):
                raise PullbackError(f"hold: no shape of {body!r} is among those that the cloth touches; see bodies=")
            for pin in pins:
                count = len(self.soft.pins) if isinstance(self.soft, ClothSim) else 0
                if not 0 <= pin < count or pin in held:
                    raise PullbackError(f"hold: pin {pin} of {body!r}; expected one of {count}, held by one body")
                held[int(pin)] = int(shapes[0])
        return held

    @property
    def _edge(self) -> float:
        """Return the radius [m] by which edges are rounded."""
        return self.soft.contact_range if isinstance(self.soft, ClothSim) else 0.5 * self.soft.domain.cell

    def _like(self, values: Sequence[Sequence[float]]) -> Tensor:
        return torch.tensor(values, dtype=self.soft.dtype, device=self.soft.device)

    # -- checks --------------------------------------------------------------------------------------------------------

    def _check_pair(self) -> None:
        soft, rigid = self.soft, self.rigid
        if soft.dim != 3:
            raise PullbackError(
                f"the soft simulation has {soft.dim} dimensions, the world 3; make its domain one in space"
            )
        if (soft.dtype, soft.device) != (rigid.dtype, rigid.device):
            raise PullbackError(
                f"the soft simulation is {soft.dtype} on {soft.device}, the world {rigid.dtype} on {rigid.device}; "
                f"make both alike"
            )
        ratio = rigid.dt / soft.dt
        if round(ratio) < 1 or abs(ratio - round(ratio)) > 1e-6 * ratio:
            raise PullbackError(
                f"dt of the world is {rigid.dt:g} s, that of the soft simulation {soft.dt:g} s; expected a whole "
                f"number of soft steps, such as dt={rigid.dt / max(round(ratio), 1):g} for the soft simulation"
            )

    def _check_shapes(self, shapes: Sequence[CollisionShape]) -> None:
        """Raise for shapes that cannot be touched, and for those that are too thin to be seen."""
        cell = 2.0 * self._edge
        is_cloth = isinstance(self.soft, ClothSim)
        what, option = ("twice the range of contact", "contact_range") if is_cloth else ("a cell", "cell")
        for shape in shapes:
            if shape.kind not in GEOMETRIES:
                raise PullbackError(
                    f"soft bodies do not touch {shape.name!r}, of kind {shape.kind}, but {', '.join(GEOMETRIES)}: "
                    f"give its body such shapes, or leave it out with bodies=[...]"
                )
            thickness = _thickness(shape)
            if thickness < cell:
                raise PullbackError(
                    f"{shape.name!r} is {thickness:.3g} m thin, less than {what}, {cell:.3g} m, so that soft bodies "
                    f"could pass through it; use {option}={thickness / (2 if is_cloth else 1):.3g} or less, or leave "
                    f"it out with bodies=[...]"
                )
            if is_cloth:
                self._warn_of_slim_shape(shape)

    def _warn_of_slim_shape(self, shape: CollisionShape) -> None:
        """Warn of a shape that fits between the vertices of a cloth, which alone touch."""
        assert isinstance(self.soft, ClothSim)
        width, edge = float(np.sort(_extents(shape))[1]), self.soft.layout.edge
        if width < edge:
            warnings.warn(
                f"{shape.name!r} is {width:.3g} m wide, less than the {edge:.3g} m between vertices of the cloth; they "
                f"alone touch, and it can pass between them; use cells of {width / 1.2:.3g} m or less, or leave it out "
                f"with bodies=[...]",
                SimulationWarning,
                stacklevel=5,
            )

    def _laws(self, kind: str | Mapping[str, str], numbers: Sequence[int]) -> list[int]:
        by_body = {"": kind} if isinstance(kind, str) else {"": "separate", **kind}
        laws = np.zeros(self.rigid.arrays.nshape, int)
        for name, word in by_body.items():
            if word not in KINDS:
                raise unknown_name("kind of contact", word, KINDS)
            laws[owned_shapes(self.rigid, name) if name else slice(None)] = int(KINDS[word])
        return laws[numbers].tolist()

    # -- states --------------------------------------------------------------------------------------------------------

    def state(self, worlds: int = 1) -> CoupledState:
        """Return everything at rest where it was put, in `worlds` equal worlds."""
        return CoupledState(self.soft.state(worlds), self.rigid.initial_state(worlds))

    def momentum(self, state: CoupledState) -> tuple[Tensor, Tensor]:
        """Return linear [kg m/s] and angular momentum about the origin [kg m²/s], (B, 3), of all that moves."""
        linear, angular = self.soft.momentum(state.soft)  # pyright: ignore[reportArgumentType]
        rows = self.rigid.parameters()
        q, qd = state.rigid.q, state.rigid.qd
        total = self.rigid._programs.momentum()(q, qd, rows.placements, rows.inertias)
        return linear + total[:, 3:6], angular + total[:, :3]

    # -- what happens --------------------------------------------------------------------------------------------------

    def rollout(
        self,
        state: CoupledState,
        controls: Tensor | int,
        *,
        actuation: Tensor | None = None,
        pins: Tensor | None = None,
        materials: Mapping[str, Material | Fabric | Cord] | None = None,
        frames: Sequence[int] | int | None = None,
        checkpoint: int | None = None,
        check: bool = True,
    ) -> CoupledRollout:
        """Return what comes of a state under controls (T, B, nu), or after T steps of the world without any.

        Args:
            state: of B worlds, as `state(B)` gives.
            actuation: active stress [Pa] of each muscle in each soft step, (T k, a) or (T k, B, a) for k soft steps in
                one of the world.
            pins: where the cloth's pins are after each soft step [m], (T k, p, 3) or (T k, B, p, 3); None: they stay.
            materials: as for `SoftSim.rollout`; gradients of the world's numbers go where the world was given tensors.
            frames: steps of the world before which particles are kept, T: after the last; n: every n steps.
            checkpoint: states are kept every so many steps for the gradient, None: every √T.
            check: raise for a particle that is lost; if not, its world is NaN.
        """
        rigid = self.rigid
        side = self._side(state.soft)
        worlds = side.worlds
        if state.soft.x.ndim != 3 or len(state.rigid.q) != worlds:
            raise PullbackError(
                f"soft bodies {tuple(state.soft.x.shape)} and bodies {tuple(state.rigid.q.shape)}; expected (B, n, 3) "
                f"and (B, {rigid.nq}) of the same B worlds, as state(B) gives"
            )
        rigid._check_state(state.rigid)
        u = self._controls(controls, worlds)
        steps, k = len(u), self.substeps
        kept = checked_frames(frames, steps)
        drive = side.drive(steps * k, actuation, pins)
        constants = Constants(*side.constants(materials or {}), self._sizes(), *self.motion.parameters())
        if isinstance(side, ClothSide):
            drive = side.hold(drive, *self.motion.motion(constants.world, state.rigid.q, state.rigid.qd)[:2])
        flat = side.start()
        q, qd, impulses = state.rigid.q, state.rigid.qd, state.rigid.impulses
        warm = impulses is not None
        last = impulses if impulses is not None else q.new_zeros(worlds, 0)
        qs, qds, wrenches, seen = [q[None]], [qd[None]], [], []
        length = max(1, isqrt(max(steps, 1))) if checkpoint is None else int(checkpoint)
        if length < 1:
            raise PullbackError(f"checkpoint is {checkpoint}; expected a number of steps of at least 1")
        for first in range(0, steps, length):
            end = min(first + length, steps)
            piece = Piece(self.motion, side, range(first, end), k, kept, warm)
            inputs = flat, q, qd, last, u[first:end], drive[first * k : end * k], *constants
            flat, all_q, all_qd, last, touch, frame = call(piece, *inputs)
            q, qd = all_q[-1], all_qd[-1]
            qs.append(all_q)
            qds.append(all_qd)
            wrenches.append(touch)
            seen.append(frame)
            if check:
                side.refuse(flat)
        if steps in kept:
            seen.append(flat[None])
        failed = side.failed
        self._warn_of_light_bodies(state.rigid, wrenches)
        rows = torch.cat(seen) if seen else flat.new_zeros(0, len(flat))
        final = self._states(side, flat[None], failed)
        bad = failed[:, None]
        return CoupledRollout(
            CoupledState(
                type(final)(*[part[0] for part in vars(final).values()]),
                State(_spoilt(q, bad), _spoilt(qd, bad), last if warm else None),
            ),
            _spoilt(torch.cat(qs), bad),
            _spoilt(torch.cat(qds), bad),
            self._states(side, rows, failed),
            (torch.cat(wrenches) if wrenches else flat.new_zeros(0, worlds, len(self.shapes), 7))[..., :6] / rigid.dt,
            self.shapes,
            failed,
            np.asarray(kept),
            rigid.dt,
        )

    def _controls(self, controls: Tensor | int, worlds: int) -> Tensor:
        rigid = self.rigid
        if not isinstance(controls, Tensor):
            if int(controls) != controls or controls < 0:
                raise PullbackError(
                    f"{controls!r} steps; expected an integer, 0 or more, or controls (T, B, {rigid.nu})"
                )
            return torch.zeros(int(controls), worlds, rigid.nu, dtype=rigid.dtype, device=rigid.device)
        u = rigid._check_controls(controls)
        rigid._check_type("controls", u)
        if u.shape[1] not in (1, worlds):
            raise PullbackError(f"controls of {u.shape[1]} worlds for {worlds}; give as many, or 1 for all")
        return u.expand(-1, worlds, -1)

    def _sizes(self) -> Tensor:
        """Return half extents of cores, radii [m] and friction of the shapes, (b, K, 5)."""
        extents = self.motion.extents()
        edge = self._edge * self._has_edges
        friction = [FRICTION if shape.friction is None else shape.friction for shape in self._given]
        columns = [torch.as_tensor(x).to(extents).reshape(-1, 1) for x in friction]
        batch = max([len(extents), *map(len, columns)])
        mu = torch.cat([column.expand(batch, 1) for column in columns], 1)[..., None]
        sizes = torch.cat([extents[..., :3] - edge, extents[..., 3:] + edge], -1)
        return torch.cat([sizes.expand(batch, -1, -1), mu], -1)

    def _side(self, state: SoftState | ClothState) -> ParticleSide | ClothSide:
        """Return what is soft, for one rollout."""
        if isinstance(self.soft, ClothSim):
            if not isinstance(state, ClothState):
                raise PullbackError("the state is one of particles; expected one of cloth, as state(B) gives")
            return ClothSide(self.soft, self._kinds, state, self._held)
        if not isinstance(state, SoftState):
            raise PullbackError("the state is one of cloth; expected one of particles, as state(B) gives")
        return ParticleSide(self.soft, self._kinds, state)

    def _states(self, side: ParticleSide | ClothSide, rows: Tensor, failed: Tensor) -> SoftState | ClothState:
        """Return states (S, numbers) as parts (S, B, n, ...), NaN where a world failed."""
        found = side.states(rows)
        parts = [_spoilt(part, failed.view(-1, *[1] * (part.ndim - 2))) for part in vars(found).values()]
        return type(found)(*parts)

    def _warn_of_light_bodies(self, start: State, wrenches: Sequence[Tensor]) -> None:
        """Warn if a body is lighter than the particles that it pushed."""
        if self.soft.device.type != "cpu" or not wrenches:
            return
        touched = torch.stack([x.detach()[..., 6].amax(0) for x in wrenches]).amax(0)
        light = touched > self.motion.effective_masses(start.q.detach())
        for world, k in light.nonzero().tolist()[:1]:
            warnings.warn(
                f"{self.shapes[k]!r} pushed particles or stiff contacts of up to {float(touched[world, k]):.3g} kg in "
                f"a step, more than the mass it has against a push; the two may swing up: use smaller cells, softer "
                f"contact or a shorter step of cloth, or a heavier body",
                SimulationWarning,
                stacklevel=3,
            )


def _extents(shape: CollisionShape) -> np.ndarray:
    """Return the least widths [m] of a shape along its three axes."""
    size = np.asarray(shape.size.detach().cpu() if isinstance(shape.size, Tensor) else shape.size)
    if shape.kind == "plane":
        return np.full(3, np.inf)
    if shape.kind == "box":
        return size.reshape(-1, 3).min(0)
    across = 2.0 * size[..., 0].min()
    along = across if shape.kind == "sphere" else size[..., 1].min() + (across if shape.kind == "capsule" else 0.0)
    return np.array([across, across, along])


def _thickness(shape: CollisionShape) -> float:
    """Return the least width [m] of a shape."""
    return float(_extents(shape).min())


def _spoilt(x: Tensor, failed: Tensor) -> Tensor:
    """Return x, NaN where a world failed."""
    return torch.where(failed, torch.full_like(x, torch.nan), x) if bool(failed.any()) else x

"""A soft simulation: bodies of particles in a domain, and rollouts that can be differentiated in whatever sets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
import torch

from pullback.core.custom_vjp import call
from pullback.core.errors import PullbackError, unknown_name
from pullback.core.ranks import ranks
from pullback.core.tensors import REAL
from pullback.core.threads import get_num_threads
from pullback.rollout.checkpoint import Every, Schedule, schedule_from
from pullback.soft.advice import check_deformation, check_inside, check_step, longest_steps, refuse_failures
from pullback.soft.body import Body
from pullback.soft.domain import Domain
from pullback.soft.forward import Setup
from pullback.soft.frames import checked_frames
from pullback.soft.halo import Halo, SharedHalo
from pullback.soft.march import SoftMarch
from pullback.soft.materials import Material, particle_numbers
from pullback.soft.shared import SharedMarch
from pullback.soft.state import SoftRollout, SoftState
from pullback.soft.variant_kernels import Variant

Tensor = torch.Tensor


class SoftSim:
    """Bodies in a domain, made ready to run.

    Args:
        domain: the box they live in, its cells and walls.
        bodies: one or more `Body`, of different names; particles are numbered through them in this order.
        dt: length of a step [s], at most `stable_dt`.
        gravity: [m/s²], (d,).
        drag: velocities lose this share of themselves a second [1/s].
        threads: CPU threads, by default `pb.get_num_threads()`.
        shared: whether the ranks that `pb.start_ranks` joined share the particles of one world; all of them then call
            `rollout` with the same arguments and get the same result. If not, each rank has its own worlds.
    """

    def __init__(
        self,
        domain: Domain,
        bodies: Sequence[Body],
        *,
        dt: float,
        gravity: Sequence[float] | Tensor | None = None,
        drag: float = 0.0,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        threads: int | None = None,
        shared: bool = False,
    ) -> None:
        if dtype not in REAL:
            raise PullbackError(f"dtype is {dtype}; expected torch.float32 or torch.float64")
        if not (np.isfinite(dt) and dt > 0.0):
            raise PullbackError(f"dt is {dt}; expected a length of time above 0 [s]")
        if not (np.isfinite(drag) and 0.0 <= drag * dt < 1.0):
            raise PullbackError(f"drag is {drag}; expected 0 or more, and less than 1/dt = {1.0 / dt:g}")
        self.domain, self.bodies, self.dt, self.drag = domain, tuple(bodies), float(dt), float(drag)
        self._check_bodies()
        self.dtype, self.device = dtype, torch.device(device)
        self.threads = get_num_threads() if threads is None else int(threads)
        self.dim, self.particles = domain.dim, sum(map(len, self.bodies))
        self.gravity = self._tensor(torch.zeros(self.dim) if gravity is None else gravity)
        if self.gravity.shape != (self.dim,):
            raise PullbackError(f"gravity has shape {tuple(self.gravity.shape)}; expected ({self.dim},)")
        self.volume = self._put(np.concatenate([body.volume for body in self.bodies]))
        self.actuator = np.concatenate([_actuators(body) for body in self.bodies])
        self.actuators = int(self.actuator.max()) + 1
        kinds = np.concatenate([np.full(len(body), body.material.kind) for body in self.bodies])
        self._kind = torch.as_tensor(kinds, dtype=torch.int32)
        self.variant = Variant(REAL[dtype], self.dim, tuple(sorted(set(kinds.tolist()))))
        self._setups: dict[int, Setup] = {}
        check_inside(self.state().x[None], self.bodies, domain.low, domain.high)
        numbers = self._numbers({}, 1)
        self.shared = shared and ranks().many
        """Whether particles are shared among ranks."""
        if self.shared:
            start = self.state()
            scene = domain, self.dt, self.gravity.tolist(), start.x.tolist(), start.v.tolist(), numbers.tolist()
            ranks().refuse_differences({"the soft scene": scene})

    def _check_bodies(self) -> None:
        if not self.bodies:
            raise PullbackError("a soft simulation without bodies; give one or more")
        names = [body.name for body in self.bodies]
        for name in names:
            if names.count(name) > 1:
                raise PullbackError(f"two bodies are called {name!r}; give each a name of its own")
        for body in self.bodies:
            if body.dim != self.domain.dim:
                raise PullbackError(f"body {body.name!r} has {body.dim} dimensions, the domain {self.domain.dim}")

    def _tensor(self, value: Any) -> Tensor:
        # Python numbers would be rounded to float32 on their way
        given = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
        return given.to(self.device, self.dtype)

    def _put(self, x: np.ndarray) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(x)).to(self.device, self.dtype)

    # -- what there is -------------------------------------------------------------------------------------------------

    def state(self, worlds: int | None = None) -> SoftState:
        """Return all bodies undeformed where they were put, as one world or as `worlds` equal ones."""
        x = self._put(np.concatenate([body.points for body in self.bodies]))
        v = self._put(np.concatenate([body.per_particle("velocity") for body in self.bodies]))
        eye = torch.eye(self.dim, dtype=self.dtype, device=self.device).expand(self.particles, -1, -1)
        parts = [x, v, torch.zeros_like(eye), eye, torch.zeros_like(x[:, 0])]
        if worlds is not None:
            parts = [part.expand(worlds, *part.shape) for part in parts]
        return SoftState(*[part.contiguous() for part in parts])

    def of(self, name: str) -> slice:
        """Return which particles are those of a body."""
        start = 0
        for body in self.bodies:
            if body.name == name:
                return slice(start, start + len(body))
            start += len(body)
        raise unknown_name("body", name, [body.name for body in self.bodies])

    @property
    def stable_dt(self) -> float:
        """Return the longest step [s] that is stable at rest; half of it leaves room for large deformation."""
        steps = [
            longest_steps(body.material, each, self.dim, self.domain.cell).min()
            for body, each in zip(self.bodies, self._body_numbers({}, 1))
        ]
        return float(torch.stack(steps).min())

    def masses(self, materials: Mapping[str, Material] | None = None) -> Tensor:
        """Return the particles' masses [kg], (n,) or (B, n)."""
        numbers = torch.cat(self._body_numbers(materials or {}, 1), 1)[..., 0]
        return numbers[0]

    def momentum(self, state: SoftState) -> tuple[Tensor, Tensor]:
        """Return linear momentum (.., d) [kg m/s], and angular momentum about the origin (.., 3), in the plane (.., 1).

        The affine motion of particles has its share in the latter.
        """
        m = self.masses()[:, None]
        x, v, C = state.x, m * state.v, self.domain.cell**2 / 4.0 * m[..., None] * state.C
        pairs = ((0, 1),) if self.dim == 2 else ((1, 2), (2, 0), (0, 1))
        turning = [x[..., a] * v[..., b] - x[..., b] * v[..., a] + C[..., b, a] - C[..., a, b] for a, b in pairs]
        return v.sum(-2), torch.stack(turning, -1).sum(-2)

    def kinetic_energy(self, state: SoftState) -> Tensor:
        """Return the kinetic energy [J], that of the affine motion of particles included."""
        affine = self.domain.cell**2 / 4.0 * state.C.square().sum((-1, -2))
        return (0.5 * self.masses() * (state.v.square().sum(-1) + affine)).sum(-1)

    # -- what happens --------------------------------------------------------------------------------------------------

    def rollout(
        self,
        state: SoftState,
        steps: int,
        *,
        actuation: Tensor | None = None,
        gravity: Tensor | None = None,
        materials: Mapping[str, Material] | None = None,
        frames: Sequence[int] | int | None = None,
        checkpoint: int | Schedule | None = None,
        check: bool = True,
    ) -> SoftRollout:
        """Return what comes of a state after so many steps.

        Args:
            state: parts (n, ...) or (B, n, ...).
            actuation: active stress [Pa] of each muscle in each step, (N, a) or (N, B, a).
            gravity: (d,) or (B, d), in the place of the simulation's own.
            materials: body -> material in the place of its own, of the same kind; numbers may want gradients.
            frames: steps before which positions and velocities are kept, N: after the last; k: every k steps.
            checkpoint: which states are kept for the gradient: k for one every k steps, a schedule, None: every √N.
                Where ranks share particles, k or None.
            check: raise for a particle that leaves, is too fast or turned inside out; if not, its world is NaN.
        """
        if int(steps) != steps or steps < 0:
            raise PullbackError(f"steps is {steps!r}; expected an integer, 0 or more")
        steps = int(steps)
        single = state.x.ndim == 2
        parts = self._parts(state)
        worlds = len(parts[0])
        kept = checked_frames(frames, steps)
        schedule = schedule_from(Every(max(1, isqrt(max(steps, 1)))) if checkpoint is None else checkpoint)
        inputs = (
            *parts,
            self._numbers(materials or {}, worlds),
            self._gravity(gravity, worlds),
            self._actuation(actuation, steps, worlds),
        )
        refuse = partial(self._refuse, worlds) if check else None
        if self.shared:
            march = self._shared_march(worlds, steps, kept, schedule, refuse)
        else:
            march = SoftMarch(self._setup(worlds), steps, kept, schedule, refuse)
        *final, x, v = call(march, *inputs)
        failed = march.failed
        if single:
            final, x, v, failed = [part[0] for part in final], x[:, 0], v[:, 0], failed[0]
        return SoftRollout(SoftState(*final), x, v, failed, np.asarray(kept), self.dt)

    def _shared_march(
        self, worlds: int, steps: int, kept: Sequence[int], schedule: Schedule, refuse: Any
    ) -> SharedMarch:
        if worlds > 1:
            raise PullbackError(
                f"a state of {worlds} worlds, and particles that ranks share; give one world, or leave shared=True "
                f"away and give each rank worlds of its own"
            )
        if not isinstance(schedule, Every):
            raise PullbackError(
                f"checkpoint is {schedule!r}; where ranks share particles give an integer k, one state every k steps"
            )
        whole = self._setup(1)

        def setup_of(ids: Tensor) -> Setup:
            return self._make_setup(1, ids.cpu().numpy(), SharedHalo(ranks(), whole.blocks, self.variant.arena))

        return SharedMarch(ranks(), whole, setup_of, steps, kept, schedule.interval, refuse)

    def _refuse(self, worlds: int, code: Tensor, x: Tensor) -> None:
        refuse_failures(code, x, self.bodies, self.dt, self.domain.cell, self.stable_dt, worlds)

    def _parts(self, state: SoftState) -> list[Tensor]:
        """Return the parts of a state as (B, n, ...), checked."""
        d, n = self.dim, self.particles
        shapes = {"x": (n, d), "v": (n, d), "C": (n, d, d), "F": (n, d, d), "history": (n,)}
        batch = state.x.shape[:-2]
        parts = []
        for name, shape in shapes.items():
            part = getattr(state, name)
            if len(batch) > 1 or part.shape != (*batch, *shape):
                raise PullbackError(
                    f"{name} of the state has shape {tuple(part.shape)}; expected {shape}, or (B, {str(shape)[1:]} for "
                    f"B worlds, as x has it"
                )
            if part.device.type != self.device.type or part.dtype != self.dtype:
                raise PullbackError(
                    f"{name} of the state is {part.dtype} on {part.device}; pass {name}.to(sim.device, sim.dtype)"
                )
            parts.append(part if batch else part[None])
        if self.device.type == "cpu":
            check_inside(parts[0].detach(), self.bodies, self.domain.low, self.domain.high)
            check_deformation(parts[3].detach(), self.bodies)
        return parts

    def _body_numbers(self, materials: Mapping[str, Material], worlds: int) -> list[Tensor]:
        for name in materials:
            self.of(name)
        numbers = []
        for body in self.bodies:
            material = materials.get(body.name, body.material)
            if material.kind != body.material.kind:
                raise PullbackError(
                    f"body {body.name!r} is {type(body.material).__name__} and was given {material}; numbers can "
                    f"change in a rollout, the kind of material cannot"
                )
            numbers.append(particle_numbers(material, self.volume[self.of(body.name)], self.dim, worlds))
        return numbers

    def _numbers(self, materials: Mapping[str, Material], worlds: int) -> Tensor:
        numbers = self._body_numbers(materials, worlds)
        if self.device.type == "cpu" or not materials:
            given = [materials.get(body.name, body.material) for body in self.bodies]
            check_step(self.dt, self.bodies, given, numbers, self.dim, self.domain.cell)
        return torch.cat(numbers, 1)

    def _gravity(self, gravity: Tensor | None, worlds: int) -> Tensor:
        g = self.gravity if gravity is None else self._tensor(gravity)
        if g.shape not in ((self.dim,), (worlds, self.dim)):
            raise PullbackError(f"gravity has shape {tuple(g.shape)}; expected ({self.dim},) or ({worlds}, {self.dim})")
        return g.expand(worlds, self.dim)

    def _actuation(self, actuation: Tensor | None, steps: int, worlds: int) -> Tensor:
        a = self.actuators
        if actuation is None:
            # muscles that are not spoken to are at rest
            return torch.zeros(steps if a else 0, worlds * a, dtype=self.dtype, device=self.device)
        u = self._tensor(actuation)
        if u.ndim == 2:
            u = u[:, None].expand(-1, worlds, -1)
        if u.shape != (steps, worlds, a):
            raise PullbackError(
                f"actuation has shape {tuple(actuation.shape)}; expected ({steps}, {a}) or ({steps}, {worlds}, {a}): "
                f"one number a step for each of {a} actuators"
            )
        return u.reshape(steps, worlds * a)

    def _setup(self, worlds: int) -> Setup:
        """Return what the kernels need for a number of worlds."""
        if worlds not in self._setups:
            self._setups[worlds] = self._make_setup(worlds, slice(None), Halo())
        return self._setups[worlds]

    def _make_setup(self, worlds: int, ids: np.ndarray | slice, halo: Halo) -> Setup:
        """Return the setup of some particles of each world."""
        a, domain = self.actuators, self.domain
        mine = self.actuator[ids]
        n, actuator = len(mine), np.tile(mine, worlds)
        group = np.where(actuator >= 0, np.repeat(np.arange(worlds), n) * a + actuator, worlds * a)
        fibre = np.concatenate([body.per_particle("fibre") for body in self.bodies])[ids]
        length = np.linalg.norm(fibre, axis=1, keepdims=True)

        def integers(x: np.ndarray) -> Tensor | None:
            return torch.as_tensor(x).to(self.device, torch.int32) if a else None

        walls = np.asarray(domain.rows(), dtype=np.float64).reshape(-1, self.dim + 3)
        return Setup(
            variant=self.variant,
            worlds=worlds,
            particles=n,
            dt=self.dt,
            cell=domain.cell,
            drag=self.drag,
            origin=domain.origin,
            nodes=domain.nodes,
            walls=self._put(walls),
            kind=self._kind[ids].to(self.device).repeat(worlds),
            actuators=a,
            actuator=integers(actuator),
            fibre=self._put(np.tile(fibre / np.where(length > 0, length, 1.0), (worlds, 1))) if a else None,
            actuator_starts=integers(np.searchsorted(np.sort(group), np.arange(worlds * a + 1))),
            actuator_particles=integers(np.argsort(group, kind="stable")),
            dtype=self.dtype,
            device=self.device,
            threads=self.threads,
            halo=halo,
        )


def _actuators(body: Body) -> np.ndarray:
    """Return the actuator of each particle, -1: none."""
    given = np.asarray(-1 if body.actuator is None else body.actuator, dtype=np.int64)
    if given.shape not in ((), (len(body),)):
        raise PullbackError(
            f"body {body.name!r}: actuator has shape {given.shape}; expected one number or ({len(body)},)"
        )
    found = np.broadcast_to(given, len(body))
    if (found < -1).any():
        raise PullbackError(f"body {body.name!r}: actuator {found.min()}; expected numbers from 0 on, or -1 for none")
    return found

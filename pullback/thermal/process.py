"""A part being printed: from a laser's power to temperatures, differentiable in whatever sets them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, isqrt
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch

from pullback.core import custom_vjp
from pullback.core.device import find_device
from pullback.core.errors import PullbackError, refuse_unknown_options, unknown_name
from pullback.core.ranks import ranks
from pullback.core.threads import get_num_threads
from pullback.rollout.checkpoint import Every, Schedule, schedule_from
from pullback.thermal.births import checked_births, faces_over_time
from pullback.thermal.geometry import PAIRS, conductances, distinct_shapes, fastest_rates, in_chunks
from pullback.thermal.growth import Growth, birth_steps, grow
from pullback.thermal.implicit import Implicit
from pullback.thermal.laser import Laser
from pullback.thermal.ledger import EnergyLedger, make_ledger
from pullback.thermal.march import Method, ThermalMarch
from pullback.thermal.material import Material
from pullback.thermal.mesh import Mesh
from pullback.thermal.part import Beam, PartModel, Probes
from pullback.thermal.partition import node_owners
from pullback.thermal.probes import locate, locate_below, locate_moving, make_probes, refuse_outside
from pullback.thermal.region import Region, SharedRegion
from pullback.thermal.source import Gaussian, Goldak
from pullback.thermal.stability import Stability
from pullback.thermal.toolpath import Toolpath

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tensor = torch.Tensor

AIR = ("convection", "emissivity", "ambient", "birth_temperature")
PHASE = ("latent_heat", "solidus", "liquidus", "density")
TABLES = ("heat_capacity", "conductivity")


@dataclass(frozen=True, eq=False)
class History:
    """The result of a run: differentiable temperatures [K], and the energy balance.

    times (N + 1,) [s], probes (N + 1, p), snapshots (S, nodes) at `snapshot_steps`, final (nodes,), nodes in the mesh's
    order.
    """

    times: np.ndarray
    probes: Tensor
    snapshots: Tensor
    snapshot_steps: np.ndarray
    final: Tensor
    _ledger: Any

    @cached_property
    def ledger(self) -> EnergyLedger:
        """Return the energy balance of the run."""
        return self._ledger()


class ProcessOptions(TypedDict, total=False):
    """Options of a `Process`: its surroundings, and where and how it is computed."""

    convection: float
    emissivity: float
    ambient: float
    initial: float | Tensor
    birth_temperature: float
    dtype: torch.dtype
    device: str | torch.device
    threads: int | None


DEFAULTS: ProcessOptions = {
    "convection": 0.0,
    "emissivity": 0.0,
    "ambient": 300.0,
    "initial": 300.0,
    "birth_temperature": 300.0,
    "dtype": torch.float64,
    "device": "cpu",
    "threads": None,
}


class Process:
    """A mesh, a toolpath, a material and surroundings, made ready to run.

    Args:
        mesh, path: the part and where the beam goes; without a path there is no beam.
        material: one for all elements, or set of elements -> material; later sets win.
        births: (elements,) [s], as `births` returns them; None: everything is there from the start.
        dt: length of a step [s]. duration: time to simulate [s], by default that of the path.
        source: how the beam heats, Gaussian or Goldak.
        fixed: set of nodes -> temperature they are held at [K].
        method: "explicit", whose dt is bounded by `stable_dt`, or Implicit(theta=...), for one material.
        convection: [W/(m² K)], 0 by default; emissivity, 0 by default; ambient: temperature of the surroundings [K].
        initial: temperature [K] at the start, of all nodes or (nodes,). birth_temperature: that of new material [K].
            These and `ambient` are 300 K by default.
        dtype, device: torch.float64 and "cpu" by default. threads: CPU threads, by default as many as torch has.
    """

    def __init__(
        self,
        mesh: Mesh,
        path: Toolpath | None = None,
        *,
        material: Material | Mapping[str, Material],
        births: np.ndarray | None = None,
        dt: float,
        duration: float | None = None,
        source: Gaussian | Goldak | None = None,
        fixed: Mapping[str, float] | None = None,
        method: str | Implicit = "explicit",
        **options: Unpack[ProcessOptions],
    ) -> None:
        refuse_unknown_options("Process", options, DEFAULTS)
        given: dict[str, Any] = {**DEFAULTS, **options}
        if given["dtype"] not in (torch.float32, torch.float64):
            raise PullbackError(f"dtype is {given['dtype']}; expected torch.float32 or torch.float64")
        if method != "explicit" and not isinstance(method, Implicit):
            raise PullbackError(f"method is {method!r}; expected 'explicit' or Implicit(theta=...)")
        _check_number("dt", dt, above=0.0)
        if path is not None and source is None:
            raise PullbackError("a toolpath needs a source: Gaussian(radius=...) or Goldak(...)")
        if duration is None and path is None:
            raise PullbackError("without a toolpath say how long to simulate: duration [s]")
        self.mesh, self.path, self.source = mesh, path, source
        self.dt = float(dt)
        self.duration = float(path.duration if duration is None and path is not None else duration or 0.0)
        _check_number("duration", self.duration, above=0.0)
        self.steps = max(1, ceil(self.duration / dt - 1e-9))
        self.times = np.arange(self.steps + 1) * self.dt
        self.births = checked_births(mesh, np.full(len(mesh.elements), -np.inf) if births is None else births)
        self.dtype, self.device = given["dtype"], find_device(given["device"])
        self.threads = get_num_threads() if given["threads"] is None else int(given["threads"])
        self.materials, self.element_material = _materials_of(mesh, material)
        self.method: Method = Method() if method == "explicit" else method
        if isinstance(method, Implicit) and len(self.materials) > 1:
            raise PullbackError("implicit steps are for one material only: use method='explicit', or one material")
        self.values: dict[str, Any] = {name: given[name] for name in (*AIR, "initial")}
        for name in AIR:
            _check_number(name, self.values[name], above=-np.inf if name == "birth_temperature" else -1e-300)
        self.faces = faces_over_time(mesh, self.births)
        self._compile(fixed or {})
        self.laser = None if path is None or source is None else Laser(self, path, source)

    # -- compile -----------------------------------------------------------------------------------------------------

    def _compile(self, fixed: Mapping[str, float]) -> None:
        mesh, count = self.mesh, len(self.materials)
        growth = grow(mesh, self.births, self.faces, self.element_material, count, self.dt, self.steps)
        corners = mesh.nodes[mesh.elements[growth.elements]]
        sample, shape = distinct_shapes(corners)
        G = in_chunks(conductances, corners[sample])
        rates = np.concatenate([fastest_rates(corners[sample][a : a + 50_000], G[a : a + 50_000])
                                for a in range(0, len(sample), 50_000)])  # fmt: skip
        region = self._region(growth)
        nodes, elements, here = region.nodes, region.elements, region.growth
        self._stability = Stability(growth, self.materials, self.element_material, rates[shape])
        held, held_temperature = np.zeros(len(mesh.nodes), np.int32), np.zeros(len(mesh.nodes))
        for name, temperature in fixed.items():
            _check_number(f"fixed[{name!r}]", temperature, above=0.0)
            chosen = growth.rank[mesh.node_set(name)]
            held[chosen], held_temperature[chosen] = 1, temperature
        floats = {
            "conductances": G[:, PAIRS[:, 0], PAIRS[:, 1]],
            "volume": here.volume,
            "area": here.area,
            "held_temperature": held_temperature[nodes],
            "volume_before": here.volume_before,
            "volume_after": here.volume_after,
            "area_before": here.area_before,
            "area_after": here.area_after,
        }
        integers = {
            "corners": here.corners,
            "shape": shape[elements],
            "slots": here.slots,
            "held": held[nodes],
            "event_node": here.event_node,
            "more": here.more,
            "more_starts": here.more_starts if len(here.more) else here.more,
        }
        if count > 1:
            integers["material"] = self.element_material[here.elements]
        tensors = {name: self.put(x, self.dtype) for name, x in floats.items()}
        tensors |= {name: self.put(x, torch.int32) for name, x in integers.items()}
        tensors |= {name: self.put(getattr(here, name), torch.int64) for name in ("user", "rank")}
        self.growth = growth
        self._model = PartModel(
            region, self.dt, self.steps, self.materials, self.dtype, self.device, self.threads, tensors
        )

    def _region(self, growth: Growth) -> Region:
        """Return what of the part this process computes: its share if there are several ranks."""
        together = ranks()
        if not together.many:
            return Region(growth)
        owner = node_owners(self.mesh, growth, together.count)
        together.refuse_differences({"the part": (self.steps, self.dt, owner.tobytes(), growth.corners.tobytes())})
        return SharedRegion(growth, owner, together, self.device)

    def put(self, x: np.ndarray, dtype: torch.dtype) -> Tensor:
        """Return an array as a tensor on the process's device."""
        return torch.as_tensor(np.ascontiguousarray(x)).to(self.device, dtype)

    # -- use ---------------------------------------------------------------------------------------------------------

    @cached_property
    def stable_dt(self) -> float:
        """Return the largest step [s] that is stable with the process's own numbers."""
        return self._stability.limit(self._numbers({}))[0]

    @property
    def positions(self) -> np.ndarray:
        """Return where the beam is in each step, (N, 3) [m]."""
        return np.zeros((self.steps, 3)) if self.laser is None else self.laser.positions

    def positions_at(self, speed: Any) -> Tensor:
        """Return where the beam is in each step, (N, 3) [m], if it goes `speed` times as fast: (N,) or one number.

        For `run(positions=...)`, whose gradient goes on to the speed. Births, and the steps in which the beam is lit,
        stay as they are: it is meant for speeds near 1.
        """
        if self.laser is None:
            raise PullbackError("the process has no beam that could go faster; give it a toolpath and a source")
        x = self.tensor(speed, "speed")
        if x.ndim > 1 or x.shape not in ((), (1,), (self.steps,)):
            raise PullbackError(f"speed has shape {tuple(x.shape)}; expected one number or ({self.steps},), one a step")
        return self.laser.positions_at(x)

    @property
    def on(self) -> np.ndarray:
        """Return whether the beam is lit in each step, (N,)."""
        return np.zeros(self.steps, dtype=bool) if self.laser is None else self.laser.on

    def probes(self, points: Any = None, nodes: Any = None, reach: float = 0.0) -> Probes:
        """Return probes at points (p, 3) [m] inside the mesh, at nodes (p,) of it, or at points that move.

        Points (N, p, 3) are where to look after each step, in elements that are there by then; the start, state 0, is
        seen where the first step's points are. A point outside by at most `reach`, in half edges of an element, is
        taken to the surface.
        """
        if nodes is not None:
            index = np.asarray(nodes, dtype=np.int64).reshape(-1, 1)
            bad = index[(index < 0) | (index >= len(self.mesh.nodes))]
            if len(bad):
                raise PullbackError(f"probe at node {bad[0]}; there are {len(self.mesh.nodes)} nodes, numbered from 0")
            return make_probes(self.growth.rank[index], np.ones(index.shape), self.dtype, self.device)
        points = np.asarray([] if points is None else points, dtype=np.float64)
        if not points.size:
            raise PullbackError("no points to observe; give (p, 3), or (N, p, 3) for points that move, with p ≥ 1")
        if points.shape[-1] != 3 or points.ndim > 3 or (points.ndim == 3 and len(points) != self.steps):
            raise PullbackError(
                f"points have shape {points.shape}; expected (p, 3), or ({self.steps}, p, 3) for points that move"
            )
        if points.ndim < 3:
            points = points.reshape(-1, 3)
            element, weights = locate(self.mesh, points, self.births, reach=reach)
            refuse_outside(self.mesh, points, element)
            return make_probes(self.growth.rank[self.mesh.elements[element]], weights, self.dtype, self.device)
        return self._moving(*locate_moving(self.mesh, points, self._born, reach))

    def births_at(self, points: Any) -> np.ndarray:
        """Return when the elements come to be that points (p, 3) [m] are in, (p,) [s]."""
        points = np.asarray(points, dtype=np.float64).reshape(-1, 3)
        element, _ = locate(self.mesh, points, self.births)
        refuse_outside(self.mesh, points, element)
        return self.births[element]

    def _moving(self, element: np.ndarray, weights: np.ndarray) -> Probes:
        """Return probes that look into elements (N, p) after each step, and at the start into those of the first."""
        element, weights = (np.concatenate([x[:1], x]) for x in (element, weights))
        nodes = self.growth.rank[self.mesh.elements[element.ravel()]]
        return make_probes(nodes, weights.reshape(-1, 8), self.dtype, self.device, self.steps + 1)

    @cached_property
    def _born(self) -> np.ndarray:
        """Return the first state in which each element is there."""
        return birth_steps(self.births, self.dt, self.steps)

    def under_beam(self, depths: Any) -> Probes:
        """Return probes that follow the beam at depths (d,) [m]; where it is not lit they stay behind.

        Depths count from the beam, or from the surface under it where what it makes is not there yet. Where the part
        ends above a depth, its lowest point there is seen instead. Points beside the part by less than half an
        element's edge are taken to its surface.
        """
        if self.laser is None or not self.laser.on.any():
            raise PullbackError("the beam is never lit in this process; there is nothing to follow")
        lit = np.flatnonzero(self.laser.on)
        latest = lit[np.maximum(np.searchsorted(lit, np.arange(self.steps), side="right") - 1, 0)]
        depths = np.ravel(np.asarray(depths, dtype=np.float64))
        if not len(depths) or not (np.diff(depths, prepend=0.0) >= 0.0).all():
            raise PullbackError(
                f"depths are {depths.tolist()}; expected numbers [m], 0 or more, none below the one before"
            )
        return self._moving(*locate_below(self.mesh, self.laser.positions[latest], depths, self._born))

    def run(
        self,
        power: float | Tensor | None = None,
        *,
        probes: Probes | None = None,
        snapshots: Sequence[int] = (),
        checkpoint: int | Schedule | None = None,
        **parameters: Any,
    ) -> History:
        """Run the process and return its history.

        Args:
            power: laser power [W] in each step, (N,) or one number; it counts where the beam is lit.
            snapshots: steps after which all temperatures are kept, 0: before the first.
            checkpoint: which states are kept for the gradient: k for one every k steps, a schedule, None: every √N.
            parameters: numbers that replace the process's own and may carry gradients: conductivity, heat_capacity
                (knots,), latent_heat, solidus, liquidus, density (with several materials: name of the material ->
                value); convection, emissivity, ambient, initial, birth_temperature; absorptivity, positions (N, 3) and
                the source's sizes.
        """
        known = (*AIR, *PHASE, *TABLES, "initial", *(self.laser.parameters if self.laser else ()))
        for name in parameters:
            if name not in known:
                raise unknown_name("parameter", name, known)
        numbers = self._numbers(parameters)
        if not isinstance(self.method, Implicit):
            self._check_step(numbers)
        if self.laser is None and power is not None:
            raise PullbackError("the process has no source that power could feed; give it a toolpath and a source")
        heat, beam = self.laser.heat(power, parameters) if self.laser else self._dark()
        initial = self.tensor(parameters.get("initial", self.values["initial"]), "initial")
        if initial.ndim == 0:
            initial = initial.expand(len(self.mesh.nodes))
        if initial.shape != (len(self.mesh.nodes),):
            raise PullbackError(
                f"initial has shape {tuple(initial.shape)}; expected one number or ({len(self.mesh.nodes)},)"
            )
        schedule = Every(isqrt(self.steps - 1) + 1) if checkpoint is None else schedule_from(checkpoint, stores=True)
        shots = np.unique(np.asarray(list(snapshots), dtype=np.int64))
        if len(shots) and not (shots[0] >= 0 and shots[-1] <= self.steps):
            raise PullbackError(
                f"snapshots name step {shots[-1] if shots[0] >= 0 else shots[0]}; there are 0 to {self.steps}"
            )
        march = ThermalMarch(self._model, beam, probes, shots, schedule, self.method)
        seen, taken, final = custom_vjp.call(march, heat, initial, numbers)

        def ledger() -> EnergyLedger:
            return make_ledger(march, heat.detach(), initial.detach(), numbers.detach(), final.detach())

        if ranks().many:
            # a sum over ranks, which all of them have to take part in
            found = ledger()
            return History(self.times, seen, taken, shots, final, lambda: found)

        return History(self.times, seen, taken, shots, final, ledger)

    def _dark(self) -> tuple[Tensor, Beam]:
        """Return a beam without entries."""
        nothing = torch.zeros(0, dtype=self.dtype, device=self.device)
        return nothing, Beam(np.zeros(self.steps + 1, np.int64), nothing.to(torch.int32))

    def as_tensor(self, value: Any) -> Tensor:
        """Return a value as a tensor of the process's type."""
        if isinstance(value, torch.Tensor):
            return value.to(self.device, self.dtype)
        return torch.as_tensor(np.array(value, dtype=np.float64)).to(self.device, self.dtype)

    def tensor(self, value: Any, name: str) -> Tensor:
        """Return a value as a tensor of the process's type, finite."""
        x = self.as_tensor(value)
        if x.is_cpu and not np.isfinite(x.detach().numpy()).all():
            raise PullbackError(f"{name} is not finite; check what produced it")
        return x

    def _numbers(self, parameters: Mapping[str, Any]) -> Tensor:
        """Return the numbers that all nodes share as one tensor: air, then each material's phase and tables."""
        parts = [self.scalar(parameters.get(name, self.values[name]), name) for name in AIR]
        for one in self.materials:
            for name in (*PHASE, *TABLES):
                value = parameters.get(name, getattr(one, name))
                if isinstance(value, Mapping):
                    value = value.get(one.name, getattr(one, name))
                elif name in parameters and len(self.materials) > 1:
                    names = ", ".join(repr(m.name) for m in self.materials)
                    raise PullbackError(f"{name}: there are several materials; give {{name: value}} with {names}")
                if name in PHASE:
                    parts.append(self.scalar(value, name))
                    continue
                x = self.tensor(value, name)
                if x.ndim == 0 and len(one.temperatures) == 1:
                    x = x.reshape(1)
                if x.shape != one.temperatures.shape:
                    raise PullbackError(
                        f"{name} has shape {tuple(x.shape)}; material {one.name!r} has {len(one.temperatures)} "
                        f"temperatures in its table"
                    )
                bad = np.flatnonzero(~(x.detach().cpu().numpy() > 0))
                if len(bad):
                    raise PullbackError(
                        f"material {one.name!r}, row {bad[0]} of its table: {name} is {x[bad[0]].item():g}; expected a "
                        f"positive number"
                    )
                parts.append(x)
        return torch.cat(parts)

    def scalar(self, value: Any, name: str) -> Tensor:
        """Return one number as a tensor (1,)."""
        x = self.tensor(value, name)
        if x.numel() != 1:
            raise PullbackError(f"{name} has shape {tuple(x.shape)}; expected one number")
        return x.reshape(1)

    def _check_step(self, numbers: Tensor) -> None:
        limit, element = self._stability.limit(numbers)
        if self.dt > limit:
            x, y, z = self.mesh.centers[element] * 1e3
            raise PullbackError(
                f"dt = {self.dt:g} s is not stable: the largest stable step is {limit:.4g} s, set by element {element} "
                f"at ({x:.4g}, {y:.4g}, {z:.4g}) mm. Take a smaller dt or a coarser mesh there"
            )


def _materials_of(mesh: Mesh, material: Material | Mapping[str, Material]) -> tuple[tuple[Material, ...], np.ndarray]:
    """Return the distinct materials and each element's."""
    if isinstance(material, Material):
        return (material,), np.zeros(len(mesh.elements), dtype=np.int32)
    chosen = np.full(len(mesh.elements), -1, dtype=np.int32)
    materials: list[Material] = []
    for name, one in material.items():
        if not any(one is m for m in materials):
            materials.append(one)
        chosen[mesh.element_set(name)] = next(k for k, m in enumerate(materials) if m is one)
    bad = np.flatnonzero(chosen < 0)
    if len(bad):
        raise PullbackError(f"element {bad[0]} has no material, {len(bad)} such in all; name a set that holds them")
    return tuple(materials), chosen


def _check_number(name: str, value: Any, above: float) -> None:
    number = float(value)
    if not (np.isfinite(number) and number > above):
        raise PullbackError(f"{name} is {number:g}; expected a {'positive' if above == 0.0 else 'finite'} number")

"""A compiled world: states, steps and rollouts, differentiable in everything the world was given."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch

from pullback.core.errors import PullbackError
from pullback.rigid.compile import compile_world
from pullback.rigid.contact_kernels import REPORT_ROWS
from pullback.rigid.operators import WorldPrograms
from pullback.rigid.parameters import WorldParameters
from pullback.rigid.state import Contact, State, Status, Trajectory
from pullback.rigid.world import World
from pullback.rollout.checkpoint import Schedule, schedule_from

Tensor = torch.Tensor
DEEP = 1e-3
"""A penetration [m] at the start that is worth a warning."""


class Sim:
    """A world that moves: `q` and `qd` are those of its robots and free bodies in the order they were added."""

    def __init__(
        self,
        world: World,
        *,
        dt: float,
        dtype: torch.dtype,
        device: torch.device | str | None,
        substeps: int,
        max_contacts: int | None,
    ) -> None:
        self.world = world
        self.dt = float(dt)
        self.substeps = substeps
        self.arrays = compile_world(world, max_contacts)
        pairs = (self.arrays.pair_a, self.arrays.pair_b)
        self.parameters = WorldParameters(world, pairs, dtype=dtype, device=device)
        self._like = self.parameters.like
        self._programs = WorldPrograms(
            self.arrays, world.contact, dt=self.dt, substeps=substeps, double=dtype == torch.float64
        )
        self._initial = world.initial_q(dtype=dtype, device=device)

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of states and controls."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """The device that states and controls live on."""
        return self._like.device

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return self.arrays.nq

    @property
    def nv(self) -> int:
        """Number of velocities."""
        return self.arrays.nv

    @property
    def nu(self) -> int:
        """Number of controls, one an actuator."""
        return self.arrays.nu

    def __repr__(self) -> str:
        """Name the size of the world."""
        a = self.arrays
        size = f"bodies={a.nbody}, shapes={a.nshape}, pairs={a.npair}, nq={a.nq}, nv={a.nv}, nu={a.nu}"
        return f"Sim({size}, dt={self.dt:g}, substeps={self.substeps}, dtype={self.dtype}, device={self.device})"

    # -- moving --------------------------------------------------------------------------------------------------

    def initial_state(self, batch: int = 1) -> State:
        """Return the state at rest in which the world was described, once for each of `batch` worlds.

        Shapes that overlap by more than a millimetre there are reported in a warning.
        """
        if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
            raise PullbackError(f"batch is {batch!r}; give the number of worlds, 1 or more")
        state = self._at_rest(1)
        deep = [c for c in self.contacts(state)[0] if c.gap < -DEEP]
        if deep:
            told = ", ".join(f"{c.shapes[0]} and {c.shapes[1]} by {-1e3 * c.gap:.3g} mm" for c in deep)
            warnings.warn(f"the world starts with shapes that overlap: {told}", stacklevel=2)
        return self._at_rest(batch)

    def _at_rest(self, batch: int) -> State:
        impulses = self._like.new_zeros(batch, self._programs.nimpulse) if self._programs.nimpulse else None
        return State(self._initial.repeat(batch, 1), self._like.new_zeros(batch, self.nv), impulses)

    def step(self, state: State, u: Tensor | None = None) -> State:
        """Return the state `dt` later under the controls `u` (B, nu)."""
        q, qd = self._check_state(state)
        controls = self._no_controls(1, q) if u is None else self._check_controls(u, len(q))
        given = (q, qd, state.impulses, controls, self.parameters.packed())
        q_next, qd_next, impulses, _ = self._programs.step().outputs(*given)
        return State(q_next, qd_next, impulses if self._programs.nimpulse else None)

    def rollout(
        self, state: State, controls: Tensor | int, *, checkpoint: int | Schedule = 1, check: bool = False
    ) -> Trajectory:
        """Step through the controls (T, B, nu), or through T steps without any, and return the states that are kept.

        What is kept is what is returned: with `checkpoint=1` all T + 1 states, with k one every k steps and the last,
        with `pb.Binomial(slots)` the first and the last. The backward pass recomputes the others. `check=True` makes an
        error of a world that went wrong; otherwise `status` tells.
        """
        q, qd = self._check_state(state)
        schedule = schedule_from(checkpoint)
        if isinstance(controls, int):
            steps, flat = controls, self._no_controls(controls, q)
        else:
            steps, flat = len(controls), self._flat_controls(controls, len(q))
        if steps < 1:
            raise PullbackError(f"the rollout has {steps} steps; give controls for at least one")
        program = self._programs.rollout(steps, schedule)
        q_out, qd_out, impulses, status = program.outputs(q, qd, state.impulses, flat, self.parameters.packed())
        kept = self._programs.plan(steps, schedule).kept // self.substeps
        trajectory = Trajectory(
            self._unfold(q_out, len(kept), self.nq),
            self._unfold(qd_out, len(kept), self.nv),
            status=Status(status.detach(), self.substeps),
            steps=tuple(kept.tolist()),
            impulses=self._unfold(impulses, len(kept), self._programs.nimpulse) if self._programs.nimpulse else None,
        )
        if check:
            trajectory.status.check()
        return trajectory

    @staticmethod
    def _unfold(flat: Tensor, states: int, rows: int) -> Tensor:
        """Return (B, states * rows) as (states, B, rows)."""
        return flat.view(flat.shape[0], states, rows).transpose(0, 1)

    # -- looking -------------------------------------------------------------------------------------------------

    def contacts(self, state: State, u: Tensor | None = None) -> list[list[Contact]]:
        """Return the contacts of each world, and the forces that a step from this state gives them."""
        q, qd = self._check_state(state)
        controls = self._no_controls(1, q) if u is None else self._check_controls(u, len(q))
        with torch.no_grad():
            given = (q, qd, state.impulses, controls, self.parameters.packed())
            (report,) = self._programs.contacts().run(given)
        worlds = []
        for found, *rows in report.tolist():
            if found > self.arrays.max_contacts:
                raise PullbackError(
                    f"{int(found)} contacts where there is room for {self.arrays.max_contacts}; "
                    f"compile with max_contacts={int(found)} or more"
                )
            records = [rows[REPORT_ROWS * c : REPORT_ROWS * (c + 1)] for c in range(int(found))]
            worlds.append([self._contact(record) for record in records])
        return worlds

    def _contact(self, record: Sequence[float]) -> Contact:
        pair, names = int(record[0]), self.arrays.shape_names
        shapes = names[self.arrays.pair_a[pair]], names[self.arrays.pair_b[pair]]
        x, y, z, nx, ny, nz, fx, fy, fz = record[2:]
        return Contact(shapes, record[1], (x, y, z), (nx, ny, nz), (fx, fy, fz))

    def energies(self, state: State) -> tuple[Tensor, Tensor]:
        """Return kinetic and potential energy [J], (B,) each; the potential is zero at the world's origin."""
        q, qd = self._check_state(state)
        rows = self.parameters()
        totals = self._programs.momentum()(q, qd, rows.placements, rows.inertias)
        rotors = 0.5 * (rows.dofs[:, ::3] * qd * qd).sum(-1)
        return totals[:, 9] + rotors, -(rows.gravity * totals[:, 6:9]).sum(-1)

    # -- the border ----------------------------------------------------------------------------------------------

    def _check_state(self, state: State) -> tuple[Tensor, Tensor]:
        q, qd = state.q, state.qd
        if q.ndim != 2 or qd.ndim != 2 or q.shape[1] != self.nq or qd.shape[1] != self.nv or len(q) != len(qd):
            raise PullbackError(
                f"the state has q {tuple(q.shape)} and qd {tuple(qd.shape)}; expected (B, {self.nq}) and (B, {self.nv}), "
                f"as sim.initial_state(batch=B) gives"
            )
        rows = self._programs.nimpulse
        if (state.impulses is None) != (rows == 0) or (rows and state.impulses.shape != (len(q), rows)):  # pyright: ignore
            raise PullbackError(
                f"the state has impulses {None if state.impulses is None else tuple(state.impulses.shape)}, the solver "
                f"{'starts warm: expected ' + str((len(q), rows)) if rows else 'does not start warm: expected None'}; "
                f"start from sim.initial_state() of this simulation"
            )
        for name, x in (("q", q), ("qd", qd)):
            self._check_type(name, x)
        return q, qd

    def _check_controls(self, u: Tensor, worlds: int) -> Tensor:
        if not isinstance(u, Tensor) or u.ndim != 2 or u.shape[1] != self.nu or len(u) not in (1, worlds):
            got = tuple(u.shape) if isinstance(u, Tensor) else type(u).__name__
            raise PullbackError(f"u is {got}; expected ({worlds}, {self.nu}): {self._driven()}")
        self._check_type("u", u)
        return u

    def _flat_controls(self, controls: Tensor, worlds: int) -> Tensor:
        """Return controls (T, B, nu) as (B, T nu)."""
        fits = isinstance(controls, Tensor) and controls.ndim == 3 and controls.shape[1] in (1, worlds)
        if not fits or controls.shape[2] != self.nu:
            got = tuple(controls.shape) if isinstance(controls, Tensor) else type(controls).__name__
            raise PullbackError(f"controls are {got}; expected (T, {worlds}, {self.nu}): {self._driven()}")
        self._check_type("controls", controls)
        return controls.transpose(0, 1).reshape(controls.shape[1], -1)

    def _no_controls(self, steps: int, q: Tensor) -> Tensor:
        return q.new_zeros(1, steps * self.nu)

    def _check_type(self, name: str, x: Tensor) -> None:
        if x.dtype != self._like.dtype or x.device != self._like.device:
            raise PullbackError(
                f"{name} is {x.dtype} on {x.device}, the simulation {self.dtype} on {self.device}; "
                f"pass {name}.to(sim.device, sim.dtype)"
            )

    def _driven(self) -> str:
        names = self.arrays.actuator_names
        few = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        return f"T steps, B worlds, {len(names)} actuators" + (f" ({few})" if names else "")

"""A compiled world: states, steps and rollouts, differentiable in everything the world was given."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from functools import lru_cache
from numbers import Integral
from typing import Any

import torch

from pullback.core.errors import PullbackError
from pullback.core.finite import in_transform
from pullback.core.program import Program
from pullback.description.joints import JOINT_KINDS
from pullback.rigid import in_graph
from pullback.rigid.compile.compile import compile_world, heaviest_mass
from pullback.rigid.compile.parameters import WorldParameters
from pullback.rigid.energy_watch import can_watch, watch_energy
from pullback.rigid.feedback import feedback_rollout
from pullback.rigid.linearization import Linearization, linearize
from pullback.rigid.observations import Observations
from pullback.rigid.outcome import Inputs, refuse_inputs, warn_or_raise
from pullback.rigid.programs import PLANS, WorldPrograms
from pullback.rigid.solvers.compliant import Compliant
from pullback.rigid.state import CONTACT_OVERFLOW, NAN, NOT_CONVERGED, State, Status, Trajectory
from pullback.rigid.world.compliant_advice import warn_of_compliance
from pullback.rigid.world.couplings import mimic_advice
from pullback.rigid.world.integrators import SMOOTH, Damping, Impacts, Integrator, Part, default_damping, refuse_rough
from pullback.rigid.world.values import check_whole
from pullback.rigid.world.world import World
from pullback.robot.manifold import Manifold
from pullback.rollout.checkpoint import Schedule, schedule_from

Tensor = torch.Tensor

MAX_WORLDS = 2**31 - 1
MAX_STEPS = 2**31 - 1
"""Kernels number worlds by 32 bits."""
DEEP = 1e-3
"""A penetration [m] at the start that is worth a warning."""


class Sim(Observations):
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
        damping: Damping | None,
        integrator: Integrator,
        impacts: Impacts,
        without: Collection[Part],
    ) -> None:
        self.world = world
        self._made_with: dict[str, Any] = {"dt": dt, "dtype": dtype, "device": device, "substeps": substeps}
        self._made_with |= {"max_contacts": max_contacts, "damping": damping, "integrator": integrator}
        self._made_with |= {"impacts": impacts, "without": list(without)}
        self.dt = float(dt)
        self.substeps = substeps
        self.integrator: Integrator = integrator
        self.impacts: Impacts = impacts
        self.arrays = compile_world(world, max_contacts, without)
        self._room_given = max_contacts is not None
        self._warned: set[int] = set()
        self._is_explicit = damping == "explicit"
        if integrator in SMOOTH:
            refuse_rough(self.arrays, integrator)
        pairs = (self.arrays.pair_a, self.arrays.pair_b)
        is_implicit = (damping or default_damping(integrator)) == "implicit"
        ahead = self.dt / substeps if is_implicit else 0.0
        self.parameters = WorldParameters(world, pairs, dtype=dtype, device=device, ahead=ahead)
        self._like = self.parameters.like
        if impacts == "split" and isinstance(world.contact, Compliant):
            raise PullbackError(
                "impacts='split' is for rigid contact, and this world has pb.Compliant, whose impacts take time; leave "
                "one of them out"
            )
        if isinstance(world.contact, Compliant):
            warn_of_compliance(world.contact, self.arrays, self.parameters(), self.dt / substeps)
        self._programs = WorldPrograms(
            self.arrays,
            world.contact,
            dt=self.dt,
            substeps=substeps,
            double=dtype == torch.float64,
            heaviest=heaviest_mass(world),
            integrator=SMOOTH.get(integrator),
            keeps_tree_energy="tree_energy" not in without,
            splits=impacts == "split",
            ahead=ahead,
        )
        # both kernels stand in one Warp module, which is compiled whole when the first of them is launched
        self._programs.step().launchers(self._like)
        if integrator not in SMOOTH:
            self._programs.contacts().launchers(self._like)
        if torch.is_grad_enabled():
            self._programs.step().compile_ahead(self._like)
        self._initial = world.initial_q(dtype=dtype, device=device)
        self._manifold: Manifold | None = None
        self._last_status: tuple[Tensor | None, Status | None] = None, None
        self._planned = lru_cache(PLANS)(self._plan)
        self._graph = in_graph.GraphPrograms(self.parameters, lambda *rollout: self._planned(*rollout))
        # a step in a closed loop looks at these again and again
        self._type = (self._like.dtype, self._like.device)
        self._rows = (self.arrays.nq, self.arrays.nv, self._programs.nimpulse, self.arrays.nu)

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of states and controls."""
        return self._type[0]

    @property
    def cfm(self) -> float:
        """Softness of contacts [1/kg]: that of `world.contact`, or where it says None the default that was chosen."""
        return self._programs.cfm

    @property
    def device(self) -> torch.device:
        """The device that states and controls live on."""
        return self._type[1]

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

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle the world and how it was compiled: a copy is compiled anew, with the same room."""
        return _compile_again, (self.world, self._made_with, self.arrays.max_contacts)

    # -- moving --------------------------------------------------------------------------------------------------

    def initial_state(self, batch: int = 1) -> State:
        """Return the state at rest in which the world was described, once for each of `batch` worlds.

        Shapes that overlap by more than a millimetre there are reported in a warning, unless in a torch.func transform.
        More contacts than there is room for are an error if room was given, and otherwise get it.
        """
        check_whole("batch", batch, 1, MAX_WORLDS)
        self._check_worlds(batch, self.parameters.packed().shape[0])
        deep: dict[tuple[str, str], float] = {}
        for contacts in [] if in_transform() else self._found_contacts(None, None):
            for contact in contacts:
                if contact.gap < -DEEP:
                    deep[contact.shapes] = min(contact.gap, deep.get(contact.shapes, 0.0))
        if deep:
            told = ", ".join(f"{a} and {b} by {-1e3 * gap:.3g} mm" for (a, b), gap in deep.items())
            warnings.warn(f"the world starts with shapes that overlap: {told}", stacklevel=2)
        return self._at_rest(batch)

    def _at_rest(self, batch: int) -> State:
        try:
            impulses = self._like.new_zeros(batch, self._programs.nimpulse) if self._programs.nimpulse else None
            return State(self._initial.repeat(batch, 1), self._like.new_zeros(batch, self.nv), impulses)
        except RuntimeError as error:  # torch's for memory that there is not
            raise PullbackError(f"no memory for a state of {batch:,} worlds: {str(error)[:200]}") from None

    def step(self, state: State, u: Tensor | None = None, *, check: bool | None = None) -> State:
        """Return the state `dt` later under the controls `u` (B, nu), or (1, nu) for all worlds.

        `check` is that of `rollout`.
        """
        if torch.compiler.is_compiling() and in_graph.can_trace(self):
            return in_graph.step(self, state, u)
        program = self._programs.step()
        repeat = inputs = None
        if type(u) is Tensor and isinstance(state, State):
            # inputs laid out as those of this thread's last step passed the checks then
            inputs = state.q, state.qd, state.impulses, u, self.parameters.packed()
            repeat = program.last_launch(inputs)
        if inputs is None or repeat is None:
            inputs = self._check_inputs(state, u)
        q, qd, impulses, rows = program.outputs(*inputs, repeat=repeat)
        # most steps have the status of the one before: the same tensor, which was looked at then
        known, status = self._last_status
        if rows is not known:
            status = Status(rows, self.substeps)
            flags = status.shows()
            # inputs that are not finite show in the status, which is quicker to look at
            if flags & NAN:
                refuse_inputs(inputs)
            if flags & CONTACT_OVERFLOW and self._make_room():
                return self.step(state, u, check=check)
            if flags:
                warn_or_raise(self, state, status, (q, qd), check)
            if not flags or (flags == NOT_CONVERGED and NOT_CONVERGED in self._warned):
                self._last_status = rows, status
        return State(q, qd, impulses, status)

    def rollout(
        self, state: State, controls: Tensor | int, *, checkpoint: int | Schedule = 1, check: bool | None = None
    ) -> Trajectory:
        """Step through the controls (T, B, nu), or through T steps without any, and return the states that are kept.

        What is kept is what is returned: with `checkpoint=1` all T + 1 states, with k one every k steps and the last,
        with `pb.Binomial(slots)` the first and the last. The backward pass recomputes the others. Controls (T, 1, nu)
        drive all worlds alike, and a state of one world is where all start that controls or parameters are given for.

        On a CPU, more contacts than were given room for are an error, and a world that is not finite, has steps that
        are not solved, and differentiated, or gains energy though nothing drives it is a `SimulationWarning`, once.
        `check=True` makes an error of worlds that are not finite, on a GPU too; `check=False` leaves everything to
        `status`.
        """
        if torch.compiler.is_compiling() and in_graph.can_trace(self, checkpoint):
            return in_graph.rollout(self, state, controls, checkpoint)  # pyright: ignore[reportArgumentType]
        if not any(check is each for each in (None, True, False)):
            raise PullbackError(f"check is {check!r}; give True, False or None")
        schedule = checkpoint if type(checkpoint) is int else schedule_from(checkpoint)
        if isinstance(controls, Tensor) or not isinstance(controls, Integral) or isinstance(controls, bool):
            steps, flat = self._flat_controls(controls)
        else:
            steps = int(controls)
            if steps > MAX_STEPS:
                raise PullbackError(f"the rollout has {steps} steps; at most {MAX_STEPS:,} go into one, take several")
            flat = self._like.new_zeros(1, max(0, steps) * self.nu)
        if steps < 1:
            raise PullbackError(f"the rollout has {steps} steps; give controls for at least one")
        inputs = self._check_inputs(state, flat, steps)
        refuse_inputs(inputs)
        program, kept = self._planned(steps, schedule)
        q, qd, impulses, rows = program.outputs(*inputs)
        status = Status(rows, self.substeps)
        while status.shows() & CONTACT_OVERFLOW and self._make_room():
            program, kept = self._planned(steps, schedule)
            q, qd, impulses, rows = program.outputs(*inputs)
            status = Status(rows, self.substeps)
        if check or status.shows():
            warn_or_raise(self, state, status, (q, qd), check)
        nq, nv, nimpulse, _ = self._rows
        trajectory = Trajectory(
            self._unfold(q, len(kept), nq),
            self._unfold(qd, len(kept), nv),
            status=status,
            steps=kept,
            impulses=None if impulses is None else self._unfold(impulses, len(kept), nimpulse),
        )
        if check is not False and can_watch(self, rows, steps, isinstance(controls, Tensor)):
            trajectory = watch_energy(self, trajectory)
        return trajectory

    def _make_room(self, found: int = 0, *, resize_state: bool = False) -> bool:
        """Make room for `found` contacts or twice as many as there is room for; return whether that was possible.

        Not where room was given, nor, unless a state may be resized, where it is a part of the state.
        """
        room, most = self.arrays.max_contacts, self.arrays.most_contacts
        if self._room_given or room >= most or (self._programs.nimpulse and not resize_state):
            return False
        self._set_room(min(most, max(found, 2 * room)))
        return True

    def _set_room(self, room: int) -> None:
        self._programs = self._programs.with_room(room)
        self.arrays = self._programs.arrays
        self._planned.cache_clear()
        self._last_status = None, None
        self._rows = (self.arrays.nq, self.arrays.nv, self._programs.nimpulse, self.arrays.nu)

    def _plan(self, steps: int, checkpoint: int | Schedule) -> tuple[Program, Tensor]:
        """Return the program of a rollout, and before which steps the states are that it keeps."""
        schedule = schedule_from(checkpoint)
        kept = self._programs.plan(steps, schedule).kept // self.substeps
        return self._programs.rollout(steps, schedule), torch.from_numpy(kept)

    def feedback_rollout(
        self,
        state: State,
        controls: Tensor,
        gains: Tensor,
        nominal: Trajectory,
        *,
        lower: Tensor | None = None,
        upper: Tensor | None = None,
        defects: Tensor | None = None,
    ) -> tuple[Trajectory, Tensor]:
        """Step under u = controls + gains (state - nominal), clamped; return the trajectory and the controls applied.

        Controls (T, B, nu) and gains (T, B, nu, 2 nv) answer to the change of state that leads from the nominal
        trajectory of T + 1 states; `lower` and `upper` are (nu,) or (T, B, nu). Each new state is moved by `defects`
        (T, B, 2 nv), if given. The result is plain: no gradient passes through it.
        """
        return feedback_rollout(self, state, controls, gains, nominal, lower, upper, defects)

    def linearize(self, states: Trajectory | State, controls: Tensor) -> Linearization:
        """Return the Jacobians of the steps that the controls (T, B, nu) drive from the first T states.

        `states` is a trajectory with every state kept, or a state of T B worlds, step by step. All steps are
        differentiated side by side, in one launch. The result is plain: no gradient passes through it. Impulses that a
        warm start keeps are held fixed. At a kink it is the derivative of the side that the step was on.
        """
        return linearize(self, states, controls)

    @staticmethod
    def _unfold(flat: Tensor, states: int, rows: int) -> Tensor:
        """Return (B, states * rows) as (states, B, rows)."""
        worlds = flat.shape[0]
        return flat.view(states, 1, rows) if worlds == 1 else flat.view(worlds, states, rows).transpose(0, 1)

    # -- changes of state ----------------------------------------------------------------------------------------

    @property
    def manifold(self) -> Manifold:
        """What the coordinates are, and how changes move them."""
        if self._manifold is None:
            self._manifold = Manifold([JOINT_KINDS[number] for number in self.arrays.kind], self.device)
        return self._manifold

    def difference(self, a: State | Trajectory, b: State | Trajectory) -> Tensor:
        """Return the change dx (..., 2 nv) from a to b, in the axes of `linearize`; differentiable."""
        return torch.cat([self.manifold.difference(a.q, b.q), b.qd - a.qd], -1)

    def retract(self, state: State, dx: Tensor) -> State:
        """Return the state moved by dx (..., 2 nv): `retract(a, difference(a, b))` is b; differentiable."""
        q = self.manifold.retract(state.q, dx[..., : self.nv])
        return State(q, state.qd + dx[..., self.nv :], state.impulses)

    # -- the border ----------------------------------------------------------------------------------------------

    def _check_inputs(self, state: State, u: Tensor | None, steps: int = 1) -> Inputs:
        """Return what the kernels read: state, controls (B, steps nu) and parameters, all for 1 world or for B."""
        worlds = self._check_state(state)
        parameters = self.parameters.packed()
        if u is None:
            u = self._like.new_zeros(1, self._rows[3])
        elif not isinstance(u, Tensor) or u.ndim != 2 or u.shape[1] != steps * self._rows[3]:
            got = tuple(u.shape) if isinstance(u, Tensor) else type(u).__name__
            raise PullbackError(f"u is {got}; expected (B, {self.nu}): {self._driven()}")
        self._check_type("controls", u)
        self._check_worlds(worlds, parameters.shape[0], u.shape[0])
        return state.q, state.qd, state.impulses, u, parameters

    def _check_state(self, state: State) -> int:
        """Return the number of worlds of a state that fits."""
        if not isinstance(state, State):
            raise PullbackError(f"the state is a {type(state).__name__}; expected a pb.State: sim.initial_state()")
        q, qd, impulses = state.q, state.qd, state.impulses
        for name, x in (("q", q), ("qd", qd), ("impulses", impulses)):
            if not isinstance(x, Tensor) and (x is not None or name != "impulses"):
                raise PullbackError(f"{name} of the state is a {type(x).__name__}; expected a tensor: {self!r}")
        nq, nv, nimpulse, _ = self._rows
        worlds = q.shape[0] if q.ndim == 2 else -1
        if q.shape != (worlds, nq) or qd.shape != (worlds, nv):
            raise PullbackError(
                f"the state has q {tuple(q.shape)} and qd {tuple(qd.shape)}; expected (B, {nq}) and (B, {nv}), "
                f"as sim.initial_state(batch=B) gives{mimic_advice(self.world.items, q.shape[-1] if q.ndim else 0)}"
            )
        if nimpulse != 0 if impulses is None else impulses.shape != (worlds, nimpulse):
            got = None if impulses is None else tuple(impulses.shape)
            expected = f"starts warm: expected {(worlds, nimpulse)}" if nimpulse else "starts cold: expected None"
            raise PullbackError(
                f"the state has impulses {got}, the solver {expected}; start from this simulation's initial_state()"
            )
        for name, x in (("q", q), ("qd", qd)):
            self._check_type(name, x)
        return worlds

    def _check_worlds(self, state: int, parameters: int, controls: int = 1) -> None:
        """Refuse numbers of worlds that differ; one of anything is for all worlds."""
        given = max(parameters, controls)
        worlds = state if state != 1 else given
        if parameters not in (1, worlds) or controls not in (1, worlds):
            raise PullbackError(
                f"a state of {state} worlds with parameters for {parameters} and controls for {controls}; give the "
                f"same number of each, or 1 for what all worlds share: sim.initial_state(batch={given})"
            )

    def _check_controls(self, controls: Tensor | int, or_else: str = "") -> Tensor:
        """Return controls that are (T, B, nu)."""
        if not isinstance(controls, Tensor) or controls.ndim != 3 or controls.shape[2] != self.nu:
            got = tuple(controls.shape) if isinstance(controls, Tensor) else repr(controls)[:40]
            raise PullbackError(f"controls are {got}; expected (T, B, {self.nu}): {self._driven()}{or_else}")
        return controls

    def _flat_controls(self, controls: Tensor | int) -> tuple[int, Tensor]:
        """Return the number of steps, and controls (T, B, nu) as (B, T nu)."""
        given = self._check_controls(controls, "; or a whole number of steps")
        steps, worlds, _ = given.shape
        by_world = given if worlds == 1 else given.transpose(0, 1)
        return steps, by_world.reshape(worlds, steps * self.nu)

    def _check_type(self, name: str, x: Tensor) -> None:
        if (x.dtype, x.device) != self._type:
            raise PullbackError(
                f"{name} is {x.dtype} on {x.device}, the simulation {self.dtype} on {self.device}; "
                f"pass {name}.to(sim.device, sim.dtype)"
            )

    def fingerprint(self) -> tuple[Any, ...]:
        """Return what tells the world from others: sizes, and all its numbers unless they differ from copy to copy."""
        packed, arrays = self.parameters.packed().detach(), self.arrays
        return self.dt, arrays.nq, arrays.nv, arrays.nu, packed.shape, packed.tolist() if len(packed) == 1 else None

    def _driven(self) -> str:
        names = self.arrays.actuator_names
        few = ", ".join(names[:6]) + (", ..." if len(names) > 6 else "")
        return f"T steps, B worlds, {len(names)} actuators" + (f" ({few})" if names else "")


def _compile_again(world: World, options: dict[str, Any], room: int) -> Sim:
    """Return the simulation of a world that was copied or sent to another process."""
    sim = Sim(world, **options)
    if sim.arrays.max_contacts != room:
        sim._set_room(room)
    return sim

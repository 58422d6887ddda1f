"""The differentiable operators of a world, and what their kernels are told: scene, settings, layout, plan."""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

import numpy as np
import warp as wp

from pullback.core.program import Operator, Program
from pullback.rigid import report_kernels as contact_kernels
from pullback.rigid import rollout_kernels
from pullback.rigid.collide.collide_kernels import AllShapes, AnyShapes, NoShapes, RoundShapes
from pullback.rigid.compile.compile import SceneArrays, make_scene
from pullback.rigid.compile.layout import parameter_rows, scratch_rows
from pullback.rigid.compile.scene import PLANE, SPHERE
from pullback.rigid.step.constraint_kernels import ContactSettings
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.warm_kernels import IMPULSE_ROWS
from pullback.rigid.world.contact import PGS, Compliant, Exact
from pullback.robot import momentum_kernels
from pullback.robot.operators import MOMENTUM
from pullback.rollout.checkpoint import Every, Plan, Schedule

INPUTS = ("q", "qd", "impulses", "controls", "parameters")

GRADIENT_ADVICE = (
    "leave worlds out of the loss whose states are not finite (status.code tells); in steps that did not converge "
    "(status.unconverged) each sweep may double the gradient: give contacts some cfm, take shorter rollouts or float64"
)


def rollout_operator(shapes: type) -> Operator:
    """Return the rollout of worlds whose shapes are all round, or any."""
    return Operator(
        "the rollout",
        INPUTS,
        partial(rollout_kernels.kernels, shapes=shapes),
        checked=False,
        plain_outputs=1,
        gradient_advice=GRADIENT_ADVICE,
    )


def contacts_operator(shapes: type) -> Operator:
    """Return the report of contacts of worlds whose shapes are all round, or any."""
    return Operator("contacts", INPUTS, partial(contact_kernels.kernels, shapes=shapes), checked=False)


def linearize_operator(shapes: type) -> Operator:
    """Return the Jacobians of single steps of worlds whose shapes are all round, or any."""
    from pullback.rigid.linearize import linearize_kernels

    return Operator("linearize", INPUTS, partial(linearize_kernels.kernels, shapes=shapes), checked=False)


def feedback_operator(shapes: type) -> Operator:
    """Return the rollout under feedback of worlds whose shapes are all round, or any."""
    from pullback.rigid import feedback_kernels

    inputs = (*INPUTS, "gains", "nominal q", "nominal qd", "lower", "upper", "defects")
    return Operator("feedback", inputs, partial(feedback_kernels.kernels, shapes=shapes), checked=False)


LIMIT_MARGIN = 0.1
"""A joint this close [rad, m] to an end has a row in the contact problem."""

TOLERANCE = {True: 1e-11, False: 1e-6}
"""The solver's tolerance [m/s, rad/s] in float64 and in float32."""

LEAST_TOLERANCE = {True: 1e-14, False: 1e-7}
"""Below, rounding would decide whether sweeps converged, and so which impulses are taken."""

KINK_WIDTH = {True: 1e-9, False: 1e-5}
"""How close [m/s, rad/s] to a kink a row is on it, in float64 and in float32."""

NEWTON_STEPS = 4
"""Newton's steps on the contact problem, at most, after sweeps that were used up."""

PLANS = 32
"""Rollouts of different lengths whose launches are remembered."""


class WorldPrograms:
    """The programs of one world, bound when they are first asked for."""

    def __init__(
        self, arrays: SceneArrays, contact: PGS | Compliant, *, dt: float, substeps: int, double: bool, stages: int = 0
    ) -> None:
        self.arrays = arrays
        self.contact = contact
        self.dt = dt / substeps
        self.substeps = substeps
        self.double = double
        self.stages = stages
        is_round = np.isin(arrays.shape_kind, (int(SPHERE), int(PLANE))).all()
        self.exact = isinstance(contact, Exact)
        self.compliant = isinstance(contact, Compliant)
        is_plain = arrays.geometry.is_plain and not self.exact and not self.compliant
        self.shapes = AllShapes if not is_plain else RoundShapes if is_round else AnyShapes
        if stages:
            self.shapes = NoShapes
        self.nimpulse = int(IMPULSE_ROWS) * arrays.max_contacts + arrays.nscalar if contact.warm_start else 0
        self.step = lru_cache(1)(self._step)
        self.contacts = lru_cache(1)(self._contacts)
        self.momentum = lru_cache(1)(self._momentum)
        self.linearize = lru_cache(1)(self._linearize)
        self.feedback = lru_cache(PLANS)(self._feedback)

    def plan(self, steps: int, schedule: Schedule) -> Plan:
        """Return what a rollout keeps and how it is walked back, in substeps."""
        if isinstance(schedule, Every):
            schedule = Every(schedule.interval * self.substeps)
        return schedule.plan(steps * self.substeps)

    def rollout(self, steps: int, schedule: Schedule) -> Program:
        """Return a program for rollouts of so many steps."""
        plan = self.plan(steps, schedule)
        states = len(plan.kept)
        return self._bind(rollout_operator(self.shapes), self._state_rows(states), plan, read_outputs=3)

    def _step(self) -> Program:
        # with several substeps the vjp starts from the states between them, not from the one returned
        return self._bind(
            rollout_operator(self.shapes), self._state_rows(1), self.plan(1, Every(1)), skipped=1, read_outputs=0
        )

    def _state_rows(self, states: int) -> tuple[int, ...]:
        a = self.arrays
        return states * a.nq, states * a.nv, states * self.nimpulse, rollout_kernels.STATUS_ROWS

    def _contacts(self) -> Program:
        return self._bind(
            contacts_operator(self.shapes),
            (1 + contact_kernels.REPORT_ROWS * self.arrays.max_contacts,),
            Every(1).plan(1),
        )

    def _linearize(self) -> Program:
        """Return the program that writes A and B side by side, and status, of one step from each state; no vjp."""
        # 0.1 s of import that few need
        from pullback.rigid.linearize.dynamics_kernels import LinearJob, linear_rows

        a = self.arrays
        place, extra = linear_rows(
            nbody=a.nbody, nq=a.nq, nv=a.nv, nu=a.nu, impulses=self.nimpulse, rows=3 * a.max_contacts + a.nscalar
        )
        rows = 2 * a.nv * (2 * a.nv + a.nu), rollout_kernels.STATUS_ROWS
        step = self._bind(linearize_operator(self.shapes), rows, self.plan(1, Every(1)), skipped=1)

        def make_job(device: str) -> Any:
            linear = LinearJob()
            linear.job, linear.place, linear.columns = step._constants(device), place, 2 * a.nv + a.nu
            return linear

        scratch = [step.vjp_scratch[0], extra, 0]
        return Program(step.operator, make_job, rows=rows, scratch=scratch, vjp_scratch=scratch)

    def _feedback(self, steps: int) -> Program:
        """Return the program that writes all states, the controls applied, and status; no vjp."""
        a = self.arrays
        *states, status = self._state_rows(steps + 1)
        rows = (*states, steps * a.nu, status)
        plain = self._bind(feedback_operator(self.shapes), rows, self.plan(steps, Every(1)))
        scratch = [*plain.scratch, 2 * a.nv]
        return Program(plain.operator, plain._constants, rows=rows, scratch=scratch, vjp_scratch=scratch)

    def _momentum(self) -> Program:
        n = self.arrays.nbody
        return Program(
            MOMENTUM,
            lambda device: make_scene(self.arrays, device).topology,
            rows=int(momentum_kernels.OUT_ROWS),
            scratch=[n * int(momentum_kernels.ROWS)],
            vjp_scratch=[n * int(momentum_kernels.VJP_ROWS)],
        )

    def _bind(
        self, operator: Operator, rows: tuple[int, ...], plan: Plan, *, skipped: int = 0, read_outputs: int = 0
    ) -> Program:
        arrays, contact = self.arrays, self.contact
        parameters, _ = parameter_rows(
            arrays.nbody, arrays.nv, arrays.nu, arrays.nshape, arrays.geometry.rows, arrays.npair, arrays.nloop
        )
        place, forward, total = scratch_rows(
            nbody=arrays.nbody,
            nq=arrays.nq,
            nv=arrays.nv,
            impulses=self.nimpulse,
            contacts=arrays.max_contacts,
            scalars=arrays.nscalar,
            loops=arrays.nloop,
            sweeps=contact.iterations,
            newton=self._polishes,
            exact=self.exact,
            kinks=contact.kinks == "downhill",
            compliant=self.compliant,
            hulls=arrays.geometry.has_hulls,
            slots=plan.slots,
            stages=self.stages,
        )

        def make_job(device: str) -> Any:
            job = Job()
            job.scene = make_scene(arrays, device)
            job.settings = self._settings()
            job.parameters, job.scratch = parameters, place
            job.nimpulse, job.skipped = self.nimpulse, skipped
            job.steps, job.substeps, job.stages = int(plan.kept[-1]), self.substeps, self.stages
            job.nkept, job.kept = len(plan.kept), _on_device(plan.kept, device)
            job.nactions, job.actions = len(plan.actions), _on_device(plan.actions.reshape(-1), device)
            return job

        return Program(
            operator, make_job, rows=rows, scratch=[forward], vjp_scratch=[total, 0], read_outputs=read_outputs
        )

    @property
    def _polishes(self) -> bool:
        """Whether other steps follow sweeps that are used up: where the sweeps are not themselves differentiated."""
        is_solved = self.double and self.contact.gradient == "implicit" and self._tolerance > 0.0
        return self.exact or self.compliant or is_solved

    @property
    def _tolerance(self) -> float:
        given = self.contact.tolerance
        if given is None:
            return TOLERANCE[self.double]
        return max(given, LEAST_TOLERANCE[self.double]) if given > 0.0 else 0.0

    def _settings(self) -> Any:
        contact = self.contact
        settings = ContactSettings()
        settings.dt = self.dt
        settings.limit_margin = LIMIT_MARGIN
        settings.threshold = contact.restitution_threshold
        for name in ("erp", "loop_erp", "cfm", "margin", "iterations"):
            setattr(settings, name, getattr(contact, name))
        settings.tolerance = self._tolerance
        settings.exact = int(self.exact)
        settings.newton_steps = 1 if self.exact else NEWTON_STEPS if self._polishes else 0
        if isinstance(contact, Compliant):
            settings.compliant = 1
            settings.compliance.dt = settings.compliance.ahead = self.dt
            settings.compliance.onset, settings.compliance.power = contact.onset, contact.power
            settings.compliance.speed = contact.slip_speed
        settings.cone = int(contact.friction == "cone")
        settings.unrolled = int(contact.gradient == "unrolled")
        settings.kinks = int(contact.kinks == "downhill")
        settings.kink_width = KINK_WIDTH[self.double] if contact.kink_width is None else contact.kink_width
        return settings


def _on_device(values: np.ndarray, device: str) -> Any:
    return wp.array(values, dtype=wp.int32, device=device, copy=device != "cpu")

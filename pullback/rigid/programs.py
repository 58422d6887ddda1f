"""The differentiable operators of a world, and what their kernels are told: scene, settings, layout, plan."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
import warp as wp

from pullback.core.group_launch import GroupKernel, is_supported
from pullback.core.program import Operator, Program
from pullback.rigid import report_kernels, rollout_kernels
from pullback.rigid.compile.compile import SceneArrays, make_scene
from pullback.rigid.compile.layout import FIRST_OF_PROBLEM, LAST, PARAMETERS, SCRATCH, Sizes, forward_rows, kept_parts
from pullback.rigid.compile.scene import RECORD_ROWS
from pullback.rigid.solvers.solver import Solver
from pullback.rigid.step.group_kernels import GROUP_ROWS, RESTS
from pullback.rigid.step.problem_kernels import Job
from pullback.rigid.step.variants import ShapeSet, Step, contact_step, for_gpu, shape_set, smooth_step
from pullback.rigid.step.warm_kernels import IMPULSE_ROWS
from pullback.rigid.world.integrators import Smooth
from pullback.robot import momentum_kernels
from pullback.robot.operators import MOMENTUM
from pullback.rollout.checkpoint import Every, Plan, Schedule

INPUTS = ("q", "qd", "impulses", "controls", "parameters")

GRADIENT_ADVICE = (
    "leave worlds out of the loss whose states are not finite (status.code tells); in steps that did not converge "
    "(status.unconverged) each sweep may double the gradient: give contacts some cfm, take shorter rollouts or float64"
)


Kernels = Callable[[Step], tuple[Any, Any]]


STEP_WORK = 4
"""What a step with contact costs, in evaluations of a robot's dynamics, at least."""

PLANS = 32
"""Rollouts of different lengths whose launches are remembered."""


MOST_GROUP_ROWS = 1 << 19
"""Vectors of scratch, 32 MB, that a group of worlds may have,"""
MOST_ROWS_IN_LANES = 1 << 15
"""and rows before the matrix of its problem: beyond that memory is slower than lanes are fast."""


@cache
def groups_of(kind: Step) -> GroupKernel | None:
    """Return the kernel of a rollout in groups of worlds, if this kind of step can be begun in lanes."""
    if not kind.in_groups or not is_supported():
        return None

    def make() -> Any:
        # imported lazily: few processes run large batches
        from pullback.rigid import group_rollout_kernels

        return group_rollout_kernels.kernel(kind)

    return GroupKernel(make)


class WorldPrograms:
    """The programs of one world, bound when they are first asked for."""

    def __init__(
        self,
        arrays: SceneArrays,
        contact: Solver,
        *,
        dt: float,
        substeps: int,
        double: bool,
        heaviest: float,
        integrator: Smooth | None = None,
        keeps_tree_energy: bool = True,
        splits: bool = False,
        ahead: float = 0.0,
    ) -> None:
        self.arrays = arrays
        self.contact = contact
        self.dt = dt / substeps
        self.substeps = substeps
        self.double = double
        self.cfm = contact.cfm_for(heaviest, double=double)
        self.integrator = integrator
        self.splits = splits
        self.ahead = ahead
        self.stages = integrator.stages if integrator else 0
        self.has_trees = keeps_tree_energy and integrator is None and bool((arrays.parent >= 0).any())
        self.shapes: ShapeSet = shape_set(arrays)
        self._forget()

    def with_room(self, max_contacts: int) -> WorldPrograms:
        """Return the same programs with room for so many contacts."""
        other = copy(self)
        other.arrays = replace(self.arrays, max_contacts=max_contacts)
        other._forget()
        return other

    def _forget(self) -> None:
        """Let all programs be bound anew."""
        rows = int(IMPULSE_ROWS) * self.arrays.max_contacts + self.arrays.nscalar
        self.nimpulse = rows if self.contact.warm_start else 0
        self.step = lru_cache(1)(self._step)
        self.contacts = lru_cache(1)(self._contacts)
        self.momentum = lru_cache(1)(self._momentum)
        self.linearize = lru_cache(1)(self._linearize)
        self.feedback = lru_cache(PLANS)(self._feedback)

    def kind_of_step(self, real: type) -> Step:
        """Return the functions of a step for one floating-point type."""
        laws, compensates = self.arrays.drives.laws, self.arrays.drives.compensates
        if self.integrator:
            return smooth_step(self.integrator.kernels, laws, real, compensates)
        return contact_step(self.shapes, self.contact, laws, real, compensates=compensates, splits=self.splits)

    def _operator(
        self, name: str, kernels: Kernels, inputs: tuple[str, ...] = INPUTS, *, shares: bool = False, **options: Any
    ) -> Operator:
        """Return an operator whose kernels are made for this world's kind of step.

        Kernels that share a module on a CPU are apart on a GPU.
        """
        apart = (lambda real: kernels(for_gpu(self.kind_of_step(real)))) if shares else None
        return Operator(name, inputs, lambda real: kernels(self.kind_of_step(real)), apart, checked=False, **options)

    def _rollout_operator(self) -> Operator:
        return self._operator(
            "the rollout", rollout_kernels.kernels, shares=True, plain_outputs=1, gradient_advice=GRADIENT_ADVICE,
            groups=lambda real: groups_of(self.kind_of_step(real)),
        )  # fmt: skip

    def sizes(self, slots: int = 0, *, reports: bool = False) -> Sizes:
        """Return the sizes of this world's arrays."""
        a = self.arrays
        return Sizes(
            nbody=a.nbody,
            nq=a.nq,
            nv=a.nv,
            nu=a.nu,
            nactuator=a.drives.count,
            nshape=a.nshape,
            nfield=a.geometry.rows,
            npair=a.npair,
            nloop=a.nloop,
            ncoupling=a.ncoupling,
            compensates=a.drives.compensates,
            trees=self.has_trees,
            impulses=self.nimpulse,
            contacts=a.max_contacts,
            scalars=a.nscalar,
            hulls=a.geometry.has_hulls,
            stages=self.stages,
            splits=self.splits,
            reports=reports,
            slots=slots,
            solver=self.contact,
        )

    def plan(self, steps: int, schedule: Schedule) -> Plan:
        """Return what a rollout keeps and how it is walked back, in substeps."""
        if isinstance(schedule, Every):
            schedule = Every(schedule.interval * self.substeps)
        return schedule.plan(steps * self.substeps)

    def rollout(self, steps: int, schedule: Schedule) -> Program:
        """Return a program for rollouts of so many steps."""
        plan = self.plan(steps, schedule)
        states = len(plan.kept)
        return self._bind(self._rollout_operator(), self._state_rows(states), plan, read_outputs=3)

    def _step(self) -> Program:
        # with several substeps the vjp starts from the states between them, not from the one returned
        return self._bind(
            self._rollout_operator(), self._state_rows(1), self.plan(1, Every(1)), skipped=1, read_outputs=0
        )

    def _state_rows(self, states: int) -> tuple[int, ...]:
        a = self.arrays
        return states * a.nq, states * a.nv, states * self.nimpulse, rollout_kernels.STATUS_ROWS

    @property
    def record_rows(self) -> int:
        """Rows of a contact in a report."""
        return int(RECORD_ROWS) if self.splits else report_kernels.REPORT_ROWS

    def _contacts(self) -> Program:
        return self._bind(
            self._operator("contacts", report_kernels.kernels, shares=True),
            (1 + self.record_rows * self.arrays.max_contacts,),
            Every(1).plan(1),
            read_outputs=int(self.splits),
            reports=True,
        )

    def _linearize(self) -> Program:
        """Return the program that writes A and B side by side, and status, of one step from each state; no vjp."""
        # imported lazily: 0.1 s
        from pullback.rigid.linearize import linearize_kernels
        from pullback.rigid.linearize.dynamics_kernels import LINEAR, LinearJob

        a = self.arrays
        place, extra = LINEAR.place(self.sizes())
        rows = 2 * a.nv * (2 * a.nv + a.nu), rollout_kernels.STATUS_ROWS
        step = self._bind(
            self._operator("linearize", linearize_kernels.kernels), rows, self.plan(1, Every(1)), skipped=1
        )

        def make_job(device: str) -> Any:
            linear = LinearJob()
            linear.job, linear.place, linear.columns = step._constants(device), place, 2 * a.nv + a.nu
            return linear

        scratch = [step.vjp_scratch[0], extra, 0]
        return Program(step.operator, make_job, rows=rows, scratch=scratch, vjp_scratch=scratch, work=step.work)

    def _feedback(self, steps: int) -> Program:
        """Return the program that writes all states, the controls applied, and status; no vjp."""
        from pullback.rigid import feedback_kernels

        inputs = (*INPUTS, "gains", "nominal q", "nominal qd", "lower", "upper", "defects")
        a = self.arrays
        *states, status = self._state_rows(steps + 1)
        rows = (*states, steps * a.nu, status)
        plain = self._bind(
            self._operator("feedback", feedback_kernels.kernels, inputs), rows, self.plan(steps, Every(1))
        )
        scratch = [*plain.scratch, 2 * a.nv]
        return Program(
            plain.operator, plain._constants, rows=rows, scratch=scratch, vjp_scratch=scratch, work=plain.work
        )

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
        self,
        operator: Operator,
        rows: tuple[int, ...],
        plan: Plan,
        *,
        skipped: int = 0,
        read_outputs: int = 0,
        reports: bool = False,
    ) -> Program:
        arrays, contact = self.arrays, self.contact
        sizes = self.sizes(plan.slots, reports=reports)
        parameters, nparameter = PARAMETERS.place(sizes)
        scratch, total = SCRATCH.place(sizes)
        parts = kept_parts(sizes)
        forward = forward_rows(sizes, as_matrix=contact.polishing_rounds(double=self.double) > 0)

        def make_job(device: str) -> Any:
            job = Job()
            job.scene = make_scene(arrays, device)
            contact.write_settings(job.settings, dt=self.dt, double=self.double)
            job.settings.cfm, job.settings.ahead = self.cfm, self.ahead
            job.parameters, job.scratch = parameters, scratch
            job.has_trees = int(self.has_trees)
            job.nkept_part, job.kept_parts, job.reports = parts, total, int(reports)
            job.nstate, job.nimpulse, job.skipped = sizes.nstate, self.nimpulse, skipped
            job.steps, job.substeps, job.stages = int(plan.kept[-1]), self.substeps, self.stages
            job.group, job.rests = forward, _on_device(np.zeros(2 * int(RESTS), np.int32), device)
            job.nkept, job.kept = len(plan.kept), _on_device(plan.kept, device)
            job.nactions, job.actions = len(plan.actions), _on_device(plan.actions.reshape(-1), device)
            return job

        of_group = 2 * (forward + int(GROUP_ROWS) + arrays.nu + nparameter)
        if of_group > MOST_GROUP_ROWS or SCRATCH.rows_until(FIRST_OF_PROBLEM, sizes) > MOST_ROWS_IN_LANES:
            of_group = 0
        adjoint = total + parts * SCRATCH.rows_until(LAST, sizes)
        return Program(
            operator, make_job, rows=rows, scratch=[forward], vjp_scratch=[adjoint, 0], read_outputs=read_outputs,
            work=STEP_WORK * int(plan.kept[-1]), group_rows=of_group,
        )  # fmt: skip


def _on_device(values: np.ndarray, device: str) -> Any:
    return wp.array(values, dtype=wp.int32, device=device, copy=device != "cpu")

"""The way back from particles to grid and to particles: eq. (13) to (20) of docs/derivations/mpm.md.

`adj` holds the cotangents of the state after the step, and is overwritten with those of the state before it.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.material_kernels import stresses
from pullback.soft.return_kernels import returns
from pullback.soft.stencil_kernels import stencil
from pullback.soft.step_kernels import particle_functions
from pullback.soft.tensor_kernels import tensors
from pullback.soft.variant_kernels import MASS, THIRD, VOLUME, Variant

PIECES = wp.constant(32)
"""Parts in which the particles of an actuator are added up, so that sums come out the same on any number of threads."""


@made_once
def adjoint_kernels(variant: Variant) -> SimpleNamespace:
    """Return the kernels of a step backward."""
    types, module = variant.types, variant.module("adjoint")
    real, vec, mat, row, dim = variant.real, types.vec, types.mat, types.row, variant.dim
    Job, Points, Grid, Sums = types.Job, types.Points, types.Grid, types.Sums
    shared, nodes, deformation = particle_functions(variant), stencil(variant.plain), returns(variant)
    run_of, particle_at, pull_of = shared.run_of, shared.particle_at, shared.pull_of
    kirchhoff, momentum_of, affine_of = shared.kirchhoff, shared.momentum_of, shared.affine_of
    place, weights_at, spread = nodes.place, nodes.weights_at, nodes.spread
    collect, collect_gradient = nodes.collect, nodes.collect_gradient
    trial_vjp, affine_vjp = deformation.trial_vjp, deformation.affine_vjp
    deformation_vjp, symmetric = deformation.deformation_vjp, tensors(variant.plain).symmetric
    material = stresses(variant)
    stress_vjp, has_plastic = material.stress_vjp, material.has_plastic

    @wp.func(module=module)
    def grid_to_particle_vjp(job: Job, points: Points, grid: Grid, adj: Points, sums: Sums, p: int):
        x = points.x[p]
        F = points.F[p]
        kind = job.kind[p]
        history = points.history[p]
        at, f = place(job, grid, p, x)
        w = weights_at(f)
        C = mat()
        if has_plastic:
            # the return needs the deformation before it
            _total, first_moments = collect(grid.velocity, at, w, f)
            C = affine_of(job, first_moments)
        adj_trial, adj_history, adj_kappa = trial_vjp(
            kind, F, C, history, job.numbers[p], job.dt, adj.F[p], adj.history[p]
        )
        adj_v = adj.v[p] + job.dt * adj.x[p]
        # moments are in cells: C' = 4/h of them
        adj_T = (real(4.0) * job.inverse) * (adj.C[p] + affine_vjp(kind, F, adj_trial, job.dt))
        middle = row()
        slopes = types.slopes()
        for a in range(dim):
            value = adj_v[a]
            for b in range(dim):
                slopes[b, a] = adj_T[a, b]
                value -= adj_T[a, b] * f[b]
            middle[a] = value
        spread(grid.cotangent, at, w, middle, slopes)
        _t, moments, gradient = collect_gradient(grid.velocity, at, w, f, middle, slopes)
        adj.x[p] = adj.x[p] + job.inverse * gradient
        adj.F[p] = deformation_vjp(kind, affine_of(job, moments), adj_trial, job.dt)
        adj.history[p] = adj_history
        if has_plastic:
            if sums.numbers:
                total = sums.numbers[p]
                total[THIRD] = total[THIRD] + adj_kappa
                sums.numbers[p] = total

    @wp.func(module=module)
    def particle_to_grid_vjp(job: Job, points: Points, grid: Grid, adj: Points, sums: Sums, p: int, step: int):
        numbers = job.numbers[p]
        mass = numbers[MASS]
        F = points.F[p]
        C = points.C[p]
        at, f = place(job, grid, p, points.x[p])
        tau = kirchhoff(job, points, p, step)
        middle, slopes = momentum_of(job, points, p, tau, f)
        total, moments, gradient = collect_gradient(grid.cotangent, at, weights_at(f), f, middle, slopes)
        adj.x[p] = adj.x[p] + job.inverse * gradient
        g = vec()
        adj_A = mat()
        for a in range(dim):
            g[a] = total[a]
            for b in range(dim):
                adj_A[a, b] = job.cell * moments[b, a]
        adj_numbers = types.numbers()
        # eq. (18), (19)
        u = job.keep * points.v[p] + job.dt * job.gravity[p // job.particles]
        adj_numbers[MASS] = total[dim] + wp.dot(u, g) + job.keep * wp.ddot(C, adj_A)
        adj_numbers[VOLUME] = -job.pressing * wp.ddot(tau, adj_A)
        S = (-job.pressing * numbers[VOLUME]) * symmetric(adj_A)
        # eq. (20), (23)
        adj_F, adj_C, adj_numbers = stress_vjp(job.kind[p], F, C, numbers, S, adj_numbers)
        pull, active = pull_of(job, p, step)
        if active:
            fibre = job.fibre[p]
            along = F * fibre
            pressed = S * along
            adj_F = adj_F + (real(2.0) * pull) * wp.outer(pressed, fibre)
            if sums.pull:
                sums.pull[p] = wp.dot(along, pressed)
        adj.F[p] = adj.F[p] + adj_F
        adj.C[p] = (job.keep * mass) * adj_A + adj_C
        adj.v[p] = (job.keep * mass) * g
        if sums.gravity:
            sums.gravity[p] = sums.gravity[p] + (job.dt * mass) * g
        if sums.numbers:
            sums.numbers[p] = sums.numbers[p] + adj_numbers

    @wp.kernel(module=module)
    def from_grid_vjp(first: int, job: Job, points: Points, grid: Grid, adj: Points, sums: Sums):
        begin, end = run_of(grid, first + wp.tid())
        for q in range(begin, end):
            p = particle_at(grid, q)
            if p >= 0:
                grid_to_particle_vjp(job, points, grid, adj, sums, p)

    @wp.kernel(module=module)
    def to_grid_vjp(first: int, step: int, job: Job, points: Points, grid: Grid, adj: Points, sums: Sums):
        begin, end = run_of(grid, first + wp.tid())
        for q in range(begin, end):
            p = particle_at(grid, q)
            if p >= 0:
                particle_to_grid_vjp(job, points, grid, adj, sums, p, step)

    @wp.kernel(module=module)
    def add_pulls(
        first: int,
        starts: wp.array(dtype=wp.int32),
        particle: wp.array(dtype=wp.int32),
        pull: wp.array(dtype=real),
        parts: wp.array(dtype=real),
    ):
        """Add up parts of the cotangents of each actuation; `particle` lists those of each actuator from starts on."""
        t = first + wp.tid()
        actuator = t // PIECES
        piece = t - actuator * PIECES
        begin = starts[actuator]
        count = starts[actuator + 1] - begin
        total = real(0.0)
        for k in range(begin + (count * piece) // PIECES, begin + (count * (piece + 1)) // PIECES):
            total += pull[particle[k]]
        parts[t] = total

    @wp.kernel(module=module)
    def add_parts(first: int, step: int, parts: wp.array(dtype=real), adj_actuation: wp.array2d(dtype=real)):
        actuator = first + wp.tid()
        total = real(0.0)
        for k in range(PIECES):
            total += parts[actuator * PIECES + k]
        adj_actuation[step, actuator] = total

    return SimpleNamespace(
        from_grid_vjp=from_grid_vjp, to_grid_vjp=to_grid_vjp, add_pulls=add_pulls, add_parts=add_parts
    )

"""Particles to grid and back: eq. (5) to (7) and (9) to (11) of docs/derivations/mpm.md.

On a CPU a thread takes a piece of the particles, sorted by block, and adds to arenas that no other thread adds to. On a
GPU it takes one particle, and adds atomically.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.material_kernels import FIXED_COROTATED, stresses
from pullback.soft.return_kernels import returns
from pullback.soft.stencil_kernels import stencil
from pullback.soft.variant_kernels import (
    INVERTED,
    MASS,
    REASONS,
    THIRD,
    TOO_FAST,
    VOLUME,
    Variant,
)


@made_once
def particle_functions(variant: Variant) -> SimpleNamespace:
    """Return what forward and backward kernels share."""
    types, module = variant.types, variant.module("particle")
    real, vec, mat, row, dim = variant.real, types.vec, types.mat, types.row, variant.dim
    Job, Points, Grid = types.Job, types.Points, types.Grid
    stress = stresses(variant).stress

    @wp.func(module=module)
    def run_of(grid: Grid, t: int):
        """Return the first place of a thread's particles, and the first beyond them."""
        begin = t
        end = t + 1
        if grid.pieces:
            begin = grid.pieces[t]
            end = grid.pieces[t + 1]
        return begin, end

    @wp.func(module=module)
    def particle_at(grid: Grid, q: int):
        """Return the particle at a place, -1 if it is in no block."""
        p = q
        if grid.order:
            p = grid.order[q]
        elif grid.slot[p] < 0:
            p = -1
        return p

    @wp.func(module=module)
    def pull_of(job: Job, p: int, step: int):
        """Return the active stress of a particle, and whether it has any."""
        pull = real(0.0)
        active = False
        if job.actuator:
            actuator = job.actuator[p]
            if actuator >= 0:
                active = True
                pull = job.actuation[step, (p // job.particles) * job.actuators + actuator]
        return pull, active

    @wp.func(module=module)
    def kirchhoff(job: Job, points: Points, p: int, step: int):
        """Return the stress of a particle, eq. (22)."""
        F = points.F[p]
        tau = stress(job.kind[p], F, points.C[p], job.numbers[p])
        pull, active = pull_of(job, p, step)
        if active:
            along = F * job.fibre[p]
            tau = tau + pull * wp.outer(along, along)
        return tau

    @wp.func(module=module)
    def momentum_of(job: Job, points: Points, p: int, tau: mat, f: vec):
        """Return what a particle gives to the grid as an affine function, eq. (5), (6)."""
        numbers = job.numbers[p]
        mass = numbers[MASS]
        u = job.keep * points.v[p] + job.dt * job.gravity[p // job.particles]
        A = job.cell * ((job.keep * mass) * points.C[p] - (job.pressing * numbers[VOLUME]) * tau)
        middle = row()
        slopes = types.slopes()
        for a in range(dim):
            value = mass * u[a]
            for b in range(dim):
                slopes[b, a] = A[a, b]
                value -= A[a, b] * f[b]
            middle[a] = value
        middle[dim] = mass
        return middle, slopes

    @wp.func(module=module)
    def affine_of(job: Job, moments: types.slopes):
        """Return C' from moments in cells, eq. (9)."""
        C = mat()
        for a in range(dim):
            for b in range(dim):
                C[a, b] = real(4.0) * job.inverse * moments[b, a]
        return C

    return SimpleNamespace(
        run_of=run_of,
        particle_at=particle_at,
        pull_of=pull_of,
        kirchhoff=kirchhoff,
        momentum_of=momentum_of,
        affine_of=affine_of,
    )


@made_once
def step_kernels(variant: Variant) -> SimpleNamespace:
    """Return the kernels of a step forward."""
    types, module = variant.types, variant.module("step")
    real, vec, dim = variant.real, types.vec, variant.dim
    Job, Points, Grid = types.Job, types.Points, types.Grid
    shared, nodes, deformation = particle_functions(variant), stencil(variant.plain), returns(variant)
    run_of, particle_at, kirchhoff = shared.run_of, shared.particle_at, shared.kirchhoff
    momentum_of, affine_of = shared.momentum_of, shared.affine_of
    place, weights_at, spread, collect = nodes.place, nodes.weights_at, nodes.spread, nodes.collect
    deformed = deformation.deformed

    @wp.func(module=module)
    def particle_to_grid(job: Job, points: Points, grid: Grid, p: int, step: int):
        """Add mass, momentum and the impulse of stress of one particle to the nodes around it (P2G)."""
        at, f = place(job, grid, p, points.x[p])
        middle, slopes = momentum_of(job, points, p, kirchhoff(job, points, p, step), f)
        spread(grid.momentum, at, weights_at(f), middle, slopes)

    @wp.func(module=module)
    def grid_to_particle(job: Job, points: Points, grid: Grid, p: int, step: int):
        """Collect a particle's new velocity from the nodes, deform and move it (G2P)."""
        x = points.x[p]
        at, f = place(job, grid, p, x)
        total, moments = collect(grid.velocity, at, weights_at(f), f)
        C = affine_of(job, moments)
        v = vec()
        for a in range(dim):
            v[a] = total[a]
        kind = job.kind[p]
        F, history = deformed(kind, points.F[p], C, points.history[p], job.numbers[p][THIRD], job.dt)
        # written so that what is not a number fails
        if not (wp.dot(v, v) * job.dt * job.dt <= job.cell * job.cell):
            grid.code[p] = REASONS * (step + 1) + TOO_FAST
        elif kind != FIXED_COROTATED and not (wp.determinant(F) > real(0.0)):
            grid.code[p] = REASONS * (step + 1) + INVERTED
        else:
            points.v[p] = v
            points.C[p] = C
            points.F[p] = F
            points.history[p] = history
            points.x[p] = x + job.dt * v

    @wp.kernel(module=module)
    def to_grid(first: int, step: int, job: Job, points: Points, grid: Grid):
        begin, end = run_of(grid, first + wp.tid())
        for q in range(begin, end):
            p = particle_at(grid, q)
            if p >= 0:
                particle_to_grid(job, points, grid, p, step)

    @wp.kernel(module=module)
    def from_grid(first: int, step: int, job: Job, points: Points, grid: Grid):
        begin, end = run_of(grid, first + wp.tid())
        for q in range(begin, end):
            p = particle_at(grid, q)
            if p >= 0:
                grid_to_particle(job, points, grid, p, step)

    return SimpleNamespace(to_grid=to_grid, from_grid=from_grid)

"""A step in worlds of every shape and every solver (docs/derivations/contact_step.md).

These are cylinders, meshes and fields, the exact solver and compliant contact. What a step does is written once, in
`collide_kernels`, `step_kernels` and `step_vjp_kernels`, for spheres, capsules, boxes, planes and rigid contact. Here
are the functions that know more, and the steps that call them instead.
"""

from typing import Any

import warp as wp

from pullback.core.codegen import rebound
from pullback.core.modules import made_once
from pullback.rigid.collide.collide_kernels import AnyShapes, collide, collide_one, contact_vjp, is_near
from pullback.rigid.collide.convex.contact_kernels import add_hull_contact, hull_contact_vjp
from pullback.rigid.collide.convex.convex_kernels import collide_hulls, hulls_are_near
from pullback.rigid.collide.convex.tables import HULL_CODES
from pullback.rigid.collide.sampled_kernels import collide_samples, sampled_contact_vjp
from pullback.rigid.compile.scene import CONTACT_ROWS, CYLINDER, FEATURE_A, MESH, NORMAL, PAIR, Scene
from pullback.rigid.rollout_kernels import retrace
from pullback.rigid.solvers.exact_kernels import EXACT_STEPS, exact_solve
from pullback.rigid.step.compliant_step_kernels import (
    compliant_multiplier,
    compliant_newton,
    compliant_sweeps,
    forget_biases,
)
from pullback.rigid.step.impulse_kernels import apply_impulses, without_impulses
from pullback.rigid.step.problem_kernels import Job, write_problem
from pullback.rigid.step.step_kernels import contact_problem, newton, resolve, step, sweep
from pullback.rigid.step.step_vjp_kernels import step_vjp
from pullback.spatial.arrays import load3, rows_from


@wp.func
def is_hull(kind: int):
    """Tell whether a shape is known by its hull."""
    return kind == CYLINDER or kind == MESH


@wp.func
def collide_any(
    shapes_are: Any, scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), margin: Any,
    w: int, contacts: wp.array2d(dtype=Any), candidates: wp.array2d(dtype=Any), work: wp.array2d(dtype=Any), pair: int,
    count: int,
):  # fmt: skip
    """Write the contacts of one pair behind the first `count`; return the count."""
    total = int(count)
    if scene.pair_sampled[pair] == 1:
        if is_near(scene, poses, shapes, margin, w, scene.pair_a[pair], scene.pair_b[pair]):
            total = collide_samples(scene, poses, shapes, margin, w, contacts, candidates, pair, total)
    elif is_hull(scene.shape_kind[scene.pair_a[pair]]) or is_hull(scene.shape_kind[scene.pair_b[pair]]):
        if hulls_are_near(scene.hulls, scene, poses, shapes, margin, w, pair):
            found = collide_hulls(scene.hulls, scene, poses, shapes, margin, w, candidates, pair, work)
            for k in range(found):
                total = add_hull_contact(
                    scene.hulls, scene, poses, shapes, margin, w, contacts, pair, candidates, k, total
                )  # fmt: skip
    else:
        total = collide_one(
            AnyShapes(0), scene, poses, shapes, margin, w, contacts, candidates, work, pair, total
        )  # fmt: skip
    return total


@wp.func
def any_contact_vjp(
    scene: Scene, poses: wp.array2d(dtype=Any), shapes: wp.array2d(dtype=Any), w: int, contacts: wp.array2d(dtype=Any),
    c: int, adj_gap: Any, adj_point: Any, adj_normal: Any, wrench: wp.array2d(dtype=Any),
    adj_shapes: wp.array2d(dtype=Any), tape: wp.array2d(dtype=Any),
):  # fmt: skip
    """Pull the cotangents of contact c's gap, point and normal back to the bodies' wrenches and to the shapes."""
    row = c * CONTACT_ROWS
    pair = int(contacts[row + PAIR, w])
    code_a = int(contacts[row + FEATURE_A, w])
    if scene.pair_sampled[pair] == 1:
        sampled_contact_vjp(
            scene, poses, shapes, w, pair, code_a, load3(contacts, row + NORMAL, w), adj_gap, adj_point, adj_normal,
            wrench, adj_shapes, tape,
        )  # fmt: skip
    elif code_a >= HULL_CODES:
        hull_contact_vjp(
            scene.hulls, scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes
        )  # fmt: skip
    else:
        contact_vjp(scene, poses, shapes, w, contacts, c, adj_gap, adj_point, adj_normal, wrench, adj_shapes, tape)


@wp.func
def soften_any(job: Job, nc: int, parameters: wp.array2d(dtype=Any), w: int, scratch: wp.array2d(dtype=Any)):
    """Make contacts compliant, if they are to be."""
    if job.settings.compliant == 1:
        forget_biases(job, nc, parameters, w, scratch)


@wp.func
def exact(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Replace the impulses by the solution, and s with them; tell by 1 or 0 whether it was found."""
    place = job.scratch
    without_impulses(job, w, scratch)
    write_problem(job, ncontact, nscalar, w, scratch)
    systems = exact_solve(
        ncontact, nscalar, job.settings.cone, scratch.dtype(job.settings.tolerance), EXACT_STEPS,
        rows_from(scratch, place.A), rows_from(scratch, place.b), rows_from(scratch, place.mu),
        rows_from(scratch, place.lower), rows_from(scratch, place.upper), w, rows_from(scratch, place.lam),
        rows_from(scratch, place.solver),
    )  # fmt: skip
    apply_impulses(job, ncontact, nscalar, w, scratch)
    return wp.where(systems >= 0, 1, 0)


@wp.func
def polish_any(job: Job, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Improve the impulses that sweeps left; tell by 1 whether they are known to be the solution."""
    solved = int(0)
    if job.settings.compliant == 1:
        without_impulses(job, w, scratch)
        write_problem(job, ncontact, nscalar, w, scratch)
        apply_impulses(job, ncontact, nscalar, w, scratch)
        compliant_newton(job, ncontact, nscalar, w, scratch)
        apply_impulses(job, ncontact, nscalar, w, scratch)
    elif job.settings.exact == 1:
        solved = exact(job, ncontact, nscalar, w, scratch)
    else:
        newton(job, ncontact, nscalar, w, scratch)
    return solved


@wp.func
def sweep_any(job: Job, limit: int, ncontact: int, nscalar: int, w: int, scratch: wp.array2d(dtype=Any)):
    """Sweep until impulses hardly change, or `limit` times; return sweeps and the last one's change."""
    more = int(0)
    change = scratch.dtype(0.0)
    if job.settings.compliant == 1:
        more, change = compliant_sweeps(job, limit, ncontact, nscalar, w, scratch)
    else:
        more, change = sweep(job, limit, ncontact, nscalar, w, scratch)
    return more, change


@wp.func
def any_compliant_vjp(
    job: Job, nc: int, ns: int, w: int, adj_parameters: wp.array2d(dtype=Any), scratch: wp.array2d(dtype=Any)
):
    """Write what `solver_vjp` writes, if contacts are compliant, and tell by 1."""
    if job.settings.compliant == 1:
        compliant_multiplier(job, nc, ns, w, adj_parameters, scratch)
    return job.settings.compliant


collide_all = rebound(collide, "collide_all", collide_one=collide_any)
contact_problem_all = rebound(contact_problem, "contact_problem_all", collide=collide_all, soften=soften_any)
resolve_all = rebound(resolve, "resolve_all", polish=polish_any, sweep=sweep_any)
step_all = rebound(step, "step_all", contact_problem=contact_problem_all, resolve=resolve_all)
step_vjp_all = rebound(step_vjp, "step_vjp_all", contact_vjp=any_contact_vjp, compliant_contact_vjp=any_compliant_vjp)
retrace_all = rebound(
    retrace, "retrace_all", contact_problem=contact_problem_all, resolve=resolve_all, step_vjp=step_vjp_all
)


@made_once
def velocity_jacobian_all() -> Any:
    """Return what a linearisation calls."""
    from pullback.rigid.linearize.contact_kernels import add_contact_change, write_maps
    from pullback.rigid.linearize.solve_kernels import velocity_jacobian

    maps = rebound(write_maps, "write_maps_all", contact_vjp=any_contact_vjp)
    change = rebound(add_contact_change, "add_contact_change_all", write_maps=maps)
    return rebound(velocity_jacobian, "velocity_jacobian_all", add_contact_change=change)

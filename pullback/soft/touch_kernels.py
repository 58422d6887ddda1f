"""Shapes of bodies against nodes of the grid, and the impulses between them: docs/derivations/soft_coupling.md.

A piece of the slots is one thread's work on a CPU, so that sums come out the same on any number of threads; on a GPU a
piece is one row of an arena, and sums are atomic.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.grid_kernels import grid_kernels
from pullback.soft.shape_kernels import FRICTION, ORIGIN, SPIN, VELOCITY, shape_functions
from pullback.soft.variant_kernels import SLIP, STICK, Variant

# what a shape gets: torque about its origin, force, mass of the nodes in its reach
TOUCH_NUMBERS = 7
TOUCHED_MASS = wp.constant(6)


@made_once
def touch_kernels(variant: Variant) -> SimpleNamespace:
    """Return the kernels that move nodes where there are shapes, and their vjp; in space."""
    types, module = variant.types, variant.module("touch")
    real, vec, row = variant.real, types.vec, types.row
    dim, arena = variant.dim, variant.arena
    Job, Grid = types.Job, types.Grid
    shared, shapes = grid_kernels(variant), shape_functions(variant)
    Place, load, add, rotation_of = shapes.Place, shapes.load, shapes.add, shapes.rotation_of
    place_of, place_vjp = shapes.place_of, shapes.place_vjp
    answers, place_in_arena, copies_of = shared.answers, shared.place_in_arena, shared.copies_of
    added_up, write_all, node_position = shared.added_up, shared.write_all, shared.node_position
    through_walls, through_walls_vjp = shared.through_walls, shared.through_walls_vjp

    class Touch:
        """`count` shapes a world; numbers (B count, 23), sums (parts, B count, 7 or 23) as rows of numbers."""

        count: wp.int32
        parts: wp.int32
        geometry: wp.array(dtype=wp.int32)
        law: wp.array(dtype=wp.int32)
        numbers: wp.array2d(dtype=real)
        sums: wp.array3d(dtype=real)
        adj_touch: wp.array2d(dtype=real)
        adj_numbers: wp.array3d(dtype=real)

    class Meeting:
        """A node and a shape: eq. (1) to (4); reach s, its slope by the distance in cells, and what slides."""

        at: Place
        normal: vec
        reach: real
        slope: real
        u: vec
        un: real
        ut: vec
        slip_length: real
        kept: real
        after: vec

    Touch = wp.struct(Touch, module=module)
    Meeting = wp.struct(Meeting, module=module)

    @wp.func(module=module)
    def meet(job: Job, touch: Touch, k: int, X: vec, v: vec):
        """Return how a node meets the shape in row k, eq. (1) to (4); reach 0: it does not."""
        m = Meeting()
        shape = k % touch.count
        m.at = place_of(touch.geometry[shape], touch.numbers, k, X)
        t = real(0.5) - m.at.distance * job.inverse
        if t > real(0.0):
            m.reach = real(1.0)
            if t < real(1.0):
                m.reach = t * t * t * (real(10.0) - real(15.0) * t + real(6.0) * t * t)
                m.slope = -real(30.0) * t * t * (real(1.0) - t) * (real(1.0) - t)
            m.normal = rotation_of(touch.numbers, k) * m.at.normal
            m.u = v - load(touch.numbers, k, VELOCITY) - wp.cross(load(touch.numbers, k, SPIN), m.at.d)
            m.un = wp.dot(m.normal, m.u)
            m.ut = m.u - m.un * m.normal
            law = touch.law[shape]
            m.after = m.u
            if law == STICK:
                m.after = vec()
            elif law == SLIP:
                m.kept = real(1.0)
                m.after = m.ut
            elif m.un < real(0.0):
                mu = touch.numbers[k, FRICTION]
                m.kept = real(1.0)
                if mu > real(0.0):
                    m.slip_length = wp.length(m.ut)
                    m.kept = real(0.0)
                    if m.slip_length + mu * m.un > real(0.0):
                        m.kept = real(1.0) + mu * m.un / m.slip_length
                m.after = m.kept * m.ut
        return m

    @wp.func(module=module)
    def through_shapes(job: Job, touch: Touch, first: int, count: int, X: vec, v: vec):
        """Return the velocity that the first `count` shapes leave, eq. (5)."""
        for k in range(first, first + count):
            m = meet(job, touch, k, X, v)
            if m.reach > real(0.0):
                v = v + m.reach * (m.after - m.u)
        return v

    @wp.func(module=module)
    def touched(job: Job, touch: Touch, part: int, first: int, X: vec, v: vec, mass: real):
        """Return the velocity that all shapes leave, and add what they got, eq. (6)."""
        for k in range(first, first + touch.count):
            m = meet(job, touch, k, X, v)
            if m.reach > real(0.0):
                change = m.reach * (m.after - m.u)
                j = -mass * change
                add(touch.sums, part, k, 0, wp.cross(m.at.d, j))
                add(touch.sums, part, k, 3, j)
                wp.atomic_add(touch.sums, part, k, int(TOUCHED_MASS), m.reach * mass)
                v = v + change
        return v

    @wp.func(module=module)
    def meeting_vjp(job: Job, touch: Touch, part: int, k: int, m: Meeting, g: vec):
        """Return the cotangent of v by way of u, given that of v', and add those of the shape, eq. (9) to (17)."""
        shape = k % touch.count
        mu = touch.numbers[k, FRICTION]
        w = load(touch.numbers, k, SPIN)
        adj_reach = wp.dot(g, m.after - m.u)
        a = m.reach * g
        adj_u = -a
        adj_n = vec()
        law = touch.law[shape]
        slides = law == SLIP or (law != STICK and m.un < real(0.0))
        if slides:
            if m.kept > real(0.0):
                adj_kept = real(0.0)
                c = m.kept * a
                adj_un = real(0.0)
                if m.slip_length > real(0.0):
                    adj_kept = wp.dot(a, m.ut)
                    ratio = m.un / m.slip_length
                    wp.atomic_add(touch.adj_numbers, part, k, int(FRICTION), adj_kept * ratio)
                    c = c - (adj_kept * mu * ratio / (m.slip_length * m.slip_length)) * m.ut
                    adj_un = adj_kept * mu / m.slip_length
                adj_un = adj_un - wp.dot(c, m.normal)
                adj_u = adj_u + c + adj_un * m.normal
                adj_n = adj_un * m.u - m.un * c
        elif law != STICK:
            adj_u = adj_u + a
        adj_b = -adj_u
        add(touch.adj_numbers, part, k, int(VELOCITY), adj_b)
        add(touch.adj_numbers, part, k, int(SPIN), wp.cross(m.at.d, adj_b))
        adj_d = wp.cross(adj_b, w)
        adj_distance = adj_reach * m.slope * job.inverse
        adj_d = adj_d + place_vjp(
            touch.geometry[shape], touch.numbers, touch.adj_numbers, part, k, m.at, adj_distance, adj_n
        )
        add(touch.adj_numbers, part, k, int(ORIGIN), -adj_d)
        return adj_u

    @wp.func(module=module)
    def touched_vjp(job: Job, touch: Touch, part: int, first: int, X: vec, v: vec, mass: real, g: vec):
        """Return the cotangents of the velocity before all shapes and of the node's mass, eq. (7), (8)."""
        adj_mass = real(0.0)
        for i in range(touch.count):
            k = first + touch.count - 1 - i
            before = through_shapes(job, touch, first, k - first, X, v)
            m = meet(job, touch, k, X, before)
            if m.reach > real(0.0):
                adj_torque = load(touch.adj_touch, k, 0)
                adj_j = load(touch.adj_touch, k, 3) + wp.cross(adj_torque, m.at.d)
                lost = m.reach * (m.u - m.after)
                adj_mass += wp.dot(adj_j, lost)
                add(touch.adj_numbers, part, k, int(ORIGIN), -mass * wp.cross(lost, adj_torque))
                g = g - mass * adj_j
                g = g + mass * adj_j + meeting_vjp(job, touch, part, k, m, g)
        return g, adj_mass

    @wp.func(module=module)
    def world_of(job: Job, grid: Grid, slot: int):
        blocks = int(1)
        for a in range(dim):
            blocks = blocks * job.blocks[a]
        return grid.keys[slot] // blocks

    @wp.func(module=module)
    def velocity_of(total: row):
        v = vec()
        for a in range(dim):
            v[a] = total[a] / total[dim]
        return v

    @wp.kernel(module=module)
    def touch_nodes(first: int, rows: int, pieces: int, job: Job, grid: Grid, touch: Touch):
        """Write velocity and mass of each node to all its copies, and add up what shapes get."""
        piece = first + wp.tid()
        for index in range((rows * piece) // pieces, (rows * (piece + 1)) // pieces):
            slot = index // arena
            n = index - slot * arena
            if slot < grid.count[0]:
                if answers(grid, slot, n):
                    place = place_in_arena(n)
                    at = copies_of(grid, slot, place)
                    total = added_up(grid.momentum, at)
                    after = row()
                    if total[dim] > real(0.0):
                        X = node_position(job, grid, slot, place)
                        shapes = world_of(job, grid, slot) * touch.count
                        v = touched(job, touch, piece % touch.parts, shapes, X, velocity_of(total), total[dim])
                        v = through_walls(job, X, v, job.walls.shape[0])
                        for a in range(dim):
                            after[a] = v[a]
                        after[dim] = total[dim]
                    write_all(grid.velocity, at, after)

    @wp.kernel(module=module)
    def touch_nodes_vjp(first: int, rows: int, pieces: int, job: Job, grid: Grid, touch: Touch):
        """Turn the cotangents of velocities into those of momentum and mass, and add up those of the shapes."""
        piece = first + wp.tid()
        for index in range((rows * piece) // pieces, (rows * (piece + 1)) // pieces):
            slot = index // arena
            n = index - slot * arena
            if slot < grid.count[0]:
                if answers(grid, slot, n):
                    place = place_in_arena(n)
                    at = copies_of(grid, slot, place)
                    total = added_up(grid.momentum, at)
                    mass = total[dim]
                    after = row()
                    if mass > real(0.0):
                        cotangent = added_up(grid.cotangent, at)
                        g = vec()
                        for a in range(dim):
                            g[a] = cotangent[a]
                        v = velocity_of(total)
                        X = node_position(job, grid, slot, place)
                        shapes = world_of(job, grid, slot) * touch.count
                        part = piece % touch.parts
                        g = through_walls_vjp(job, X, through_shapes(job, touch, shapes, touch.count, X, v), g)
                        g, adj_mass = touched_vjp(job, touch, part, shapes, X, v, mass, g)
                        for a in range(dim):
                            after[a] = g[a] / mass
                        after[dim] = adj_mass - wp.dot(g, v) / mass
                    write_all(grid.cotangent, at, after)

    return SimpleNamespace(Touch=Touch, touch_nodes=touch_nodes, touch_nodes_vjp=touch_nodes_vjp)

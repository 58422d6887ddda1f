"""Shapes of bodies against nodes of the grid, and the impulses between them: docs/derivations/soft_coupling.md.

A piece of the slots is one thread's work on a CPU, so that sums come out the same on any number of threads; on a GPU a
piece is one row of an arena, and sums are atomic.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.grid_kernels import grid_kernels
from pullback.soft.variant_kernels import SLIP, STICK, Variant

# numbers of a shape: origin, rotation by rows, velocity, angular velocity, half extents of the core, radius, friction
ORIGIN = wp.constant(0)
ROTATION = wp.constant(3)
VELOCITY = wp.constant(12)
SPIN = wp.constant(15)
EXTENT = wp.constant(18)
RADIUS = wp.constant(21)
FRICTION = wp.constant(22)
SHAPE_NUMBERS = 23

# what a shape gets: torque about its origin, force, mass of the nodes in its reach
TOUCH_NUMBERS = 7
TOUCHED_MASS = wp.constant(6)

# geometries
CORE = wp.constant(0)
PLANE = wp.constant(1)
CYLINDER = wp.constant(2)


@made_once
def touch_kernels(variant: Variant) -> SimpleNamespace:
    """Return the kernels that move nodes where there are shapes, and their vjp; in space."""
    types, module = variant.types, variant.module("touch")
    real, vec, mat, row = variant.real, types.vec, types.mat, types.row
    dim, arena = variant.dim, variant.arena
    Job, Grid = types.Job, types.Grid
    shared = grid_kernels(variant)
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

        d: vec
        x: vec
        length: real
        normal_there: vec
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
    def load(numbers: wp.array2d(dtype=real), k: int, first: int):
        return vec(numbers[k, first], numbers[k, first + 1], numbers[k, first + 2])

    @wp.func(module=module)
    def rotation_of(numbers: wp.array2d(dtype=real), k: int):
        R = mat()
        for a in range(dim):
            for b in range(dim):
                R[a, b] = numbers[k, ROTATION + dim * a + b]
        return R

    @wp.func(module=module)
    def outside_of_box(x: vec, e: vec):
        """Return x - clamp(x, -e, e), and inside the way out through the nearest face and minus its length."""
        y = vec()
        out = vec()
        face = int(0)
        nearest = real(-1.0e30)
        for a in range(dim):
            beyond = wp.abs(x[a]) - e[a]
            if beyond > real(0.0):
                y[a] = wp.sign(x[a]) * beyond
            if beyond > nearest:
                nearest = beyond
                face = a
        out[face] = wp.sign(x[face])
        return y, out, nearest

    @wp.func(module=module)
    def outside_of_cylinder(x: vec, e: vec):
        """Return the same for a cylinder along z of radius e_x and half length e_z."""
        y = vec()
        out = vec()
        rho = wp.sqrt(x[0] * x[0] + x[1] * x[1])
        beyond = rho - e[0]
        above = wp.abs(x[2]) - e[2]
        if beyond > real(0.0):
            y[0] = beyond * x[0] / rho
            y[1] = beyond * x[1] / rho
        if above > real(0.0):
            y[2] = wp.sign(x[2]) * above
        if beyond > above and rho > real(0.0):
            out[0] = x[0] / rho
            out[1] = x[1] / rho
        else:
            out[2] = wp.sign(x[2])
        return y, out, wp.max(beyond, above)

    @wp.func(module=module)
    def meet(job: Job, touch: Touch, k: int, X: vec, v: vec):
        """Return how a node meets the shape in row k, eq. (1) to (4); reach 0: it does not."""
        m = Meeting()
        shape = k % touch.count
        m.d = X - load(touch.numbers, k, ORIGIN)
        R = rotation_of(touch.numbers, k)
        m.x = wp.transpose(R) * m.d
        distance = m.x[2]
        there = vec(real(0.0), real(0.0), real(1.0))
        if touch.geometry[shape] != PLANE:
            e = load(touch.numbers, k, EXTENT)
            y, out, inside = outside_of_box(m.x, e)
            if touch.geometry[shape] == CYLINDER:
                y, out, inside = outside_of_cylinder(m.x, e)
            m.length = wp.length(y)
            distance = m.length - touch.numbers[k, RADIUS]
            there = out
            if m.length > real(0.0):
                there = y / m.length
            else:
                distance = inside - touch.numbers[k, RADIUS]
        m.normal_there = there
        t = real(0.5) - distance * job.inverse
        if t > real(0.0):
            m.reach = real(1.0)
            if t < real(1.0):
                m.reach = t * t * t * (real(10.0) - real(15.0) * t + real(6.0) * t * t)
                m.slope = -real(30.0) * t * t * (real(1.0) - t) * (real(1.0) - t)
            m.normal = R * m.normal_there
            m.u = v - load(touch.numbers, k, VELOCITY) - wp.cross(load(touch.numbers, k, SPIN), m.d)
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
    def add(sums: wp.array3d(dtype=real), part: int, k: int, first: int, x: vec):
        for a in range(dim):
            wp.atomic_add(sums, part, k, first + a, x[a])

    @wp.func(module=module)
    def touched(job: Job, touch: Touch, part: int, first: int, X: vec, v: vec, mass: real):
        """Return the velocity that all shapes leave, and add what they got, eq. (6)."""
        for k in range(first, first + touch.count):
            m = meet(job, touch, k, X, v)
            if m.reach > real(0.0):
                change = m.reach * (m.after - m.u)
                j = -mass * change
                add(touch.sums, part, k, 0, wp.cross(m.d, j))
                add(touch.sums, part, k, 3, j)
                wp.atomic_add(touch.sums, part, k, int(TOUCHED_MASS), m.reach * mass)
                v = v + change
        return v

    @wp.func(module=module)
    def radial_vjp(touch: Touch, part: int, k: int, m: Meeting, adj: vec):
        """Return the cotangent of x from that of y, or in the core of the normal, across the axis of a cylinder."""
        adj_x = vec()
        rho = wp.sqrt(m.x[0] * m.x[0] + m.x[1] * m.x[1])
        if rho > real(0.0):
            out = vec(m.x[0] / rho, m.x[1] / rho, real(0.0))
            along = wp.dot(out, adj)
            across = vec(adj[0], adj[1], real(0.0)) - along * out
            beyond = rho - touch.numbers[k, EXTENT]
            if m.length > real(0.0) and beyond > real(0.0):
                adj_x = (beyond / rho) * across + along * out
                wp.atomic_add(touch.adj_numbers, part, k, int(EXTENT), -along)
            elif m.length == real(0.0) and m.normal_there[2] == real(0.0):
                adj_x = across / rho
        return adj_x

    @wp.func(module=module)
    def meeting_vjp(job: Job, touch: Touch, part: int, k: int, m: Meeting, g: vec):
        """Return the cotangent of v by way of u, given that of v', and add those of the shape, eq. (9) to (17)."""
        shape = k % touch.count
        mu = touch.numbers[k, FRICTION]
        R = rotation_of(touch.numbers, k)
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
        add(touch.adj_numbers, part, k, int(SPIN), wp.cross(m.d, adj_b))
        adj_d = wp.cross(adj_b, w)
        adj_R = wp.outer(adj_n, m.normal_there)
        adj_distance = adj_reach * m.slope * job.inverse
        adj_x = vec()
        if touch.geometry[shape] == PLANE:
            adj_x[2] = adj_distance
        elif m.length > real(0.0):
            adj_there = wp.transpose(R) * adj_n
            adj_y = adj_distance * m.normal_there
            adj_y = adj_y + (adj_there - wp.dot(m.normal_there, adj_there) * m.normal_there) / m.length
            wp.atomic_add(touch.adj_numbers, part, k, int(RADIUS), -adj_distance)
            for b in range(dim):
                if b == 2 or touch.geometry[shape] == CORE:
                    if wp.abs(m.x[b]) > touch.numbers[k, EXTENT + b]:
                        adj_x[b] = adj_y[b]
                        wp.atomic_add(touch.adj_numbers, part, k, EXTENT + b, -wp.sign(m.x[b]) * adj_y[b])
            if touch.geometry[shape] == CYLINDER:
                adj_x = adj_x + radial_vjp(touch, part, k, m, adj_y)
        elif touch.geometry[shape] == CYLINDER:
            adj_x = radial_vjp(touch, part, k, m, wp.transpose(R) * adj_n)
        adj_R = adj_R + wp.outer(m.d, adj_x)
        adj_d = adj_d + R * adj_x
        add(touch.adj_numbers, part, k, int(ORIGIN), -adj_d)
        for b in range(dim):
            for c in range(dim):
                wp.atomic_add(touch.adj_numbers, part, k, ROTATION + dim * b + c, adj_R[b, c])
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
                adj_j = load(touch.adj_touch, k, 3) + wp.cross(adj_torque, m.d)
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

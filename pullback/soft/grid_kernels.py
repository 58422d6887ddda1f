"""Velocities of the nodes, and their vjp: eq. (8), (12), (16), (21) of docs/derivations/mpm.md.

A thread takes one row of an arena. A node has a copy in up to 2^d arenas; the row in the first of them, in the order of
blocks, adds all up and answers for all.
"""

from functools import cache
from itertools import product
from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.variant_kernels import EDGE, SLIP, STICK, Variant

ON_WALL = wp.constant(1e-3)
"""Distance from a wall, in cells, at which a node lies on it."""


@cache
def blocks_before(variant: Variant) -> list[int]:
    """Return for each node of an arena, as bits, the neighbours that have a copy of it and come before its own block.

    Bit k is the k-th of the 3^d blocks about one, its own the middle one, as `neighbours` has them.
    """
    dim, edge = variant.dim, EDGE[variant.dim]
    masks = []
    for place in product(range(variant.side), repeat=dim):
        steps = [(-1, 0) if c < 2 else (0, 1) if c >= edge else (0,) for c in place]
        codes = [sum((step + 1) * 3 ** (dim - 1 - a) for a, step in enumerate(move)) for move in product(*steps)]
        masks.append(sum(1 << code for code in codes if code < 3**dim // 2))
    return masks


@made_once
def grid_kernels(variant: Variant) -> SimpleNamespace:
    """Return the kernels over rows of arenas."""
    types, module = variant.types, variant.module("grid")
    real, vec, row, ints = variant.real, types.vec, types.row, types.ints
    dim, side, arena = variant.dim, variant.side, variant.arena
    Job, Grid = types.Job, types.Grid
    edge = EDGE[dim]
    copies, kinds = 2**dim, 3**dim
    several = wp.types.vector(copies, wp.int32)
    offset_at, friction_at, kind_at = dim, dim + 1, dim + 2

    @wp.func(module=module)
    def is_behind(job: Job, wall: types.wall, X: vec):
        distance = -wall[offset_at]
        for a in range(dim):
            distance += wall[a] * X[a]
        # nodes that lie on a wall belong to it, however they were rounded
        return distance <= real(ON_WALL) * job.cell

    @wp.func(module=module)
    def normal_of(wall: types.wall):
        n = vec()
        for a in range(dim):
            n[a] = wall[a]
        return n

    @wp.func(module=module)
    def held(wall: types.wall, v: vec):
        """Return the velocity of a node in a wall, eq. (12)."""
        kind = int(wall[kind_at])
        n = normal_of(wall)
        vn = wp.dot(n, v)
        vt = v - vn * n
        after = v
        if kind == STICK:
            after = vec()
        elif kind == SLIP:
            after = vt
        elif vn < real(0.0):
            length = wp.length(vt)
            slowed = length + wall[friction_at] * vn
            after = vec()
            if slowed > real(0.0):
                after = (slowed / length) * vt
        return after

    @wp.func(module=module)
    def held_vjp(wall: types.wall, v: vec, g: vec):
        """Return the cotangent of the velocity before a wall, eq. (21)."""
        kind = int(wall[kind_at])
        n = normal_of(wall)
        vn = wp.dot(n, v)
        adj = g
        if kind == STICK:
            adj = vec()
        elif kind == SLIP:
            adj = g - wp.dot(n, g) * n
        elif vn < real(0.0):
            vt = v - vn * n
            length = wp.length(vt)
            mu = wall[friction_at]
            adj = vec()
            if length + mu * vn > real(0.0):
                t = vt / length
                along = wp.dot(t, g)
                adj = g + (mu * vn / length) * (g - along * t)
                adj = adj + (mu * along - wp.dot(n, adj)) * n
        return adj

    @wp.func(module=module)
    def through_walls(job: Job, X: vec, v: vec, count: int):
        for k in range(count):
            wall = job.walls[k]
            if is_behind(job, wall, X):
                v = held(wall, v)
        return v

    @wp.func(module=module)
    def through_walls_vjp(job: Job, X: vec, v: vec, g: vec):
        count = job.walls.shape[0]
        for k in range(count):
            last = count - 1 - k
            wall = job.walls[last]
            if is_behind(job, wall, X):
                g = held_vjp(wall, through_walls(job, X, v, last), g)
        return g

    @wp.func(module=module)
    def place_in_arena(n: int):
        place = ints()
        for a in range(dim):
            place[dim - 1 - a] = n % side
            n = n // side
        return place

    @wp.func(module=module)
    def copy_at(grid: Grid, slot: int, place: ints, k: int):
        """Return the row of the k-th copy of a node, the lowest block first, -1 if there is none; k = 0 to 2^d - 1.

        Along each axis a node has one or two copies; bit a of k says which.
        """
        code = int(0)
        row_there = int(0)
        there = True
        for a in range(dim):
            step = int(0)
            bit = (k >> (dim - 1 - a)) & 1
            if place[a] < 2:
                # in the block below too
                step = bit - 1
            elif place[a] >= edge:
                step = bit
            elif bit == 1:
                there = False
            code = code * 3 + step + 1
            row_there = row_there * side + place[a] - step * edge
        found = int(-1)
        if there:
            other = grid.neighbours[slot * kinds + code]
            if other >= 0:
                found = other * arena + row_there
        return found

    @wp.func(module=module)
    def copies_of(grid: Grid, slot: int, place: ints):
        """Return the rows of all copies of a node, -1 where there is none."""
        at = several()
        for k in range(copies):
            at[k] = copy_at(grid, slot, place, k)
        return at

    @wp.func(module=module)
    def added_up(rows: wp.array(dtype=row), at: several):
        """Return the sum of all copies of a node."""
        total = row()
        for k in range(copies):
            if at[k] >= 0:
                total += rows[at[k]]
        return total

    @wp.func(module=module)
    def write_all(rows: wp.array(dtype=row), at: several, value: row):
        """Write to all copies of a node."""
        for k in range(copies):
            if at[k] >= 0:
                rows[at[k]] = value

    @wp.func(module=module)
    def answers(grid: Grid, slot: int, n: int):
        """Return whether no block that comes before has a copy of the arena's n-th node."""
        return (grid.about[slot] & grid.before[n]) == 0

    @wp.func(module=module)
    def node_position(job: Job, grid: Grid, slot: int, place: ints):
        rest = grid.keys[slot]
        X = vec()
        for a in range(dim):
            b = dim - 1 - a
            size = job.blocks[b]
            X[b] = job.origin[b] + job.cell * real((rest % size) * edge + place[b])
            rest = rest // size
        return X

    @wp.kernel(module=module)
    def clear(first: int, grid: Grid, rows: wp.array(dtype=row)):
        index = first + wp.tid()
        if index < grid.count[0] * arena:
            rows[index] = row()

    @wp.kernel(module=module)
    def move_nodes(first: int, job: Job, grid: Grid):
        """Write velocity and mass of each node to all its copies."""
        index = first + wp.tid()
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
                    v = vec()
                    for a in range(dim):
                        v[a] = total[a] / mass
                    v = through_walls(job, node_position(job, grid, slot, place), v, job.walls.shape[0])
                    for a in range(dim):
                        after[a] = v[a]
                    after[dim] = mass
                write_all(grid.velocity, at, after)

    @wp.kernel(module=module)
    def move_nodes_vjp(first: int, job: Job, grid: Grid):
        """Turn the cotangents of velocities into those of momentum and mass, eq. (16)."""
        index = first + wp.tid()
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
                    v = vec()
                    g = vec()
                    for a in range(dim):
                        v[a] = total[a] / mass
                        g[a] = cotangent[a]
                    g = through_walls_vjp(job, node_position(job, grid, slot, place), v, g)
                    for a in range(dim):
                        after[a] = g[a] / mass
                    after[dim] = -wp.dot(g, v) / mass
                write_all(grid.cotangent, at, after)

    return SimpleNamespace(
        clear=clear,
        move_nodes=move_nodes,
        move_nodes_vjp=move_nodes_vjp,
        answers=answers,
        place_in_arena=place_in_arena,
        copies_of=copies_of,
        added_up=added_up,
        write_all=write_all,
        node_position=node_position,
        through_walls=through_walls,
        through_walls_vjp=through_walls_vjp,
    )

"""Energy, forces and stiffness of elements, and their adjoint: docs/derivations/cloth.md, sections 2 and 4.

An element writes to rows of its own; `gather_kernels` adds them up by vertices and by blocks of the matrix.
"""

from types import SimpleNamespace
from typing import Any

import warp as wp

from pullback.core.modules import kernel_module, made_once
from pullback.soft.cloth.strain_kernels import KINDS, strain_functions


@made_once
def cloth_types(real: Any) -> SimpleNamespace:
    """Return the structs that all kernels take."""
    module = kernel_module("cloth_types", real)
    vec, mat = wp.types.vector(3, real), wp.types.matrix((3, 3), real)

    class Elements:
        """Elements of one kind, `count` in each world of `vertices` vertices, and where their rows begin.

        ends (count, v): their vertices; rest (count, r); numbers (B count, k). vectors, blocks, energies: rows in all
        of one world.
        """

        count: wp.int32
        vertices: wp.int32
        vectors: wp.int32
        blocks: wp.int32
        energies: wp.int32
        first_vector: wp.int32
        first_block: wp.int32
        first_energy: wp.int32
        rate: real
        ends: wp.array2d(dtype=wp.int32)
        rest: wp.array2d(dtype=real)
        numbers: wp.array2d(dtype=real)
        adj_numbers: wp.array2d(dtype=real)

    class Fields:
        """Positions after and before the step and multipliers (B n,); rows that elements write.

        project (B,): whether stiffness is made positive.
        """

        project: wp.array(dtype=wp.int32)
        x: wp.array(dtype=vec)
        before: wp.array(dtype=vec)
        multiplier: wp.array(dtype=vec)
        vector: wp.array(dtype=vec)
        block: wp.array(dtype=mat)
        energy: wp.array(dtype=real)

    return SimpleNamespace(
        real=real, vec=vec, mat=mat, **{c.__name__: wp.struct(c, module=module) for c in (Elements, Fields)}
    )


@made_once
def element_kernels(kind: str, real: Any) -> SimpleNamespace:
    """Return the kernels of one kind of element."""
    types, f = cloth_types(real), strain_functions(kind, real)
    Elements, Fields, vec, _mat, module = types.Elements, types.Fields, f.vec, f.mat, f.module
    X, S, rest_numbers, numbers = f.X, f.S, f.rest, f.numbers
    strain, slope, second, projected = f.strain, f.slope, f.second, f.projected
    weighted, weighted_vjp, at_rest, at_rest_vjp = f.weighted, f.weighted_vjp, f.at_rest, f.at_rest_vjp
    count, strains, rows = f.count, f.strains, len(f.rest())
    material, damping = KINDS[kind].numbers, KINDS[kind].damping

    @wp.func(module=module)
    def vertices_of(c: Elements, x: wp.array(dtype=vec), world: int, k: int):
        found = X()
        for i in range(count):
            found[i] = x[world * c.vertices + c.ends[k, i]]
        return found

    @wp.func(module=module)
    def rest_of(c: Elements, k: int):
        found = rest_numbers()
        for i in range(rows):
            found[i] = c.rest[k, i]
        return found

    @wp.func(module=module)
    def numbers_of(c: Elements, e: int):
        found = numbers()
        for i in range(material):
            found[i] = c.numbers[e, i]
        return found

    @wp.kernel(module=module)
    def evaluate(first: int, c: Elements, f: Fields):
        """Write energy, and where there is room forces (minus) and stiffness, eq. (2), (3), (13)."""
        e = first + wp.tid()
        world = e // c.count
        k = e - world * c.count
        x, x0, r, n = vertices_of(c, f.x, world, k), vertices_of(c, f.before, world, k), rest_of(c, k), numbers_of(c, e)
        s = strain(x, r)
        gone, moved = s - at_rest(n), s - strain(x0, r)
        beta = n[damping] * c.rate
        pull, drag = weighted(n, r, gone), weighted(n, r, moved)
        f.energy[world * c.energies + c.first_energy + k] = real(0.5) * (
            wp.dot(gone, pull) + beta * wp.dot(moved, drag)
        )
        sigma = pull + beta * drag
        if f.vector:
            at = world * c.vectors + c.first_vector + k * count
            for i in range(count):
                f.vector[at + i] = wp.transpose(slope(x, r, i)) * sigma
        if f.block:
            bent = sigma
            if f.project[world] != 0:
                bent = projected(sigma)
            place = world * c.blocks + c.first_block + k * count * count
            for i in range(count):
                G = slope(x, r, i)
                stiff = type(G)()
                for a in range(3):
                    column = S()
                    for m in range(strains):
                        column[m] = G[m, a]
                    column = (real(1.0) + beta) * weighted(n, r, column)
                    for m in range(strains):
                        stiff[m, a] = column[m]
                for j in range(i, count):
                    block = wp.transpose(stiff) * slope(x, r, j) + second(x, r, bent, i, j)
                    f.block[place + count * i + j] = block
                    f.block[place + count * j + i] = wp.transpose(block)

    @wp.kernel(module=module)
    def multiply(first: int, c: Elements, f: Fields):
        """Write the blocks times the multipliers of the element's vertices."""
        e = first + wp.tid()
        world = e // c.count
        k = e - world * c.count
        at = world * c.vectors + c.first_vector + k * count
        place = world * c.blocks + c.first_block + k * count * count
        for i in range(count):
            total = vec()
            for j in range(count):
                total = total + f.block[place + count * i + j] * f.multiplier[world * c.vertices + c.ends[k, j]]
            f.vector[at + i] = total

    @wp.kernel(module=module)
    def pull_back(first: int, c: Elements, f: Fields):
        """Add to the cotangents of numbers, and write those of positions before the step, eq. (19) to (21)."""
        e = first + wp.tid()
        world = e // c.count
        k = e - world * c.count
        x, x0, r, n = vertices_of(c, f.x, world, k), vertices_of(c, f.before, world, k), rest_of(c, k), numbers_of(c, e)
        s = strain(x, r)
        gone, moved = s - at_rest(n), s - strain(x0, r)
        beta = n[damping] * c.rate
        a = S()
        for i in range(count):
            a = a + slope(x, r, i) * f.multiplier[world * c.vertices + c.ends[k, i]]
        Ca = weighted(n, r, a)
        if c.adj_numbers:
            found = weighted_vjp(r, a, gone + beta * moved) - at_rest_vjp(n, Ca)
            found[damping] = found[damping] + c.rate * wp.dot(Ca, moved)
            for i in range(material):
                c.adj_numbers[e, i] = c.adj_numbers[e, i] - found[i]
        at = world * c.vectors + c.first_vector + k * count
        for i in range(count):
            f.vector[at + i] = beta * (wp.transpose(slope(x0, r, i)) * Ca)

    return SimpleNamespace(evaluate=evaluate, multiply=multiply, pull_back=pull_back)


@made_once
def gather_kernels(real: Any) -> SimpleNamespace:
    """Return the kernels that add up rows of elements."""
    types, module = cloth_types(real), kernel_module("cloth_gather", real)
    vec, mat = types.vec, types.mat

    class Sources:
        """For each of `count` sums of a world: which rows, of `rows` in a world, it adds; places of a block in CSC.

        starts (count + 1,), sources (m,); place (count, 2): first entry of the block, entries of its column.
        """

        count: wp.int32
        rows: wp.int32
        entries: wp.int32
        starts: wp.array(dtype=wp.int32)
        sources: wp.array(dtype=wp.int32)
        place: wp.array2d(dtype=wp.int32)

    Sources = wp.struct(Sources, module=module)

    @wp.kernel(module=module)
    def add_vectors(first: int, s: Sources, rows: wp.array(dtype=vec), sums: wp.array(dtype=vec)):
        item = first + wp.tid()
        world = item // s.count
        k = item - world * s.count
        total = vec()
        for q in range(s.starts[k], s.starts[k + 1]):
            total = total + rows[world * s.rows + s.sources[q]]
        sums[item] = total

    @wp.kernel(module=module)
    def add_blocks(first: int, s: Sources, rows: wp.array(dtype=mat), entries: wp.array(dtype=real)):
        item = first + wp.tid()
        world = item // s.count
        k = item - world * s.count
        total = mat()
        for q in range(s.starts[k], s.starts[k + 1]):
            total = total + rows[world * s.rows + s.sources[q]]
        at = world * s.entries + s.place[k, 0]
        for b in range(3):
            for a in range(3):
                entries[at + b * s.place[k, 1] + a] = total[a, b]

    return SimpleNamespace(Sources=Sources, add_vectors=add_vectors, add_blocks=add_blocks)

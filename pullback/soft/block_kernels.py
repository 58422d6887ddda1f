"""Which block each particle is in, and which slot each block has: section 6 of docs/derivations/mpm.md.

A key numbers the blocks of all worlds; `table` gives the slot of a key, -1: none. `count` holds how many slots are
taken, and whether there were too few. On a CPU `sort_blocks` is one thread's work, in the order of particles; a GPU's
threads claim slots as they come.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.variant_kernels import EDGE, LEFT, REASONS, Variant

CLAIMED = wp.constant(-2)


@made_once
def block_kernels(variant: Variant) -> SimpleNamespace:
    """Return the kernels that sort particles into blocks."""
    types, module = variant.types, variant.module("blocks")
    real, dim = variant.real, variant.dim
    Job, Points, Grid = types.Job, types.Points, types.Grid
    shift = EDGE[dim].bit_length() - 1
    kinds = 3**dim

    @wp.kernel(module=module)
    def find_keys(first: int, step: int, job: Job, points: Points, grid: Grid):
        """Write the lowest node about each particle, and the key of its block; -1 for what is outside or taken out."""
        p = first + wp.tid()
        x = points.x[p]
        key = p // job.particles
        base = types.ints()
        inside = grid.code[p] == 0
        for a in range(dim):
            s = (x[a] - job.origin[a]) * job.inverse - real(0.5)
            # written so that what is not a number is outside
            if s >= real(0.0) and s < real(job.nodes[a] - 2):
                base[a] = int(wp.floor(s))
            else:
                inside = False
            key = key * job.blocks[a] + (base[a] >> shift)
        if inside:
            grid.base[p] = base
            grid.key[p] = key
        else:
            grid.key[p] = -1
            grid.slot[p] = -1
            if grid.code[p] == 0:
                grid.code[p] = REASONS * step + LEFT

    @wp.kernel(module=module)
    def sort_blocks(first: int, particles: int, pieces: int, job: Job, grid: Grid):
        """Give slots to blocks, sort the particles by slot, and cut them into pieces of whole blocks; one thread."""
        for s in range(grid.count[0]):
            grid.table[grid.keys[s]] = -1
        slots = int(0)
        wanted = int(0)
        for p in range(particles):
            key = grid.key[p]
            if key >= 0:
                s = grid.table[key]
                if s < 0 and slots < job.capacity:
                    s = slots
                    slots += 1
                    grid.table[key] = s
                    grid.keys[s] = key
                    grid.cursor[s] = 0
                if s >= 0:
                    grid.cursor[s] = grid.cursor[s] + 1
                else:
                    wanted += 1
                grid.slot[p] = s
        total = int(0)
        for s in range(slots):
            size = grid.cursor[s]
            grid.cursor[s] = total
            total += size
        for p in range(particles):
            if grid.key[p] >= 0:
                s = grid.slot[p]
                if s >= 0:
                    q = grid.cursor[s]
                    grid.order[q] = p
                    grid.cursor[s] = q + 1
        # cursors now stand at the ends of the blocks
        piece = int(1)
        for s in range(slots):
            while piece < pieces and grid.cursor[s] >= (total * piece) // pieces:
                grid.pieces[piece] = grid.cursor[s]
                piece += 1
        while piece <= pieces:
            grid.pieces[piece] = total
            piece += 1
        grid.count[0] = slots
        if wanted > 0:
            grid.count[1] = wanted

    @wp.kernel(module=module)
    def forget_blocks(first: int, job: Job, grid: Grid):
        s = first + wp.tid()
        if s < wp.min(grid.count[0], job.capacity):
            grid.table[grid.keys[s]] = -1

    @wp.kernel(module=module)
    def claim_blocks(first: int, job: Job, grid: Grid):
        """Let the first particle of each block claim a slot."""
        p = first + wp.tid()
        key = grid.key[p]
        if key >= 0:
            if grid.table[key] == -1:
                if wp.atomic_cas(grid.table, key, -1, CLAIMED) == -1:
                    s = wp.atomic_add(grid.count, 0, 1)
                    if s < job.capacity:
                        grid.keys[s] = key
                        grid.table[key] = s
                    else:
                        grid.count[1] = 1
                        grid.table[key] = -1

    @wp.kernel(module=module)
    def read_slots(first: int, job: Job, grid: Grid):
        p = first + wp.tid()
        key = grid.key[p]
        if key >= 0:
            grid.slot[p] = grid.table[key]

    @wp.kernel(module=module)
    def find_neighbours(first: int, job: Job, grid: Grid):
        """Write the slots of the blocks about each, in the order of coordinates, -1 and no bit where there is none."""
        s = first + wp.tid()
        if s < grid.count[0]:
            key = grid.keys[s]
            place = types.ints()
            rest = key
            for a in range(dim):
                size = job.blocks[dim - 1 - a]
                place[dim - 1 - a] = rest % size
                rest = rest // size
            bits = int(0)
            for n in range(kinds):
                code = n
                other = int(0)
                stride = int(1)
                there = True
                for a in range(dim):
                    step = code % 3 - 1
                    code = code // 3
                    c = place[dim - 1 - a] + step
                    if c < 0 or c >= job.blocks[dim - 1 - a]:
                        there = False
                    other += step * stride
                    stride = stride * job.blocks[dim - 1 - a]
                found = int(-1)
                if there:
                    found = grid.table[key + other]
                grid.neighbours[s * kinds + n] = found
                if found >= 0:
                    bits = bits | (1 << n)
            grid.about[s] = bits

    return SimpleNamespace(
        find_keys=find_keys,
        sort_blocks=sort_blocks,
        forget_blocks=forget_blocks,
        claim_blocks=claim_blocks,
        read_slots=read_slots,
        find_neighbours=find_neighbours,
    )

"""Fields and samples as kernels read them: programs, grids and points on surfaces (docs/derivations/sdf.md).

A field is a program in post-order, INSTRUCTION integers an instruction:

    operation, first row of its parameters, what else it needs, place

What else: the first row of a leaf's placement (-1: none), or the left operand of UNION and INTERSECTION, counted from
the program's start; the right operand is always the instruction before. Place: the grid a leaf reads. Rows of
parameters, indexed [row, world] and counted from the field's own first row:

    a leaf                sizes (4), and if placed R row by row (9), p (3)
    UNION, INTERSECTION   radius of the blend
    OFFSET                radius
"""

import warp as wp

# leaves
ROUNDED = wp.constant(0)  # a box of points with a radius around it; sizes: half extents, radius
REVOLVED = wp.constant(1)  # a rectangle turned about z; sizes: half width, ring radius, half height, radius
HALFSPACE = wp.constant(2)  # all below z = 0
GRID = wp.constant(3)  # a sampled distance; sizes: scale
HEIGHTS = wp.constant(4)  # all below z = gain h(x, y); sizes: gain
# what combines them
UNION = wp.constant(5)
INTERSECTION = wp.constant(6)
NEGATE = wp.constant(7)
OFFSET = wp.constant(8)

INSTRUCTION = wp.constant(4)
SIZE_ROWS = wp.constant(4)
PLACEMENT_ROWS = wp.constant(12)

MAX_INSTRUCTIONS = 64
MAX_DEPTH = 6
"""Values that wait at once: a tree of 64 instructions has 32 leaves at most, of two operands the deeper comes first."""
STACK_ROWS = 4 * MAX_DEPTH
"""Rows of scratch that `field_value_gradient` needs."""
TAPE_ROWS = 2 * MAX_INSTRUCTIONS
"""Rows of scratch that `field_vjp` needs."""

LATTICE = wp.constant(4)
FRAME = wp.constant(6)
CLUSTER = wp.constant(4)
EDGE = wp.constant(6)
HALVINGS = wp.constant(6)
"""Points of an edge that are asked at most, halfway at first."""
PARTS = wp.constant(64)
"""Of an edge, 2 to the power of HALVINGS: its points in between are samples behind all others, PARTS an edge."""
PART = wp.constant(1.0 / 64.0)


@wp.struct
class Fields:
    """All fields, grids and sample sets of a scene, shared by its worlds."""

    code: wp.array(dtype=wp.int32)
    first: wp.array(dtype=wp.int32)  # field -> its first instruction; one more closes the last
    slope: wp.array(dtype=wp.float64)  # field -> a bound of its gradient's length, 0: none
    lattice: wp.array(dtype=wp.int32)  # grid -> numbers of samples along x, y, z (1: heights), its first coefficient
    frame: wp.array(dtype=wp.float64)  # grid -> position of its first sample, spacing
    coefficients: wp.array(dtype=wp.float32)  # of cubic B-splines, one more than samples on either side
    set_first: wp.array(dtype=wp.int32)  # sample set -> its first cluster; one more
    cluster_first: wp.array(dtype=wp.int32)  # cluster -> its first sample; one more
    cluster: wp.array(dtype=wp.float64)  # cluster -> centre (3), distance of its farthest sample or end of an edge
    sample: wp.array(dtype=wp.float64)  # sample -> position (3)
    edge_first: wp.array(dtype=wp.int32)  # cluster -> its first edge; one more
    edge: wp.array(dtype=wp.float64)  # edge -> start (3), the way to its end (3)

"""Shapes of bodies as soft bodies see them: distance and normal of a point, and their vjp.

docs/derivations/soft_coupling.md, eq. (1), (2) and (13) to (17).
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.variant_kernels import Variant

# numbers of a shape: origin, rotation by rows, velocity, angular velocity, half extents of the core, radius, friction
ORIGIN = wp.constant(0)
ROTATION = wp.constant(3)
VELOCITY = wp.constant(12)
SPIN = wp.constant(15)
EXTENT = wp.constant(18)
RADIUS = wp.constant(21)
FRICTION = wp.constant(22)
SHAPE_NUMBERS = 23

# geometries
CORE = wp.constant(0)
PLANE = wp.constant(1)
CYLINDER = wp.constant(2)


@made_once
def shape_functions(variant: Variant) -> SimpleNamespace:
    """Return the functions of shapes, in space; `numbers` are rows of 23 a shape."""
    types, module = variant.types, variant.module("shape")
    real, vec, mat, dim = variant.real, types.vec, types.mat, variant.dim

    class Place:
        """A point about a shape: from its origin, in its frame, from its core; distance and normal in its frame."""

        d: vec
        x: vec
        length: real
        distance: real
        normal: vec

    Place = wp.struct(Place, module=module)

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
    def add(sums: wp.array3d(dtype=real), part: int, k: int, first: int, x: vec):
        for a in range(dim):
            wp.atomic_add(sums, part, k, first + a, x[a])

    @wp.func(module=module)
    def place_of(geometry: int, numbers: wp.array2d(dtype=real), k: int, X: vec):
        """Return where a point X is about the shape in row k, eq. (1), (2)."""
        m = Place()
        m.d = X - load(numbers, k, ORIGIN)
        m.x = wp.transpose(rotation_of(numbers, k)) * m.d
        m.distance = m.x[2]
        m.normal = vec(real(0.0), real(0.0), real(1.0))
        if geometry != PLANE:
            e = load(numbers, k, EXTENT)
            y, out, inside = outside_of_box(m.x, e)
            if geometry == CYLINDER:
                y, out, inside = outside_of_cylinder(m.x, e)
            m.length = wp.length(y)
            m.distance = m.length - numbers[k, RADIUS]
            m.normal = out
            if m.length > real(0.0):
                m.normal = y / m.length
            else:
                m.distance = inside - numbers[k, RADIUS]
        return m

    @wp.func(module=module)
    def radial_vjp(
        numbers: wp.array2d(dtype=real), adj_numbers: wp.array3d(dtype=real), part: int, k: int, m: Place, adj: vec
    ):
        """Return the cotangent of x from that of y, or in the core of the normal, across the axis of a cylinder."""
        adj_x = vec()
        rho = wp.sqrt(m.x[0] * m.x[0] + m.x[1] * m.x[1])
        if rho > real(0.0):
            out = vec(m.x[0] / rho, m.x[1] / rho, real(0.0))
            along = wp.dot(out, adj)
            across = vec(adj[0], adj[1], real(0.0)) - along * out
            beyond = rho - numbers[k, EXTENT]
            if m.length > real(0.0) and beyond > real(0.0):
                adj_x = (beyond / rho) * across + along * out
                wp.atomic_add(adj_numbers, part, k, int(EXTENT), -along)
            elif m.length == real(0.0) and m.normal[2] == real(0.0):
                adj_x = across / rho
        return adj_x

    @wp.func(module=module)
    def place_vjp(
        geometry: int,
        numbers: wp.array2d(dtype=real),
        adj_numbers: wp.array3d(dtype=real),
        part: int,
        k: int,
        m: Place,
        adj_distance: real,
        adj_n: vec,
    ):
        """Return the cotangent of the point given those of distance and normal (in the world's axes).

        Those of rotation and sizes are added; that of the origin is minus what is returned, eq. (13) to (17).
        """
        R = rotation_of(numbers, k)
        adj_R = wp.outer(adj_n, m.normal)
        adj_x = vec()
        if geometry == PLANE:
            adj_x[2] = adj_distance
        elif m.length > real(0.0):
            adj_there = wp.transpose(R) * adj_n
            adj_y = adj_distance * m.normal
            adj_y = adj_y + (adj_there - wp.dot(m.normal, adj_there) * m.normal) / m.length
            wp.atomic_add(adj_numbers, part, k, int(RADIUS), -adj_distance)
            for b in range(dim):
                if b == 2 or geometry == CORE:
                    if wp.abs(m.x[b]) > numbers[k, EXTENT + b]:
                        adj_x[b] = adj_y[b]
                        wp.atomic_add(adj_numbers, part, k, EXTENT + b, -wp.sign(m.x[b]) * adj_y[b])
            if geometry == CYLINDER:
                adj_x = adj_x + radial_vjp(numbers, adj_numbers, part, k, m, adj_y)
        else:
            if geometry == CYLINDER:
                adj_x = radial_vjp(numbers, adj_numbers, part, k, m, wp.transpose(R) * adj_n)
            # in the core the way out is through a face, and no further than that
            adj_x = adj_x + adj_distance * m.normal
            wp.atomic_add(adj_numbers, part, k, int(RADIUS), -adj_distance)
            for b in range(dim):
                if geometry == CORE and m.normal[b] != real(0.0):
                    wp.atomic_add(adj_numbers, part, k, EXTENT + b, -adj_distance)
            if geometry == CYLINDER:
                face = int(EXTENT)
                if m.normal[2] != real(0.0):
                    face = int(EXTENT) + 2
                wp.atomic_add(adj_numbers, part, k, face, -adj_distance)
        adj_R = adj_R + wp.outer(m.d, adj_x)
        for b in range(dim):
            for c in range(dim):
                wp.atomic_add(adj_numbers, part, k, ROTATION + dim * b + c, adj_R[b, c])
        return R * adj_x

    @wp.func(module=module)
    def curvature_of(geometry: int, numbers: wp.array2d(dtype=real), k: int, m: Place):
        """Return the second derivative of the distance by the point, in the world's axes, eq. (15) of cloth.md."""
        J = mat()
        across = real(0.0)
        rho = wp.sqrt(m.x[0] * m.x[0] + m.x[1] * m.x[1])
        if geometry == CYLINDER and rho > real(0.0):
            beyond = rho - numbers[k, EXTENT]
            out = vec(m.x[0] / rho, m.x[1] / rho, real(0.0))
            if m.length > real(0.0) and beyond > real(0.0):
                J = wp.outer(out, out)
                across = beyond / rho
            elif m.length == real(0.0) and m.normal[2] == real(0.0):
                across = real(1.0) / rho
            side = vec(-out[1], out[0], real(0.0))
            J = J + across * wp.outer(side, side)
        if geometry != PLANE and m.length > real(0.0):
            for b in range(dim):
                if (b == 2 or geometry == CORE) and wp.abs(m.x[b]) > numbers[k, EXTENT + b]:
                    J[b, b] = J[b, b] + real(1.0)
            J = (J - wp.outer(m.normal, m.normal)) / m.length
        R = rotation_of(numbers, k)
        return R * J * wp.transpose(R)

    return SimpleNamespace(
        curvature_of=curvature_of,
        Place=Place,
        load=load,
        add=add,
        rotation_of=rotation_of,
        place_of=place_of,
        place_vjp=place_vjp,
    )

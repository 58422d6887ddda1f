"""Vertices against shapes of bodies: push, friction, their stiffness and adjoint; docs/derivations/cloth.md, section 3.

A thread takes a vertex on the way forward; what shapes get and their cotangents are summed by one thread a shape.
"""

from types import SimpleNamespace

import warp as wp

from pullback.core.modules import made_once
from pullback.soft.cloth.element_kernels import cloth_types
from pullback.soft.shape_kernels import FRICTION, ORIGIN, SPIN, VELOCITY, shape_functions
from pullback.soft.variant_kernels import Variant


@made_once
def contact_kernels(variant: Variant) -> SimpleNamespace:
    """Return the kernels of contact, in space."""
    module, shapes = variant.module("cloth_contact"), shape_functions(variant)
    real, vec, mat = variant.real, variant.types.vec, variant.types.mat
    Fields = cloth_types(real).Fields
    Place, load, add, rotation_of = shapes.Place, shapes.load, shapes.add, shapes.rotation_of
    place_of, place_vjp, curvature_of = shapes.place_of, shapes.place_vjp, shapes.curvature_of

    class Contact:
        """`count` shapes a world; where they are before and after the step (B count, 23), and what comes of it.

        vertices, vectors, blocks, energies: of one world, as in `Elements`. reach [m], stiffness [N/m], slip: length of
        slip at which friction is 0.7 of its limit [m]. touch (1, B count, 7): impulse and torque about the origin
        before the step, and the mass that would swing against it.
        """

        count: wp.int32
        vertices: wp.int32
        vectors: wp.int32
        blocks: wp.int32
        energies: wp.int32
        dt: real
        reach: real
        stiffness: real
        slip: real
        geometry: wp.array(dtype=wp.int32)
        before: wp.array2d(dtype=real)
        after: wp.array2d(dtype=real)
        touch: wp.array3d(dtype=real)
        adj_touch: wp.array2d(dtype=real)
        adj_before: wp.array3d(dtype=real)
        adj_after: wp.array3d(dtype=real)
        adj_x: wp.array(dtype=vec)
        adj_x0: wp.array(dtype=vec)

    class Rub:
        """What friction of a vertex knows, eq. (16): limit, normal, slip and its softened length."""

        at: Place
        depth: real
        limit: real
        normal: vec
        moved: vec
        slip: vec
        length: real

    Contact, Rub = wp.struct(Contact, module=module), wp.struct(Rub, module=module)

    @wp.func(module=module)
    def depth_of(c: Contact, m: Place):
        return wp.max(c.reach - m.distance, real(0.0))

    @wp.func(module=module)
    def rub_of(c: Contact, k: int, x0: vec, x: vec):
        """Return eq. (16)."""
        rub = Rub()
        rub.at = place_of(c.geometry[k % c.count], c.before, k, x0)
        rub.depth = depth_of(c, rub.at)
        rub.limit = c.before[k, FRICTION] * c.stiffness * rub.depth * rub.depth / c.reach
        rub.normal = rotation_of(c.before, k) * rub.at.normal
        carried = load(c.before, k, VELOCITY) + wp.cross(load(c.before, k, SPIN), rub.at.d)
        rub.moved = x - x0 - c.dt * carried
        rub.slip = rub.moved - wp.dot(rub.normal, rub.moved) * rub.normal
        rub.length = wp.sqrt(wp.dot(rub.slip, rub.slip) + c.slip * c.slip)
        return rub

    @wp.kernel(module=module)
    def push(first: int, c: Contact, f: Fields):
        """Add energy, forces (minus) and stiffness of contact to the rows of vertices, eq. (14) to (18)."""
        v = first + wp.tid()
        world = v // c.vertices
        i = v - world * c.vertices
        energy, force, block = real(0.0), vec(), mat()
        for k in range(world * c.count, (world + 1) * c.count):
            geometry = c.geometry[k - world * c.count]
            m = place_of(geometry, c.after, k, f.x[v])
            depth = depth_of(c, m)
            if depth > real(0.0):
                n = rotation_of(c.after, k) * m.normal
                press = c.stiffness * depth * depth / c.reach
                energy = energy + press * depth / real(3.0)
                force = force - press * n
                block = block + (real(2.0) * c.stiffness * depth / c.reach) * wp.outer(n, n)
                if f.project[world] == 0:
                    block = block - press * curvature_of(geometry, c.after, k, m)
            rub = rub_of(c, k, f.before[v], f.x[v])
            if rub.limit > real(0.0):
                energy = energy + rub.limit * (rub.length - c.slip)
                force = force + (rub.limit / rub.length) * rub.slip
                along = rub.slip / rub.length
                flat = wp.diag(vec(real(1.0), real(1.0), real(1.0))) - wp.outer(rub.normal, rub.normal)
                block = block + (rub.limit / rub.length) * (flat - wp.outer(along, along))
        at = world * c.energies + i
        f.energy[at] = f.energy[at] + energy
        if f.vector:
            at = world * c.vectors + i
            f.vector[at] = f.vector[at] + force
        if f.block:
            at = world * c.blocks + i
            f.block[at] = f.block[at] + block

    @wp.kernel(module=module)
    def shape_impulses(first: int, c: Contact, f: Fields):
        """Add up the impulses on a shape in the step, eq. (23)."""
        k = first + wp.tid()
        world = k // c.count
        for v in range(world * c.vertices, (world + 1) * c.vertices):
            m = place_of(c.geometry[k - world * c.count], c.after, k, f.x[v])
            depth = depth_of(c, m)
            rub = rub_of(c, k, f.before[v], f.x[v])
            if depth > real(0.0) or rub.limit > real(0.0):
                n = rotation_of(c.after, k) * m.normal
                stiff = real(2.0) * c.stiffness * depth / c.reach
                j = -c.dt * (real(0.5) * stiff * depth * n - (rub.limit / rub.length) * rub.slip)
                add(c.touch, 0, k, 0, wp.cross(rub.at.d, j))
                add(c.touch, 0, k, 3, j)
                wp.atomic_add(c.touch, 0, k, 6, real(0.75) * c.dt * c.dt * stiff)

    @wp.kernel(module=module)
    def shape_impulses_vjp(first: int, c: Contact, f: Fields):
        """Add to the cotangents of positions after the step what comes by way of impulses on shapes, eq. (25)."""
        v = first + wp.tid()
        world = v // c.vertices
        total = vec()
        for k in range(world * c.count, (world + 1) * c.count):
            geometry = c.geometry[k - world * c.count]
            m = place_of(geometry, c.after, k, f.x[v])
            depth = depth_of(c, m)
            rub = rub_of(c, k, f.before[v], f.x[v])
            g = -c.dt * (load(c.adj_touch, k, 3) + wp.cross(load(c.adj_touch, k, 0), rub.at.d))
            if depth > real(0.0):
                n = rotation_of(c.after, k) * m.normal
                stiff = real(2.0) * c.stiffness * depth / c.reach
                bent = curvature_of(geometry, c.after, k, m) * g
                total = total - stiff * wp.dot(n, g) * n + real(0.5) * stiff * depth * bent
            if rub.limit > real(0.0):
                along = rub.slip / rub.length
                slid = -(rub.limit / rub.length) * (g - wp.dot(along, g) * along)
                total = total + slid - wp.dot(rub.normal, slid) * rub.normal
        c.adj_x[v] = c.adj_x[v] + total

    @wp.kernel(module=module)
    def pull_back(first: int, c: Contact, f: Fields):
        """Add to the cotangents of shapes and of positions before the step, eq. (22), (24)."""
        k = first + wp.tid()
        world = k // c.count
        geometry = c.geometry[k - world * c.count]
        adj_torque, adj_impulse = load(c.adj_touch, k, 0), load(c.adj_touch, k, 3)
        for v in range(world * c.vertices, (world + 1) * c.vertices):
            m = place_of(geometry, c.after, k, f.x[v])
            depth = depth_of(c, m)
            rub = rub_of(c, k, f.before[v], f.x[v])
            if depth > real(0.0) or rub.depth > real(0.0):
                lever = adj_impulse + wp.cross(adj_torque, rub.at.d)
                # g: cotangent of the force that the vertex gets, by way of its motion and of what the shape got
                g = f.multiplier[v] - c.dt * lever
                push_here = c.stiffness * depth * depth / c.reach
                n = rotation_of(c.after, k) * m.normal
                rubbing = -(rub.limit / rub.length) * rub.slip
                adj_d = wp.cross(-c.dt * (push_here * n + rubbing), adj_torque)
                if depth > real(0.0):
                    adj_distance = -real(2.0) * c.stiffness * depth / c.reach * wp.dot(n, g)
                    adj_p = place_vjp(geometry, c.after, c.adj_after, 0, k, m, adj_distance, push_here * g)
                    add(c.adj_after, 0, k, int(ORIGIN), -adj_p)
                if rub.depth > real(0.0):
                    share = rub.limit / rub.length
                    along = rub.slip / rub.length
                    adj_slip = -share * (g - wp.dot(along, g) * along)
                    adj_limit = -wp.dot(g, along)
                    adj_moved = adj_slip - wp.dot(rub.normal, adj_slip) * rub.normal
                    adj_n = -wp.dot(rub.normal, adj_slip) * rub.moved - wp.dot(rub.normal, rub.moved) * adj_slip
                    wp.atomic_add(c.adj_x0, v, -adj_moved)
                    add(c.adj_before, 0, k, int(VELOCITY), -c.dt * adj_moved)
                    add(c.adj_before, 0, k, int(SPIN), -c.dt * wp.cross(rub.at.d, adj_moved))
                    adj_d = adj_d - c.dt * wp.cross(adj_moved, load(c.before, k, SPIN))
                    pressed = c.stiffness * rub.depth * rub.depth / c.reach
                    wp.atomic_add(c.adj_before, 0, k, int(FRICTION), adj_limit * pressed)
                    slope = -real(2.0) * c.before[k, FRICTION] * c.stiffness * rub.depth / c.reach
                    adj_d = adj_d + place_vjp(geometry, c.before, c.adj_before, 0, k, rub.at, slope * adj_limit, adj_n)
                add(c.adj_before, 0, k, int(ORIGIN), -adj_d)
                wp.atomic_add(c.adj_x0, v, adj_d)

    return SimpleNamespace(
        Contact=Contact,
        push=push,
        shape_impulses=shape_impulses,
        shape_impulses_vjp=shape_impulses_vjp,
        pull_back=pull_back,
    )

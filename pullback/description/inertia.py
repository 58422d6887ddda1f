"""Inertias that no body can have, or that leave a motion without inertia, and their repair.

With principal moments λ, the second moments of the mass along the principal axes are s_i = ½ Σ λ − λ_i. A body has
s_i >= 0, which is the triangle inequality of the moments, and a solid one s_i > 0.
"""

from __future__ import annotations

import numpy as np

from pullback.description.tree import Link, Shape, Tree

# how far principal moments may break the triangle inequality, relative to the largest: what rounding in a file does
TOLERANCE = 1e-6
# the least second moment of a repaired inertia, relative to its largest: a rod thirty times as long as it is thick
LEAST_MOMENT = 1e-3
# radius of a repaired point mass that has no shape [m]
SMALL_RADIUS = 0.01


def inertia_fault(link: Link) -> str | None:
    """Say what is wrong with the inertia of a link, None if a body can have it."""
    inertia = link.inertia
    scale = float(np.abs(inertia).max())
    if scale == 0.0:
        return None
    if link.mass == 0.0:
        return "the mass is zero but the inertia is not"
    if np.abs(inertia - inertia.T).max() > TOLERANCE * scale:
        return "the matrix is not symmetric"
    smallest, middle, largest = np.linalg.eigvalsh(inertia)
    if smallest < -TOLERANCE * largest:
        return "a principal moment is negative"
    if smallest + middle < largest * (1.0 - TOLERANCE):
        return "the two smaller principal moments sum to less than the largest"
    return None


def zero_moment(link: Link) -> str | None:
    """Name the axis about which a link with mass has no moment of inertia though it has about others, else None."""
    if link.mass == 0.0 or not link.inertia.any():
        return None
    moments, axes = np.linalg.eigh(0.5 * (link.inertia + link.inertia.T))
    if abs(moments[0]) > 1e-12 * abs(moments[2]):
        return None
    largest = int(np.argmax(np.abs(axes[:, 0])))
    near = np.abs(axes[largest, 0]) > 1.0 - 1e-9
    return "xyz"[largest] if near else "(" + ", ".join(f"{x:.3g}" for x in axes[:, 0]) + ")"


def free_points(tree: Tree) -> list[Link]:
    """Return the links without any moment of inertia that can turn freely, with nothing attached to them."""
    parents = {joint.parent for joint in tree.joints}
    held = {joint.child for joint in tree.joints if joint.type not in ("ball", "floating")}
    return [
        link
        for link in tree.links
        if link.mass > 0.0 and not link.inertia.any() and link.name not in parents and link.name not in held
    ]


def repaired_inertia(link: Link) -> np.ndarray:
    """Return the nearest inertia that a solid body can have: second moments of at least a thousandth of the largest.

    A point mass becomes a ball as large as the link's shapes, or of 1 cm.
    """
    moments, axes = np.linalg.eigh(0.5 * (link.inertia + link.inertia.T))
    second = 0.5 * moments.sum() - moments
    if second.max() > 0.0:
        second = np.maximum(second, LEAST_MOMENT * second.max())
    else:
        radii = [_radius(shape) for shape in link.shapes if shape.size and shape.type != "mesh"]
        second = np.full(3, link.mass * max(radii, default=SMALL_RADIUS) ** 2 / 5.0)
    return (axes * (second.sum() - second)) @ axes.T


def _radius(shape: Shape) -> float:
    return shape.size[0] if shape.type == "sphere" else 0.5 * max(shape.size)

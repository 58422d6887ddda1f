"""A pole on a cart: a point mass at the end of a rod, on a cart that slides along y."""

from pullback.description.assets.rows import X, Y, box, joint, link, sphere
from pullback.description.tree import Tree

CART, POLE, POLE_LENGTH = 1.0, 0.3, 0.5


def tree(pole_mass: float = POLE) -> Tree:
    """Return a cart that slides along y, and on it a pole with its mass at the end, which stands at angle 0."""
    end = (0.0, 0.0, POLE_LENGTH)
    inertia = (1e-3, 1e-3, 1e-3)
    links = [
        link("rail"),
        link("cart", CART, (0.0, 0.0, 0.0), inertia, box((0.1, 0.2, 0.1))),
        link("pole", pole_mass, end, inertia, sphere(0.05, end)),
        link("tip"),
    ]
    joints = [
        joint("cart", "prismatic", "rail", "cart", axis=Y),
        joint("pole", "continuous", "cart", "pole", axis=X),
        joint("tip", "fixed", "pole", "tip", end),
    ]
    return Tree("cart_pole", links, joints, source="cart_pole")

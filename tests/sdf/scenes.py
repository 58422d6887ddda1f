"""Shapes for the tests of signed distances, with every size a tensor that wants a gradient."""

import numpy as np
import torch

from pullback import sdf

ORIGIN_TURN = (0.3, -0.2, 0.5, 0.8)


def icosphere(radius=1.0, subdivisions=3):
    import trimesh

    return trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius)


def rough_ground(n=17, seed=3):
    rng = np.random.default_rng(seed)
    x = np.linspace(-1.0, 1.0, n)
    waves = 0.2 * np.sin(3.0 * x)[:, None] * np.cos(2.0 * x)[None]
    return waves + 0.02 * rng.normal(size=(n, n))


class Shapes:
    """Shapes made of one vector of numbers, so that one gradient tells of all sizes and places."""

    def __init__(self):
        self.mesh = sdf.grid(icosphere(), 12).lattice
        self.ground = sdf.heights(rough_ground(), (2.0, 2.0)).lattice

    def numbers(self, name):
        """Return the numbers of a shape."""
        sizes = {
            "sphere": [0.4],
            "box": [0.4, 0.3, 0.5],
            "rounded box": [0.4, 0.3, 0.5, 0.1],
            "capsule": [0.2, 0.8],
            "cylinder": [0.35, 0.9],
            "torus": [0.5, 0.2],
            "plane": [],
            "grid": [0.6],
            "heights": [0.9],
            "union": [0.4, 0.3, 0.5, 0.4],
            "difference": [0.4, 0.3, 0.5, 0.2, 1.5],
            "blended union": [0.4, 0.3, 0.5, 0.4, 0.15],
            "blended intersection": [0.4, 0.3, 0.5, 0.4, 0.15],
            "blended difference": [0.4, 0.3, 0.5, 0.2, 1.5, 0.12],
            "deep": [0.4, 0.3, 0.5, 0.2, 1.5, 0.12, 0.1, 0.05, 0.25, 0.4],
        }[name]
        return np.array([*sizes, 0.1, -0.05, 0.07, *ORIGIN_TURN])

    def make(self, name, x):
        """Return the shape of a tensor of numbers (n,) or (B, n)."""
        place = (x[..., -7:-4], x[..., -4:])
        a = x[..., :-7].unbind(-1)
        shifted = torch.tensor([0.15, 0.1, -0.1], dtype=x.dtype, device=x.device)
        if name == "sphere":
            shape = sdf.sphere(a[0])
        elif name == "capsule":
            shape = sdf.capsule(a[0], a[1])
        elif name == "cylinder":
            shape = sdf.cylinder(a[0], a[1])
        elif name == "torus":
            shape = sdf.torus(a[0], a[1])
        elif name == "plane":
            shape = sdf.plane()
        elif name in ("grid", "heights"):
            zero = torch.zeros((), dtype=x.dtype, device=x.device)
            from pullback.sdf.shapes import Leaf

            lattice = self.mesh if name == "grid" else self.ground
            shape = Leaf(name, (a[0], zero, zero, zero), lattice)
        else:
            box = sdf.box(torch.stack(a[:3], -1))
            if name == "box":
                shape = box
            elif name == "rounded box":
                shape = box.rounded(a[3])
            elif "union" in name:
                shape = box | sdf.sphere(a[3]).at(shifted + 0.2)
            elif "intersection" in name:
                shape = box & sdf.sphere(a[3]).at(shifted)
            else:
                shape = box - sdf.cylinder(a[3], a[4]).at(shifted)
            if name == "deep":
                ring = sdf.torus(a[8] + 0.2, a[7]).at(shifted, ORIGIN_TURN)
                shape = ((shape.blend(a[5]) | ring).blend(a[6]) & (sdf.sphere(a[9]) | sdf.capsule(a[6], a[8]))).rounded(
                    a[7]
                )
            elif name.startswith("blended"):
                shape = shape.blend(a[-1])
        return shape.at(*place)


NAMES = (
    "sphere", "box", "rounded box", "capsule", "cylinder", "torus", "plane", "grid", "heights", "union", "difference",
    "blended union", "blended intersection", "blended difference", "deep",
)  # fmt: skip

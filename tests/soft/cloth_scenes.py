"""Small sheets and ropes that tests share, and the same scene in the plain reference."""

import numpy as np
import torch

from pullback.core.custom_vjp import call
from pullback.soft.cloth.equations import Equations
from pullback.soft.cloth.materials import Cord, Fabric
from pullback.soft.cloth.pieces import rope, sheet
from pullback.soft.cloth.sim import ClothSim
from pullback.soft.cloth.step import Drive, advance, pull_back
from pullback.soft.cloth.strain_kernels import KINDS
from pullback.soft.shape_kernels import CORE, CYLINDER, PLANE
from pullback.spatial.rotations_torch import quaternion_from_vector, rotation_from_quaternion
from tests.reference import cloth

GEOMETRY = {"core": CORE, "plane": PLANE, "cylinder": CYLINDER}
FABRIC = Fabric(youngs=30.0, youngs_across=18.0, poisson=0.25, shear=9.0, bending=2e-3, density=0.4, damping=0.02,
                bending_damping=0.03)  # fmt: skip
CORD = Cord(stretch=25.0, bending=4e-3, density=0.2, damping=0.01, bending_damping=0.02)
SHAPES = ["core", "core", "core", "plane", "cylinder"]
"""A ball, a capsule, a box, the ground and a cylinder, which reach into the sheet."""
DT = 0.02
REACH, STIFFNESS, SLIP = 0.05, 40.0, 0.02


def scene(**options):
    """Return a sheet of 3 by 2 cells with two pins and a rope with one."""
    pieces = [
        sheet((0, 0, 0), (0.6, 0, 0), (0, 0.4, 0), cells=(3, 2), material=FABRIC, pins=[0, 2], name="sheet"),
        rope((0.1, 0.7, 0.1), (0.7, 0.7, 0.1), segments=4, material=CORD, pins=[0], name="rope"),
    ]
    given = {"dt": DT, "gravity": (0.3, -0.2, -9.81), "drag": 0.4, "dtype": torch.float64, "contact_range": REACH}
    given |= {"contact_stiffness": STIFFNESS, "slip_speed": SLIP}
    return ClothSim(pieces, **(given | options))


def random(seed, *size):
    generator = torch.Generator().manual_seed(seed)
    return 2.0 * torch.rand(*size, generator=generator, dtype=torch.float64) - 1.0


def shape_rows(seed):
    """Return numbers (5, 23) of shapes that turn and move."""
    origin = torch.tensor([[0.2, 0.2, -0.1], [0.45, 0.1, -0.1], [0.1, 0.4, -0.12], [0.0, 0.0, -0.02], [0.5, 0.7, 0.0]])
    sizes = torch.tensor(
        [[0.0, 0.0, 0.0, 0.1], [0.0, 0.0, 0.1, 0.07], [0.08, 0.05, 0.04, 0.05], [0.0] * 4, [0.05, 0.05, 0.04, 0.04]]
    )
    R = rotation_from_quaternion(quaternion_from_vector(0.3 * random(seed, 5, 3)))
    friction = torch.tensor([[0.4], [0.0], [0.6], [0.2], [0.3]])
    parts = [origin.double(), R.flatten(1), 0.5 * random(seed + 1, 5, 3), random(seed + 2, 5, 3), sizes.double()]
    return torch.cat([*parts, friction.double()], 1)


def mesh_of(sim):
    """Return the mesh as the reference wants it, from the pieces and not from what kernels read."""
    parts = sim.layout.parts
    flat = torch.as_tensor(np.concatenate([piece.points for piece in sim.pieces]))
    triangles, segments = torch.as_tensor(parts["triangle"].ends), torch.as_tensor(parts["segment"].ends)
    hinges, bends = torch.as_tensor(parts["hinge"].ends), torch.as_tensor(parts["bend"].ends)
    x = flat[hinges]
    # the sheet's cells are squares: 4/3 of the plate's stiffness, 9/8 that of a strip
    weights = torch.full_like(x[:, 0, 0], 4.0 / 3.0 * 9.0 / 8.0)
    lengths = (flat[segments[:, 1]] - flat[segments[:, 0]]).norm(dim=-1)
    legs = torch.stack([(flat[bends[:, k + 1]] - flat[bends[:, k]]).norm(dim=-1) for k in range(2)], -1)
    return cloth.Mesh(triangles, flat[triangles][..., :2], hinges, weights, segments, lengths, bends, legs)


def leaves_of(sim, shapes=False):
    """Return a state and a drive that are nowhere zero, as leaves."""
    state = sim.state()
    n, p = sim.vertices, len(sim.pins)
    values = {"x": state.x + 0.03 * random(5, n, 3), "v": 0.5 * random(6, n, 3)}
    values |= {"masses": sim.masses(), "gravity": sim.gravity, "force": 0.05 * random(7, n, 3)}
    values["pins"] = values["x"][torch.as_tensor(sim.pins)] + 0.02 * random(8, p, 3)
    values |= {kind: x[0] for kind, x in zip(KINDS, sim._numbers({}, 1))}
    values["hinge"] = values["hinge"] + torch.cat(
        [torch.zeros(len(values["hinge"]), 2), 0.1 + 0 * values["hinge"][:, :1]], 1
    )
    if shapes:
        before = shape_rows(11)
        after = before.clone()
        after[:, :3] += DT * before[:, 12:15]
        values |= {"before": before, "after": after, "turned": torch.zeros(2, 5, 3)}
    return {name: x.detach().clone().double().requires_grad_() for name, x in values.items()}


def turned(rows, by):
    """Return rows of shapes turned by vectors: rotations have three derivatives, not nine."""
    R = rotation_from_quaternion(quaternion_from_vector(by)) @ rows[:, 3:12].detach().view(-1, 3, 3)
    return torch.cat([rows[:, :3], R.flatten(1), rows[:, 12:]], 1)


def with_turns(leaves):
    """Return leaves whose shapes are turned."""
    if "turned" not in leaves:
        return leaves
    rows = {name: turned(leaves[name], by) for name, by in zip(("before", "after"), leaves["turned"])}
    return leaves | rows


class OurStep:
    """A step by kernels as one function of torch, so that both implementations are called alike."""

    name = "a step"

    def __init__(self, sim, shapes=False):
        self.sim, self.shapes = sim, shapes
        kinds = torch.tensor([int(GEOMETRY[k]) for k in SHAPES], dtype=torch.int32) if shapes else None
        self.equations = Equations(sim.layout, 1, sim.settings, kinds)
        self.names = ["x", "v", "masses", "gravity", "force", "pins", *KINDS, *["before", "after"] * shapes]

    def __call__(self, leaves):
        """Return x, v, what pins do and what shapes got."""
        given = with_turns(leaves)
        return call(self, *[given[name] for name in self.names])

    def drive(self, given):
        one = {name: x if name in ("before", "after") else x[None] for name, x in given.items()}
        rows = (one["before"], one["after"]) if self.shapes else None
        return Drive(*[one[k] for k in ("masses", "gravity", "force", "pins")], {k: one[k] for k in KINDS}, rows)

    def forward(self, inputs, keep):
        given = dict(zip(self.names, inputs))
        after = advance(self.equations, given["x"][None], given["v"][None], self.drive(given))
        assert after.solved.all()
        return (after.x[0], after.v[0], after.reaction[0], *([after.touch[:, :6]] if self.shapes else [])), after

    def backward(self, after, wanted, adj, inputs):
        given = dict(zip(self.names, inputs))
        for x in self.equations.adj_numbers.values():
            x.zero_()
        one = [torch.zeros_like(y) if a is None else a[None] for a, y in zip(adj, (after.x, after.v, after.reaction))]
        touch = torch.nn.functional.pad(adj[3], (0, 1)) if self.shapes and adj[3] is not None else None
        state = given["x"][None], given["v"][None]
        found = pull_back(self.equations, *state, self.drive(given), after.x, (*one, touch))
        values = {name: getattr(found, name)[0] for name in ("x", "v", "masses", "gravity", "force", "pins")}
        values |= {kind: x.clone() for kind, x in self.equations.adj_numbers.items()}
        if self.shapes:
            values |= {"before": found.shapes[0], "after": found.shapes[1]}
        return tuple(values[name].reshape(x.shape) for name, x in zip(self.names, inputs))


def reference_step(sim, shapes=False):
    """Return the same step in plain torch: x, v, what pins do and what shapes got."""
    contact = cloth.Contact(SHAPES, REACH, STIFFNESS, SLIP * DT) if shapes else None
    step = cloth.Step(mesh_of(sim), sim.pins, DT, sim.settings.drag, contact)

    def run(leaves, start):
        given = with_turns(leaves)
        found = step(given["x"], given["v"], given, start)
        return (*found, contact.touch(found[0], given["x"], given, DT)) if contact else found

    return run

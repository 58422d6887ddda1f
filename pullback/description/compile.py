"""From a Tree to a flat Model: moving joints become bodies, fixed joints are merged, links stay addressable by name.

Notation: L a link's frame as the description has it, B the frame of the body it belongs to. A body's frame is its
joint's child link frame turned so that a revolute or prismatic joint acts about or along z: R_LB is that turn.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from pullback.core.errors import DescriptionError, shortened
from pullback.description.check import resolve_mimics
from pullback.description.joints import COORDINATES, KIND_OF_TYPE, KINDS
from pullback.description.tree import Joint, Limits, Link, Pose, Tree

WORLD = -1


@dataclass
class Body:
    """A rigid body that moves: its joint, its parent body (WORLD or an earlier one) and where its coordinates start."""

    joint: Joint
    kind: str
    parent: int
    q_start: int
    v_start: int
    R_LB: np.ndarray

    @property
    def constant(self) -> float:
        """The number of its own that a joint of this kind has, 0 if it has none."""
        name = KINDS[self.kind].constant
        return float(getattr(self.joint, name)) if name else 0.0


@dataclass
class Coupling:
    """What mimic joints do: q_all = position @ q + offset, qd_all = velocity @ qd."""

    position: np.ndarray
    offset: np.ndarray
    velocity: np.ndarray


@dataclass
class Model:
    """A robot ready for kernels: bodies with parents first, and for each link its body and its fixed ancestors.

    `nq`, `nv` count the coordinates a user gives; `nq_all`, `nv_all` those of the bodies, more where joints mimic.
    `link_joint[l]` is the joint above link l, `link_parent[l]` the link above it; None and -1 for the root. Links are
    numbered with parents first.
    """

    tree: Tree
    base: str
    links: list[Link]
    link_index: dict[str, int]
    link_joint: list[Joint | None]
    link_parent: list[int]
    link_body: list[int]
    bodies: list[Body]
    nq: int
    nv: int
    coupling: Coupling | None
    joint_names: list[str] = field(default_factory=list)
    q_start: dict[str, int] = field(default_factory=dict)
    v_start: dict[str, int] = field(default_factory=dict)

    @property
    def nq_all(self) -> int:
        """Number of coordinates of all bodies."""
        return sum(COORDINATES[b.kind][0] for b in self.bodies)

    @property
    def nv_all(self) -> int:
        """Number of degrees of freedom of all bodies."""
        return sum(COORDINATES[b.kind][1] for b in self.bodies)

    def independent_bodies(self) -> list[Body]:
        """Return the bodies whose coordinates the user gives."""
        return [b for b in self.bodies if b.joint.mimic is None]

    def independent_coordinates(self) -> list[int]:
        """Return which of the coordinates of all bodies the user gives."""
        return [b.q_start + k for b in self.independent_bodies() for k in range(COORDINATES[b.kind][0])]

    def independent_velocities(self) -> list[int]:
        """Return which of the velocities of all bodies the user gives."""
        return [b.v_start + k for b in self.independent_bodies() for k in range(COORDINATES[b.kind][1])]


def compile_tree(tree: Tree, base: str | None = None) -> Model:
    """Compile a checked tree; `base` is "fixed" or "floating", by default what the description says."""
    base = base if base is not None else getattr(tree, "base", None) or "fixed"
    if not isinstance(base, str) or base not in ("fixed", "floating"):
        raise DescriptionError(f"base is {shortened(repr(base))}; choose 'fixed' or 'floating'")
    tree = replace(tree, joints=resolve_mimics(tree.joints, tree.source), problems=list(tree.problems))
    tree = split_planar_joints(tree)
    if base == "floating":
        tree = add_floating_base(tree)
    links, parents, joints = parents_first(tree)
    index = {link.name: k for k, link in enumerate(links)}
    bodies: list[Body] = []
    link_body: list[int] = []
    nq = nv = 0
    for joint, parent in zip(joints, parents):
        inboard = link_body[parent] if parent >= 0 else WORLD
        if joint is None or joint.type == "fixed":
            link_body.append(inboard)
            continue
        kind = KIND_OF_TYPE[joint.type]
        if KINDS[kind].travels and inboard != WORLD and joint.armature:
            raise DescriptionError(
                f"joint {joint.name!r} in {tree.source}: a floating joint on a moving link cannot have armature; "
                f"leave it out"
            )
        link_body.append(len(bodies))
        bodies.append(Body(joint, kind, inboard, nq, nv, align_z(joint.axis) if nv_of(kind) == 1 else np.eye(3)))
        nq += COORDINATES[kind][0]
        nv += COORDINATES[kind][1]
    coupling = couple_mimics(bodies, nq, nv)
    model = Model(
        tree=tree,
        base=base,
        links=links,
        link_index=index,
        link_joint=joints,
        link_parent=parents,
        link_body=link_body,
        bodies=bodies,
        nq=nq if coupling is None else coupling.position.shape[1],
        nv=nv if coupling is None else coupling.velocity.shape[1],
        coupling=coupling,
    )
    tree.problems += [
        f"joint {name!r} moves no mass, so forward dynamics is not defined; give its links mass, or the joint armature"
        for name in massless_joints(model)
    ]
    nq = nv = 0
    for body in model.independent_bodies():
        model.joint_names.append(body.joint.name)
        model.q_start[body.joint.name], model.v_start[body.joint.name] = nq, nv
        nq += COORDINATES[body.kind][0]
        nv += COORDINATES[body.kind][1]
    return model


def massless_joints(model: Model) -> list[str]:
    """Return the moving joints that carry no mass and no inertia and have no armature."""
    carries = [b.joint.armature > 0.0 for b in model.bodies]
    for link, body in zip(model.links, model.link_body):
        if body != WORLD and (link.mass > 0.0 or np.any(link.inertia)):
            carries[body] = True
    # a joint carries what hangs on its body
    for i in reversed(range(len(model.bodies))):
        if carries[i] and model.bodies[i].parent != WORLD:
            carries[model.bodies[i].parent] = True
    return [b.joint.name for b, carried in zip(model.bodies, carries) if not carried]


def nv_of(kind: str) -> int:
    """Return the degrees of freedom of a kind of body."""
    return COORDINATES[kind][1]


def parents_first(tree: Tree) -> tuple[list[Link], list[int], list[Joint | None]]:
    """Return links depth first in the file's order, the index of each one's parent, and the joint above it."""
    by_name = {link.name: link for link in tree.links}
    below: dict[str, list[Joint]] = {link.name: [] for link in tree.links}
    for joint in tree.joints:
        below[joint.parent].append(joint)
    children = {joint.child for joint in tree.joints}
    links: list[Link] = []
    parents: list[int] = []
    joints: list[Joint | None] = []
    stack: list[tuple[str, int, Joint | None]] = [
        (link.name, -1, None) for link in reversed(tree.links) if link.name not in children
    ]
    while stack:
        name, parent, joint = stack.pop()
        links.append(by_name[name])
        parents.append(parent)
        joints.append(joint)
        stack.extend((j.child, len(links) - 1, j) for j in reversed(below[name]))
    return links, parents, joints


def align_z(axis: np.ndarray) -> np.ndarray:
    """Return a rotation whose third column is the unit vector `axis`; exact for coordinate axes."""
    helper = np.zeros(3)
    helper[(int(np.argmax(np.abs(axis))) + 1) % 3] = 1.0
    x = np.cross(helper, axis)
    x = x / np.linalg.norm(x)
    return np.column_stack([x, np.cross(axis, x), axis])


def add_floating_base(tree: Tree) -> Tree:
    """Return the tree hung on a new root link by a floating joint."""
    children = {joint.child for joint in tree.joints}
    root = next(link for link in tree.links if link.name not in children)
    if any(j.type == "floating" and j.parent == root.name for j in tree.joints) and root.mass == 0.0:
        raise DescriptionError(
            f"base='floating' of {tree.source}: its root link {root.name!r} has no mass and carries a floating joint "
            f"already; load it with base='fixed'"
        )
    names = {link.name for link in tree.links}
    world = next(n for n in ("world", "universe", "pullback_world") if n not in names)
    joint = Joint("floating_base", "floating", world, root.name)
    return replace(tree, links=[Link(world), *tree.links], joints=[joint, *tree.joints])


def split_planar_joints(tree: Tree) -> Tree:
    """Return the tree with every planar joint as two sliders and a hinge about its normal."""
    if all(joint.type != "planar" for joint in tree.joints):
        return tree
    links, joints = list(tree.links), []
    for joint in tree.joints:
        if joint.type != "planar":
            joints.append(joint)
            continue
        frame = align_z(joint.axis)
        names = [f"{joint.name}/x", f"{joint.name}/y", f"{joint.name}/angle"]
        between = [joint.parent, f"{joint.child}/x", f"{joint.child}/y", joint.child]
        links += [Link(between[1]), Link(between[2])]
        for k, kind in enumerate(("prismatic", "prismatic", "continuous")):
            joints.append(
                replace(
                    joint,
                    name=names[k],
                    type=kind,
                    parent=between[k],
                    child=between[k + 1],
                    origin=joint.origin if k == 0 else Pose(),
                    axis=frame[:, k],
                    limits=joint.limits if k < 2 else Limits(),
                )
            )
    return replace(tree, links=links, joints=joints)


def couple_mimics(bodies: list[Body], nq: int, nv: int) -> Coupling | None:
    """Return the linear map from the user's coordinates to the bodies', or None where no joint mimics another.

    Each mimic names a joint that moves by itself.
    """
    if all(b.joint.mimic is None for b in bodies):
        return None
    position, offset, velocity = np.eye(nq), np.zeros(nq), np.eye(nv)
    by_name = {b.joint.name: b for b in bodies}
    for body in bodies:
        mimic = body.joint.mimic
        if mimic is None:
            continue
        source = by_name[mimic.joint]
        if nv_of(body.kind) != 1 or nv_of(source.kind) != 1:
            raise DescriptionError(
                f"joint {body.joint.name!r}: only joints with one degree of freedom can mimic each other"
            )
        position[body.q_start] = mimic.multiplier * position[source.q_start]
        offset[body.q_start] = mimic.offset
        velocity[body.v_start] = mimic.multiplier * velocity[source.v_start]
    free_q = [b.q_start + k for b in bodies if b.joint.mimic is None for k in range(COORDINATES[b.kind][0])]
    free_v = [b.v_start + k for b in bodies if b.joint.mimic is None for k in range(COORDINATES[b.kind][1])]
    return Coupling(position[:, free_q], offset, velocity[:, free_v])

"""What every robot description must satisfy, whichever file format it came from."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np

from pullback.core.errors import DescriptionError, DescriptionWarning, shortened, unknown_name
from pullback.core.files import check_limit
from pullback.description.inertia import free_points, inertia_fault, repaired_inertia, zero_moment
from pullback.description.joints import JOINT_KINDS, KIND_OF_TYPE, KINDS
from pullback.description.tree import Drive, Joint, Link, Loop, Mimic, Tree

MIMIC_JOINTS = tuple(name for kind in JOINT_KINDS if kind.nv == 1 for name in kind.types)
AXIS_JOINTS = (*MIMIC_JOINTS, "planar")
LARGEST_NUMBER = 1e100
"""Of masses and inertias: squares of larger ones overflow."""


def check_tree(tree: Tree, *, strict: bool = False, repair: bool = False) -> None:
    """Raise a DescriptionError where the tree cannot become a model, and warn where it looks wrong.

    Warnings are also appended to `tree.problems`. With `strict`, an inertia that no body can have is an error too; with
    `repair` it is replaced by the nearest that one can have.
    """
    if not tree.links:
        raise DescriptionError(f"{tree.source}: the robot has no links; expected at least one")
    check_limit("links", len(tree.links), f"{tree.source}: its number of links is", DescriptionError)
    _check_unique("link", (link.name for link in tree.links), tree.source)
    _check_unique("joint", (joint.name for joint in tree.joints), tree.source)
    for link in tree.links:
        _check_mass(link, tree.source)
    # a dict: membership costs the same however many there are, and their order stays
    names = {link.name: link for link in tree.links}
    for joint in tree.joints:
        _check_joint(joint, names, tree.source)
    _check_topology(tree)
    resolve_mimics(tree.joints, tree.source)
    _check_unique("actuator", (drive.name for drive in tree.drives), tree.source)
    joints = {joint.name: joint for joint in tree.joints}
    for drive in (*tree.drives, *tree.springs):
        _check_drive(drive, joints, tree.source)
    _check_unique("loop", (loop.name for loop in tree.loops), tree.source)
    for loop in tree.loops:
        _check_loop(loop, names, tree.source)
    points = {link.name for link in free_points(tree)}
    for link in tree.links:
        fault, axis = inertia_fault(link), zero_moment(link)
        if fault:
            _report_inertia(tree, link, f"inertia is not physical: {fault}", strict=strict, repair=repair)
        elif axis is not None or link.name in points:
            about = "" if axis is None else f" about {axis}"
            text = f"the moment of inertia{about} is zero, so that nothing resists turning the link alone"
            _report_inertia(tree, link, text, strict=False, repair=repair)


def warn(tree: Tree, text: str) -> None:
    """Issue a DescriptionWarning and keep its text in `tree.problems`."""
    tree.problems.append(text)
    warnings.warn(text, DescriptionWarning, stacklevel=2)


def resolve_mimics(joints: list[Joint], source: str) -> list[Joint]:
    """Return the joints with every mimic referring directly to a joint that moves by itself.

    A chain a -> b -> c composes: q_a = m_a (m_b q_c + o_b) + o_a.
    """
    by_name = {joint.name: joint for joint in joints}
    resolved: dict[str, Mimic] = {}
    for joint in joints:
        _resolve_mimic(joint, by_name, resolved, source)
    return [replace(joint, mimic=resolved[joint.name]) if joint.mimic else joint for joint in joints]


def _resolve_mimic(joint: Joint, by_name: dict[str, Joint], resolved: dict[str, Mimic], source: str) -> None:
    """Resolve the joint and all that it follows; each is visited once."""
    chain: dict[str, Mimic] = {}
    while joint.mimic is not None and joint.name not in resolved:
        where = f"joint {joint.name!r} in {source}"
        target = by_name.get(joint.mimic.joint)
        if target is None:
            raise DescriptionError(
                f"{where} mimics an unknown joint: {unknown_name('joint', joint.mimic.joint, by_name)}"
            )
        if target.type not in MIMIC_JOINTS:
            raise DescriptionError(
                f"{where} mimics {target.name!r}, which is {target.type}; expected a joint with one degree of freedom"
            )
        if joint.name in chain:
            names = list(chain)
            circle = shortened(" -> ".join([*names[names.index(joint.name) :], joint.name]), 400)
            raise DescriptionError(
                f"{where}: mimic joints follow each other in a circle ({circle}); let one of them move by itself"
            )
        chain[joint.name] = joint.mimic
        joint = target
    # from the joint that moves by itself outwards
    for name, mimic in reversed(chain.items()):
        inner = resolved.get(mimic.joint)
        if inner is not None:
            offset = mimic.multiplier * inner.offset + mimic.offset
            mimic = replace(inner, multiplier=mimic.multiplier * inner.multiplier, offset=offset)
        resolved[name] = mimic


def _check_unique(kind: str, names: Iterable[str], source: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DescriptionError(
            f"{source}: more than one {kind} is named {shortened(', '.join(map(repr, repeated)), 400)}; "
            "give each its own name"
        )


def _check_mass(link: Link, source: str) -> None:
    where = f"link {link.name!r} in {source}"
    numbers = np.concatenate([[link.mass], link.com, link.inertia.ravel()])
    if not np.isfinite(numbers).all():
        raise DescriptionError(f"{where}: mass, centre of mass or inertia is not finite; write finite numbers")
    if np.abs(numbers).max() > LARGEST_NUMBER:
        raise DescriptionError(
            f"{where}: mass, centre of mass or inertia has a number of {np.abs(numbers).max():g}; write kg, m and kg·m²"
        )
    if link.mass < 0.0:
        raise DescriptionError(f"{where}: mass is negative ({link.mass:g} kg); give zero or more")


def _check_joint(joint: Joint, links: Collection[str], source: str) -> None:
    where = f"joint {joint.name!r} in {source}"
    for end, name in (("parent", joint.parent), ("child", joint.child)):
        if name not in links:
            raise DescriptionError(f"{where}, {end}: {unknown_name('link', name, links)}")
    _check_axis(joint, where)
    if not joint.limits.lower <= joint.limits.upper:
        raise DescriptionError(
            f"{where}: lower limit {joint.limits.lower:g} is not below upper limit {joint.limits.upper:g}; swap them"
        )
    for quantity in ("damping", "friction", "armature", "stiffness"):
        value = getattr(joint, quantity)
        if not (np.isfinite(value) and value >= 0.0):
            raise DescriptionError(f"{where}: {quantity} is {value:g}; give a finite number, zero or more")
    if joint.stiffness and (joint.type not in MIMIC_JOINTS or not np.isfinite(joint.rest)):
        raise DescriptionError(
            f"{where}: a spring needs a joint with one degree of freedom and a finite rest, this is a {joint.type} "
            f"joint with rest {joint.rest:g}; leave the spring out"
        )
    constant = KINDS[KIND_OF_TYPE[joint.type]].constant if joint.type in KIND_OF_TYPE else ""
    if constant and not np.isfinite(getattr(joint, constant)):
        raise DescriptionError(f"{where}: {constant} is {getattr(joint, constant):g}; give a finite number")
    if joint.mimic is not None and joint.type not in MIMIC_JOINTS:
        raise DescriptionError(
            f"{where}: a {joint.type} joint cannot mimic another; only {', '.join(MIMIC_JOINTS)} joints can"
        )


def _check_drive(drive: Drive, joints: Mapping[str, Joint], source: str) -> None:
    """Refuse what acts on no joint, or on one with several degrees of freedom."""
    where = f"{drive.name!r} in {source}"
    for name in drive.joints:
        if name not in joints:
            raise DescriptionError(f"{where} acts on an unknown joint: {unknown_name('joint', name, joints)}")
        if joints[name].type not in MIMIC_JOINTS:
            raise DescriptionError(
                f"{where} acts on {name!r}, which is {joints[name].type}; expected joints with one degree of freedom"
            )
    numbers = (drive.gain, drive.kp, drive.kd, drive.bias, drive.position_gain, drive.velocity_gain)
    if not drive.joints or not np.isfinite([*numbers, *drive.joints.values()]).all():
        raise DescriptionError(f"{where}: give it a joint at least, and finite numbers")


def _check_loop(loop: Loop, links: Collection[str], source: str) -> None:
    where = f"loop {loop.name!r} in {source}"
    for name in (loop.link_a, loop.link_b):
        if name is not None and name not in links:
            raise DescriptionError(f"{where}: {unknown_name('link', name, links)}")
    if loop.link_a == loop.link_b:
        raise DescriptionError(f"{where} holds link {loop.link_a!r} to itself; name two links")


def _check_axis(joint: Joint, where: str) -> None:
    if joint.type not in AXIS_JOINTS:
        return
    length = float(np.linalg.norm(joint.axis))
    if not length > 0.0:
        raise DescriptionError(f"{where}: axis has zero length; give a unit vector or leave <axis> out")
    if abs(length - 1.0) > 1e-9:
        raise DescriptionError(f"{where}: axis has length {length:g}; give a unit vector")


def _check_topology(tree: Tree) -> None:
    parents: dict[str, Joint] = {}
    for joint in tree.joints:
        if joint.child in parents:
            raise DescriptionError(
                f"link {joint.child!r} in {tree.source} has two parents: joints {parents[joint.child].name!r} and "
                f"{joint.name!r} both move it; a robot is a tree, so remove one (<loop_joint> closes loops)"
            )
        parents[joint.child] = joint
    roots = [link.name for link in tree.links if link.name not in parents]
    if len(roots) > 1:
        raise DescriptionError(
            f"{tree.source}: {len(roots)} links have no parent ({shortened(', '.join(map(repr, roots)), 400)}); "
            "expected one root: connect the others by joints"
        )
    reach_root = set(roots)
    for link in tree.links:
        _check_reaches_root(link.name, parents, reach_root, tree.source)


def _check_reaches_root(name: str, parents: dict[str, Joint], reach_root: set[str], source: str) -> None:
    """Raise if the way up from a link never ends; the links on it are added to those known to reach the root."""
    path: dict[str, None] = {}
    while name not in reach_root:
        if name in path:
            names = list(path)
            loop = shortened(" -> ".join(reversed([*names[names.index(name) :], name])), 400)
            raise DescriptionError(f"{source}: links form a kinematic loop ({loop}); a robot is a tree, so cut it")
        path[name] = None
        name = parents[name].parent
    reach_root.update(path)


def _report_inertia(tree: Tree, link: Link, fault: str, *, strict: bool, repair: bool) -> None:
    moments = _moments(link)
    text = f"link {link.name!r} in {tree.source}: {fault} (mass {link.mass:g} kg, principal moments {moments})"
    if strict:
        raise DescriptionError(f"{text}; correct it, or load without strict=True")
    if repair and link.mass > 0.0:
        link.inertia = repaired_inertia(link)
        warn(tree, f"{text}; repaired to {_moments(link)}")
    else:
        warn(tree, f"{text}; correct it, or load with repair=True" if link.mass > 0.0 else text)


def _moments(link: Link) -> str:
    moments = np.linalg.eigvalsh(0.5 * (link.inertia + link.inertia.T))
    return ", ".join(f"{moment:.6g}" for moment in moments) + " kg·m²"

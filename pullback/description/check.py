"""What every robot description must satisfy, whichever file format it came from."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from pullback.core.errors import DescriptionError, DescriptionWarning, unknown_name
from pullback.description.joints import JOINT_KINDS, KIND_OF_TYPE, KINDS
from pullback.description.tree import Joint, Link, Loop, Tree

MIMIC_JOINTS = tuple(name for kind in JOINT_KINDS if kind.nv == 1 for name in kind.types)
AXIS_JOINTS = (*MIMIC_JOINTS, "planar")

# how far principal moments may break the triangle inequality, relative to the largest: what rounding in a file does
INERTIA_TOLERANCE = 1e-6


def check_file(path: Path) -> None:
    """Raise a DescriptionError that names the close file names if `path` is not a file."""
    if path.is_file():
        return
    if not path.parent.is_dir():
        raise DescriptionError(f"no file {str(path)!r}: the folder {str(path.parent)!r} does not exist; check the path")
    if path.is_dir():
        raise DescriptionError(f"{str(path)!r} is a folder; give the path of a .urdf or .xml file in it")
    names = sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
    close = get_close_matches(path.name, names, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "no file there has a similar name"
    raise DescriptionError(f"no file {str(path)!r}; {hint}")


def parse_xml(path: Path) -> Any:
    """Return the root element of an XML file, without comments."""
    check_file(path)
    parser = etree.XMLParser(remove_comments=True, remove_pis=True, resolve_entities=False, no_network=True)
    try:
        return etree.parse(str(path), parser).getroot()
    except etree.XMLSyntaxError as error:
        reason = error.msg.split(", line")[0]
        raise DescriptionError(f"{path.name}, line {error.lineno}: not well-formed XML: {reason}; mend it") from error


def check_tree(tree: Tree, *, strict: bool = False) -> None:
    """Raise a DescriptionError where the tree cannot become a model, and warn where it looks wrong.

    Warnings are also appended to `tree.problems`. With `strict`, an inertia that no body can have is an error too.
    """
    if not tree.links:
        raise DescriptionError(f"{tree.source}: the robot has no links; expected at least one")
    _check_unique("link", (link.name for link in tree.links), tree.source)
    _check_unique("joint", (joint.name for joint in tree.joints), tree.source)
    for link in tree.links:
        _check_mass(link, tree.source)
    for joint in tree.joints:
        _check_joint(joint, tree)
    _check_topology(tree)
    resolve_mimics(tree.joints, tree.source)
    _check_unique("loop", (loop.name for loop in tree.loops), tree.source)
    for loop in tree.loops:
        _check_loop(loop, tree)
    for link in tree.links:
        fault = inertia_fault(link)
        if fault:
            _report_inertia(tree, link, fault, strict)


def warn(tree: Tree, text: str) -> None:
    """Issue a DescriptionWarning and keep its text in `tree.problems`."""
    tree.problems.append(text)
    warnings.warn(text, DescriptionWarning, stacklevel=2)


def inertia_fault(link: Link) -> str | None:
    """Say what is wrong with the inertia of a link, None if a body can have it."""
    inertia = link.inertia
    scale = float(np.abs(inertia).max())
    if scale == 0.0:
        return None
    if link.mass == 0.0:
        return "the mass is zero but the inertia is not"
    if np.abs(inertia - inertia.T).max() > INERTIA_TOLERANCE * scale:
        return "the matrix is not symmetric"
    smallest, middle, largest = np.linalg.eigvalsh(inertia)
    if smallest < -INERTIA_TOLERANCE * largest:
        return "a principal moment is negative"
    if smallest + middle < largest * (1.0 - INERTIA_TOLERANCE):
        return "the two smaller principal moments sum to less than the largest"
    return None


def resolve_mimics(joints: list[Joint], source: str) -> list[Joint]:
    """Return the joints with every mimic referring directly to a joint that moves by itself.

    A chain a -> b -> c composes: q_a = m_a (m_b q_c + o_b) + o_a.
    """
    by_name = {joint.name: joint for joint in joints}
    return [_resolve_mimic(joint, by_name, source) for joint in joints]


def _resolve_mimic(joint: Joint, by_name: dict[str, Joint], source: str) -> Joint:
    where = f"joint {joint.name!r} in {source}"
    if joint.mimic is None:
        return joint
    mimic = joint.mimic
    visited = [joint.name]
    while True:
        if mimic.joint in visited:
            raise DescriptionError(
                f"{where}: mimic joints follow each other in a circle ({' -> '.join([*visited, mimic.joint])}); "
                "let one of them move by itself"
            )
        if mimic.joint not in by_name:
            raise DescriptionError(f"{where} mimics an unknown joint: {unknown_name('joint', mimic.joint, by_name)}")
        target = by_name[mimic.joint]
        if target.type not in MIMIC_JOINTS:
            raise DescriptionError(
                f"{where} mimics {target.name!r}, which is {target.type}; expected a joint with one degree of freedom"
            )
        if target.mimic is None:
            return replace(joint, mimic=mimic)
        visited.append(target.name)
        offset = mimic.multiplier * target.mimic.offset + mimic.offset
        mimic = replace(target.mimic, multiplier=mimic.multiplier * target.mimic.multiplier, offset=offset)


def _check_unique(kind: str, names: Iterable[str], source: str) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise DescriptionError(
            f"{source}: more than one {kind} is named {', '.join(map(repr, repeated))}; give each its own name"
        )


def _check_mass(link: Link, source: str) -> None:
    where = f"link {link.name!r} in {source}"
    numbers = np.concatenate([[link.mass], link.com, link.inertia.ravel()])
    if not np.isfinite(numbers).all():
        raise DescriptionError(f"{where}: mass, centre of mass or inertia is not finite; write finite numbers")
    if link.mass < 0.0:
        raise DescriptionError(f"{where}: mass is negative ({link.mass:g} kg); give zero or more")


def _check_joint(joint: Joint, tree: Tree) -> None:
    where = f"joint {joint.name!r} in {tree.source}"
    links = [link.name for link in tree.links]
    for end, name in (("parent", joint.parent), ("child", joint.child)):
        if name not in links:
            raise DescriptionError(f"{where}, {end}: {unknown_name('link', name, links)}")
    _check_axis(joint, where)
    if not joint.limits.lower <= joint.limits.upper:
        raise DescriptionError(
            f"{where}: lower limit {joint.limits.lower:g} is not below upper limit {joint.limits.upper:g}; swap them"
        )
    for quantity in ("damping", "friction", "armature"):
        value = getattr(joint, quantity)
        if not (np.isfinite(value) and value >= 0.0):
            raise DescriptionError(f"{where}: {quantity} is {value:g}; give a finite number, zero or more")
    constant = KINDS[KIND_OF_TYPE[joint.type]].constant if joint.type in KIND_OF_TYPE else ""
    if constant and not np.isfinite(getattr(joint, constant)):
        raise DescriptionError(f"{where}: {constant} is {getattr(joint, constant):g}; give a finite number")
    if joint.mimic is not None and joint.type not in MIMIC_JOINTS:
        raise DescriptionError(
            f"{where}: a {joint.type} joint cannot mimic another; only {', '.join(MIMIC_JOINTS)} joints can"
        )


def _check_loop(loop: Loop, tree: Tree) -> None:
    where = f"loop {loop.name!r} in {tree.source}"
    links = [link.name for link in tree.links]
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
            f"{tree.source}: {len(roots)} links have no parent ({', '.join(map(repr, roots))}); expected one root: "
            "connect the others by joints"
        )
    for link in tree.links:
        _check_reaches_root(link.name, parents, tree.source)


def _check_reaches_root(name: str, parents: dict[str, Joint], source: str) -> None:
    path = [name]
    while path[-1] in parents:
        above = parents[path[-1]].parent
        if above in path:
            loop = " -> ".join(reversed([*path[path.index(above) :], above]))
            raise DescriptionError(f"{source}: links form a kinematic loop ({loop}); a robot is a tree, so cut it")
        path.append(above)


def _report_inertia(tree: Tree, link: Link, fault: str, strict: bool) -> None:
    symmetric = 0.5 * (link.inertia + link.inertia.T)
    moments = ", ".join(f"{moment:.6g}" for moment in np.linalg.eigvalsh(symmetric))
    text = (
        f"link {link.name!r} in {tree.source}: inertia is not physical: {fault} "
        f"(mass {link.mass:g} kg, principal moments {moments} kg·m²)"
    )
    if strict:
        raise DescriptionError(f"{text}; correct it, or load without strict=True")
    warn(tree, text)

"""Libraries of robot models on the same arm: kinematics, dynamics and their gradients over the batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache, partial
from importlib.resources import files
from types import MappingProxyType
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np

import pullback as pb
from bench.benchmark import NOT_MEASURED, Bar, Benchmark, Cell, NoResultError, Options, Row, figure, markdown, spread
from bench.environments import INSTALLING, cache, python_of, run_in
from bench.peers.library import NAMES
from pullback.description.tree import Tree

BATCHES = (1, 64, 1024, 65_536)
LINK = "iiwa_link_7"
SAME = 1e-9
OURS = "Pullback"


class Library(NamedTuple):
    """A program of bench/peers, the environment it needs, its settings, and how close its results must be to ours.

    One that compiles a library by itself `builds`.
    """

    module: str
    environment: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})
    same: float = SAME
    builds: bool = False


LOOPS = {"folder": str(cache() / "pinocchio_loops")}
LIBRARIES = {
    OURS: Library("pullback_models"),
    "Pinocchio, C++": Library("pinocchio_models", "codegen", LOOPS, builds=True),
    "Pinocchio, generated C": Library("pinocchio_models", "codegen", {**LOOPS, "codegen": True}, builds=True),
    "JaxSim": Library("jaxsim_models", "jaxsim", {"kept": str(cache() / "jaxsim_code")}),
    "adam, JAX": Library("adam_models", "adam", {"kept": str(cache() / "adam_code")}),
    # its placements are read in float32
    "pytorch_kinematics": Library("kinematics_models", "kinematics", same=1e-6),
    "DRM, float32": Library("drm_models", same=1e-3),
}
# its package of this name on PyPI is another one
NOT_INSTALLED = "bard is not on PyPI, so it was not measured."


def job_of(batch: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the arm, random states, and a cotangent for each function."""
    urdf = str(files("diff_robot_data") / "kuka_iiwa" / "urdf" / "iiwa7.urdf")
    rng = np.random.default_rng(0)
    n = 7
    q, qd, w = rng.uniform(-1.5, 1.5, (batch, n)), rng.standard_normal((batch, n)), rng.standard_normal((batch, n))
    shapes = {"FK": (3,), "Jacobian": (6, n), "RNEA": (n,), "CRBA": (n, n), "ABA": (n,)}
    cotangents = {name: rng.standard_normal((batch, *shape)) for name, shape in shapes.items()}
    cotangents["CRBA"] += cotangents["CRBA"].swapaxes(1, 2)
    states = {"q": q, "qd": qd, "w": w}
    texts = {"urdf": urdf, "sdf": sdf_of(pb.load(urdf).model.tree), "link": LINK, "settings": json.dumps(settings)}
    return {**texts, **states, **cotangents}


def sdf_of(tree: Tree) -> str:
    """Return an arm of hinges and fixed joints, fixed to the world, as SDF without shapes."""
    root = Element("sdf", version="1.7")
    model = SubElement(root, "model", name=tree.name)
    parents = {joint.child: joint for joint in tree.joints}
    for link in tree.links:
        element = SubElement(model, "link", name=link.name)
        if link.name in parents:
            SubElement(element, "pose", relative_to=parents[link.name].name).text = "0 0 0 0 0 0"
        inertial = SubElement(element, "inertial")
        SubElement(inertial, "pose").text = numbers([*link.com, 0.0, 0.0, 0.0])
        SubElement(inertial, "mass").text = repr(float(link.mass))
        inertia = SubElement(inertial, "inertia")
        for name, (i, j) in {
            "xx": (0, 0),
            "xy": (0, 1),
            "xz": (0, 2),
            "yy": (1, 1),
            "yz": (1, 2),
            "zz": (2, 2),
        }.items():
            SubElement(inertia, f"i{name}").text = repr(float(link.inertia[i, j]))
        if link.name not in parents:
            held = SubElement(model, "joint", name="world_joint", type="fixed")
            SubElement(held, "parent").text, SubElement(held, "child").text = "world", link.name
    for joint in tree.joints:
        element = SubElement(model, "joint", name=joint.name, type=joint.type)
        SubElement(element, "pose", relative_to=joint.parent).text = numbers(
            [*joint.origin.translation, *angles_of(joint.origin.rotation)]
        )
        SubElement(element, "parent").text, SubElement(element, "child").text = joint.parent, joint.child
        if joint.type != "fixed":
            axis = SubElement(element, "axis")
            SubElement(axis, "xyz").text = numbers(joint.axis)
            limit = SubElement(axis, "limit")
            SubElement(limit, "lower").text, SubElement(limit, "upper").text = "-3", "3"
    return tostring(root, encoding="unicode")


def numbers(values: Any) -> str:
    """Return numbers with all their digits."""
    return " ".join(repr(float(x)) for x in values)


def angles_of(R: np.ndarray) -> tuple[float, float, float]:
    """Return roll, pitch and yaw [rad] of a rotation, R = Rz(yaw) Ry(pitch) Rx(roll)."""
    return float(np.arctan2(R[2, 1], R[2, 2])), float(-np.arcsin(R[2, 0])), float(np.arctan2(R[1, 0], R[0, 0]))


def measure(name: str, batch: int, options: Options) -> Row:
    """Measure one library and us; results are compared before times are looked at."""
    if LIBRARIES[name].builds:
        python_of(LIBRARIES[name].environment)
        reason = built(name)
        if reason:
            raise NoResultError(f"does not build: {reason}")
    found = {}
    for each in (name, OURS):
        module, environment, settings, *_ = LIBRARIES[each]
        # five functions, each with and without its gradient
        job = job_of(batch, {**settings, "seconds": options.seconds / 10})
        found[each] = run_in(environment, module, job, cap=options.cap)
    ours, theirs = found[OURS], found[name]
    figures, beside = (json.loads(str(x["figures"])) for x in (theirs, ours))
    row: Row = {"batch": batch, "compiling": figures["compiling"], "versions": figures["versions"]}
    for function in NAMES:
        keys = [key for key in theirs if key.startswith(f"{function}/")]
        worst = max((error(ours, theirs, key) for key in keys), default=0.0)
        row[function] = entry_of(figures["functions"][function], batch, worst, LIBRARIES[name].same)
        row[function]["ours"] = entry_of(beside["functions"][function], batch)
    return row


@lru_cache
def built(name: str) -> str:
    """Let a library build what it keeps, once a run, with as long as an installation has; return why it cannot."""
    module, environment, settings, *_ = LIBRARIES[name]
    print(f"  building {name}, unless it is there", flush=True)
    try:
        run_in(environment, module, job_of(1, {**settings, "build": True}), cap=INSTALLING)
    except NoResultError as reason:
        return str(reason)
    return ""


def error(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], key: str) -> float:
    """Return by how much a result differs from ours, of its largest entry; of FK positions are compared."""
    x, y = ours[key], theirs[key]
    if key == "FK/value":
        x, y = x[:, :3], y[:, :3]
    return float(np.abs(x - y).max() / np.abs(x).max())


def entry_of(found: dict[str, Any], batch: int, difference: float = 0.0, same: float = SAME) -> Row:
    """Return the times a robot [s] of a function, unless its results differ."""
    if not difference <= same:
        return {"reason": f"differs by {difference:.0e}"}
    times = {way: spread([x / batch for x in found[way]]) for way in ("value", "both") if way in found}
    return {**times, "reason": found["reason"], "difference": difference}


def cells(options: Options) -> dict[str, Cell]:
    """Return a cell for each library and batch."""
    return {f"{name}/{batch}": partial(measure, name, batch, options) for name in LIBRARIES for batch in BATCHES}


def text_of(row: Row, function: str) -> str:
    """Return a function's time without and with its gradient [µs a robot], or why there is none."""
    if "failed" in row:
        return row["failed"]
    entry = row[function]
    found = [figure(1e6 * entry[way]["median"]) if way in entry else "" for way in ("value", "both")]
    if found[0] and found[1]:
        return " / ".join(found)
    return f"{found[0]} ({entry['reason']})" if found[0] else entry["reason"]


def tables(rows: dict[str, Row]) -> list[str]:
    """Return for each function its times over the batch, then versions and compile times."""
    lines = []
    for function in NAMES:
        body = [
            [name, *(text_of(rows.get(f"{name}/{batch}", NOT_MEASURED), function) for batch in BATCHES)]
            for name in LIBRARIES
        ]
        heading = f"**{function}: a robot [µs], alone / with its gradient**"
        lines += [heading, "", *markdown(["batch", *(f"{batch:,}" for batch in BATCHES)], body), ""]
    body = []
    for name in LIBRARIES:
        row = next((r for b in reversed(BATCHES) if "ABA" in (r := rows.get(f"{name}/{b}", {}))), None)
        if row is not None:
            worst = max(row[function].get("difference", 0.0) for function in NAMES)
            packages = ", ".join(f"{k} {v}" for k, v in row["versions"].items())
            body.append([name, f"{worst:.0e}", f"{row['compiling']:.0f} s", packages])
    return [*lines, *markdown(["", "differs by", "compiling", "versions"], body), "", NOT_INSTALLED]


def bars(rows: dict[str, Row]) -> list[Bar]:
    """Return the bars of a batch on one core, a robot (docs/decisions/0023-worlds-in-lanes.md)."""
    row = rows.get(f"{OURS}/1024", {})
    if "both" not in row.get("ABA", {}):
        return []
    alone, both = (1e6 * row["ABA"][way]["median"] for way in ("value", "both"))
    return [
        Bar("ABA of the arm, batch 1,024", "at most 0.45 µs", f"{alone:.2f} µs", alone <= 0.45),
        Bar("its vjp", "at most 1.0 µs", f"{both - alone:.2f} µs", both - alone <= 1.0),
    ]


BENCHMARK = Benchmark(
    "models",
    "Robot models",
    "What do kinematics and dynamics of an arm and their gradients take, for us and for other libraries?",
    "KUKA iiwa7, seven hinges, its last link, float64, one core, random states. FK: pose of a link, gradient of its "
    "position; Jacobian (6, 7) of that link; RNEA, CRBA, ABA by q, qd and acceleration or force. With its gradient: "
    "the function and the product of a cotangent with its derivatives by all inputs. Pinocchio runs in loops in C++ "
    "(g++ -O3 for this processor) over its analytic derivatives, and over the C that it generates; JAX is compiled "
    "once for each batch and kept; the others are called from Python with the whole batch. adam's robots have floating "
    "bases: its RNEA is M qdd + h, and M is solved for its forward dynamics.",
    f"Values and gradients of the first 8 robots agree with ours within {SAME:.0e} of their largest entry (1e-6 for "
    "pytorch_kinematics, which reads placements in float32, 1e-3 for DRM, which has float32 only), or the cell has no "
    "figure.",
    cells,
    tables,
)

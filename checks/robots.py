"""Every robot in the installed packages: does it load, does it agree with others? Writes docs/robots_tested.md.

`python -m checks.robots` (make robots). Packages that are not installed are skipped by name.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track

import pullback as pb
from checks.mujoco_forces import compare as compare_with_mujoco
from pullback.core.errors import PullbackError
from pullback.description.check import resolve_mimics

PAGE = Path(__file__).parent.parent / "docs" / "robots_tested.md"
STATES = 10
# relative to the largest entry of a state's result: URDF against Pinocchio, MJCF against MuJoCo
AGREES = {"*.urdf": 1e-9, "*.xml": 1e-10}
COLUMNS = {"*.urdf": "poses | mass matrix | inverse dynamics", "*.xml": "poses | passive forces | actuators"}
# joints that are one joint in both
COMPARED = ("revolute", "continuous", "prismatic", "fixed", "floating")


@dataclass(frozen=True)
class Collection:
    """Robots that come with a package: files below a folder, those with `left_out` in their path not."""

    name: str
    package: str
    folder: str
    pattern: str = "*.urdf"
    left_out: str = "no such path"
    every: int = 1
    """Take one file of so many."""

    @property
    def kind(self) -> str:
        """The pattern of the format."""
        return "*.urdf" if self.pattern == "*.urdf" else "*.xml"


COLLECTIONS = (
    Collection("example-robot-data", "example-robot-data", "cmeel.prefix/share/example-robot-data/robots"),
    Collection("pybullet_data", "pybullet", "pybullet_data", left_out="random_urdfs"),
    Collection("pybullet_data, random objects, one of 50", "pybullet", "pybullet_data/random_urdfs", every=50),
    Collection("differentiable-robot-model", "differentiable-robot-model", "diff_robot_data"),
    Collection("Gymnasium (MJCF)", "gymnasium", "gymnasium/envs/mujoco/assets", "*.xml"),
    Collection("dm_control (MJCF)", "dm_control", "dm_control/suite", "*.xml", left_out="/common/"),
    Collection("robosuite (MJCF)", "robosuite", "robosuite/models/assets/robots", "robot.xml"),
    Collection("MuJoCo (MJCF)", "mujoco", "mujoco/testdata", "*.xml"),
    Collection("pybullet_data (MJCF)", "pybullet", "pybullet_data/mjcf", "*.xml"),
)


@dataclass
class Row:
    """What was found for a robot."""

    name: str
    size: str = ""
    loads: bool = False
    said: str = ""
    """Why it does not load, or why it is not compared."""
    problems: list[str] = field(default_factory=list)
    errors: tuple[float, ...] = ()
    """Of forward kinematics, mass matrix and inverse dynamics; of MJCF as in `mujoco_forces.Errors`."""

    @property
    def worst(self) -> float:
        """The largest error of those that were compared."""
        return max((error for error in self.errors if not np.isnan(error)), default=0.0)


def files_of(collection: Collection) -> Iterator[tuple[str, Path]]:
    """Yield the files of a collection by their names in it."""
    folder = Path(str(distribution(collection.package).locate_file(collection.folder)))
    found = sorted(file for file in folder.rglob(collection.pattern) if collection.left_out not in str(file))
    for file in found[:: collection.every]:
        yield str(file.relative_to(folder)), file


def installed_files() -> list[tuple[str, Path]]:
    """Return the robots of all installed collections by name, random objects left out."""
    files = []
    for collection in COLLECTIONS:
        if "random" in collection.name:
            continue
        try:
            files += [(f"{collection.name}: {name}", file) for name, file in files_of(collection)]
        except PackageNotFoundError:
            continue
    return files


def examine(name: str, file: Path) -> Row:
    """Load a robot and compare it with Pinocchio or MuJoCo."""
    row = Row(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            robot = pb.load(file, dtype=torch.float64)
        except PullbackError as error:
            row.said = f"{error}{pinocchios_word(file) if file.suffix == '.urdf' else ''}"
            return row
        row.loads, row.problems = True, robot.model.tree.problems
        row.size = f"{len(robot.model.links)} links, {robot.nv} dofs"
        if file.suffix == ".urdf" and robot.nv:
            compare(row, robot, file)
        if file.suffix == ".xml" and robot.nv:
            row.errors, row.said = compare_with_mujoco(robot, file)
    return row


def pinocchios_word(file: Path) -> str:
    """Return whether Pinocchio reads a file that we do not."""
    import pinocchio  # pyright: ignore[reportMissingImports]

    try:
        pinocchio.buildModelFromUrdf(str(file))
    except Exception:
        return " (Pinocchio refuses it too)"
    return " (Pinocchio reads it)"


def compare(row: Row, robot: pb.RobotModel, file: Path) -> None:
    """Add the errors against Pinocchio's own reading of the file, or why there are none."""
    import pinocchio  # pyright: ignore[reportMissingImports]

    from tests.robot.pinocchio_oracle import PinocchioOracle

    tree = robot.model.tree
    others = sorted({joint.type for joint in tree.joints} - {*COMPARED})
    if others or tree.loops:
        row.said = f"not compared: {', '.join(others) or 'loops'}"
        return
    try:
        model = pinocchio.buildModelFromUrdf(str(file))
    except Exception as error:
        row.said = f"Pinocchio: {shortest(str(error), file)}"
        return
    mimics = {
        joint.name: (joint.mimic.joint, joint.mimic.multiplier, joint.mimic.offset)
        for joint in resolve_mimics(tree.joints, tree.source)
        if joint.mimic
    }
    oracle = PinocchioOracle(robot, model, mimics)
    generator = torch.Generator().manual_seed(0)
    q = robot.random_q(STATES, generator=generator)
    qd, qdd = (torch.randn(STATES, robot.nv, dtype=torch.float64, generator=generator) for _ in range(2))
    found = robot.compute_forward_kinematics_all_links(q)
    poses = oracle.poses(q)
    position = np.stack([found[link][0].numpy() for link in poses])
    expected = np.stack([pose[:, :, 3] for pose in poses.values()])
    turned = np.stack([rotations(found[link][1].numpy()) for link in poses])
    rotation = np.stack([pose[:, :, :3] for pose in poses.values()])
    tau = robot.compute_inverse_dynamics(q, qd, qdd, include_gravity=True, use_damping=False)
    row.errors = (
        max(error_of(position, expected), error_of(turned, rotation)),
        error_of(robot.compute_lagrangian_inertia_matrix(q).numpy(), oracle.mass_matrix(q)),
        error_of(tau.numpy(), oracle.inverse_dynamics(q, qd, qdd)),
    )


def error_of(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest error relative to the largest entry."""
    return float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30))


def rotations(quat: np.ndarray) -> np.ndarray:
    """Return the rotation matrices (B, 3, 3) of quaternions xyzw (B, 4)."""
    vector, w = quat[:, :3], quat[:, 3]
    cross = np.cross(vector[:, None], np.eye(3)[None]).swapaxes(1, 2)
    return np.eye(3) + 2.0 * w[:, None, None] * cross + 2.0 * cross @ cross


def shortest(text: str, file: Path) -> str:
    """Return the first line of a message, without the folder of the file, fit for a table."""
    line = (text.strip().splitlines() or [""])[0].replace(str(file), file.name).replace(str(file.parent), "…")
    return line.replace("|", "/")[:160]


def table(collection: Collection, rows: list[Row]) -> list[str]:
    """Return a section of the page: how many load and agree, what was refused or differs, then all."""
    loaded, compared = [row for row in rows if row.loads], [row for row in rows if row.errors]
    agrees = AGREES[collection.kind]
    agree = [row for row in compared if row.worst <= agrees]
    lines = [f"## {collection.name}", "", f"{len(loaded)} of {len(rows)} load"]
    if compared:
        worst = max(row.worst for row in compared)
        lines[-1] += f"; {len(agree)} of {len(compared)} compared agree to {agrees:g} (worst {worst:.1e})"
    lines[-1] += "."
    refused = [f"- {row.name}: {row.said}" for row in rows if not row.loads]
    differ = [
        f"- {row.name} differs: {', '.join(f'{e:.1e}' for e in row.errors)}" for row in compared if row not in agree
    ]
    lines += ["", *refused, *differ] if refused or differ else []
    lines += ["", f"| robot | size | {COLUMNS[collection.kind]} | notes |", "|---|---|---|---|---|---|"]
    for row in loaded:
        errors = ["" if np.isnan(error) else f"{error:.0e}" for error in row.errors] or ["", "", ""]
        count = len(row.problems)
        notes = "; ".join(filter(None, [row.said, f"{count} warning{'s' * (count != 1)}" if count else ""]))
        lines.append(f"| {row.name} | {row.size} | {' | '.join(errors)} | {notes} |")
    return [*lines, ""]


def main() -> None:
    """Examine all, write the page, and end with an error if a robot disagrees."""
    console = Console()
    page = ["# Robots tested", ""]
    page += [
        "Written by `make robots`: every robot file in the packages of `pullback[dev]`, and in dm_control and",
        "robosuite where they are installed. Pinocchio reads the same URDF file by itself; poses of all links,",
        "mass matrix and inverse dynamics are compared at ten random states, relative to the largest entry. URDFs",
        "with ball or planar joints are loaded only. MuJoCo reads the same MJCF file; compared are poses of bodies",
        "and sites, passive forces (gravity, velocity products, springs, dampers) and what actuators do in a",
        "World, at controls beyond their ranges too. What a warning names as left out is left out there as well.",
        "",
    ]
    wrong = 0
    for collection in COLLECTIONS:
        try:
            files = list(files_of(collection))
        except PackageNotFoundError:
            console.print(f"{collection.name}: skipped, {collection.package} is not installed")
            page += [f"## {collection.name}", "", f"Skipped: {collection.package} is not installed.", ""]
            continue
        rows = [examine(*found) for found in track(files, collection.name, console=console)]
        lines = table(collection, rows)
        wrong += sum(row.worst > AGREES[collection.kind] for row in rows)
        console.print("\n".join(line for line in lines if not line.startswith("|")), markup=False, highlight=False)
        page += lines
    PAGE.write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")
    console.print(f"wrote {PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

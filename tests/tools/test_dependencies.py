"""Every package that the code imports is declared in pyproject.toml, where it is needed."""

import ast
import re
import sys
from pathlib import Path

import pytest

from pullback.core.extras import EXTRAS as OPTIONAL

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[2]
# import name -> name of the package, where they differ
PACKAGES = {"warp": "warp-lang", "pinocchio": "pin", "skfem": "scikit-fem", "collada": "pycollada"}
PACKAGES |= {"PIL": "pillow", "rsl_rl": "rsl-rl-lib", "adam": "adam-robotics", "genesis": "genesis-world"}
# come with a package that is declared
PARTS = {
    "_pytest": "pytest",
    "pybullet_data": "pybullet",
    "coal": "pin",
    "hppfcl": "pin",
    "diff_robot_data": "differentiable-robot-model",
    "imageio": "viser",
}
OWN = {"pullback", "tests", "bench", "checks", "examples", "tools"}
EXTRAS = {
    "pullback": ("viz", "mjcf", "xacro", "coacd", "mesh", "search", "learn", "rl"),
    "tests": ("dev", "rl"),
    "tools": ("dev", "docs"),
    "checks": ("dev",),
    "bench": (
        *("bench", "bench-taichi", "bench-jax", "bench-casadi", "bench-newton", "bench-nimble", "bench-genesis"),
        *("bench-kinematics", "bench-jaxsim", "bench-adam", "bench-codegen", "dev", "rl"),
    ),
}


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted, names = [*project["dependencies"]], set()
    wanted += [line for extra in extras for line in project["optional-dependencies"][extra]]
    for line in wanted:
        name = re.match(r"[\w.-]+", line)[0].lower().replace("_", "-")
        if name == "pullback":
            names |= declared(*re.search(r"\[(.*)\]", line)[1].split(","))
        names.add(name)
    return names


def imported(folder: str) -> dict[str, str]:
    """Return the packages that files of a folder import, and one file that does."""
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                modules = [node.module]
            found.update({module.split(".")[0]: str(path.relative_to(ROOT)) for module in modules})
    return {name: where for name, where in found.items() if name not in {*sys.stdlib_module_names, *OWN, "tomli"}}


@pytest.mark.parametrize("folder", EXTRAS)
def test_imports_are_declared(folder):
    names = declared(*EXTRAS[folder])
    for module, where in imported(folder).items():
        package = PACKAGES.get(module, PARTS.get(module, module)).replace("_", "-")
        assert package in names, f"{where} imports {module}, which pyproject.toml does not declare"


def test_extras_install_what_the_doctor_says():
    for package, extra in OPTIONAL.items():
        assert package in declared(extra), f"{package} is not in the extra {extra}"


def test_a_missing_declaration_is_found():
    assert "scipy" in imported("pullback")
    assert "pin" not in declared()
    assert {"mujoco", "cma", "pytest"} <= declared("dev")


def test_constraints_name_what_is_declared():
    pinned = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    base = declared() | declared("viz", "mjcf", "mesh", "search", "learn")
    assert base - pinned == set()

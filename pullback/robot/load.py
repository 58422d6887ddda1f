"""Load a robot: a shipped name or a file becomes a RobotModel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch

from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.description.check import check_tree
from pullback.description.compile import compile_tree
from pullback.description.load import Xacro, read
from pullback.description.tree import Tree
from pullback.robot.decompose import decompose_tree
from pullback.robot.model import RobotModel


def load(
    path_or_name: str | Path | Tree,
    base: Literal["fixed", "floating"] | None = None,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    strict: bool = False,
    repair: bool = False,
    xacro: Xacro = False,
    packages: Mapping[str, str | Path] | None = None,
    concave: Literal["hull", "decompose"] = "hull",
) -> RobotModel:
    """Load a robot from a `.urdf` or MJCF `.xml` file, one that ships with Pullback, such as "panda", or a `Tree`.

    `base` says whether the root link is fixed to the world or floats; by default what the description says, else fixed.
    `strict` refuses non-physical inertias instead of warning; `repair` replaces them, and moments of zero, by the
    nearest that a solid body can have. `dtype` and `device` default to torch's.

    `xacro=True`, or the arguments of the file, `xacro={"prefix": "left_"}`, expands a `.xacro` file, which can run any
    Python: only files that you trust. `packages` are the folders of ROS packages by name, for `package://`, `$(find)`.

    A collision mesh counts as its convex hull; with `concave="decompose"` as several convex parts that follow its shape
    (`pip install "pullback[coacd]"`; `decompose_mesh` has its options).
    """
    device = find_device(device)
    if concave not in ("hull", "decompose"):
        raise PullbackError(f"concave is {concave!r}; choose 'hull' or 'decompose'")
    if isinstance(path_or_name, Tree):
        tree = path_or_name
        check_tree(tree, strict=strict, repair=repair)
    else:
        tree = read(path_or_name, strict=strict, repair=repair, xacro=xacro, packages=packages)
    if concave == "decompose":
        decompose_tree(tree)
    return RobotModel(compile_tree(tree, base), dtype=dtype, device=device)

"""Packages that Pullback works without, and the extra that installs each."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pullback.core.errors import PullbackError

EXTRAS = {
    "viser": "viz",
    "fast-simplification": "viz",
    "imageio-ffmpeg": "viz",
    "mujoco": "mjcf",
    "xacro": "xacro",
    "coacd": "coacd",
    "cma": "search",
    "meshio": "mesh",
    "gymnasium": "learn",
    "onnx": "learn",
    "onnxscript": "learn",
    "onnxruntime": "learn",
    "rsl-rl-lib": "rl",
    "tensordict": "rl",
    "tensorboard": "rl",
    "ray": "ray",
}
"""Optional packages by their names on the package index -> the extra of Pullback that installs each."""


def need_extra(module: str, extra: str, purpose: str) -> Any:
    """Return an optional module; where it is missing raise an error with the line that installs it.

    `purpose` is the first half of the sentence: "the viewer runs on viser".
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0].replace("_", "-")
        raise PullbackError(
            f"{purpose} by the package {package}, which is not installed; pip install 'pullback[{extra}]'"
        ) from error

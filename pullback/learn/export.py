"""A policy as an ONNX file, its normaliser inside, checked against the original."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.learn.networks import Policy, require_normalizer

TOLERANCE = 1e-5
"""Largest difference of an action, between -1 and 1, that the exported policy may have."""


def export_onnx(policy: Policy, path: str | Path) -> float:
    """Write a policy that takes `observation` (B, n) and returns `action` (B, nu), both float32.

    It is run by onnxruntime on random observations; return by how much its actions differ from the policy's, an error
    if that is more than 1e-5.
    """
    require_normalizer(policy)
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise PullbackError(f"export to ONNX needs {', '.join(missing)}: pip install 'pullback[learn]'")
    import onnxruntime

    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = Policy(policy.sizes[0], policy.sizes[-1], policy.sizes[1:-1], state_std=policy.state_std)
    plain.load_state_dict(policy.state_dict())
    plain.eval()
    random = torch.Generator().manual_seed(0)
    assert plain.normalizer is not None
    spread = plain.normalizer.var.sqrt()
    sample = plain.normalizer.mean + spread * torch.randn(16, policy.sizes[0], generator=random)
    with _quiet():
        torch.onnx.export(
            plain, (sample,), str(path), dynamo=True, input_names=["observation"], output_names=["action"],
            dynamic_shapes=({0: torch.export.Dim("batch")},), external_data=False, verbose=False,
        )  # fmt: skip
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (found,) = session.run(["action"], {"observation": sample.numpy()})
    with torch.no_grad():
        error = float(np.abs(np.asarray(found) - plain(sample).numpy()).max())
    if not error <= TOLERANCE:
        raise PullbackError(f"{path} differs from the policy by {error:.1e}; do not use it, and report this as a bug")
    return error


@contextmanager
def _quiet() -> Iterator[None]:
    """Leave out what torch's exporter says about packages that a policy does not use, and about its own future."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(before)

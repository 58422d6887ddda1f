"""Brax on the engine benchmark's scene: its generalized, positional or spring pipeline, reverse mode by `jax.grad`."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from brax.io import mjcf

from bench.peers.contestant import time_of
from bench.peers.engine import Engine, Scene, run

SETTLING = 300


def with_static_bodies_merged(xml: str) -> str:
    """Return the model as MuJoCo writes it: Brax merges bodies itself, and gives them two inertias."""
    model = mujoco.MjModel.from_xml_string(xml)
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        mujoco.mj_saveLastXML(file.name, model)
        return Path(file.name).read_text()


def prepare(scene: Scene) -> Engine:
    """Return loss and gradient, compiled."""
    system = mjcf.loads(with_static_bodies_merged(scene.xml))
    pipeline: Any = import_module(f"brax.{scene.settings['pipeline']}.pipeline")
    start = pipeline.init(system, jnp.array(scene.qpos), jnp.array(scene.qvel))

    def rollout(state: Any, controls: jax.Array) -> Any:
        return jax.lax.scan(lambda x, u: (pipeline.step(system, x, u), None), state, controls)[0]

    hold = jnp.tile(jnp.array(scene.controls).mean(0), (SETTLING, 1))
    start = jax.jit(rollout)(start, hold)

    def loss(controls: jax.Array) -> jax.Array:
        state = rollout(start, controls)
        return (state.q * state.q).sum() + (state.qd * state.qd).sum()

    controls = jnp.array(scene.controls)
    compiled, seconds = time_of(lambda: jax.jit(loss).lower(controls).compile())
    forward = lambda u: float(compiled(jnp.array(u)))  # noqa: E731
    try:
        gradient, more = time_of(lambda: jax.jit(jax.grad(loss)).lower(controls).compile())
    except Exception as error:
        return Engine(forward, None, f"{type(error).__name__}: {str(error).splitlines()[0][:160]}", seconds)
    return Engine(forward, lambda u: np.asarray(gradient(jnp.array(u))), "", seconds + more)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    run(prepare, ("brax", "jax"))

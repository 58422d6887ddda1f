"""MJX on the engine benchmark's scene: compiled scan of steps; reverse mode, or forward mode of each step, chained."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from mujoco import mjx

from bench.peers.contestant import time_of
from bench.peers.engine import Engine, Scene, run


def prepare(scene: Scene) -> Engine:
    """Return loss and gradient, compiled; where the gradient does not compile, why."""
    model = mujoco.MjModel.from_xml_string(scene.xml)
    model.opt.iterations = scene.settings.get("iterations", model.opt.iterations)
    model.opt.ls_iterations = scene.settings.get("ls_iterations", model.opt.ls_iterations)
    device = mjx.put_model(model)
    exact = device.tree_replace({"opt.tolerance": 1e-15})
    made = mjx.make_data(model)
    x0 = jnp.concatenate([jnp.array(scene.qpos), jnp.array(scene.qvel)])
    nq = model.nq

    def step(x: jax.Array, u: jax.Array, model: Any = device) -> jax.Array:
        data = mjx.step(model, made.replace(qpos=x[:nq], qvel=x[nq:], ctrl=u))
        return jnp.concatenate([data.qpos, data.qvel])

    def loss(controls: jax.Array, model: Any = device) -> jax.Array:
        x, _ = jax.lax.scan(lambda x, u: (step(x, u, model), None), x0, controls)
        return (x * x).sum()

    def chained(controls: jax.Array) -> jax.Array:
        def forward(x: jax.Array, u: jax.Array) -> Any:
            return step(x, u), jax.jacfwd(step, argnums=(0, 1))(x, u)

        x, (A, B) = jax.lax.scan(forward, x0, controls)
        return jax.lax.scan(lambda adj, AB: (AB[0].T @ adj, AB[1].T @ adj), 2 * x, (A, B), reverse=True)[1]

    gradient_of = chained if scene.settings.get("forward_mode") else jax.grad(loss)
    controls = jnp.array(scene.controls)
    compiled, seconds = time_of(lambda: jax.jit(loss).lower(controls).compile())
    forward = lambda u: float(compiled(jnp.array(u)))  # noqa: E731
    try:
        gradient, more = time_of(lambda: jax.jit(gradient_of).lower(controls).compile())
    except Exception as error:
        return Engine(forward, None, f"{type(error).__name__}: {str(error).splitlines()[0][:160]}", seconds)
    loss_of_exact = jax.jit(lambda u: loss(u, exact))
    converged = lambda u: float(loss_of_exact(jnp.array(u)))  # noqa: E731
    return Engine(forward, lambda u: np.asarray(gradient(jnp.array(u))), "", seconds + more, converged)


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    run(prepare, ("mujoco-mjx", "jax"))

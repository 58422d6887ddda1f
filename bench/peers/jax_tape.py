"""The Laikago's steps in JAX: compiled as a whole, `lax.scan` over steps and sweeps, reverse mode by `jax.grad`."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.peers.contestant import Functions, Job, run, time_of
from bench.peers.laikago_step import step


class Library:
    """The functions of JAX that a step asks for."""

    stack, concat, cross, where = map(staticmethod, (jnp.stack, jnp.concatenate, jnp.cross, jnp.where))
    sin, cos, sqrt = map(staticmethod, (jnp.sin, jnp.cos, jnp.sqrt))
    minimum, maximum, greater = map(staticmethod, (jnp.minimum, jnp.maximum, jnp.greater))

    def __init__(self, unroll: int) -> None:
        self.unroll = unroll

    def solve(self, M: jax.Array, columns: jax.Array) -> jax.Array:
        """Return M^-1 columns by Cholesky."""
        return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(M), columns)

    def repeat(self, n: int, function: Any, x: jax.Array) -> jax.Array:
        """Return x after n applications of a function."""
        return jax.lax.scan(lambda x, _: (function(x), None), x, None, length=n, unroll=self.unroll)[0]


def prepare(job: Job) -> Functions:
    """Compile the rollout and its gradient for these shapes."""
    robot = job.constants(jnp.array)
    library = Library(job.settings.get("unroll", 1))

    def one(state: Any, u: jax.Array) -> Any:
        return step(library, robot, state, u)

    if job.settings.get("checkpoint"):
        one = jax.checkpoint(one)

    def rollout(q: jax.Array, qd: jax.Array, controls: jax.Array) -> Any:
        return jax.lax.scan(lambda state, u: (one(state, u), None), (q, qd), controls)[0]

    def loss(q: jax.Array, qd: jax.Array, controls: jax.Array) -> jax.Array:
        q, qd = rollout(q, qd, controls)
        return (q * q).sum() + (qd * qd).sum()

    inputs = [jnp.array(x) for x in (job.q, job.qd, job.controls)]
    gradient_of = jax.grad(loss, argnums=(0, 1, 2))
    (forward, gradient), seconds = time_of(
        lambda: [jax.jit(f).lower(*inputs).compile() for f in (rollout, gradient_of)]
    )
    return Functions(
        lambda: tuple(np.asarray(x) for x in jax.block_until_ready(forward(*inputs))),
        lambda: tuple(np.asarray(x) for x in jax.block_until_ready(gradient(*inputs))),
        seconds,
    )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    run(prepare, ("jax", "jaxlib"))

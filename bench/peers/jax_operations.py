"""Operations of the robot benchmark for libraries on JAX: functions of one robot, mapped over the batch, compiled."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bench.peers.contestant import time_of
from bench.peers.library import Operation, Operations, Task, reason_of

Function = Callable[..., Any]


def operations_of(task: Task, functions: dict[str, Function]) -> tuple[Operations, float]:
    """Return the operations of functions of one robot, and what compiling them took [s]; FK is (position, rotation).

    Compiled code is kept in a folder (`"kept"`), and how long each function took when it was not there yet.
    """
    folder = Path(task.settings["kept"])
    folder.mkdir(parents=True, exist_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    states = [jnp.array(x) for x in (task.q, task.qd, task.w)]
    found: Operations = {}
    compiling = 0.0
    for name, function in functions.items():
        inputs = states[: 3 if name in ("RNEA", "ABA") else 1]
        try:
            found[name], seconds = time_of(partial(compiled, name, function, inputs, jnp.array(task.cotangents[name])))
            # at once: a run that is stopped leaves the functions compiled so far
            taken = folder / f"seconds_{len(task.q)}_{name}"
            if not taken.exists():
                taken.write_text(f"{seconds}")
            compiling += float(taken.read_text())
        except Exception as error:
            found[name] = Operation(None, None, reason_of(error))
    return found, compiling


def compiled(name: str, function: Function, inputs: list[jax.Array], cotangent: jax.Array) -> Operation:
    """Return one operation."""

    def gradient(cotangent: jax.Array, *inputs: jax.Array) -> Any:
        differentiated = (lambda q: function(q)[0]) if name == "FK" else function
        return jax.vjp(differentiated, *inputs)[1](cotangent)

    value = jax.jit(jax.vmap(function)).lower(*inputs).compile()
    both = jax.jit(jax.vmap(gradient)).lower(cotangent, *inputs).compile()

    def pulled() -> tuple[np.ndarray, ...]:
        return tuple(np.asarray(x) for x in jax.block_until_ready(both(cotangent, *inputs)))

    return Operation(lambda: jax.block_until_ready(value(*inputs)), pulled)

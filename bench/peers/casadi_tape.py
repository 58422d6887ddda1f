"""The Laikago's steps in CasADi: a scalar expression graph of one step, `mapaccum` over steps, reverse mode of it.

The graph is run by CasADi's virtual machine, or written as C and compiled by gcc (`"c"`: a folder to keep it in).
"""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import subprocess
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from bench.peers.contestant import Functions, Job, run, time_of
from bench.peers.laikago_step import step

Array = np.ndarray


class Scalar:
    """A scalar expression that numpy takes for a plain object."""

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


def _operator(name: str) -> Any:
    """Return a method that does what CasADi's does, with another scalar or a number."""
    method = getattr(ca.SX, name)

    def apply(self: Scalar, *others: Any) -> Any:
        if any(isinstance(other, np.ndarray) for other in others):
            return NotImplemented
        return Scalar(method(self.x, *(x.x if isinstance(x, Scalar) else x for x in others)))

    return apply


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "neg"):
    setattr(Scalar, f"__{_name}__", _operator(f"__{_name}__"))


def each(function: Any) -> Any:
    """Return a function of CasADi's for arrays of scalars."""

    def apply(*xs: Any) -> Scalar:
        return Scalar(function(*(x.x if isinstance(x, Scalar) else x for x in xs)))

    return staticmethod(np.vectorize(apply, otypes=[object]))


class Library:
    """What a step asks for, on numpy arrays of scalars."""

    stack, concat = staticmethod(np.stack), staticmethod(np.concatenate)
    sin, cos, sqrt, minimum, maximum = map(each, (ca.sin, ca.cos, ca.sqrt, ca.fmin, ca.fmax))
    where, greater = each(ca.if_else), each(ca.gt)

    @staticmethod
    def cross(a: Array, b: Array) -> Array:
        """Return a times b along the last axis."""
        (x, y, z), (u, v, w) = (np.moveaxis(each, -1, 0) for each in np.broadcast_arrays(a, b))
        return np.stack([y * w - z * v, z * u - x * w, x * v - y * u], -1)

    @staticmethod
    def solve(M: Array, columns: Array) -> Array:
        """Return M^-1 columns by L D L^T, last row first: the legs do not meet there, and zeros stay zeros."""
        A, x, n = M[::-1, ::-1].copy(), columns[::-1].copy(), len(M)
        for k in range(n):
            for i in range(k + 1, n):
                factor = A[i, k] / A[k, k]
                A[i, k:] = A[i, k:] - factor * A[k, k:]
                x[i] = x[i] - factor * x[k]
        for k in reversed(range(n)):
            x[k] = (x[k] - (A[k, k + 1 :, None] * x[k + 1 :]).sum(0)) / A[k, k]
        return x[::-1]

    @staticmethod
    def repeat(n: int, function: Any, x: Array) -> Array:
        """Return x after n applications of a function."""
        for _ in range(n):
            x = function(x)
        return x


def expression(array: Array) -> Any:
    """Return a column of expressions as CasADi's own."""
    return ca.vertcat(*(x.x for x in array.tolist()))


def compiled(one: Any, folder: str) -> tuple[Any, float]:
    """Return a function as machine code, its reverse mode with it, and what compiling took [s]; once for a folder."""
    library, taken = Path(folder) / "one.so", Path(folder) / "seconds"
    if not taken.exists():
        before = time.perf_counter()
        Path(folder).mkdir(parents=True, exist_ok=True)
        with chdir(folder):
            source = ca.CodeGenerator("one.c")
            source.add(one)
            source.add(one.reverse(1))
            source.generate()
            subprocess.run(["gcc", "-O1", "-march=native", "-shared", "-fPIC", "one.c", "-o", "one.so"], check=True)
        taken.write_text(f"{time.perf_counter() - before}")
    return ca.external("one", str(library)), float(taken.read_text())


def prepare(job: Job) -> Functions:
    """Build the functions, and compile them where asked for."""
    robot = job.constants(lambda x: x)
    steps = len(job.controls)
    compiling = 0.0

    def build() -> tuple[Any, Any]:
        state, u = ca.SX.sym("state", 37), ca.SX.sym("u", 12)
        x, control = (np.array([Scalar(x) for x in ca.vertsplit(each)]) for each in (state, u))
        after = step(Library, robot, (x[:19], x[19:]), control)
        one = ca.Function("one", [state, u], [ca.vertcat(*map(expression, after))], {"cse": True})
        if job.settings.get("c"):
            nonlocal compiling
            one, compiling = compiled(one, job.settings["c"])
        rollout = one.mapaccum("rollout", steps)
        start, controls = ca.MX.sym("start", 37), ca.MX.sym("controls", 12, steps)
        last = rollout(start, controls)[:, -1]
        forward = ca.Function("forward", [start, controls], [last])
        gradients = ca.gradient(ca.sumsqr(last), start), ca.gradient(ca.sumsqr(last), controls)
        return forward, ca.Function("both", [start, controls], gradients)

    (forward, both), seconds = time_of(build)
    inputs = np.concatenate([job.q, job.qd]), job.controls.T

    def final() -> tuple[Array, Array]:
        x = np.array(forward(*inputs)).ravel()
        return x[:19], x[19:]

    def gradient() -> tuple[Array, Array, Array]:
        start, controls = (np.array(x) for x in both(*inputs))
        return start.ravel()[:19], start.ravel()[19:], controls.T

    return Functions(final, gradient, seconds + compiling)


if __name__ == "__main__":
    run(prepare, ("casadi",))

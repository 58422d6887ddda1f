"""Pinocchio on the robot benchmark's arm: its C++ in loops over the batch, or the C that it generates (`"codegen"`).

bench/peers/pinocchio_loops.cpp is built once into a folder (`"folder"`) with all that g++ can do for this processor; so
is the code, by bench/peers/pinocchio_generate.cpp.
Gradients are its analytic Jacobians times a cotangent.
"""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import ctypes
import subprocess
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio

from bench.peers.contestant import time_of
from bench.peers.library import NAMES, Operation, Operations, Task, run

Array = np.ndarray
HERE = Path(__file__).parent
FLAGS = ("-DNDEBUG", "-std=c++17", "-w")
# as its own targets define them: it has more kinds of joints than lists of Boost are long by default
LISTS = (
    "-DBOOST_MPL_LIMIT_LIST_SIZE=30",
    "-DBOOST_MPL_LIMIT_VECTOR_SIZE=30",
    "-DBOOST_MPL_CFG_NO_PREPROCESSED_HEADERS",
    "-DBOOST_FUSION_INVOKE_MAX_ARITY=12",
)


def built(folder: Path, source: str, name: str, *flags: str) -> Path:
    """Return a program of a source, compiled where it is not there yet."""
    program = folder / name
    if not program.exists() or program.stat().st_mtime < (HERE / source).stat().st_mtime:
        folder.mkdir(parents=True, exist_ok=True)
        include = (
            next(each for each in Path(str(pinocchio.__file__)).parents if each.name == "cmeel.prefix") / "include"
        )
        found = [f"-I{include}", f"-I{include / 'eigen3'}"]
        # under its name once it is whole
        unfinished = folder / f"{name}.new"
        command = ["g++", *FLAGS, *flags, *LISTS, *found, str(HERE / source), "-o", str(unfinished), "-ldl"]
        subprocess.run(command, check=True)
        unfinished.replace(program)
    return program


def numbers_of(task: Task) -> tuple[int, list[Array]]:
    """Return the arm as a chain of hinges about z: how many, their placements and inertias, and the link's place."""
    model = pinocchio.buildModelFromUrdf(task.urdf)
    assert all(model.joints[k + 1].shortname() == "JointModelRZ" for k in range(model.nv))
    poses = [model.jointPlacements[k + 1] for k in range(model.nv)]
    frame = model.frames[model.getFrameId(task.link)].placement
    bodies = [model.inertias[k + 1] for k in range(model.nv)]
    placements, link = (np.array([[*X.rotation.ravel(), *X.translation] for X in each]) for each in (poses, [frame]))
    return model.nv, [placements, np.array([[y.mass, *y.lever, *y.inertia.ravel()] for y in bodies]), link]


def generated(folder: Path, n: int, arrays: list[Array]) -> float:
    """Generate code of the chain, and compile it, where it is not there yet; return what that took [s]."""
    program = built(folder, "pinocchio_generate.cpp", "generate", "-O0")
    taken, chain = folder / "seconds", folder / "chain.txt"
    if not taken.exists():
        chain.write_text("\n".join([f"{n}", *(repr(float(x)) for each in arrays for x in each.ravel())]))
        done = time_of(lambda: subprocess.run([str(program), str(chain)], cwd=folder, check=True))
        taken.write_text(f"{done[1]}")
    return float(taken.read_text())


def prepare(task: Task) -> tuple[Operations, float]:
    """Return the operations."""
    folder, of_code = Path(task.settings["folder"]), bool(task.settings.get("codegen"))
    n, arrays = numbers_of(task)
    loops = ctypes.CDLL(
        str(built(folder, "pinocchio_loops.cpp", "loops.so", "-O3", "-march=native", "-shared", "-fPIC"))
    )
    loops.make.restype = ctypes.c_void_p
    arm = ctypes.c_void_p(loops.make(n, *(x.ctypes.data_as(ctypes.c_void_p) for x in arrays)))
    compiling = 0.0
    if of_code:
        compiling = generated(folder, n, arrays)
        with chdir(folder):
            loops.load(arm)
    batch = len(task.q)
    states = [np.ascontiguousarray(x) for x in (task.q, task.qd, task.w)]
    cotangents = {name: np.ascontiguousarray(x) for name, x in task.cotangents.items()}
    values = {"FK": 12, "Jacobian": 6 * n, "RNEA": n, "CRBA": n * n, "ABA": n}
    gradients = {"FK": n, "RNEA": 3 * n, "ABA": 3 * n}

    def caller(name: str, gradient: int) -> Any:
        out, grad = np.zeros((batch, values[name])), np.zeros((batch, gradient))
        cotangent = cotangents[name]
        sizes = (ctypes.c_long * 3)(values[name], cotangent[0].size, gradient)
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in (*states, cotangent, out)]
        last = grad.ctypes.data_as(ctypes.c_void_p) if gradient else None

        def call() -> Any:
            loops.run(arm, NAMES.index(name), int(of_code), ctypes.c_long(batch), *pointers, last, sizes)
            # positions come first
            return tuple(np.split(grad, gradient // n, 1)) if gradient else out[:, : 3 if name == "FK" else None]

        return call

    found: Operations = {}
    for name in NAMES:
        if of_code and name in ("FK", "Jacobian"):
            continue
        both = caller(name, gradients[name]) if name in gradients else None
        found[name] = Operation(caller(name, 0), both, "" if both else "has no gradient")
    return found, compiling


if __name__ == "__main__":
    run(prepare, ("pin",))

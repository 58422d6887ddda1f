"""MuJoCo on the engine benchmark's scene: `mj_step` in a loop in C, and `mjd_transitionFD` of each step, chained."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

from copy import copy
from functools import partial

import mujoco
import numpy as np
from mujoco import rollout

from bench.peers.engine import WORLDS, Engine, Scene, run


def prepare(scene: Scene) -> Engine:
    """Return the loss by `mujoco.rollout`, and its gradient by the Jacobians of steps."""
    model = mujoco.MjModel.from_xml_string(scene.xml)
    # without it a step depends on the last solution as well, which the Jacobians do not know
    if not scene.settings.get("warm_start", True):
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_WARMSTART
    data = mujoco.MjData(model)
    spec = mujoco.mjtState.mjSTATE_FULLPHYSICS
    nq, nv, nu = model.nq, model.nv, model.nu
    start = np.concatenate([[0.0], scene.qpos, scene.qvel])[None]
    steps = len(scene.controls)
    states, sensors = np.zeros((1, steps, start.shape[1])), np.zeros((1, steps, model.nsensordata))

    exact = copy(model)
    exact.opt.iterations, exact.opt.tolerance = 1000, 1e-15

    def loss(controls: np.ndarray, model: mujoco.MjModel = model) -> float:
        rollout.rollout(
            [model], [data], start, controls[None], skip_checks=True, nstep=steps, state=states, sensordata=sensors,
            initial_warmstart=np.zeros((1, nv)),
        )  # fmt: skip
        return float((states[0, -1, 1:] ** 2).sum())

    many, many_sensors = (np.zeros((WORLDS, *x.shape[1:])) for x in (states, sensors))

    def batch(controls: np.ndarray) -> None:
        rollout.rollout(
            [model] * WORLDS, [data], np.repeat(start, WORLDS, 0), controls, skip_checks=True, nstep=steps, state=many,
            sensordata=many_sensors, initial_warmstart=np.zeros((WORLDS, nv)),
        )  # fmt: skip

    def gradient(controls: np.ndarray) -> np.ndarray:
        mujoco.mj_setState(model, data, start[0], spec)
        data.qacc_warmstart[:] = 0.0
        A, B = np.zeros((steps, 2 * nv, 2 * nv)), np.zeros((steps, 2 * nv, nu))
        for t in range(steps):
            data.ctrl[:] = controls[t]
            mujoco.mjd_transitionFD(model, data, 1e-6, True, A[t], B[t], None, None)
            mujoco.mj_step(model, data)
        # the last state's square, by a turn of the base in its own axes: half of a quaternion's change
        q, v = data.qpos, data.qvel
        w, x, y, z = q[3:7]
        turn = np.array([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]])
        cotangent = np.concatenate([2 * q[:3], turn.T @ q[3:7], 2 * q[7:], 2 * v])
        slopes = np.zeros_like(controls)
        for t in reversed(range(steps)):
            slopes[t] = B[t].T @ cotangent
            cotangent = A[t].T @ cotangent
        return slopes

    assert nq == len(scene.qpos)
    return Engine(loss, gradient, converged=partial(loss, model=exact), batch=batch)


if __name__ == "__main__":
    run(prepare, ("mujoco",))

"""Newton on the engine benchmark's scene, on a CPU: its solvers that Warp's tape can go back through; float32."""

# packages of another environment, or without types
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

from typing import Any

import newton
import numpy as np
import warp as wp

from bench.peers.contestant import time_of
from bench.peers.engine import Engine, Scene, run


@wp.kernel
def square(x: wp.array(dtype=wp.float32), y: wp.array(dtype=wp.float32), total: wp.array(dtype=wp.float32)):
    """Add the square of an entry of each array."""
    i = wp.tid()
    if i < x.shape[0]:
        wp.atomic_add(total, 0, x[i] * x[i])
    if i < y.shape[0]:
        wp.atomic_add(total, 0, y[i] * y[i])


SETTLING = 500


def settle(model: Any, solver: Any, state: Any, scene: Scene) -> None:
    """Let the robot sink into this solver's contacts, with its servos at rest."""
    control, here, other = model.control(), model.state(), model.state()
    values = control.joint_target_q.numpy()
    values[-scene.controls.shape[1] :] = scene.controls.mean(0)
    control.joint_target_q.assign(values)
    for to, of in ((here.joint_q, state.joint_q), (here.joint_qd, state.joint_qd)):
        wp.copy(to, of)
    newton.eval_fk(model, here.joint_q, here.joint_qd, here)
    for _ in range(SETTLING):
        here.clear_forces()
        solver.step(here, other, control, model.collide(here), 1e-3)
        here, other = other, here
    for to, of in ((state.joint_q, here.joint_q), (state.joint_qd, here.joint_qd)):
        wp.copy(to, of)
    newton.eval_fk(model, state.joint_q, state.joint_qd, state)


def prepare(scene: Scene) -> Engine:
    """Return the loss, and its gradient by the tape over all launches."""
    wp.config.quiet = True
    wp.set_device("cpu")
    builder = newton.ModelBuilder()
    builder.add_mjcf(scene.xml)
    steps, n = scene.controls.shape
    # gains of MuJoCo's actuators are for Newton's MuJoCo solver only; these hold for all
    for gains, value in ((builder.joint_target_ke, 150.0), (builder.joint_target_kd, 3.0)):
        gains[-n:] = [value] * n
    builder.joint_target_mode[-n:] = [int(newton.JointTargetMode.POSITION)] * n
    model = builder.finalize(requires_grad=True)
    solver: Any = getattr(newton.solvers, scene.settings["solver"])(model)
    # quaternions are wxyz in MuJoCo and xyzw here
    q = np.concatenate([scene.qpos[:3], scene.qpos[4:7], scene.qpos[3:4], scene.qpos[7:]])
    states = [model.state(requires_grad=True) for _ in range(steps + 1)]
    controls = [model.control(requires_grad=True) for _ in range(steps)]
    states[0].joint_q.assign(q.astype(np.float32))
    states[0].joint_qd.assign(scene.qvel.astype(np.float32))
    newton.eval_fk(model, states[0].joint_q, states[0].joint_qd, states[0])
    settle(model, solver, states[0], scene)
    total = wp.zeros(1, dtype=wp.float32, requires_grad=True)
    generalized = scene.settings["solver"] == "SolverFeatherstone"

    def forward(u: np.ndarray) -> None:
        total.zero_()
        for t in range(steps):
            array = controls[t].joint_target_q
            values = array.numpy()
            values[-n:] = u[t]
            array.assign(values)
            states[t].clear_forces()
            solver.step(states[t], states[t + 1], controls[t], model.collide(states[t]), 1e-3)
        last = states[-1]
        if not generalized:
            newton.eval_ik(model, last, last.joint_q, last.joint_qd)
        wp.launch(square, dim=len(q), inputs=[last.joint_q, last.joint_qd], outputs=[total])

    def loss(u: np.ndarray) -> float:
        forward(u)
        return float(total.numpy()[0])

    def gradient(u: np.ndarray) -> np.ndarray:
        tape = wp.Tape()
        with tape:
            forward(u)
        tape.backward(total)
        slopes = np.stack([control.joint_target_q.grad.numpy()[-n:] for control in controls])
        tape.zero()
        return slopes

    _, seconds = time_of(lambda: loss(scene.controls))
    return Engine(loss, gradient, "", seconds)


if __name__ == "__main__":
    run(prepare, ("newton", "warp-lang"))

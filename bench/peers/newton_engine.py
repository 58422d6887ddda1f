"""Newton on the engine benchmark's scene, on a CPU: its solvers that Warp's tape can go back through; float32."""

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


def prepare(scene: Scene) -> Engine:
    """Return the loss, and its gradient by the tape over all launches."""
    wp.config.quiet = True
    wp.set_device("cpu")
    builder = newton.ModelBuilder()
    builder.add_mjcf(scene.xml)
    model = builder.finalize(requires_grad=True)
    solver: Any = getattr(newton.solvers, scene.settings["solver"])(model)
    steps, n = scene.controls.shape
    # quaternions are wxyz in MuJoCo and xyzw here
    q = np.concatenate([scene.qpos[:3], scene.qpos[4:7], scene.qpos[3:4], scene.qpos[7:]])
    states = [model.state(requires_grad=True) for _ in range(steps + 1)]
    controls = [model.control(requires_grad=True) for _ in range(steps)]
    states[0].joint_q.assign(q.astype(np.float32))
    states[0].joint_qd.assign(scene.qvel.astype(np.float32))
    newton.eval_fk(model, states[0].joint_q, states[0].joint_qd, states[0])
    total = wp.zeros(1, dtype=wp.float32, requires_grad=True)
    generalized = scene.settings["solver"] == "SolverFeatherstone"

    def target(control: Any) -> Any:
        return control.joint_target_q if control.joint_target_q is not None else control.joint_target_pos

    def forward(u: np.ndarray) -> None:
        total.zero_()
        for t in range(steps):
            array = target(controls[t])
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
        slopes = np.stack([target(control).grad.numpy()[-n:] for control in controls])
        tape.zero()
        return slopes

    _, seconds = time_of(lambda: loss(scene.controls))
    return Engine(loss, gradient, "", seconds)


if __name__ == "__main__":
    run(prepare, ("newton", "warp-lang"))

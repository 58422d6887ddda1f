"""The elastic material points of DiffTaichi's diffmpm3d, in Taichi, on a scene given as a file; to compare with.

Runs by itself, with an interpreter that has taichi 1.7 and numpy:

    python bench/taichi_mpm.py SCENE.npz OUT.npz [THREADS]

The scene: x, v (n, 3), mass, volume, mu, lam, dt, cell, grid (nodes along an axis), steps, gravity (3,), floor (nodes
below are floor), friction, actuator (n,), actuation (steps, a), weights (n, 3) of the loss Σ weights x. States are kept
for all steps, and in the backward pass the grid of each step is made anew, as diffmpm3d does. Actuation pulls along y.
OUT has the final x, the gradients of the loss by x, v and actuation, times [s], also of all threads on processors,
and the peak of memory [kB].
"""

# pyright: reportMissingImports=false, reportAssignmentType=false, reportOperatorIssue=false
# ruff: noqa: D103
# pyright: reportMissingImports=false, reportInvalidTypeForm=false

import resource
import sys
import time

import numpy as np
import taichi as ti


def main() -> None:
    scene = dict(np.load(sys.argv[1]))
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else 2
    real = ti.f64 if scene["x"].dtype == np.float64 else ti.f32
    ti.init(arch=ti.cpu, default_fp=real, cpu_max_num_threads=threads, log_level=ti.ERROR)
    base_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    n, steps, grid = len(scene["x"]), int(scene["steps"]), int(scene["grid"])
    mass, volume, mu, lam, dt, dx = (float(scene[k]) for k in ("mass", "volume", "mu", "lam", "dt", "cell"))
    inv_dx, floor, friction = 1.0 / dx, int(scene["floor"]), float(scene["friction"])
    gravity = ti.Vector(scene["gravity"].tolist())
    actuators = max(1, scene["actuation"].shape[1])

    def vectors():
        return ti.Vector.field(3, real)

    def matrices():
        return ti.Matrix.field(3, 3, real)

    x, v, C, F = vectors(), vectors(), matrices(), matrices()
    grid_v_in, grid_v_out, grid_m = vectors(), vectors(), ti.field(real)
    actuation, loss = ti.field(real), ti.field(real)
    actuator, weights = ti.field(ti.i32), vectors()
    ti.root.dense(ti.k, n).dense(ti.l, steps + 1).place(x, v, C, F)
    ti.root.dense(ti.ijk, grid).place(grid_v_in, grid_m, grid_v_out)
    ti.root.dense(ti.ij, (steps, actuators)).place(actuation)
    ti.root.dense(ti.i, n).place(actuator, weights)
    ti.root.place(loss)
    ti.root.lazy_grad()

    @ti.kernel
    def clear_grid():
        for i, j, k in grid_m:
            grid_v_in[i, j, k] = [0, 0, 0]
            grid_m[i, j, k] = 0
            grid_v_in.grad[i, j, k] = [0, 0, 0]
            grid_m.grad[i, j, k] = 0
            grid_v_out.grad[i, j, k] = [0, 0, 0]

    @ti.kernel
    def p2g(f: ti.i32):
        for p in range(n):
            base = ti.cast(x[p, f] * inv_dx - 0.5, ti.i32)
            fx = x[p, f] * inv_dx - ti.cast(base, real)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_F = (ti.Matrix.identity(real, 3) + dt * C[p, f]) @ F[p, f]
            J = new_F.determinant()
            F[p, f + 1] = new_F
            act = 0.0
            if actuator[p] >= 0:
                act = actuation[f, ti.max(0, actuator[p])]
            A = ti.Matrix([[0.0, 0.0, 0.0], [0.0, act, 0.0], [0.0, 0.0, 0.0]])
            tau = mu * (new_F @ new_F.transpose()) + ti.Matrix.identity(real, 3) * (lam * ti.log(J) - mu)
            tau += new_F @ A @ new_F.transpose()
            affine = -(dt * volume * 4 * inv_dx * inv_dx) * tau + mass * C[p, f]
            for i in ti.static(range(3)):
                for j in ti.static(range(3)):
                    for k in ti.static(range(3)):
                        offset = ti.Vector([i, j, k])
                        dpos = (ti.cast(offset, real) - fx) * dx
                        weight = w[i][0] * w[j][1] * w[k][2]
                        grid_v_in[base + offset] += weight * (mass * v[p, f] + affine @ dpos)
                        grid_m[base + offset] += weight * mass

    @ti.kernel
    def grid_op():
        for i, j, k in grid_m:
            v_out = grid_v_in[i, j, k] / (grid_m[i, j, k] + 1e-30) + dt * gravity
            if j < floor:
                lin = v_out[1]
                if lin < 0:
                    vit = v_out - lin * ti.Vector([0.0, 1.0, 0.0])
                    lit = vit.norm(1e-30)
                    if lit + friction * lin <= 0:
                        v_out = ti.Vector([0.0, 0.0, 0.0])
                    else:
                        v_out = (1 + friction * lin / lit) * vit
            grid_v_out[i, j, k] = v_out

    @ti.kernel
    def g2p(f: ti.i32):
        for p in range(n):
            base = ti.cast(x[p, f] * inv_dx - 0.5, ti.i32)
            fx = x[p, f] * inv_dx - ti.cast(base, real)
            w = [0.5 * (1.5 - fx) ** 2, 0.75 - (fx - 1.0) ** 2, 0.5 * (fx - 0.5) ** 2]
            new_v = ti.Vector([0.0, 0.0, 0.0])
            new_C = ti.Matrix.zero(real, 3, 3)
            for i in ti.static(range(3)):
                for j in ti.static(range(3)):
                    for k in ti.static(range(3)):
                        dpos = ti.cast(ti.Vector([i, j, k]), real) - fx
                        g_v = grid_v_out[base[0] + i, base[1] + j, base[2] + k]
                        weight = w[i][0] * w[j][1] * w[k][2]
                        new_v += weight * g_v
                        new_C += 4 * weight * g_v.outer_product(dpos) * inv_dx
            v[p, f + 1] = new_v
            x[p, f + 1] = x[p, f] + dt * new_v
            C[p, f + 1] = new_C

    @ti.kernel
    def compute_loss():
        for p in range(n):
            loss[None] += weights[p].dot(x[p, steps])

    @ti.kernel
    def clear_states_grad():
        for p, f in x:
            x.grad[p, f] = [0, 0, 0]
            v.grad[p, f] = [0, 0, 0]
            C.grad[p, f] = ti.Matrix.zero(real, 3, 3)
            F.grad[p, f] = ti.Matrix.zero(real, 3, 3)

    @ti.kernel
    def begin(x0: ti.types.ndarray(), v0: ti.types.ndarray()):
        for p in range(n):
            for a in ti.static(range(3)):
                x[p, 0][a] = x0[p, a]
                v[p, 0][a] = v0[p, a]
            C[p, 0] = ti.Matrix.zero(real, 3, 3)
            F[p, 0] = ti.Matrix.identity(real, 3)

    def forward():
        for f in range(steps):
            clear_grid()
            p2g(f)
            grid_op()
            g2p(f)

    def backward():
        clear_states_grad()
        loss[None] = 0.0
        loss.grad[None] = 1.0
        actuation.grad.fill(0.0)
        compute_loss()
        compute_loss.grad()
        for f in reversed(range(steps)):
            clear_grid()
            p2g(f)
            grid_op()
            g2p.grad(f)
            grid_op.grad()
            p2g.grad(f)

    actuator.from_numpy(scene["actuator"].astype(np.int32))
    weights.from_numpy(scene["weights"])
    if scene["actuation"].size:
        actuation.from_numpy(scene["actuation"])
    begin(scene["x"], scene["v"])
    times = {"forward": [], "backward": []}
    work = []
    # the first round compiles
    for _ in range(int(scene["repeats"]) + 1):
        before = time.process_time()
        for name, call in (("forward", forward), ("backward", backward)):
            start = time.perf_counter()
            call()
            ti.sync()
            times[name].append(time.perf_counter() - start)
        work.append(time.process_time() - before)
    gradients = {name: each.grad.to_numpy()[:, 0] for name, each in (("x", x), ("v", v))}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base_memory
    np.savez(
        sys.argv[2],
        final=x.to_numpy()[:, steps],
        adj_x=gradients["x"],
        adj_v=gradients["v"],
        adj_actuation=actuation.grad.to_numpy(),
        forward=min(times["forward"][1:] or times["forward"]),
        backward=min(times["backward"][1:] or times["backward"]),
        processors=min(work[1:] or work),
        memory=memory,
    )


if __name__ == "__main__":
    main()

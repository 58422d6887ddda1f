"""Compare results with an earlier commit, bit for bit: `python -m checks.same_bits REV [--worlds 120]`.

Each case is reduced to a hash of its outputs and gradients: random worlds (rollout, gradient, contacts), worlds of
every solver and integrator with their Jacobians and feedback rollouts, robots' operators, and a short printed part.
REV is checked out into a worktree of its own. Exits with 1 where a hash differs; the page of a refactoring says why.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WORLDS = 120
STEPS = 24


def digest(*values: Any) -> str:
    """Return a hash of the bytes of tensors and of what else is given."""
    found = hashlib.sha256()
    for value in values:
        found.update(value.detach().numpy().tobytes() if hasattr(value, "detach") else repr(value).encode())
    return found.hexdigest()[:16]


def weighted_sum(*tensors: Any) -> Any:
    """Return a sum of all entries with weights that no symmetry cancels."""
    import torch

    flat = torch.cat([x.reshape(-1) for x in tensors])
    return (flat * torch.linspace(0.5, 20.0, flat.numel(), dtype=torch.float64).sin().to(flat)).sum()


def rollout_digest(sim: Any, state: Any, controls: Any) -> str:
    """Return a hash of states and status of a rollout, and of its gradient by state and controls."""
    import torch

    import pullback as pb

    q, qd, u = (x.detach().clone().requires_grad_() for x in (state.q, state.qd, controls))
    states = sim.rollout(replace(state, q=q, qd=qd), u, checkpoint=5)
    finite = states.q[-1].isfinite().all(-1)
    status = [states.status.code.tolist(), states.status.unconverged.tolist()]
    results = [states.q, states.qd, *status]
    if not bool(finite.any()):
        return digest(*results)
    try:
        found = torch.autograd.grad(weighted_sum(states.q[-1][finite], states.qd[-1][finite]), [q, qd, u])
    except pb.PullbackError as error:
        return digest(*results, type(error).__name__)
    return digest(*results, *found)


def random_cases(count: int) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield random worlds: rollout, gradient and contacts."""
    try:
        from checks.random_worlds import draw  # pyright: ignore[reportMissingImports]
    except ImportError:  # where the earlier commit has it
        from bench.random_worlds import draw  # pyright: ignore[reportMissingImports]
    for seed in range(count):

        def run(seed: int = seed) -> str:
            import pullback as pb

            drawn = draw(seed, worlds=3, steps=STEPS)
            try:
                contacts: Any = drawn.sim.contacts(drawn.state)
            except pb.PullbackError as error:
                contacts = type(error).__name__
            return digest(rollout_digest(drawn.sim, drawn.state, drawn.controls), contacts)

        yield f"random world {seed}", run


def solver_cases() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield a robot on the ground among bodies, under every solver and integrator: rollout, Jacobians, feedback."""
    import torch

    import pullback as pb

    solvers = {
        "pgs": pb.PGS(),
        "pgs pyramid": pb.PGS(friction="pyramid"),
        "pgs unrolled": pb.PGS(gradient="unrolled", iterations=20),
        "pgs warm": pb.PGS(warm_start=True),
        "pgs downhill": pb.PGS(kinks="downhill"),
        "exact": pb.Exact(),
        "exact pyramid": pb.Exact(friction="pyramid"),
        "compliant": pb.Compliant(stiffness=1e4, damping=0.5),
    }
    for dtype in (torch.float64, torch.float32):
        for robot in ("laikago", "ant"):
            for name, contact in solvers.items():

                def run(robot: str = robot, contact: Any = contact, dtype: torch.dtype = dtype) -> str:
                    world = pb.World(contact=contact)
                    world.add_ground(friction=0.7)
                    world.add(pb.load(robot, dtype=dtype), position=(0.0, 0.0, 0.4))
                    world.add_box("box", size=(0.1, 0.1, 0.1), mass=0.5, position=(0.6, 0.0, 0.06))
                    sim = world.compile(dt=2e-3, dtype=dtype)
                    generator = torch.Generator().manual_seed(1)
                    controls = torch.randn(STEPS, 2, sim.nu, generator=generator, dtype=torch.float64).to(dtype)
                    state = sim.initial_state(2)
                    parts: list[Any] = [rollout_digest(sim, state, controls)]
                    if dtype == torch.float64 and contact.kinks == "computed":
                        found = sim.linearize(state, controls[:1])
                        parts += [x for x in found if isinstance(x, torch.Tensor)]
                    return digest(*parts)

                yield f"{robot}, {name}, {dtype}", run
    for integrator in ("explicit", "rk4"):

        def run_smooth(integrator: Any = integrator) -> str:
            world = pb.World()
            world.add(pb.load("ant", dtype=torch.float64), position=(0.0, 0.0, 1.0))
            left_out: Any = ["contacts", "limits", "friction"]
            sim = world.compile(dt=2e-3, dtype=torch.float64, integrator=integrator, without=left_out)
            controls = torch.linspace(-1.0, 1.0, STEPS * sim.nu, dtype=torch.float64).reshape(STEPS, 1, sim.nu)
            return rollout_digest(sim, sim.initial_state(1), controls)

        yield f"ant, {integrator}", run_smooth


def robot_cases() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the operators of robots, with gradients by state."""
    import torch

    import pullback as pb

    for name in ("iiwa7", "laikago", "ant", "allegro"):
        for dtype in (torch.float64, torch.float32):

            def run(name: str = name, dtype: torch.dtype = dtype) -> str:
                robot = pb.load(name, dtype=dtype)
                generator = torch.Generator().manual_seed(2)

                def draw(n: int) -> Any:
                    return torch.randn(4, n, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

                q, qd, x = draw(robot.nq), draw(robot.nv), draw(robot.nv)
                link = robot.get_link_names()[-1]
                results = [
                    *robot.compute_forward_kinematics(q, link),
                    *robot.compute_endeffector_jacobian(q, link),
                    robot.compute_inverse_dynamics(q, qd, x),
                    robot.compute_lagrangian_inertia_matrix(q),
                    robot.compute_forward_dynamics(q, qd, x),
                    robot.compute_centroidal_momentum(q, qd),
                ]
                found = [
                    torch.autograd.grad(weighted_sum(y), [q, qd, x], allow_unused=True, retain_graph=True)
                    for y in results
                ]
                return digest(*results, *[g for grads in found for g in grads if g is not None])

            yield f"{name}, operators, {dtype}", run


def part_cases() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the shipped example of a printed wall: the powers that it finds."""

    def run() -> str:
        done = subprocess.run(
            [sys.executable, "examples/14_print_a_wall.py"], stdout=subprocess.PIPE, check=True, timeout=600
        )
        # the lines before the last name seconds
        return digest(done.stdout.splitlines()[-1])

    yield "examples/14_print_a_wall.py", run


def measure(worlds: int) -> dict[str, str]:
    """Return the hash of each case, of the code that `pullback` stands for here."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    cases = [*robot_cases(), *solver_cases(), *random_cases(worlds), *part_cases()]
    return {name: run() for name, run in cases}


def measure_in(tree: Path, worlds: int) -> dict[str, str]:
    """Return the hashes of a checkout, by a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).resolve()), "--child", str(worlds)]
    done = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: list[str]) -> int:
    """Compare, name the cases that differ, and return 1 if there are any."""
    from bench.against import checked_out

    revision = arguments[0] if arguments else "HEAD"
    worlds = int(arguments[arguments.index("--worlds") + 1]) if "--worlds" in arguments else WORLDS
    with checked_out(revision) as tree:
        before = measure_in(tree, worlds)
    now = measure_in(ROOT, worlds)
    differing = [name for name in now if now[name] != before.get(name)]
    for name in differing:
        print(f"differs: {name}")
    print(f"{len(now)} cases, {len(differing)} differ from {revision}")
    return int(bool(differing))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(measure(int(sys.argv[2]))))
    else:
        sys.exit(main(sys.argv[1:]))

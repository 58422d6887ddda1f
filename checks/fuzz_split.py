"""Laws of impacts over random worlds with steps split at touches: `python -m checks.fuzz_split`.

Random worlds of `checks/random_worlds.py`, undriven, in float64, are run with `impacts="split"` and once more with
`"step"` to compare. These laws are of states only:

- every world is finite, and every step does the same bits again in another batch;
- energy grows in a step by no more than the error of first order in dt, what gravity does to the impulses P = M dv, and
  what pushing out of a penetration does: K (dt w) (dt w + |dv| / |v|) + dt |g| |P| + |P| push, times a number;
- bodies without weight that touch nothing fixed keep their momentum;
- what penetrates gets deeper in a solved step by no more than turning does in a step, r (dt w)², and softness.
"""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass

import numpy as np
import torch
import tyro
from rich.console import Console

import pullback as pb
from checks.fuzz_checks import FAR, FAST, Findings, Steps, are_same, contacts_of, is_free_body, side_by_side
from checks.random_worlds import RandomWorld, draw
from pullback.rigid.state import TURNED_FAR
from pullback.rigid.world.integrators import Impacts

Array = np.ndarray

WORLDS, STEPS = 8, 96
ENERGY = 10.0
"""Times the bound of first order, as in `checks/fuzz_laws.py`."""
DEEPER = 1e-3
"""How much deeper [m] something may get in a step beyond what turning does."""


@dataclass
class Options:
    """Laws of impacts over random worlds."""

    seconds: float = 300.0
    """How long to go on."""
    seed: int = 0
    """Of the first world; the others follow."""
    kinds: tuple[str, ...] = ("passive", "chaos")
    """Of random worlds, in turns."""


def is_judged(drawn: RandomWorld) -> bool:
    """Return whether laws are for a world: undriven, of rigid contact, in float64, a substep a step."""
    sim = drawn.sim
    return sim.dtype == torch.float64 and sim.nu == 0 and sim.substeps == 1 and not drawn.per_world


def examine(drawn: RandomWorld, impacts: Impacts, findings: Findings) -> int:
    """Run a world and check its laws; return how many steps were checked."""
    where = drawn.describe()
    states = drawn.sim.rollout(drawn.state, drawn.controls, check=False)
    code = states.status.code
    findings.count(f"worlds, {impacts}", drawn.worlds)
    findings.count(f"worlds that became not finite, {impacts}", int(((code & 1) > 0).sum()))
    findings.count(f"worlds in which something turned far, {impacts}", int(((code & TURNED_FAR) > 0).sum()))
    steps = side_by_side(drawn, states)
    again = drawn.sim.step(steps.state, steps.u, check=False)
    assert again.status is not None
    findings.check_true(f"other bits in another batch, {impacts}", are_same(again, steps.after), where)
    before, after = (torch.cat([s.q / FAR, s.qd / FAST], 1).abs().amax(1) for s in (steps.state, again))
    kept = ((before < 1) & (after < 1)).numpy() & (again.status.code.numpy() == 0)
    if not kept.any():
        return 0
    steps = steps.chosen(kept)
    check_energy(drawn, steps, impacts, findings)
    check_depth(drawn, steps, impacts, findings)
    if is_closed(drawn):
        check_momentum(drawn, states, impacts, findings)
    return len(steps)


def momentum_change(drawn: RandomWorld, steps: Steps) -> Array:
    """Return |M dv|, the impulses that steps may have had, a world each."""
    total = np.zeros(len(steps))
    at_q = at_v = 0
    for item in drawn.world.items:
        if item.robot is not None:
            robot = pb.RobotModel(item.robot.model, dtype=torch.float64)
            q = steps.state.q[:, at_q : at_q + robot.nq]
            dv = (steps.after.qd - steps.state.qd)[:, at_v : at_v + robot.nv]
            M = robot.compute_lagrangian_inertia_matrix(q)
            total += (M @ dv[..., None])[..., 0].abs().sum(1).numpy()
            at_q, at_v = at_q + robot.nq, at_v + robot.nv
    return total


def check_energy(drawn: RandomWorld, steps: Steps, impacts: Impacts, findings: Findings) -> None:
    """Check that energy grows by no more than an error of first order."""
    sim, dt = drawn.sim, drawn.sim.dt
    (k0, u0), (k1, u1) = ((x.numpy() for x in sim.energies(s)) for s in (steps.state, steps.after))
    pull = float(np.linalg.norm(drawn.world.gravity))
    v0, v1 = steps.state.qd.numpy(), steps.after.qd.numpy()
    speed = np.maximum(np.abs(v0).max(1), np.abs(v1).max(1))
    change = np.abs(v1 - v0).max(1) / (speed + 1e-9)
    impulse = momentum_change(drawn, steps)
    push = drawn.world.contact.max_push_speed
    bound = (k0 + k1) * (dt * speed) * (dt * speed + change) + dt * pull * impulse + impulse * push
    growth = (k1 + u1 - k0 - u0) / (bound + dt * dt * pull**2 + 1e-9)
    findings.check(f"energy over its first-order bound, {impacts}", growth, ENERGY, drawn.describe())


def deepest(drawn: RandomWorld, state: pb.State) -> Array:
    """Return the deepest penetration [m] of each row, zero for none."""
    contacts = contacts_of(drawn.sim, drawn.sim.contacts(state))
    depth = np.zeros(len(state.q))
    np.maximum.at(depth, contacts.row, -contacts.gap)
    return depth


def check_depth(drawn: RandomWorld, steps: Steps, impacts: Impacts, findings: Findings) -> None:
    """Check that nothing gets deeper than it was, but for what turning does within a step."""
    before, after = deepest(drawn, steps.state), deepest(drawn, steps.after)
    speed = np.maximum(steps.state.qd.abs().amax(1).numpy(), steps.after.qd.abs().amax(1).numpy())
    turning = 0.5 * np.minimum(drawn.sim.dt * speed, 1.0) ** 2
    deeper = np.maximum(after - before - turning, 0.0)
    findings.check(f"penetration [m] that grows in a step, {impacts}", deeper, DEEPER, drawn.describe())


def is_closed(drawn: RandomWorld) -> bool:
    """Return whether nothing outside acts on the bodies of a world."""
    return not np.any(drawn.world.gravity) and all(
        item.robot is not None and is_free_body(item) for item in drawn.world.items
    )


def check_momentum(drawn: RandomWorld, states: pb.Trajectory, impacts: Impacts, findings: Findings) -> None:
    """Check that free bodies keep their linear momentum together."""
    total, size = torch.zeros(()), torch.zeros(())
    at_q = at_v = 0
    for item in drawn.world.items:
        assert item.robot is not None
        robot = pb.RobotModel(item.robot.model, dtype=torch.float64)
        q, qd = states.q[..., at_q : at_q + robot.nq], states.qd[..., at_v : at_v + robot.nv]
        momentum = robot.compute_centroidal_momentum(q, qd)[..., 3:]
        total, size = total + momentum, size + momentum.norm(dim=-1)
        at_q, at_v = at_q + robot.nq, at_v + robot.nv
    drift = (total - total[0]).norm(dim=-1).amax(0) / (size.amax(0) + 1e-9)
    fine = states.status.code == 0
    findings.check(f"momentum of free bodies, {impacts}", drift[fine].numpy(), 1e-9, drawn.describe())


def main(options: Options) -> int:
    """Run for some time, and show what was found."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    console, findings = Console(width=160), Findings()
    start, seed, checked = time.perf_counter(), options.seed, {"step": 0, "split": 0}
    modes: tuple[Impacts, ...] = ("step", "split")
    with np.errstate(all="ignore"):
        while time.perf_counter() - start < options.seconds:
            kind = options.kinds[seed % len(options.kinds)]
            for impacts in modes:
                drawn = draw(seed, kind=kind, worlds=WORLDS, steps=STEPS, plain=True, impacts=impacts)
                if not is_judged(drawn):
                    break
                checked[impacts] += examine(drawn, impacts, findings)
            seed += 1
    console.print(*findings.rows(), sep="\n", highlight=False, markup=False)
    console.print(*(f"{name}: {count}" for name, count in sorted(findings.counts.items())), sep="\n")
    findings.show(console)
    console.print(f"seeds {options.seed} to {seed - 1}, steps checked: {checked}")
    return int(any("split" in name for name in findings.broken))


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options)))

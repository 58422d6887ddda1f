"""What must hold in every random step, whatever the world: flags, bits, neighbours, contacts, momentum in flight."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from rich.console import Console

import pullback as pb
from checks.fuzz_convex import CONVEX, depth, reach, separation
from checks.fuzz_geometry import EXACT, GAPS, Poses, Solid, least_gap, solids, vertex_gaps
from checks.random_worlds import RandomWorld, draw
from pullback.rigid.state import CONTACT_OVERFLOW, NAN
from pullback.rigid.world.items import Placed

Array = np.ndarray
Tensor = torch.Tensor

ROOM = 600
"""Contacts that no random world has, to count those that did not fit."""
LEAN = 0.005
"""1 - cos of the angle by which the normal of a capsule over an edge may lean (docs/derivations/collision.md)."""
GRADIENT_STEPS = 10
SURE = 1e-3
"""How deep [m] some point of a shape is where it surely overlaps another, and how much is surely apart."""
FAST, FAR = 1e4, 1e3
"""Speeds and coordinates above which laws are not checked: rounding drowns them, and such worlds are about to end."""


@dataclass
class Findings:
    """What was counted, how often each law was checked, the worst figure, and what broke its bound."""

    counts: dict[str, int] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, float] = field(default_factory=dict)
    worst: dict[str, tuple[float, str]] = field(default_factory=dict)
    broken: dict[str, list[str]] = field(default_factory=dict)

    def count(self, what: str, number: int = 1) -> None:
        """Add to a count."""
        self.counts[what] = self.counts.get(what, 0) + int(number)

    def check(self, what: str, values: Array, bound: float, where: str, rows: Array | None = None) -> None:
        """Compare values with a bound; note how many there are, the worst, and where one is larger."""
        values = np.asarray(values, dtype=np.float64).ravel()
        if values.size == 0:
            return
        self.checks[what] = self.checks.get(what, 0) + values.size
        self.bounds[what] = max(bound, self.bounds.get(what, bound))
        values = np.where(np.isnan(values), np.inf, values)
        k = int(np.argmax(values))
        row = "" if rows is None else f", row {rows[k]}"
        if what not in self.worst or values[k] > self.worst[what][0]:
            self.worst[what] = float(values[k]), f"{where}{row}"
        if values[k] > bound:
            many = int((values > bound).sum())
            self.broken.setdefault(what, []).append(f"{where}{row}: {values[k]:.3g}, {many} of {values.size}")

    def check_true(self, what: str, holds: bool, where: str) -> None:
        """Note whether something that must hold does."""
        self.check(what, np.array([0.0 if holds else 1.0]), 0.0, where)

    def show(self, console: Console) -> None:
        """Print what broke a bound."""
        for name, seen in self.broken.items():
            console.print(f"[red]{name}[/red]: {len(seen)} cases", *seen[:5], sep="\n  ", highlight=False)
        console.print(f"{sum(self.checks.values()):,} checks, {len(self.broken)} laws broken")

    def rows(self) -> list[str]:
        """Return what was checked as rows of a table: what, how often, worst figure, bound, verdict."""
        lines = []
        for name in sorted(self.checks):
            bound, worst = self.bounds[name], self.worst[name][0]
            verdict = "" if np.isinf(bound) else "**broken**" if name in self.broken else "ok"
            limit = "none" if np.isinf(bound) else f"{bound:.0e}" if 0 < bound < 1 else f"{bound:g}"
            lines.append(f"| {name} | {self.checks[name]:,} | {max(worst, 0.0):.1g} | {limit} | {verdict} |")
        return lines

    def told(self) -> list[str]:
        """Return what broke a bound as a list."""
        return [f"- {name}: {len(seen)} times; {seen[0]}" for name, seen in self.broken.items()] or ["Nothing."]


@dataclass
class Steps:
    """Steps of a rollout laid side by side: row k leads from `state` under `u` to `after` in world index[k]."""

    index: Tensor
    state: pb.State
    u: Tensor
    after: pb.State

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.index)

    def chosen(self, rows: Array) -> Steps:
        """Return some of the steps."""
        at = torch.from_numpy(rows)
        return Steps(self.index[at], self.state[at], self.u[at], self.after[at])


def side_by_side(drawn: RandomWorld, states: pb.Trajectory) -> Steps:
    """Return all steps of a rollout that begin in a finite state."""
    T, B = states.q.shape[0] - 1, drawn.worlds
    finite = states.q[:-1].isfinite().all(-1) & states.qd[:-1].isfinite().all(-1)
    rows = finite.flatten().nonzero().flatten()

    def state(first: int) -> pb.State:
        def of(x: Tensor) -> Tensor:
            return x[first : first + T].reshape(T * B, -1)[rows].contiguous()

        return pb.State(of(states.q), of(states.qd), None if states.impulses is None else of(states.impulses))

    return Steps(rows % B, state(0), drawn.controls.reshape(T * B, -1)[rows].contiguous(), state(1))


def is_same(a: Tensor, b: Tensor) -> bool:
    """Tell whether two tensors are the same bit for bit; any NaN is as good as another."""
    kind = torch.int64 if a.dtype == torch.float64 else torch.int32
    bits = a.contiguous().view(kind) == b.contiguous().view(kind)
    return bool((bits | (a.isnan() & b.isnan())).all())


def are_same(a: pb.Trajectory | pb.State, b: pb.Trajectory | pb.State) -> bool:
    """Tell whether two states or rollouts have the same bits."""
    impulses = a.impulses is None or b.impulses is None or is_same(a.impulses, b.impulses)
    return is_same(a.q, b.q) and is_same(a.qd, b.qd) and impulses


# -- flags and bits --------------------------------------------------------------------------------------------------


def check_flags(drawn: RandomWorld, states: pb.Trajectory, findings: Findings) -> None:
    """Check that a world has numbers that are not finite if, and from the step on that, its status says so."""
    where = drawn.describe()
    finite = (states.q.isfinite().all(-1) & states.qd.isfinite().all(-1)).numpy()
    flagged = ((states.status.code & NAN) > 0).numpy()
    first = states.status.first_step.numpy()
    findings.check("not finite without a flag", np.where(flagged, 0.0, (~finite).sum(0)), 0.0, where)
    findings.check("a flag, and all finite", np.where(flagged, finite.all(0), 0.0), 0.0, where)
    overflow = ((states.status.code & CONTACT_OVERFLOW) > 0).numpy()
    at = finite.argmin(0) - 1
    late = flagged & np.where(overflow, first > at, first != at)
    findings.check("first step of a flag is wrong", late, 0.0, where)
    findings.count("worlds that became not finite", flagged.sum())
    findings.count("worlds with more contacts than room", overflow.sum())


def check_again(drawn: RandomWorld, states: pb.Trajectory, findings: Findings) -> None:
    """Check that the same seed gives the same bits: the world made anew, and run again."""
    again = draw(drawn.seed, kind=drawn.kind, worlds=drawn.worlds, steps=len(drawn.controls), plain=drawn.plain)
    other = again.sim.rollout(again.state, again.controls, check=False)
    same = are_same(states, other) and bool((states.status.code == other.status.code).all())
    findings.check_true("other bits from the same seed", same, drawn.describe())


def check_neighbours(drawn: RandomWorld, states: pb.Trajectory, findings: Findings) -> None:
    """Check that worlds stay the same, bit for bit, beside one that is thrown out of all bounds."""
    sick = drawn.seed % drawn.worlds
    qd = drawn.state.qd.clone()
    qd[sick] = 1e200 if qd.dtype == torch.float64 else 1e25
    other = drawn.sim.rollout(replace(drawn.state, qd=qd), drawn.controls, check=False)
    well = [w for w in range(drawn.worlds) if w != sick]
    same = is_same(states.q[:, well], other.q[:, well]) and is_same(states.qd[:, well], other.qd[:, well])
    findings.check_true("a world changed by its neighbour", same, drawn.describe())
    code, finite = int(other.status.code[sick]), bool(other.q[:, sick].isfinite().all())
    findings.check_true("not finite without a flag", finite or code & NAN > 0, drawn.describe())


def check_room(drawn: RandomWorld, steps: Steps, code: Array, findings: Findings) -> None:
    """Check that a step has the flag of too many contacts if, and only if, there were more than there is room for."""
    sim = drawn.sim
    flagged = (code & CONTACT_OVERFLOW) > 0
    if sim.substeps > 1 or (drawn.kind != "crowded" and not flagged.any()):
        return
    ample = drawn.world.compile(dt=sim.dt, dtype=sim.dtype, max_contacts=ROOM)
    state = steps.state
    if state.impulses is not None:
        state = replace(state, impulses=ample.initial_state(len(steps)).impulses)
    found = np.array([len(contacts) for contacts in ample.contacts(state, steps.u)])
    wrong = flagged != (found > sim.arrays.max_contacts)
    findings.check("contacts dropped without a flag, or a flag without", wrong, 0.0, drawn.describe())
    findings.count("steps with more contacts than room", flagged.sum())


# -- contacts --------------------------------------------------------------------------------------------------------


@dataclass
class Contacts:
    """Contacts of steps side by side as arrays: row, pair, gap, point, normal, force."""

    row: Array
    pair: Array
    gap: Array
    point: Array
    normal: Array
    force: Array

    def __len__(self) -> int:
        """Return the number of contacts."""
        return len(self.row)


def contacts_of(sim: pb.Sim, found: list[list[pb.Contact]]) -> Contacts:
    """Return reported contacts as arrays."""
    names = sim.arrays.shape_names
    pairs = {(names[a], names[b]): k for k, (a, b) in enumerate(zip(sim.arrays.pair_a, sim.arrays.pair_b))}
    rows = [(k, c) for k, contacts in enumerate(found) for c in contacts]
    numbers = np.array([(c.gap, *c.point, *c.normal, *c.force) for _, c in rows]).reshape(-1, 10)
    row, pair = (np.array(x, dtype=int) for x in ([k for k, _ in rows], [pairs[c.shapes] for _, c in rows]))
    return Contacts(row, pair, numbers[:, 0], numbers[:, 1:4], numbers[:, 4:7], numbers[:, 7:])


def check_distances(drawn: RandomWorld, poses: list[Poses], contacts: Contacts, rows: int, findings: Findings) -> None:
    """Compare the contacts reported with the distances of all pairs: none is missing, none is made up."""
    sim, where, margin = drawn.sim, drawn.describe(), drawn.world.contact.margin
    kind, tolerance = ("", 1e-9) if sim.dtype == torch.float64 else (", float32", 2e-5)
    shapes = solids(drawn, poses, rows)
    found = np.full((sim.arrays.npair, rows), np.inf)
    count = np.zeros((sim.arrays.npair, rows), dtype=int)
    np.minimum.at(found, (contacts.pair, contacts.row), contacts.gap)
    np.add.at(count, (contacts.pair, contacts.row), 1)
    for reported, points, a, b in zip(found, count, sim.arrays.pair_a, sim.arrays.pair_b):
        a, b = shapes[a], shapes[b]
        kinds, name = (a.kind, b.kind), f"{a.kind} and {b.kind}"
        if kinds not in GAPS:
            check_convex(a, b, np.isfinite(reported), margin, where, findings)
            continue
        gap, scale = least_gap(a, b), 1.0 + np.abs(a.p).max(1) + np.abs(b.p).max(1)
        near, far = gap < margin - tolerance * scale, gap > margin + tolerance * scale
        if kinds == ("box", "box"):
            near = gap < -1e-4  # of boxes apart only a bound is known
        there = np.isfinite(reported)
        depth = np.where(near & ~there, margin - gap, 0.0)
        findings.check(
            f"contact missing, {name}: depth below the margin [m]", depth[near], 0.0, where, np.flatnonzero(near)
        )
        if kinds != ("capsule", "box"):
            findings.check(f"contact made up, {name}", (far & there)[far], 0.0, where, np.flatnonzero(far))
        if b.kind == "plane":
            gaps = vertex_gaps(a, b) - margin
            sure = (np.abs(gaps) > tolerance * scale[:, None]).all(1)
            wrong = points != (gaps < 0).sum(1)
            findings.check(f"number of contacts, {name}", wrong[sure], 0.0, where, np.flatnonzero(sure))
        both = near & there
        if kinds in EXACT:
            error = np.abs(gap - reported)[both] / scale[both]
            findings.check(f"gap, {name} [m]{kind}", error, 10 * tolerance, where, np.flatnonzero(both))
        if kinds == ("capsule", "box"):
            both &= gap > 0
            error = np.maximum(reported - gap, gap - reported - LEAN * (gap + a.radius))[both] / scale[both]
            findings.check(f"gap, {name} [m]{kind}", error, 10 * tolerance, where, np.flatnonzero(both))


def check_convex(a: Solid, b: Solid, there: Array, margin: float, where: str, findings: Findings) -> None:
    """Check that shapes that surely overlap have a contact, and that those that are surely apart have none."""
    name, convex = f"{a.kind} and {b.kind}", (*CONVEX, "plane")
    if a.kind not in convex or b.kind not in convex:
        return
    is_plane = b.kind == "plane"
    above = np.einsum("ni,ni->n", b.R[:, :, 2], a.p - b.p) - reach(a, -b.R[:, :, 2])
    deep = -above if is_plane else depth(a, b)
    apart = above if is_plane else separation(a, b)
    near, far = np.flatnonzero(deep > SURE), np.flatnonzero(apart > margin + SURE)
    missing = f"contact missing, {name}: depth below the margin [m]"
    findings.check(missing, np.where(there, 0.0, deep + margin)[near], 0.0, where, near)
    findings.check(f"contact made up, {name}", there[far], 0.0, where, far)


def is_free_body(item: Placed) -> bool:
    """Tell whether something moves freely about its centre of mass."""
    if item.robot is None or len(item.bodies) != 1 or item.bodies[0].kind != "free":
        return False
    return not any(link.com.any() for link in item.robot.model.links)


# -- flight and gradients --------------------------------------------------------------------------------------------


def momentum_drift(drawn: RandomWorld, states: pb.Trajectory, dt: float) -> tuple[Array, Array]:
    """Return by robot and world how far linear and angular momentum drift, gravity's part taken out, relative."""
    times = dt * torch.arange(len(states), dtype=torch.float64)[:, None, None]
    gravity = torch.as_tensor(drawn.world.gravity, dtype=torch.float64)
    linear, angular = [], []
    at_q = at_v = 0
    for item in drawn.world.items:
        if item.robot is None:
            continue
        robot = pb.RobotModel(item.robot.model, dtype=torch.float64)
        q, qd = states.q[..., at_q : at_q + robot.nq].double(), states.qd[..., at_v : at_v + robot.nv].double()
        at_q, at_v = at_q + robot.nq, at_v + robot.nv
        momentum, mass = robot.compute_centroidal_momentum(q, qd), robot.compute_total_mass()
        size = (2.0 * mass * robot.compute_kinetic_energy(q, qd)).sqrt().amax(0) + 1e-3
        drift = momentum[..., 3:] - momentum[0, :, 3:] - mass * gravity * times
        linear.append((drift.norm(dim=-1).amax(0) / (size + mass * gravity.norm() * times[-1, 0])).numpy())
        turn = (momentum[..., :3] - momentum[0, :, :3]).norm(dim=-1).amax(0)
        angular.append((turn / (momentum[..., :3].norm(dim=-1).amax(0) + 0.1 * size)).numpy())
    return np.array(linear), np.array(angular)


def check_flight(drawn: RandomWorld, states: pb.Trajectory, findings: Findings) -> None:
    """Check momentum without contact: linear to rounding where bodies are single, else an error of first order."""
    sim, where = drawn.sim, drawn.describe()
    double = sim.dtype == torch.float64
    kind = "" if double else ", float32"
    fine = (states.status.code == 0).numpy()
    linear, angular = (x[:, fine] for x in momentum_drift(drawn, states, sim.dt))
    single = np.array([is_free_body(item) for item in drawn.world.items if item.robot is not None])
    bound = 1e-12 if double else 1e-4
    findings.check(f"linear momentum of a free body in flight, relative{kind}", linear[single], bound, where)
    speed = float(states.qd[:, fine].abs().amax()) if fine.any() else 0.0
    # Euler's step is of first order: what it may lose in the time of the rollout
    error = sim.dt * speed * (1.0 + speed * sim.dt * len(drawn.controls)) / sim.substeps
    floor = 0.0 if double else 1e-4
    for name, drift in (("linear", linear[~single]), ("angular", angular)):
        excess = np.maximum(drift - floor, 0.0) / error
        findings.check(f"{name} momentum in flight, over dt w (1 + w t){kind}", excess, 2.0, where)


def check_gradients(drawn: RandomWorld, findings: Findings) -> None:
    """Check that gradients are finite wherever the step is, also beside worlds that are not.

    Sweeps that did not converge may have a gradient that is too large for a number. That has to be an error which names
    such worlds, and since gradients are linear, that of a tiny part of the loss must be finite for them as well; 50
    sweeps that double it each leave room for five steps of float32, hence at least after one step.
    """
    controls = drawn.controls[:GRADIENT_STEPS]
    leaves = [x.detach().clone().requires_grad_() for x in (drawn.state.q, drawn.state.qd, controls)]
    for values in drawn.per_world.values():
        for quantity, value in values.items():
            values[quantity] = value.detach().clone().requires_grad_()
            leaves.append(values[quantity])
    drawn.spread(torch.arange(drawn.worlds))
    states = drawn.sim.rollout(replace(drawn.state, q=leaves[0], qd=leaves[1]), leaves[2], check=False)
    fine = (states.qd.detach().abs() < FAST).all(-1).all(0)

    def differentiate(part: float, steps: int) -> list[Tensor | None]:
        loss = states.q[steps][fine].sum() + states.qd[steps][fine].sum()
        try:
            return list(torch.autograd.grad(part * loss, leaves, allow_unused=True, retain_graph=True))
        except pb.GradientError as error:
            too_large = states.status.unconverged[error.worlds] > 0
            findings.check("gradient too large of steps that converged", ~too_large.numpy(), 0.0, drawn.describe())
            findings.count("worlds with a gradient too large for a number", len(error.worlds) * (part == 1.0))
            if steps == 1:
                raise
            tiny = 1e-30 if drawn.sim.dtype == torch.float32 else 1e-200
            return differentiate(tiny, steps if part == 1.0 else steps // 2)

    found = differentiate(1.0, len(controls))
    for k, gradient in enumerate(found):
        if gradient is not None and gradient.numel():
            by_world = gradient.transpose(0, 1) if k == 2 else gradient
            bad = ~by_world[fine].isfinite()
            what = "gradient that is not finite" + ("" if drawn.sim.cfm else ", cfm 0")
            findings.check(what, bad.reshape(-1).numpy(), 0.0, drawn.describe())
    findings.count("worlds differentiated", int(fine.sum()))

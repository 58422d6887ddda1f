"""Newton's, Signorini's and Coulomb's laws and the energy of random steps, checked from outside the kernels.

A step from q, qd has to obey, with M, h and J from the robots' own functions in float64 and forces F as reported,

    p = M (v - qd - dt c - k) - dt (tau - h) - dt sum J^T F                                 (1)

where v is the new velocity in the axes before the step, c = w x v of free joints and k what keeps the energy of trees
that turn fast (`checks/fuzz_trees.py`). tau are the forces of dampers and servos at the state after the step, and h of
lone bodies has their turning by the midpoint rule (gyroscopic.md). p is what joint limits and dry friction gave, within
their bounds, and zero elsewhere. Impulses that obey Signorini and Coulomb work on the velocity that they lead to by no
more than restitution and the recovery of a penetration ask for,

    sum dt F·(J v) <= sum dt Fn max(-bias, 0),  bias = e approach + ..., erp gap / dt or gap / dt      (2)

and add less than that to the kinetic energy at q, since half of dt F·A·dt F is lost. So the energy of free bodies may
grow in a step by (2), by the turning of a spinning body, which Euler's step makes (dt w x I w)² / 2 I too fast, and
by dt g·P of impulses P, which act before gravity does:

    E' - E <= (2) + dt² |w x I w|² / 2 I + dt |g| |P|                                       (3)

Joints in motion add an error of first order in dt, K (dt w) (dt w + |change of v| / |v|) times a number.

Closed loops give p as well, some combination mu of their rows J: what is left of p without them has to obey (1) where
neither limits nor dry friction act. Their anchors move together, J v = -erp e / dt but for softness, e how far apart
they are. Compliant contact obeys (1), Coulomb's law and that of its springs, at the end of the step, and does no more
work on v than they release; (3) is for rigid contact without loops.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

import pullback as pb
from checks.fuzz_checks import Contacts, Findings, Steps, is_free_body
from checks.fuzz_geometry import Poses, link_poses
from checks.fuzz_loops import numbers, take_out_loops
from checks.fuzz_trees import tree_corrections
from checks.random_worlds import RandomWorld, matrix
from pullback.description.compile import COORDINATES
from pullback.rigid.solvers.solver import LIMIT_MARGIN
from pullback.rigid.state import CONTACT_OVERFLOW, NOT_CONVERGED
from pullback.rigid.world.items import Placed
from tests.reference.gyroscopic import lone_bias, lone_bodies

Array = np.ndarray
Tensor = torch.Tensor
Check = Callable[[str, Array, float, Array, Array], None]


def dot(a: Array, b: Array) -> Array:
    """Return the products of vectors (n, 3)."""
    return np.einsum("ci,ci->c", a, b)


class Laws:
    """Equation (1) for steps side by side, and the velocities of contact points that the others need."""

    def __init__(self, drawn: RandomWorld, steps: Steps, contacts: Contacts) -> None:
        self.drawn, self.contacts = drawn, contacts
        n, nv = steps.state.qd.shape
        self.q0, self.v0, self.q1 = steps.state.q.double(), steps.state.qd.double(), steps.after.q.double()
        self.v1, self.free = steps.after.qd.double().clone(), self.v0.clone()
        self.u = steps.u.double()
        self.p, self.scale, self.turning_energy = np.zeros((n, nv)), np.zeros((n, nv)), np.zeros(n)
        self.to_limits = np.zeros((2, n, nv))
        self.poses: list[Poses] = []
        self.before, self.without, self.after = (np.zeros((len(contacts), 3)) for _ in range(3))
        self.push, self.mobility, self.inverse = np.zeros(n), np.zeros(len(contacts)), np.zeros((n, nv, nv))
        # of the rows of loops: the diagonal of J M^-1 J^T, and impulses
        self.loop_mobility, self.loop_impulse = np.zeros((n, 0)), np.zeros((n, 0))
        self.parts: dict[str, tuple[pb.RobotModel, slice, slice]] = {}
        self.gravity = torch.as_tensor(drawn.world.gravity, dtype=torch.float64).expand(n, 3)
        at_q = at_v = at_u = 0
        for item in drawn.world.items:
            if item.robot is None:
                self.poses.append({})
                continue
            robot = pb.RobotModel(item.robot.model, dtype=torch.float64)
            at = slice(at_q, at_q + robot.nq), slice(at_v, at_v + robot.nv), slice(at_u, at_u + len(item.actuators))
            self.add_item(item, robot, *at)
            at_q, at_v, at_u = (x.stop for x in at)
            self.parts[item.name] = robot, at[0], at[1]

    def add_item(self, item: Placed, robot: pb.RobotModel, q_at: slice, v_at: slice, u_at: slice) -> None:
        """Add the rows of one robot or body to equation (1)."""
        dt = self.drawn.sim.dt
        q, v, v1 = self.q0[:, q_at], self.v0[:, v_at], self.v1[:, v_at]
        turning = torch.zeros_like(v)
        for body in robot.model.bodies:
            if body.kind == "free":
                quat, w = slice(body.q_start + 3, body.q_start + 7), slice(body.v_start, body.v_start + 3)
                linear = slice(w.stop, w.stop + 3)
                R0, R1 = (matrix(x[:, q_at][:, quat].numpy()) for x in (self.q0, self.q1))
                turn = torch.from_numpy(np.einsum("nji,njk->nik", R0, R1))
                v1[:, linear] = (turn @ v1[:, linear, None])[..., 0]
                turning[:, linear] = torch.linalg.cross(v[:, w], v[:, linear])
        fixed = robot.model.base == "fixed"
        gravity = self.gravity @ torch.from_numpy(item.rotation) if fixed else self.gravity
        M = robot.compute_lagrangian_inertia_matrix(q)
        h = robot.compute_non_linear_effects(q, v, use_damping=False, gravity=gravity.contiguous())
        sizes = [COORDINATES[body.kind][1] for body in robot.model.bodies]
        armature, damping = (
            torch.cat([v.new_full((size,), getattr(b.joint, name)) for size, b in zip(sizes, robot.model.bodies)])
            for name in ("armature", "damping")
        )
        for first, count in lone_bodies(robot.model):
            at = slice(first, first + count)
            rotor = armature[at] + dt * damping[at]
            masses = M[:, at, at] + dt * torch.diag(damping[at])
            h[:, at] += torch.vmap(lambda m, rate: lone_bias(m, rotor, rate, dt))(masses, v[:, at])  # noqa: B023
        kept = tree_corrections(robot, q, v, M, dt)
        # dampers and servos act at the state after the step, eq. (10) of integration.md, before what corrects
        # the velocity products of trees; the velocity without contact has those at their limits that are so at the end
        unbounded, slope, limit = servo_forces(item, robot, q, v, self.u[:, u_at], dt)
        at_the_end = unbounded + slope * (v1 - kept - v)
        tau = at_the_end.clamp(-limit, limit) - damping * (v1 - kept)
        is_held = at_the_end.abs() > limit
        ends = torch.stack([limit, -limit])[:, None] - at_the_end.clamp(-limit, limit)
        self.to_limits[:, :, v_at] = dt * torch.where(limit.isfinite(), ends, 0.0).numpy()
        ahead, slope = torch.where(is_held, limit * at_the_end.sign(), unbounded), torch.where(is_held, 0.0, slope)
        inertia = M + dt * torch.diag_embed(damping - slope)
        acceleration = torch.linalg.solve(inertia, ahead - h - damping * v) + turning
        self.free[:, v_at] = v + kept + dt * acceleration
        p = ((M @ (v1 - v - kept - dt * turning)[..., None])[..., 0] - dt * (tau - h)).numpy()
        moved = v1.abs() + v.abs() + kept.abs() + dt * turning.abs()
        scale = (M.abs() @ moved[..., None])[..., 0] + dt * (tau.abs() + h.abs())
        if is_free_body(item):
            self.turning_energy += (0.5 * dt * dt * (h[:, :3] * acceleration[:, :3].neg()).sum(1)).abs().numpy()
        self.poses.append(link_poses(robot, item, q))
        self.scale[:, v_at] = scale.numpy()
        self.p[:, v_at] = p
        self.inverse[:, v_at, v_at] = np.linalg.inv(M.numpy())
        self.add_contacts(item, robot, q, v_at)

    def add_contacts(self, item: Placed, robot: pb.RobotModel, q: Tensor, v_at: slice) -> None:
        """Take the contacts' impulses out of p, and add the item's share of the velocities at their points.

        And of their mobility, the trace of J M^-1 J^T.
        """
        sim, contacts = self.drawn.sim, self.contacts
        turn = item.rotation if robot.model.base == "fixed" else np.eye(3)
        links = {shape.name: robot.model.links[shape.link].name for shape in item.shapes if shape.body >= 0}
        total = np.zeros((len(self.p), 3))
        for sign, shapes in ((1.0, sim.arrays.pair_a), (-1.0, sim.arrays.pair_b)):
            names = [links.get(sim.arrays.shape_names[k], "") for k in shapes]
            link_of = np.array([*names, ""])[contacts.pair]
            for link in sorted(set(link_of) - {""}):
                chosen = np.flatnonzero(link_of == link)
                rows = contacts.row[chosen]
                jacobians = robot.compute_endeffector_jacobian(q[torch.from_numpy(rows)], link)
                linear, angular = (turn @ x.numpy() for x in jacobians)
                arm = contacts.point[chosen] - self.poses[-1][link][1][rows]
                J = linear + np.cross(angular.swapaxes(1, 2), arm[:, None]).swapaxes(1, 2)
                self.mobility[chosen] += np.einsum("cij,cjk,cik->c", J, self.inverse[rows][:, v_at, v_at], J)
                for out, v in ((self.before, self.v0), (self.without, self.free), (self.after, self.v1)):
                    out[chosen] += sign * np.einsum("cij,cj->ci", J, v[:, v_at].numpy()[rows])
                impulse = sim.dt * contacts.force[chosen]
                np.add.at(self.p[:, v_at], rows, -sign * np.einsum("cij,ci->cj", J, impulse))
                np.add.at(self.scale[:, v_at], rows, np.einsum("cij,ci->cj", np.abs(J), np.abs(impulse)))
                np.add.at(total, rows, sign * impulse)
        self.push += np.linalg.norm(total, axis=1)

    def rounding(self, impulse: Array) -> Array:
        """Return the velocity (contacts,) that the rounding of the largest impulse of a step may be wrong by.

        What the exact solver takes for a solution, |G| of eq. (14) of exact_solver.md. It returns P(x), impulses that
        are moved by G / a: others feel A_ij G_j / a_j of it, at most |G| sqrt(a_i / a_j) a row. And a few units for the
        sums J v and M^-1 J^T lam themselves, which no solver of this type can see: jammed links in float32 have
        impulses of which one unit is a centimetre a second.
        """
        unit, most = (2.2e-16, 1e-8) if self.drawn.sim.dtype == torch.float64 else (1.2e-7, 1e-3)
        row, pressing = self.contacts.row, np.linalg.norm(impulse, axis=1)
        largest = (self.loop_mobility * np.abs(self.loop_impulse)).max(1, initial=0.0)
        np.maximum.at(largest, row, self.mobility * pressing)
        loops, points = (np.where(a > 1e-9, 1.0 / np.sqrt(a), 0.0) for a in (self.loop_mobility, self.mobility))
        others = loops.sum(1)
        np.add.at(others, row, 3.0 * (pressing > 0) * points)
        felt = np.maximum(others[row] * np.sqrt(self.mobility), 1.0)
        return np.minimum(36 * unit * largest, most)[row] * felt + 4 * unit * largest[row]

    def bounds(self) -> tuple[Array, Array, Array]:
        """Return the least and the largest impulse (n, nv) that limits and dry friction may give every dof.

        And the speed at which a limit that is exceeded sends it back.
        """
        dt, erp = self.drawn.sim.dt, self.drawn.world.contact.erp
        low, high, back = (np.zeros_like(self.p) for _ in range(3))
        near = LIMIT_MARGIN + 1e-5
        at_q = at_v = 0
        for body in [body for item in self.drawn.world.items for body in item.bodies]:
            nq, nv = COORDINATES[body.kind]
            dry, limits = dt * body.joint.friction, body.joint.limits
            low[:, at_v : at_v + nv], high[:, at_v : at_v + nv] = -dry, dry
            if nv == 1:
                position = self.q0[:, at_q].numpy()
                up, down = position - limits.lower, limits.upper - position
                high[:, at_v] = np.where((up < near) & (up <= down + 1e-5), np.inf, dry)
                low[:, at_v] = np.where((down < near) & (down <= up + 1e-5), -np.inf, -dry)
                speed = self.drawn.world.contact.max_limit_speed
                back[:, at_v] = np.minimum(erp / dt * np.maximum(-np.minimum(up, down), 0.0), speed)
            at_q, at_v = at_q + nq, at_v + nv
        return low, high, back


def servo_forces(
    item: Placed, robot: pb.RobotModel, q: Tensor, v: Tensor, u: Tensor, dt: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gain u - kp (q + dt qd) - kd qd of the joints that are driven, its derivative by qd, and its limit."""
    force, slope, limit = torch.zeros_like(v), torch.zeros_like(v[0]), torch.full_like(v[0], torch.inf)
    efforts = {body.joint.name: body.joint.limits.effort for body in robot.model.bodies}
    for k, (joint, actuator) in enumerate(item.actuators.items()):
        gain, kp, kd, *_ = numbers = actuator.numbers(joint)
        at = robot.model.v_start[joint]
        limit[at] = float(efforts[joint] if numbers.upper is None else numbers.upper)
        slope[at] = -float(kp) * dt - float(kd)
        force[:, at] = float(gain) * u[:, k] - float(kp) * q[:, robot.model.q_start[joint]] + slope[at] * v[:, at]
    return force, slope, limit


def pair_values(drawn: RandomWorld, rows: int, name: str, default: float) -> Array:
    """Return friction or restitution of all pairs in all rows (n, npair): harmonic means."""
    shapes = [shape for item in drawn.world.items for shape in item.shapes]
    table = np.zeros((rows, drawn.sim.arrays.npair))
    for k, (a, b) in enumerate(zip(drawn.sim.arrays.pair_a, drawn.sim.arrays.pair_b)):
        x, y = getattr(shapes[a], name), getattr(shapes[b], name)
        x, y = (y if x is None else x), (x if y is None else y)
        x, y = (np.asarray(default if z is None else z, dtype=float) for z in (x, y))
        table[:, k] = 2 * x * y / np.maximum(x + y, 1e-300)
    return table


def check_laws(drawn: RandomWorld, steps: Steps, code: Array, contacts: Contacts, findings: Findings) -> Laws:
    """Check all of the equations for steps that are finite and have room for their contacts; return (1)."""
    laws, where = Laws(drawn, steps, contacts), drawn.describe()
    double, contact, dt = drawn.sim.dtype == torch.float64, drawn.world.contact, drawn.sim.dt
    kind = ("" if double else ", float32") + ("" if drawn.sim.cfm else ", cfm 0")
    rounding, solution = (1e-12, 1e-7) if double else (1e-5, 5e-3)

    def check(what: str, values: Array, bound: float, chosen: Array, rows: Array) -> None:
        findings.check(what + kind, values[chosen], bound, where, rows[chosen])

    every, row = np.arange(len(code)), contacts.row
    low, high, back = laws.bounds()
    solved = (code & (NOT_CONVERGED | CONTACT_OVERFLOW)) == 0
    loops = bool(drawn.world.loops)
    if loops:
        motion = laws.v0.abs().amax(1).numpy() + laws.v1.abs().amax(1).numpy() + 1e-3
        check("solved steps: loops that open", take_out_loops(laws, low != high) / motion, solution, solved, every)
    bound, scale = 1e-8 if double else 1e-3, laws.scale.max(1, keepdims=True) + 1e-6
    candidates = (laws.p, *laws.p - laws.to_limits)
    excess, *others = (np.maximum(np.maximum(p - high, low - p), 0.0) / scale for p in candidates)
    # where friction jams, or sweeps do not converge, no servos may be at their limits as their laws say
    least = np.minimum(excess, np.minimum(*others)).max(1)
    odd = (excess.max(1) > bound) & (least <= bound)
    if drawn.sim.nu:
        findings.check("solved steps with a servo at a limit against its law", (odd & solved).sum(), 0, where)
        findings.count("steps with a servo at a limit against its law", odd.sum())
    solved &= ~odd
    check("eq. (1): balance of momentum", np.where(odd, least, excess.max(1)), bound, every >= 0, every)
    impulse = dt * contacts.force
    normal = dot(impulse, contacts.normal)
    tangential = impulse - normal[:, None] * contacts.normal
    size = np.abs(normal) + 1e-9
    mu = pair_values(drawn, len(code), "friction", 1.0)[row, contacts.pair]
    e = pair_values(drawn, len(code), "restitution", 0.0)[row, contacts.pair]
    all_of = row >= 0
    check("normal not of length one", np.abs(np.linalg.norm(contacts.normal, axis=1) - 1), rounding, all_of, row)
    check("force that pulls", -normal / size, rounding, all_of, row)
    reach = (1.0 if contact.friction == "cone" else np.sqrt(2.0)) * mu * normal
    beyond = (np.linalg.norm(tangential, axis=1) - reach) / size
    check(f"friction beyond the {contact.friction}", beyond, 10 * rounding, all_of, row)
    if isinstance(contact, pb.Compliant):
        check_compliant(laws, contact, normal, tangential, solved, solution, check)
        return laws
    # what each contact's normal velocity should be at least
    approach, without = dot(laws.before, contacts.normal), dot(laws.without, contacts.normal)
    leaving = dot(laws.after, contacts.normal)
    bias = np.maximum(contacts.gap / dt * np.where(contacts.gap <= 0, contact.erp, 1.0), -contact.max_push_speed)
    theta = np.where(contacts.gap > 0, contacts.gap / (np.maximum(-approach, 1e-12) * dt), 0.0)
    rebound = e * approach + (e * theta - (1 - theta)) * (without - approach)
    closing = contacts.gap + dt * approach
    is_impact = (e > 0) & (approach < -contact.restitution_threshold) & (closing < 0) & (rebound < 0)
    edge = 1e-8 if double else 1e-3
    unsure = (np.abs(approach + contact.restitution_threshold) < edge) | (np.abs(closing) < dt * edge)
    unsure |= np.abs(rebound) < edge
    speed = np.abs(laws.after).max(1, initial=0.0) + np.abs(laws.before).max(1, initial=0.0) + 1e-3
    speed += np.abs(np.where(is_impact, rebound, bias)) + laws.rounding(impulse) / solution
    # impacts that would add energy do not bounce, all of a step: eq. (5a) of contact_step.md
    bounced, closed = ((leaving + x + drawn.sim.cfm * normal) / speed for x in (rebound, bias))
    refused, stopped = (np.zeros(len(code), dtype=bool) for _ in range(2))
    np.logical_or.at(refused, row, is_impact & (closed < -solution))
    # also where pushing out of a penetration is faster than the bounce
    is_pushed = (normal > 0) & (np.abs(closed) < solution) & (bounced > solution)
    np.logical_or.at(stopped, row, is_impact & ((bounced < -solution) | is_pushed))
    is_impact &= ~(stopped & ~refused)[row]
    bias = np.where(is_impact, rebound, bias)
    wanted = (leaving + bias + drawn.sim.cfm * normal) / speed
    judged = solved[row] & ~unsure
    check("solved steps: approach", -wanted, solution, judged, row)
    pressed = judged & (normal > (1e-9 if double else 1e-5))
    check("solved steps: pressed and leaving", wanted, solution, pressed, row)
    slip = laws.after - leaving[:, None] * contacts.normal
    check("solved steps: friction that drives", dot(tangential, slip) / (size * speed), solution, pressed, row)
    # eq. (2)
    given, allowed, amount, added = (np.zeros(len(code)) for _ in range(4))
    np.add.at(given, row, dot(impulse, laws.after))
    least = np.where(unsure, np.minimum(bias, np.minimum(e * approach, rebound)), bias)
    np.add.at(allowed, row, np.maximum(-least, 0.0) * np.maximum(normal, 0.0))
    np.add.at(amount, row, np.linalg.norm(impulse, axis=1) * speed)
    extra = (given - allowed) / (amount + 1e-12)
    touching = amount > 0
    check("eq. (2): work of contact on the new velocity, solved steps", extra, solution, solved & touching, every)
    if loops:
        return laws
    # and what contacts, limits and dry friction really added to the kinetic energy at q
    allowed += (np.abs(laws.p) * back).sum(1)
    np.add.at(added, row, 0.5 * dot(impulse, laws.after + laws.without))
    added += 0.5 * (laws.p * (laws.v1 + laws.free).numpy()).sum(1)
    motion = (laws.scale * (laws.v1.abs() + laws.free.abs()).numpy()).sum(1)
    extra = (added - allowed) / (amount + 1e-3 * motion + 1e-9)
    how = "warm start" if contact.warm_start else "cold start"
    check("energy added by contact and joints, solved steps", extra, solution, solved, every)
    check(f"energy added by contact and joints, other steps, {how}", extra, solution, ~solved, every)
    check_energy(laws, steps, solved, allowed, findings)
    return laws


def check_compliant(
    laws: Laws, contact: pb.Compliant, normal: Array, tangential: Array, solved: Array, solution: float, check: Check
) -> None:
    """Check the force of springs at the end of solved steps, and that contacts do no more work than springs release."""
    contacts, dt = laws.contacts, laws.drawn.sim.dt
    k, d = (numbers(value) for value in (contact.stiffness, contact.damping))
    p, h = contact.power, contact.onset
    row, opening = contacts.row, dot(laws.after, contacts.normal)
    speed = np.abs(laws.after).max(1, initial=0.0) + np.abs(laws.before).max(1, initial=0.0) + 1e-3
    slip = laws.after - opening[:, None] * contacts.normal
    size = np.abs(normal) + 1e-9
    drives = dot(tangential, slip) / (size * speed)
    check("solved steps: friction that drives, compliant", drives, solution, solved[row], row)

    def ramp(x: Array, h: float) -> Array:
        return np.where(x >= h, x, np.maximum(x + h, 0.0) ** 2 / (4 * h))

    def energy(gap: Array) -> Array:
        within = np.clip(h - gap, 0.0, 2 * h) ** (2 * p + 1) / ((2 * p + 1) * (4 * h) ** p)
        return k * (within + (np.maximum(-gap, h) ** (p + 1) - h ** (p + 1)) / (p + 1))

    depth, brake = ramp(-contacts.gap - dt * opening, h), ramp(1 - d * opening, 0.5)
    expected = dt * k * depth**p * brake
    steepness = dt * k * (p * dt * depth ** (p - 1) * brake + d * depth**p)
    wrong = np.abs(normal - expected) / (normal + expected + steepness * speed + 1e-9)
    check("solved steps: force of a spring", wrong, solution, solved[row], row)
    given, released, amount = (np.zeros(len(solved)) for _ in range(3))
    before, after = energy(contacts.gap), energy(contacts.gap + dt * opening)
    np.add.at(given, row, dot(dt * contacts.force, laws.after))
    np.add.at(released, row, before - after)
    np.add.at(amount, row, before + after + size * speed)
    check(
        "solved steps: work beyond what springs release",
        (given - released) / (amount + 1e-9),
        solution,
        solved,
        np.arange(len(solved)),
    )


def check_energy(laws: Laws, steps: Steps, solved: Array, allowed: Array, findings: Findings) -> None:
    """Check that the energy of what is not driven grows no more than eq. (3), or the error of first order, allows."""
    drawn, where = laws.drawn, laws.drawn.describe()
    sim, dt = drawn.sim, drawn.sim.dt
    if sim.nu or sim.dtype != torch.float64:
        return
    (k0, u0), (k1, u1) = ((x.numpy() for x in sim.energies(s)) for s in (steps.state, steps.after))
    growth = k1 + u1 - k0 - u0 - allowed
    pull = np.linalg.norm(laws.gravity.numpy(), axis=1)
    scale = k0 + k1 + np.abs(u0) + np.abs(u1) + 1e-6
    rows = np.flatnonzero(solved)
    if all(is_free_body(item) for item in drawn.world.items if item.robot is not None):
        bound = laws.turning_energy + dt * pull * laws.push
        what = "eq. (3): energy of free bodies"
        findings.check(what, ((growth - bound) / scale)[solved], 1e-9, where, rows)
        return
    v0, v1 = laws.v0.numpy(), laws.v1.numpy()
    speed = np.maximum(np.abs(v0).max(1), np.abs(v1).max(1))
    change = np.abs(v1 - v0).max(1) / (speed + 1e-9)
    error = (k0 + k1) * (dt * speed) * (dt * speed + change) + dt * pull * laws.push + dt * dt * pull**2 + 1e-9
    findings.check("energy of undriven joints, over its first-order bound", (growth / error)[solved], 10.0, where, rows)

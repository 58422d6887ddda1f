"""The cost of contact forces: against weights, reports and differences, and a finger that wipes with a wanted force."""

import math
from functools import cache

import pytest
import torch

import pullback as pb
from pullback.control import ContactForce, ControlCost, Problem, StateCost
from pullback.control.costs.costs import Blocks, Place, bind
from pullback.control.ilqr.ilqr import ilqr
from pullback.core.errors import PullbackError
from tests.control.scenes import JOINT, LINK, SPREAD, load_urdf

REAL = torch.float64
FRICTION = 0.5
GRAVITY = 9.81
TIP = '<collision><geometry><sphere radius="0.1"/></geometry></collision></link>'


def finger_world(*, box, depth=1e-5, **options):
    """A finger of 1 kg with a round tip, driven along x and z, that touches the ground; maybe a box of 2 kg beside."""
    links = "".join(LINK.format(name=n, mass=1, spread=SPREAD) for n in ("rail", "cart", "finger"))
    ends = {"type": "prismatic", "lower": -10, "upper": 10, "xyz": "0 0 0"}
    joints = JOINT.format(name="x", parent="rail", child="cart", axis="1 0 0", **ends)
    joints += JOINT.format(name="z", parent="cart", child="finger", axis="0 0 1", **ends)
    world = pb.World(**{"gravity": (0, 0, -GRAVITY), **options})
    robot = load_urdf(links[: -len("</link>")] + TIP + joints)
    world.add(robot, name="robot", position=(0, 0, 0.1 - depth), actuators=pb.Torque(limit=math.inf))
    world.add_ground(friction=FRICTION)
    if box:
        world.add_box("box", size=(0.4, 0.4, 0.3), mass=2.0, position=(1.0, 0, 0.15 - depth))
    return world


@cache
def finger(*, box=True, dtype=REAL, friction="cone"):
    world = finger_world(box=box, contact=pb.PGS(friction=friction))
    return world.compile(dt=0.01, dtype=dtype, without=["limits"])


def sticking_and_sliding(sim):
    """Two moments of one problem: at rest, and with finger and box in motion, all with contacts well under way."""
    start = sim.initial_state()
    q, qd = (x.expand(2, 1, -1).clone() for x in (start.q, start.qd))
    qd[1, 0, 0] = 0.5
    if sim.nv > 2:
        qd[1, 0, 5:7] = torch.tensor([0.6, -0.3], dtype=sim.dtype)
    u = torch.tensor([[[1.0, -3.0]], [[2.0, -3.0]]], dtype=sim.dtype)
    return q, qd, u


def bound_force(sim, nodes, batch, **options):
    options = {"body": "robot/finger", **options}
    return bind(ContactForce(**options), Place(sim, nodes, batch, is_end=False)).terms[0]


def expansion(sim, bound, q, qd, u):
    """Return gradient and Hessian by (dx, du), all nodes."""
    n, m, nodes = 2 * sim.nv, sim.nu, q.shape[:2]
    blocks = Blocks(*[torch.zeros(*nodes, *s, dtype=REAL) for s in ((n,), (m,), (n, n), (m, m), (m, n))])
    bound.add_constant(blocks)
    bound.add(q, qd, u, blocks)
    top = torch.cat([blocks.xx, blocks.ux.mT], -1)
    return torch.cat([blocks.x, blocks.u], -1), torch.cat([top, torch.cat([blocks.ux, blocks.uu], -1)], -2)


def directions(sim, count):
    """Return mixed directions in which coordinates, velocities and controls change the force about as much."""
    z = torch.randn(count, 2 * sim.nv + sim.nu, dtype=REAL, generator=torch.Generator().manual_seed(0))
    return z * torch.tensor([0.1] * sim.nv + [1.0] * sim.nv + [30.0] * sim.nu, dtype=REAL)


def moved_values(sim, bound, q, qd, u, z):
    there = sim.retract(pb.State(q, qd), z[: 2 * sim.nv].expand(*q.shape[:2], -1))
    return bound.values(there.q, there.qd, u + z[2 * sim.nv :])


def test_a_resting_box_is_carried_by_its_weight():
    gravity = torch.tensor([[0.0, 0.0, -GRAVITY], [0.0, 0.0, -1.62]], dtype=REAL)
    sim = finger_world(box=True, gravity=gravity).compile(dt=0.01, dtype=REAL)
    after = sim.rollout(sim.initial_state(2), 50)[-1]
    bound = bound_force(sim, 3, 2, body="box")
    nodes = [x.expand(3, 2, -1) for x in (after.q, after.qd)]
    force = bound.force(*nodes, torch.zeros(3, 2, 2, dtype=REAL))
    expected = -2.0 * gravity.expand(3, 2, 3)
    assert (force - expected).abs().max() < 1e-4 * expected.max()
    on_ground = bound_force(sim, 3, 2, body="ground", other="box").force(*nodes, torch.zeros(3, 2, 2, dtype=REAL))
    assert (on_ground + force).abs().max() == 0.0


def test_the_force_of_a_step_that_is_split():
    """The finger lands within the step, and its force is that of the whole of it: the change of momentum."""
    sim = finger_world(box=False, depth=-1e-3).compile(dt=0.01, dtype=REAL, without=["limits"], impacts="split")
    q, qd, u = (x[:1] for x in sticking_and_sliding(sim))
    qd[..., 1] = -1.0
    u = torch.zeros_like(u)
    force = bound_force(sim, 1, 1).force(q, qd, u)
    state = pb.State(q[0], qd[0])
    torch.testing.assert_close(force, sim.contact_wrenches(state, ["robot/finger"], u[0])[0])
    gained = sim.step(state, u[0]).qd[0, 1] - qd[0, 0, 1]
    assert float(force[0, 0, 2]) == pytest.approx(float(gained) / 0.01 + GRAVITY, rel=1e-9)


@pytest.mark.parametrize(
    ("body", "other"), [("robot/finger", None), ("box", None), ("ground", "robot"), ("box", "ground")]
)
def test_value_is_that_of_the_report(body, other):
    sim = finger()
    generator = torch.Generator().manual_seed(3)
    shape = (2, 3, 2)
    q, qd, u = (x[0, 0].expand(*shape, -1) for x in sticking_and_sliding(sim))
    moves = torch.randn(*shape, 2 * sim.nv, dtype=REAL, generator=generator) * 1e-3
    moves[..., 1, 0, 0] = 0.75  # the finger is at the box
    state = sim.retract(pb.State(q, qd), moves)
    u = u + 5.0 * torch.randn(*shape, 2, dtype=REAL, generator=generator)
    target, weights = torch.tensor([1.0, -2.0, 15.0], dtype=REAL), torch.tensor([1.0, 2.0, 0.5], dtype=REAL)
    bound = bound_force(sim, 3, 2, body=body, other=other, target=target, weights=weights)
    found = bound.values(state.q, state.qd, u)

    def belongs(shape, name):
        return name is None or shape == name or shape.startswith(name + "/")

    flat = pb.State(state.q.flatten(0, 2), state.qd.flatten(0, 2))
    for contacts, value in zip(sim.contacts(flat, u.flatten(0, 2)), found.flatten(), strict=True):
        force = torch.zeros(3, dtype=REAL)
        for contact in contacts:
            (a, b), f = contact.shapes, torch.tensor(contact.force, dtype=REAL)
            force += f * (belongs(a, body) and belongs(b, other)) - f * (belongs(b, body) and belongs(a, other))
        assert value.item() == pytest.approx((0.5 * weights * (force - target) ** 2).sum().item(), rel=1e-12)
    bound.chunk = 5
    assert (bound.values(state.q, state.qd, u) == found).all()


@pytest.mark.parametrize("body", ["robot/finger", "box"])
def test_derivatives_against_differences_of_the_value(body):
    """In directions, sticking and sliding; Gauss and Newton's Hessian is the whole one where the target is met."""
    sim = finger()
    q, qd, u = sticking_and_sliding(sim)
    weights = (1.0, 2.0, 0.5)
    bound = bound_force(sim, 2, 1, body=body, target=(3.0, -1.0, 10.0), weights=weights)
    gradient, hessian = expansion(sim, bound, q, qd, u)
    met = bound_force(sim, 2, 1, body=body, target=bound.force(q, qd, u), weights=weights)
    for z in directions(sim, 4):
        h = 1e-6
        ahead, behind = (moved_values(sim, bound, q, qd, u, s * z) for s in (h, -h))
        expected = (ahead - behind) / (2 * h)
        assert (gradient @ z - expected).abs().max() < 1e-4 * expected.abs().min()
        expected = sum(moved_values(sim, met, q, qd, u, s * z) for s in (h, -h)) / h**2
        assert (((hessian @ z) @ z) - expected).abs().max() < 1e-4 * expected.min()
    bound.chunk = 50
    again = expansion(sim, bound, q, qd, u)
    assert (again[0] == gradient).all()
    assert (again[1] == hessian).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(REAL, 1e-4), (torch.float32, 2e-2)])
def test_jacobian_by_hand(dtype, tolerance):
    """Sticking answers every force by its opposite; sliding answers along x by friction times the normal force."""
    # with a cone, sweeps in float32 do not get a finger to stick that cannot move along y
    sim = finger(box=False, dtype=dtype, friction="pyramid")
    found = bound_force(sim, 2, 1).jacobian(*sticking_and_sliding(sim))[:, 0].double()
    zero, mass, erp, dt = [0.0] * 6, 1.0, sim.world.contact.erp, sim.dt
    normal = [0.0, -mass * erp / dt**2, 0.0, -mass / dt, 0.0, -1.0]
    stuck = [0.0, 0.0, -2 * mass / dt, 0.0, -1.0, 0.0]
    expected = torch.tensor([[stuck, zero, normal], [[-FRICTION * x for x in normal], zero, normal]], dtype=REAL)
    scale = torch.tensor([1e3, 1e3, 1e2, 1e2, 1.0, 1.0], dtype=REAL)
    assert ((found - expected).abs() / scale).max() < tolerance


def test_a_finger_wipes_with_the_force_that_is_wanted():
    sim = finger_world(box=False).compile(dt=0.02, dtype=REAL)
    steps, batch = 40, 2
    wanted = torch.zeros(steps, batch, 3, dtype=REAL)
    phase = torch.linspace(0.0, 2.0 * math.pi, steps, dtype=REAL)
    wanted[..., 2] = torch.stack([20.0 + 5.0 * phase.sin(), 12.0 + 2.0 * phase.cos()], -1)
    press = ContactForce("robot/finger", wanted, weights=(0.0, 0.0, 1.0), other="ground")
    goal = pb.State(torch.tensor([0.3, 0.0], dtype=REAL), torch.zeros(2, dtype=REAL))
    arrive = StateCost(goal, weights=(1e4, 0.0, 1e2, 0.0))
    problem = Problem(sim, sim.initial_state(batch), steps, press + 1e-4 * ControlCost(), arrive)
    # a finger that sticks has no derivative towards the goal
    guess = torch.tensor([10.0, -5.0], dtype=REAL).expand(steps, batch, 2)
    found = ilqr(problem, guess, iterations=30)
    first = pb.State(found.states.q[:-1].flatten(0, 1), found.states.qd[:-1].flatten(0, 1))
    reports = sim.contacts(first, found.controls.flatten(0, 1))
    force = torch.tensor([sum(c.force[2] for c in contacts) for contacts in reports], dtype=REAL).view(steps, batch)
    assert (force / wanted[..., 2] - 1.0).abs().max() < 0.01
    assert (found.states.q[-1, :, 0] - 0.3).abs().max() < 0.01


def test_forces_that_are_not_known_cost_nan():
    small = finger_world(box=True).compile(dt=0.01, dtype=REAL, max_contacts=3)
    sim = finger()
    q, qd, u = sticking_and_sliding(sim)
    assert bound_force(small, 2, 1).values(q, qd, u).isnan().all()
    q, qd, u = sticking_and_sliding(sim)
    qd[1, 0, 3] = math.nan
    assert bound_force(sim, 2, 1).values(q, qd, u).flatten().isnan().tolist() == [False, True]


def test_a_warm_start_counts_as_a_cold_one():
    sim = finger_world(box=False, contact=pb.PGS(warm_start=True)).compile(dt=0.01, dtype=REAL, without=["limits"])
    cold, nodes = finger(box=False), sticking_and_sliding(finger(box=False))
    force = bound_force(sim, 2, 1).force(*nodes)
    assert (force - bound_force(cold, 2, 1).force(*nodes)).abs().max() < 1e-8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"body": "robot/thumb"}, "no body with a collision shape named 'robot/thumb'; did you mean 'robot/finger'"),
        ({"body": "hammer"}, "choose from: robot/finger, ground, box"),
        ({"body": "box", "other": "wall"}, "no body with a collision shape named 'wall'"),
        ({"body": "box", "other": "box"}, "no contact between 'box' and 'box' is computed"),
        ({"target": (0.0, 1.0)}, r"the target of a ContactForce on 'robot/finger' has shape \(2,\)"),
        ({"weights": math.nan}, "not finite"),
    ],
)
def test_costs_that_do_not_fit(options, words):
    with pytest.raises(PullbackError, match=words):
        bound_force(finger(), 2, 1, **options)


def test_where_there_are_no_contacts_or_no_controls():
    with pytest.raises(PullbackError, match="make it running"):
        bind(ContactForce("box"), Place(finger(), 1, 1, is_end=True))
    world = finger_world(box=False)
    parts = ["contacts", "limits"]
    sim = world.compile(dt=0.01, dtype=REAL, without=parts)
    with pytest.raises(PullbackError, match="'robot/finger' and anything else is computed"):
        bound_force(sim, 1, 1)
    sim = world.compile(dt=0.01, dtype=REAL, integrator="rk4", without=parts)
    with pytest.raises(PullbackError, match="integrator='rk4' is for motion without them"):
        bound_force(sim, 1, 1)

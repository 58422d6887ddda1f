"""The kernels that choose the side of a kink: against the reference in numpy, scipy, and one-sided differences."""

from functools import cache

import numpy as np
import pytest
import torch
import warp as wp
from scipy.optimize import lsq_linear

import pullback as pb
from pullback.core.modules import kernel_module
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Pose, Shape, Tree
from pullback.rigid.solvers.implicit_kernels import implicit_rows, implicit_vjp
from pullback.rigid.solvers.kink_kernels import find_ties, hold, is_convex, let_go
from pullback.rigid.solvers.problem import Problem
from pullback.spatial.arrays import rows_from
from tests.reference.kinks import Case, Step, choose, control_gradient, side
from tests.reference.kinks import is_convex as reference_convex

F64 = torch.float64
WARP = {np.float32: wp.float32, np.float64: wp.float64}
wp.init()


@cache
def kernel(real: type):
    array = wp.array2d(dtype=real)

    @wp.kernel(module=kernel_module("test_sides", real))
    def both(p: Problem, held: int, width: real, x: array, counts: array, ties: array, convex: array):
        w = wp.tid()
        A = rows_from(x, p.A)
        b = rows_from(x, p.b)
        mu = rows_from(x, p.mu)
        lower = rows_from(x, p.lower)
        upper = rows_from(x, p.upper)
        lam = rows_from(x, p.start)
        cases = rows_from(x, p.lam)
        kappa = rows_from(x, p.multiplier)
        count = find_ties(p.nc, p.ns, 1, width, A, b, lower, upper, lam, w, mu, ties)
        counts[0, w] = real(count)
        for i in range(3 * p.nc + p.ns):
            cases[i, w] = lam[i, w]
        for k in range(count):
            let_go(p.nc, int(ties[k, w]), mu, lower, upper, w, cases)
            if held == 1:
                hold(p.nc, p.ns, int(ties[k, w]), 1, A, b, mu, lower, upper, lam, w, cases)
        implicit_vjp(p, w, x)
        for k in range(count):
            is_up = is_convex(p.nc, int(ties[k, w]), lower, upper, w, cases, kappa)
            convex[k, w] = wp.where(is_up, real(1.0), real(0.0))

    return both


def sides(nc, A, b, mu, lower, upper, lam, adj_lam, *, held, real=np.float64):
    """Return the tied rows, whether their kinks are convex, and the multipliers, with all ties on one side."""
    ns, m = len(lower), len(lam)
    arrays = {"A": A, "b": b, "mu": mu, "lower": lower, "upper": upper, "start": lam, "adj_lam": adj_lam}
    for name, n in {"lam": m, "multiplier": m, "adj_mu": nc, "adj_lower": ns, "adj_upper": ns}.items():
        arrays[name] = np.full(n, np.nan)
    arrays["work"] = np.full(implicit_rows(m), np.nan)
    p, first = Problem(), {}
    p.nc, p.ns, p.cone = nc, ns, 1
    packed = np.zeros(0)
    for name, values in arrays.items():
        first[name] = len(packed)
        setattr(p, name, len(packed))
        packed = np.append(packed, np.ravel(values))
    x, count, ties, convex = (
        wp.array(v.reshape(-1, 1).astype(real), device="cpu")
        for v in (packed, *(np.full(n, np.nan) for n in (1, m, m)))
    )
    width = 1e-9 if real is np.float64 else 1e-5
    wp.launch(kernel(WARP[real]), dim=1, inputs=[p, int(held), width, x, count, ties, convex], device="cpu")
    kappa = x.numpy()[first["multiplier"] :][:m, 0]
    count, ties, convex = (v.numpy()[:, 0] for v in (count, ties, convex))
    n = int(count[0])
    return ties[:n].astype(int).tolist(), convex[:n] == 1.0, kappa


def random_step(generator: np.random.Generator, tie: str) -> Step:
    """Return a step of a contact that sticks, one that slides, one that is open, and in between one on a kink."""
    nv, mu = 14, 0.5
    root = generator.standard_normal((nv, nv)) / 4
    J = generator.standard_normal((12, nv))
    lam = np.zeros(12)
    lam[:3] = 1.0, 0.2, -0.1
    lam[9] = 0.7
    still = {"touch": [3], "apex": [3, 4, 5], "friction": [3, 4, 5]}[tie]
    if tie == "friction":
        lam[3:6] = 1.5, *(0.75 * np.array([0.6, -0.8]))
    v = generator.standard_normal(nv)
    rows = J[[0, 1, 2, 9, *still]]
    v -= np.linalg.pinv(rows) @ (rows @ v)
    J[6] *= np.sign(J[6] @ v)
    lam[10:] = -mu * lam[9] * (J[10:] @ v) / np.linalg.norm(J[10:] @ v)
    return Step(root @ root.T + np.eye(nv), J, np.full(4, mu), lam, v)


@pytest.mark.parametrize("real", [np.float64, np.float32])
@pytest.mark.parametrize("tie", ["touch", "apex", "friction"])
def test_kernels_know_both_sides(tie, real):
    generator = np.random.default_rng(1)
    names: tuple[Case, Case] = ("sticks", "slides") if tie == "friction" else ("slides", "open")
    seen = set()
    for _ in range(20):
        step, g = random_step(generator, tie), generator.standard_normal(14)
        K = np.linalg.solve(step.M, step.J.T)
        A = step.J @ K
        b = step.J @ step.v - A @ step.lam
        for held, case in zip((True, False), names):
            cases: list[Case] = ["sticks", case, "open", "slides"]
            expected = side(step, cases, g)
            ties, convex, kappa = sides(4, A, b, step.mu, [], [], step.lam, K.T @ g, held=held, real=real)
            assert ties == [4 if tie == "friction" else 3]
            np.testing.assert_allclose(kappa, expected.kappa, rtol=0, atol=1e-8 if real is np.float64 else 2e-3)
            if held and abs(kappa[ties[0]]) > 1e-3:
                assert convex[0] == reference_convex(step, 1, expected)
                seen.add(bool(convex[0]))
    assert seen == {True, False}


def test_limits_and_dry_friction_bend_as_scipy_says():
    # held limit, tied limit, dry friction tied at its upper and at its lower end, held dry friction
    generator = np.random.default_rng(2)
    lower = np.array([0.0, 0.0, -0.3, -0.4, -1.0])
    upper = np.array([np.inf, np.inf, 0.3, 0.4, 1.0])
    lam = np.array([0.8, 0.0, 0.3, -0.4, 0.1])
    nv, seen = 7, set()
    for _ in range(20):
        Y, g = generator.standard_normal((5, nv)), generator.standard_normal(nv)
        A = Y @ Y.T
        s = -Y.T @ lam  # every row at rest after the impulses
        for number, row in enumerate((1, 2, 3)):
            # the others a little off their ties, to either side
            at = lam + np.array([0, 0.1 * (row != 1), -0.1 * (row != 2), 0.1 * (row != 3), 0])
            start = s - Y.T @ (at - lam)
            gradients = {}
            for held in (True, False):
                ties, convex, kappa = sides(0, A, Y @ start, [], lower, upper, at, Y @ g, held=held)
                assert ties == [row]
                gradients[held] = g - Y.T @ kappa
                bends_up = bool(convex[0]) if held else bends_up  # noqa: F821
            for _ in range(4):
                change = 1e-4 * generator.standard_normal(nv)
                solved = lsq_linear(Y.T, -(start + change), bounds=(lower, upper), tol=1e-14, method="bvls")
                slope = g @ (change + Y.T @ (solved.x - at))
                both = [gradients[held] @ change for held in (True, False)]
                assert slope == pytest.approx(max(both) if bends_up else min(both), abs=1e-9)
            seen.add((number, bends_up))
    assert len(seen) == 6


# -- the engine ------------------------------------------------------------------------------------------------------

DT, CFM = 5e-3, 1e-6
RADIUS, BALL = 0.0625, 0.125


def slider(*, axis=(1.0, 0.0, 0.0), lower=-9.0, upper=9.0, friction=0.0, feet=1) -> pb.RobotModel:
    """Return spheres of 1 kg in all that move along an axis."""
    link = Link("part", 1.0, inertia=1e-3 * np.eye(3))
    for k in range(feet):
        link.shapes.append(Shape("sphere", (RADIUS,), Pose(np.array([0.0, 0.5 * k, 0.0]))))
    joint = Joint("j", "prismatic", "rail", "part", axis=np.array(axis), limits=Limits(lower, upper))
    joint.friction = friction
    return pb.RobotModel(compile_tree(Tree("slider", [Link("rail", 0.0), link], [joint], source="slider")))


def balls(world: pb.World, count: int, friction: float = 0.0) -> None:
    """Add a carriage, and balls in a row that touch it and each other; friction of all but the first."""
    world.add_ground(friction=0.5)
    world.add(slider(), position=(0, 0, BALL), friction=0.0, actuators=pb.Torque())
    for k in range(count):
        x = RADIUS + BALL + 2 * BALL * k
        rub = friction if k else 0.5
        world.add_sphere(f"ball{k}", radius=BALL, mass=0.5, position=(x, 0.0, BALL), friction=rub)


def block(world: pb.World) -> None:
    """Add a weight that presses down with 1 kg and is pulled along."""
    links = [Link("rail", 0.0), Link("up", 0.5, inertia=1e-3 * np.eye(3)), Link("along", 0.5, inertia=1e-3 * np.eye(3))]
    links[2].shapes.append(Shape("sphere", (RADIUS,)))
    joints = [
        Joint(f"j{k}", "prismatic", links[k].name, links[k + 1].name, axis=np.array(axis))
        for k, axis in enumerate(((0.0, 0.0, 1.0), (1.0, 0.0, 0.0)))
    ]
    world.add_ground(friction=0.5)
    robot = pb.RobotModel(compile_tree(Tree("block", links, joints, source="block")))
    world.add(robot, position=(0, 0, RADIUS - 1e-6), friction=0.5, actuators={"j1": pb.Torque()})


def alone(**options):
    """Return how to add a slider that touches nothing."""
    return lambda world: world.add(slider(**options), position=(0, 0, 1.0), actuators=pb.Torque())


def supports(world: pb.World) -> None:
    """Add what stands on two feet, of no weight."""
    world.gravity = (0.0, 0.0, 0.0)
    world.add_ground(friction=0.5)
    world.add(slider(axis=(0.0, 0.0, 1.0), feet=2), position=(0, 0, RADIUS), actuators=pb.Torque())


def gives_way(sim: pb.Sim) -> float:
    """Return the force [N] at which the block begins to slide; rows are softer by cfm."""
    return 0.5 * sim.contacts(sim.initial_state())[0][0].force[2] * (1.0 + 0.5 * CFM)


# how to fill the world, the force on the kink, and the dof whose velocity is the loss
WORLDS = {
    "a ball that is touched": (lambda world: balls(world, 1), 0.0, 4),
    "the second of two balls": (lambda world: balls(world, 2), 0.0, 10),
    "two feet, no weight": (supports, 0.0, 0),
    "a block about to slide": (block, gives_way, 1),
    "a joint at its lower limit": (alone(lower=0.0), 0.0, 0),
    "a joint at its upper limit": (alone(upper=0.0), 0.0, 0),
    "dry friction about to give way": (alone(friction=2.0), 2.0 * (1.0 + CFM), 0),
    "dry friction, backwards": (alone(friction=2.0), -2.0 * (1.0 + CFM), 0),
}


def compiled(add, kinks: str) -> pb.Sim:
    world = pb.World(contact=pb.PGS(kinks=kinks, cfm=CFM))  # pyright: ignore[reportArgumentType]
    add(world)
    return world.compile(dt=DT, dtype=F64)


def loss_and_gradient(sim: pb.Sim, forces, dof: int, sign: float, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a dof's velocity after steps with a constant force, times a sign, and its gradient, world by world."""
    u = torch.tensor(forces, dtype=F64)[:, None].requires_grad_()
    start = sim.initial_state()
    start = pb.State(start.q.expand(len(u), -1), start.qd.expand(len(u), -1))
    losses = sign * sim.rollout(start, u.expand(steps, -1, -1))[-1].qd[:, dof]
    losses.sum().backward()
    assert u.grad is not None
    return losses.detach().numpy(), u.grad[:, 0].numpy()


def one_sided(sim: pb.Sim, force: float, dof: int, sign: float, steps: int) -> tuple[float, float]:
    """Return the slopes of the loss below and above a force."""
    h = 1e-4
    losses, _ = loss_and_gradient(sim, [force - h, force, force + h], dof, sign, steps)
    below, above = np.diff(losses) / h
    assert abs(above - below) > 1e-3
    return below, above


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("name", WORLDS)
def test_the_side_that_leads_down(name, sign):
    add, force, dof = WORLDS[name]
    sim = compiled(add, "downhill")
    force = force(sim) if callable(force) else force
    below, above = one_sided(sim, force, dof, sign, 1)
    expected = min(below, above, key=abs) if above > below else max(below, above, key=abs)
    _, (found,) = loss_and_gradient(sim, [force], dof, sign, 1)
    # the sweeps end at 1e-11 m/s, and the slopes are over steps of 1e-4
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", ["a ball that is touched", "the second of two balls", "two feet, no weight"])
def test_a_push_of_many_steps(name):
    add, force, dof = WORLDS[name]
    plain, downhill = (compiled(add, kinks) for kinks in ("computed", "downhill"))
    _, above = one_sided(plain, force, dof, -1.0, 20)
    found = [loss_and_gradient(sim, [force], dof, -1.0, 20)[1][0] for sim in (plain, downhill)]
    assert found[1] == pytest.approx(above, rel=1e-4)
    assert found[0] == (0.0 if "ball" in name else pytest.approx(above, rel=1e-4))


def test_several_ties_as_the_reference_chooses():
    # three carriages around a ball, and a second ball behind it, all just touching and without weight
    generator = np.random.default_rng(5)
    towards, axes = (np.eye(3) + 0.3 * generator.standard_normal((3, 3)) for _ in range(2))
    towards, axes = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (towards, axes))
    behind = np.full(3, -(3.0**-0.5))

    def add(world: pb.World) -> None:
        world.gravity = (0.0, 0.0, 0.0)
        for place, axis in zip((RADIUS + BALL) * towards, axes):
            world.add(slider(axis=axis), position=place, friction=0.0, actuators=pb.Torque())
        for name, place in (("ball", (0.0, 0.0, 0.0)), ("second", 2 * BALL * behind)):
            world.add_sphere(name, radius=BALL, mass=0.5, position=place, friction=0.0)

    # velocities: three carriages, then each ball along and across
    J = np.zeros((12, 9))
    for c in range(3):
        J[3 * c, c], J[3 * c, 3:6] = towards[c] @ axes[c], -towards[c]
    J[9, 3:6], J[9, 6:9] = -behind, behind
    step = Step(np.diag([1.0] * 3 + [0.5] * 6), J, np.zeros(4), np.zeros(12), np.zeros(9))
    B = np.eye(9)[:, :3]
    sim = compiled(add, "downhill")
    start, chosen = sim.initial_state(), set()
    assert len(sim.contacts(start)[0]) == 4
    for _ in range(30):
        g = generator.standard_normal(9)
        cases, expected = choose(step, ["open"] * 4, [0, 1, 2, 3], g, B)
        u = torch.zeros(1, 3, dtype=F64, requires_grad=True)
        after = sim.step(start, u).qd[0][[0, 1, 2, 6, 7, 8, 12, 13, 14]]
        (found,) = torch.autograd.grad(after @ torch.from_numpy(g), u)
        np.testing.assert_allclose(found[0], DT * control_gradient(step, B, expected), rtol=1e-4, atol=1e-7)
        chosen.add(tuple(cases))
    assert len(chosen) > 5


def test_friction_is_left_out_where_it_has_no_direction():
    # two balls at rest against each other would rub: the way is right, and longer than it should be
    rough = compiled(lambda world: balls(world, 2, 0.5), "downhill")
    assert one_sided(rough, 0.0, 10, -1.0, 1)[1] == pytest.approx(-1.3158e-3, rel=1e-3)
    assert loss_and_gradient(rough, [0.0], 10, -1.0, 1)[1][0] == pytest.approx(-2.0833e-3, rel=1e-3)


@pytest.mark.parametrize("name", WORLDS)
def test_beside_a_kink_nothing_changes(name):
    add, force, dof = WORLDS[name]
    plain, downhill = (compiled(add, kinks) for kinks in ("computed", "downhill"))
    force = force(plain) if callable(force) else force
    beside = [force - 0.1, force + 0.1]
    for a, b in zip(*(loss_and_gradient(sim, beside, dof, 1.0, 3) for sim in (plain, downhill))):
        assert (a == b).all()


def test_what_cannot_be_chosen_is_refused():
    with pytest.raises(pb.PullbackError, match="leave gradient='implicit'"):
        pb.PGS(kinks="downhill", gradient="unrolled")
    with pytest.raises(pb.PullbackError, match="choose 'computed' or 'downhill'"):
        pb.PGS(kinks="up")  # pyright: ignore[reportArgumentType]
    sim = compiled(alone(), "downhill")
    with pytest.raises(pb.PullbackError, match="no loss that could choose"):
        sim.linearize(sim.initial_state(), torch.zeros(1, 1, 1, dtype=F64))

"""Derivatives of costs in the tangent space against central differences, and against a plain reference."""

import pytest
import torch

import pullback as pb
from pullback.control import ControlCost, FramePose, Function, LinkFrame, Residual, StateCost
from pullback.control.costs.costs import Blocks, Place, bind
from pullback.core.errors import PullbackError
from tests.control.scenes import ball_and_box, pendulum, random_state
from tests.reference.frame_residuals import screw_residual, split_residual

REAL = torch.float64
N, B = 3, 2


def nodes(sim, seed=0):
    state = random_state(sim, N, B, seed=seed, spread=0.6)
    u = torch.randn(N, B, sim.nu, dtype=REAL, generator=torch.Generator().manual_seed(seed + 100))
    return state, u


def expansion(sim, cost, state, u):
    bound = bind(cost, Place(sim, N, B, is_end=False))
    n, m = 2 * sim.nv, sim.nu
    shapes = ((N, B, n), (N, B, m), (N, B, n, n), (N, B, m, m), (N, B, m, n))
    blocks = Blocks(*[torch.zeros(shape, dtype=REAL) for shape in shapes])
    bound.add_constant(blocks)
    bound.add(state.q, state.qd, u, blocks)
    return bound, blocks


def changed(sim, bound, state, u, z):
    """The cost of every node after a small change z of state and controls."""
    moved = sim.retract(state, z[: 2 * sim.nv].expand(N, B, -1))
    return bound.values(moved.q, moved.qd, u + z[2 * sim.nv :])


def gradient_by_differences(sim, bound, state, u, h=1e-6):
    steps = h * torch.eye(2 * sim.nv + sim.nu, dtype=REAL)
    pairs = [changed(sim, bound, state, u, s) - changed(sim, bound, state, u, -s) for s in steps]
    return torch.stack(pairs, -1) / (2 * h)


def hessian_by_differences(sim, cost, state, u, h=1e-4):
    bound = bind(cost, Place(sim, N, B, is_end=False))
    steps = h * torch.eye(2 * sim.nv + sim.nu, dtype=REAL)

    def second(a, b):
        signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
        values = [i * j * changed(sim, bound, state, u, i * a + j * b) for i, j in signs]
        return sum(values) / (4 * h * h)

    return torch.stack([torch.stack([second(a, b) for b in steps], -1) for a in steps], -2)


def hessian(blocks):
    top = torch.cat([blocks.xx, blocks.ux.mT], -1)
    return torch.cat([top, torch.cat([blocks.ux, blocks.uu], -1)], -2)


def wave(q, qd, u):
    return (q[..., :1] * qd[..., :1]).sin().sum(-1) + (1 + qd.square().sum(-1) + u.square().sum(-1)).log()


def reach(q, qd, u):
    return torch.stack([q[..., 0].sin() + qd[..., 1], u[..., 0] * q[..., 1], q[..., 0] - qd[..., 0]], -1)


def costs_of(sim, kind):
    target = random_state(sim, seed=9, spread=0.5)
    weights = torch.rand(2 * sim.nv, dtype=REAL, generator=torch.Generator().manual_seed(1))
    per_problem = torch.tensor([0.5, 2.0], dtype=REAL)
    link = "box" if "box" in sim.world.robots else "arm/" + sim.world.robots["arm"].get_link_names()[-1]
    pose = (0.3, -0.2, 0.5), (0.1, -0.5, 0.3, 0.8)
    return {
        "state": StateCost(target, weights),
        "control": ControlCost(0.3, target=(0.1,) * sim.nu),
        "position": FramePose(link, pose[0], weights=(1.0, 2.0, 3.0)),
        "orientation": FramePose(link, orientation=pose[1], weights=2.0),
        "pose": FramePose(link, *pose, weights=(1.0, 2.0, 3.0, 0.5, 0.6, 0.7)),
        "screw": FramePose(link, *pose, weights=(1.0, 2.0, 3.0, 0.5, 0.6, 0.7), residual="screw"),
        "function": Function(wave, convex=False),
        "residual": Residual(reach, (1.0, 0.5, 2.0)),
        "sum": per_problem * (StateCost(target) + 2.0 * Function(wave, convex=False)) + 0.1 * ControlCost(),
    }[kind]


KINDS = ["state", "control", "position", "orientation", "pose", "screw", "function", "residual", "sum"]


@pytest.mark.parametrize("make", [pendulum, ball_and_box])
@pytest.mark.parametrize("kind", KINDS)
def test_gradient(make, kind):
    sim = make()
    state, u = nodes(sim)
    bound, blocks = expansion(sim, costs_of(sim, kind), state, u)
    found = torch.cat([blocks.x, blocks.u], -1)
    expected = gradient_by_differences(sim, bound, state, u)
    assert found.abs().max() > 1e-3
    assert (found - expected).abs().max() < 1e-7 * (1.0 + expected.abs().max())


@pytest.mark.parametrize("kind", ["state", "control", "function", "sum"])
def test_hessian(kind):
    """Exact where costs are quadratic in the tangent space, or differentiated twice."""
    sim = pendulum()
    state, u = nodes(sim)
    _, blocks = expansion(sim, costs_of(sim, kind), state, u)
    expected = hessian_by_differences(sim, costs_of(sim, kind), state, u)
    assert (hessian(blocks) - expected).abs().max() < 1e-5 * (1.0 + expected.abs().max())


def test_hessian_of_a_function_on_a_free_body():
    sim = ball_and_box()
    target = random_state(sim, seed=3)
    state, u = nodes(sim)

    def far(q, qd, u):
        return sim.difference(pb.State(target.q, target.qd), pb.State(q, qd)).square().sum(-1)

    _, blocks = expansion(sim, Function(far, convex=False), state, u)
    expected = hessian_by_differences(sim, Function(far, convex=False), state, u)
    assert (hessian(blocks) - expected).abs().max() < 1e-4 * expected.abs().max()


def test_convex_functions_curve_upward_only():
    sim = pendulum()
    state, u = nodes(sim)
    _, blocks = expansion(sim, Function(wave), state, u)
    assert torch.linalg.eigvalsh(hessian(blocks)).min() > -1e-12
    _, raw = expansion(sim, Function(wave, convex=False), state, u)
    assert torch.linalg.eigvalsh(hessian(raw)).min() < -1e-3


@pytest.mark.parametrize("kind", ["split", "screw"])
@pytest.mark.parametrize("close", [False, True])
def test_frame_cost_is_that_of_the_reference(kind, close):
    """Value, gradient and JᵀWJ by torch, far from the target and so close that series take over."""
    sim = pendulum()
    state, u = nodes(sim)
    name = "arm/" + sim.world.robots["arm"].get_link_names()[-1]
    frame = LinkFrame(sim, name)
    p, quat = frame.pose(state.q)
    target = (p + 0.01, quat + 0.01) if close else (p.new_tensor([0.3, -0.2, 0.5]), p.new_tensor([0.1, -0.5, 0.3, 0.8]))
    target = target[0], target[1] / torch.linalg.vector_norm(target[1], dim=-1, keepdim=True)
    weights = torch.tensor([1.0, 2.0, 3.0, 0.5, 0.6, 0.7], dtype=REAL)
    bound, blocks = expansion(sim, FramePose(name, *target, weights, residual=kind), state, u)
    reference = split_residual if kind == "split" else screw_residual
    r, J = reference(p, quat, *target, frame.jacobian(state.q))
    assert (bound.values(state.q, state.qd, u) - 0.5 * (weights * r * r).sum(-1)).abs().max() < 1e-12
    assert (blocks.x[..., :2] - ((weights * r)[..., None, :] @ J)[..., 0, :]).abs().max() < 1e-11
    assert (blocks.xx[..., :2, :2] - J.mT @ (weights[:, None] * J)).abs().max() < 1e-10


def test_frame_is_where_the_robot_says():
    sim = pendulum()
    state, _ = nodes(sim)
    robot = sim.world.robots["arm"].to(torch.float64)
    link = robot.get_link_names()[-1]
    p, quat = LinkFrame(sim, f"arm/{link}").pose(state.q)
    expected = robot.compute_forward_kinematics(state.q, link)
    assert (p - expected[0]).abs().max() < 1e-12
    assert (quat - expected[1]).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        (lambda: StateCost(weights=(1.0, 2.0)), r"weights of a StateCost has shape \(2,\)"),
        (lambda: StateCost(weights=float("nan")), "not finite"),
        (lambda: StateCost(pb.State(torch.zeros(5), torch.zeros(2))), "q of a StateCost's target"),
        (lambda: FramePose("arm/nothing", (0, 0, 0)), "no link named"),
        (lambda: FramePose("leg/nothing", (0, 0, 0)), "no robot or free body named 'leg'"),
        (lambda: FramePose("arm/x"), "neither position nor orientation"),
        (lambda: torch.ones(5) * ControlCost(), r"multiplied by \(5,\)"),
        (lambda: float("inf") * ControlCost(), "not finite"),
        (lambda: Function(lambda q, qd, u: q), "expected costs"),
        (lambda: Residual(lambda q, qd, u: q.sum(-1)), "expected residuals"),
        (lambda: Function(lambda q, qd, u: q.sum(-1) / 0.0 * 0.0), "is not finite"),
    ],
)
def test_costs_that_do_not_fit(cost, words):
    with pytest.raises(PullbackError, match=words):
        bind(cost(), Place(pendulum(), N, B, is_end=False))


def test_no_control_at_the_end():
    with pytest.raises(PullbackError, match="make it running"):
        bind(ControlCost(), Place(pendulum(), 1, B, is_end=True))

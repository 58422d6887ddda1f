"""The reference step itself: resting, sliding, bouncing, limits and dry friction as on paper, and its gradients."""

from dataclasses import replace
from math import inf, sqrt

import numpy as np
import pytest
import torch

from pullback.description.compile import compile_tree
from pullback.description.load import read
from pullback.description.tree import Joint, Limits, Link, Shape, Tree
from tests.reference.actuators import Actuators, actuators
from tests.reference.dynamics import description_parameters, link_poses, rotation_of_quaternion
from tests.reference.step import (
    Ball,
    Pair,
    Settings,
    contact_axes,
    ground_pairs,
    integrate,
    rollout,
    step,
)
from tests.robot.synthetic import synthetic_robot

# states from sums of a few dozen terms: rounding only
EXACT = 1e-11
# central differences in float64, when the loss changes by 1e-4 between them: less drowns in rounding, more bends
DIFFERENCES = 1e-6
CHANGE = 1e-4

G = 9.81
RADIUS = 0.1
MASS = 2.0
STIFF = Settings(cfm=0.0)


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


GRAVITY = tensor(0.0, 0.0, -G)
WEIGHTLESS = tensor(0.0, 0.0, 0.0)


def ball_link(name: str = "ball") -> Link:
    inertia = 0.4 * MASS * RADIUS**2 * np.eye(3)
    return Link(name, MASS, np.zeros(3), inertia, [Shape("sphere", (RADIUS,))])


def one_ball():
    return compile_tree(Tree("ball", [ball_link()], []), "floating")


def two_balls():
    joints = [Joint(f"{name}_joint", "floating", "root", name) for name in ("a", "b")]
    return compile_tree(Tree("balls", [Link("root"), ball_link("a"), ball_link("b")], joints))


def pendulum(reach: float = inf, friction: float = 0.0, damping: float = 0.0):
    tree = read("pendulum2")
    limits = Limits(-reach, reach)
    joints = [replace(joint, limits=limits, friction=friction, damping=damping) for joint in tree.joints]
    return compile_tree(replace(tree, joints=joints))


def ball_at(height: float) -> torch.Tensor:
    return tensor(0.0, 0.0, height, 0.0, 0.0, 0.0, 1.0)


def ball_options(model, friction: float = 0.5, restitution: float = 0.0, gravity=GRAVITY, settings=STIFF) -> dict:
    pairs = ground_pairs(model, tensor(friction)[0], tensor(restitution)[0])
    return {"gravity": gravity, "pairs": pairs, "settings": settings}


# -- physics -------------------------------------------------------------------------------------------------------


def test_a_ball_rests_and_the_ground_carries_its_weight():
    model = one_ball()
    parameters, options = description_parameters(model), ball_options(model)
    q, qd = rollout(model, parameters, ball_at(RADIUS), torch.zeros(6, dtype=torch.float64), 50, **options)
    assert torch.allclose(q[-1], q[0], rtol=0, atol=EXACT)
    impulses = step(model, parameters, q[-1], qd[-1], **options).impulses
    assert torch.allclose(impulses, tensor(MASS * G * STIFF.dt, 0.0, 0.0), rtol=0, atol=EXACT)


@pytest.mark.parametrize("cone", [True, False])
def test_a_ball_slides_and_spins_up_with_the_analytic_accelerations(cone):
    model = one_ball()
    mu, T = 0.3, 50
    options = ball_options(model, mu, settings=STIFF._replace(cone=cone))
    start = tensor(0.0, 0.0, 0.0, 0.7, 0.0, 0.0)
    _, qd = rollout(model, description_parameters(model), ball_at(RADIUS), start, T, **options)
    t = T * STIFF.dt
    # the body turns about its y axis, which stays the world's; a speed is the same in turned axes
    assert float(qd[-1, 1]) == pytest.approx(2.5 * mu * G * t / RADIUS, abs=EXACT)
    assert float(qd[-1, 3:].norm()) == pytest.approx(0.7 - mu * G * t, abs=EXACT)


def test_a_rolling_ball_goes_on_rolling():
    model = one_ball()
    start = tensor(0.0, 3.0, 0.0, 3.0 * RADIUS, 0.0, 0.0)
    q, qd = rollout(model, description_parameters(model), ball_at(RADIUS), start, 50, **ball_options(model))
    assert float(q[-1, 0]) == pytest.approx(3.0 * RADIUS * 50 * STIFF.dt, abs=EXACT)
    assert float(qd[-1, 1]) == pytest.approx(3.0, abs=EXACT)


@pytest.mark.parametrize("restitution", [0.5, 0.9])
def test_a_ball_bounces_to_the_square_of_the_restitution(restitution):
    model = one_ball()
    height, dt = 0.04, 1e-3
    fall = sqrt(2.0 * height / G)
    T = int((1.0 + 1.1 * restitution) * fall / dt)
    options = ball_options(model, 0.0, restitution, settings=STIFF._replace(dt=dt))
    start = ball_at(RADIUS + height), torch.zeros(6, dtype=torch.float64)
    q, qd = rollout(model, description_parameters(model), *start, T, **options)
    speed = qd[:, 5]
    impact = int((speed > 0.0).nonzero()[0])
    # gravity acts for the whole step, before and after the ball touches
    assert speed[impact] == pytest.approx(-restitution * float(speed[impact - 1]), abs=(1.0 + restitution) * G * dt)
    # a step of first order: heights are right to about g dt over the speed of impact
    apex = float(q[impact:, 2].max()) - RADIUS
    assert apex == pytest.approx(restitution**2 * height, rel=3.0 * G * dt / float(speed[impact]))


@pytest.mark.parametrize("restitution", [0.3, 1.0])
@pytest.mark.parametrize("height", [0.0105, 0.0191])
def test_the_gradient_of_a_bounce_is_minus_the_restitution(restitution, height):
    model = one_ball()
    options = ball_options(model, 0.0, restitution, WEIGHTLESS)
    z = tensor(RADIUS + height)[0].requires_grad_()
    q0 = torch.cat([tensor(0.0, 0.0), z[None], tensor(0.0, 0.0, 0.0, 1.0)])
    start = tensor(0.0, 0.0, 0.0, 0.0, 0.0, -1.0)
    q, qd = rollout(model, description_parameters(model), q0, start, 40, **options)
    # it falls for height / 1 m/s and then rises with the speed of the restitution
    assert float(q[-1, 2].detach()) - RADIUS == pytest.approx(restitution * (0.04 - height), abs=EXACT)
    (slope,) = torch.autograd.grad(q[-1, 2], z)
    assert float(slope) == pytest.approx(-restitution, abs=EXACT)
    assert float(qd[-1, 5].detach()) == pytest.approx(restitution, abs=EXACT)


def test_a_penetrating_ball_is_pushed_out_by_the_error_reduction():
    model = one_ball()
    q, _ = rollout(
        model, description_parameters(model), ball_at(RADIUS - 1e-3), torch.zeros(6, dtype=torch.float64), 1,
        **ball_options(model),
    )  # fmt: skip
    assert float(q[-1, 2]) == pytest.approx(RADIUS - 1e-3 * (1.0 - STIFF.erp), abs=EXACT)


def test_balls_that_meet_head_on_exchange_their_velocities():
    model = two_balls()
    pairs = [Pair(*(Ball(model.link_index[n], tensor(0, 0, 0), tensor(RADIUS)[0]) for n in "ab"), *tensor(0.0, 1.0))]
    q0 = torch.cat([ball_at(1.0), ball_at(1.0) + tensor(0.2055, 0, 0, 0, 0, 0, 0)])
    start = torch.cat([tensor(0, 0, 0, 1, 0, 0), tensor(0, 0, 0, -0.5, 0, 0)])
    options = {"gravity": WEIGHTLESS, "settings": STIFF, "pairs": pairs}
    _, qd = rollout(model, description_parameters(model), q0, start, 10, **options)
    assert qd[-1, [3, 9]].tolist() == pytest.approx([-0.5, 1.0], abs=EXACT)


def test_an_oblique_collision_with_friction_keeps_momentum():
    model = two_balls()
    pairs = [Pair(*(Ball(model.link_index[n], tensor(0, 0, 0), tensor(RADIUS)[0]) for n in "ab"), *tensor(0.4, 0.6))]
    q0 = torch.cat([ball_at(1.0), ball_at(1.0) + tensor(0.15, 0.1, 0.087, 0, 0, 0, 0)])
    start = torch.cat([tensor(1, 2, 3, 1, 0.5, 0.2), tensor(0, -1, 2, -0.5, 0, 0)])
    parameters = description_parameters(model)
    options = {"gravity": WEIGHTLESS, "settings": STIFF}
    outcome = step(model, parameters, q0, start, **options, pairs=pairs)
    # in the world, where the bodies' turned axes do not matter
    gained = [linear_in_world(outcome, k) - start[6 * k + 3 : 6 * k + 6] for k in (0, 1)]
    assert float(gained[0].norm()) > 0.1
    assert torch.allclose(gained[0], -gained[1], rtol=0, atol=EXACT)
    # angular momentum about the world's origin: spin and orbit
    spin = 0.4 * MASS * RADIUS**2 * (outcome.qd - start).reshape(2, 2, 3)[:, 0].sum(0)
    orbit = MASS * torch.linalg.cross(q0[:3] - q0[7:10], gained[0])
    assert torch.allclose(spin + orbit, torch.zeros(3, dtype=torch.float64), rtol=0, atol=EXACT)
    n, t1, t2 = outcome.impulses
    assert float(torch.hypot(t1, t2)) <= 0.4 * float(n) * (1.0 + EXACT)


def linear_in_world(outcome, k: int) -> torch.Tensor:
    return rotation_of_quaternion(outcome.q[7 * k + 3 : 7 * k + 7]) @ outcome.qd[6 * k + 3 : 6 * k + 6]


def test_a_spinning_ball_keeps_its_momentum():
    model = one_ball()
    start = tensor(20.0, -35.0, 50.0, 1.0, 0.5, 0.2)
    parameters, q, qd = description_parameters(model), ball_at(1.0), start
    for _ in range(20):
        outcome = step(model, parameters, q, qd, gravity=WEIGHTLESS, settings=STIFF)
        q, qd = outcome.q, outcome.qd
    assert torch.allclose(linear_in_world(outcome, 0), start[3:], rtol=0, atol=EXACT)
    assert torch.allclose(qd[:3], start[:3], rtol=0, atol=EXACT)


def test_a_pendulum_stops_at_its_limit():
    model = pendulum(0.2)
    q0, qd0 = tensor(-0.15, 0.0), tensor(-1.0, -1.5)
    settings = STIFF._replace(dt=5e-3, sweeps=500, tolerance=1e-12)
    q, _ = rollout(model, description_parameters(model), q0, qd0, 40, gravity=GRAVITY, settings=settings)
    assert float(q[:, 0].min()) == pytest.approx(-0.2, abs=1e-9)
    assert float(q.abs().max()) <= 0.2 + 1e-9


def test_dry_friction_holds_a_pendulum_and_lets_go_of_a_heavier_one():
    options = {"gravity": GRAVITY, "settings": STIFF._replace(dt=5e-3, sweeps=500, tolerance=1e-12)}
    q0, rest = tensor(0.5, 0.2), tensor(0.0, 0.0)
    held, slipping = pendulum(friction=100.0), pendulum(friction=0.1)
    q, _ = rollout(held, description_parameters(held), q0, rest, 5, **options)
    assert torch.allclose(q[-1], q0, rtol=0, atol=1e-9)
    q, _ = rollout(slipping, description_parameters(slipping), q0, rest, 5, **options)
    assert float((q[-1] - q0).abs().max()) > 1e-3


def test_the_effort_of_an_actuator_is_limited():
    model = pendulum()
    driven = actuators(model, gain=2.0, kp=3.0, kd=0.5, limit=4.0)
    parameters, options = description_parameters(model), {"gravity": GRAVITY, "settings": STIFF, "driven": driven}
    q, qd = tensor(0.3, -0.2), tensor(0.1, 0.4)
    strong = step(model, parameters, q, qd, tensor(100.0, -100.0), **options)
    torque = Actuators(driven.dofs, actuators(model).rows)
    same = step(model, parameters, q, qd, tensor(4.0, -4.0), **options | {"driven": torque})
    assert torch.allclose(strong.qd, same.qd, rtol=0, atol=EXACT)
    weak = step(model, parameters, q, qd, tensor(0.1, 0.2), **options)
    # at the state after the step
    expected = 2.0 * tensor(0.1, 0.2) - 3.0 * (q + STIFF.dt * weak.qd) - 0.5 * weak.qd
    same = step(model, parameters, q, qd, expected, **options | {"driven": torque})
    assert torch.allclose(weak.qd, same.qd, rtol=0, atol=EXACT)


@pytest.mark.parametrize("normal", [(0, 0, 1), (1, 0, 0), (0, 1, 0), (0.6, 0.0, 0.8), (-0.48, 0.6, 0.64)])
def test_contact_axes_are_a_right_handed_frame(normal):
    axes = contact_axes(tensor(*normal))
    assert torch.allclose(axes @ axes.T, torch.eye(3, dtype=torch.float64), atol=EXACT)
    assert float(torch.linalg.det(axes)) == pytest.approx(1.0, abs=EXACT)


def test_integrate_agrees_with_the_library():
    robot, rng = synthetic_robot(), np.random.default_rng(3)
    q = torch.from_numpy(rng.normal(size=robot.nq))
    move = torch.from_numpy(rng.normal(size=robot.nv))
    assert torch.allclose(integrate(robot.model, q, move), robot.integrate(q, move), rtol=0, atol=EXACT)


# -- gradients -----------------------------------------------------------------------------------------------------


def laikago_stands(cone: bool) -> tuple:
    model = compile_tree(read("laikago"), "floating")
    parameters = description_parameters(model)
    q = torch.cat([ball_at(0.0), tensor(*[0.05, 0.1, -0.7] * 4)])
    _, p, _ = link_poses(model, parameters, q)
    toes = [float(p[k][2]) for k, link in enumerate(model.links) if link.name.startswith("toe")]
    q[2] = 0.03 - min(toes) - 1e-4
    qd = 0.05 * torch.from_numpy(np.random.default_rng(1).normal(size=model.nv))
    servos = actuators(model, gain=150.0, kp=150.0, kd=3.0, limit=100.0)
    settings = Settings(sweeps=15, cone=cone)

    def loss(q, qd, u, friction, mass, gravity, rows):
        options = {"pairs": ground_pairs(model, friction, tensor(0.0)[0]), "driven": Actuators(servos.dofs, rows)}
        given = parameters | {"mass": mass}
        return weighted(*rollout(model, given, q, qd, u, gravity=gravity, settings=settings, **options))

    u = q[7:].repeat(2, 1) + 0.02
    return loss, (q, qd, u, tensor(0.6)[0], parameters["mass"], GRAVITY, servos.rows)


def ball_slides(cone: bool) -> tuple:
    model = one_ball()
    parameters = description_parameters(model)
    q, qd = ball_at(RADIUS - 0.00201), tensor(0.3, -0.2, 0.4, 0.7, 0.3, 0.0)

    def loss(q, qd, friction, mass, inertia, gravity, radius):
        ball = Ball(model.link_index["ball"], tensor(0.01, -0.005, 0.002), radius)
        given = parameters | {"mass": mass, "inertia_mat": inertia}
        pairs = [Pair(ball, None, friction, tensor(0.0)[0])]
        settings = Settings(sweeps=10, cone=cone)
        return weighted(*rollout(model, given, q, qd, 10, gravity=gravity, settings=settings, pairs=pairs))

    return loss, (q, qd, tensor(0.2)[0], parameters["mass"], parameters["inertia_mat"], GRAVITY, tensor(RADIUS)[0])


def ball_bounces(cone: bool) -> tuple:
    model = one_ball()
    parameters = description_parameters(model)

    def loss(q, qd, friction, restitution, gravity):
        pairs = ground_pairs(model, friction, restitution)
        settings = Settings(cone=cone)
        return weighted(*rollout(model, parameters, q, qd, 10, gravity=gravity, settings=settings, pairs=pairs))

    q, qd = ball_at(RADIUS + 0.0054), tensor(3.0, -2.0, 1.0, 0.5, -0.2, -1.0)
    return loss, (q, qd, tensor(0.05)[0], tensor(0.7)[0], GRAVITY)


def balls_collide(cone: bool) -> tuple:
    model = two_balls()
    parameters = description_parameters(model)

    def loss(q, qd, friction, restitution, radii):
        balls = [Ball(model.link_index[n], tensor(0, 0, 0), r) for n, r in zip("ab", radii)]
        options = {"settings": Settings(cone=cone), "pairs": [Pair(*balls, friction, restitution)]}
        return weighted(*rollout(model, parameters, q, qd, 6, gravity=GRAVITY, **options))

    q = torch.cat([ball_at(1.0), ball_at(1.0) + tensor(0.15, 0.1, 0.115, 0.1, 0.3, 0.2, 0.1)])
    qd = torch.cat([tensor(1, 2, 3, 1, 0.5, 0.2), tensor(0, -1, 2, -0.5, 0, 0)])
    return loss, (q, qd, tensor(0.05)[0], tensor(0.6)[0], tensor(RADIUS, 1.1 * RADIUS))


def pendulum_at_its_limits(cone: bool) -> tuple:
    model = pendulum(0.3, friction=0.05, damping=0.1)
    parameters = description_parameters(model)

    def loss(q, qd, u, friction, damping, rows):
        given = parameters | {"joint_friction": friction, "joint_damping": damping}
        options = {"settings": Settings(dt=5e-3, sweeps=10, cone=cone), "driven": Actuators([0, 1], rows)}
        return weighted(*rollout(model, given, q, qd, u, gravity=GRAVITY, **options))

    u = 0.1 * torch.ones(8, 2, dtype=torch.float64)
    rows = actuators(model, gain=1.0, kp=0.5, kd=0.01, limit=0.3).rows
    friction, damping = parameters["joint_friction"], parameters["joint_damping"]
    return loss, (tensor(0.28, -0.1), tensor(1.0, 0.5), u, friction, damping, rows)


def weighted(q: torch.Tensor, qd: torch.Tensor) -> torch.Tensor:
    """Return a sum of the last state's entries with weights that no symmetry cancels."""
    end = torch.cat([q[-1], qd[-1]])
    return end @ torch.linspace(0.5, 1.5, len(end), dtype=end.dtype).sin()


CASES = [
    *[(case, cone) for case in (ball_slides, ball_bounces, balls_collide) for cone in (True, False)],
    (pendulum_at_its_limits, True),
    *[pytest.param(laikago_stands, cone, marks=pytest.mark.slow) for cone in (True, False)],
]


@pytest.mark.parametrize(("case", "cone"), CASES, ids=lambda x: {True: "cone", False: "pyramid"}.get(x) or x.__name__)
def test_autograd_agrees_with_central_differences(case, cone):
    loss, inputs = case(cone)
    variables = [x.clone().requires_grad_() for x in inputs]
    gradients = torch.autograd.grad(loss(*variables), variables)
    rng = np.random.default_rng(0)
    for k, (x, gradient) in enumerate(zip(inputs, gradients)):
        direction = torch.from_numpy(rng.normal(size=tuple(x.shape))).reshape(x.shape)
        # parameters that are zero stay so
        direction = direction * (x != 0) if case is pendulum_at_its_limits and k in (3, 4) else direction
        found = float((gradient * direction).sum())
        assert abs(found) > 1e-4, f"input {k} does nothing here"
        size = min(CHANGE / abs(found), 1e-5)
        with torch.no_grad():
            ends = [loss(*inputs[:k], x + s * size * direction, *inputs[k + 1 :]) for s in (1.0, -1.0)]
        expected = float(ends[0] - ends[1]) / (2.0 * size)
        assert found == pytest.approx(expected, rel=DIFFERENCES, abs=DIFFERENCES), f"input {k}"

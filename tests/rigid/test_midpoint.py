"""The variational midpoint rule: what it conserves, the plain torch reference, and another engine's motion."""

import numpy as np
import pytest
import torch

import pullback as pb
from checks.conformance_cases import BENT, LINK_PARAMETERS, controls, mechanism, robot_of, servos, start
from pullback.rigid.state import NOT_CONVERGED
from tests.reference import midpoint
from tests.reference.dynamics import description_parameters, dof_values
from tests.rigid.test_integrators import add_body, end, one_world, pendulum
from tests.rigid.worlds import F64, load

Tensor = torch.Tensor
# the same arithmetic in another order, and steps solved to 1e-13
STATES = 1e-11
GRADIENTS = 1e-9
SPRING = pb.PositionServo(kp=40.0, kd=0.0, limit=1e4)


def spinning_body() -> tuple[pb.World, pb.State]:
    """Return a body that tumbles about its middle axis, without gravity."""
    world = pb.World(gravity=(0, 0, 0))
    add_body(world)
    q = torch.tensor([[0.1, -0.2, 0.3, 0.1, 0.3, -0.2, 0.9]], dtype=F64)
    return world, pb.State(q, torch.tensor([[1.0, 10.0, 1.0, 0.5, -1.0, 2.0]], dtype=F64))


def lossless(*, gravity: tuple[float, ...] = (0, 0, 0), **actuators) -> tuple[pb.World, pb.RobotModel, pb.State]:
    """Return a floating base with hinges, a slide and a ball joint, without damping."""
    tree = mechanism("chain")
    for joint in tree.joints:
        joint.damping = 0.0
    values, robot = start(tree, 2.0, 3), robot_of(tree, {}, F64)
    q = values["q"]
    for body in robot.model.bodies:
        if body.kind in ("ball", "free"):
            at = robot.model.q_start[body.joint.name] + (3 if body.kind == "free" else 0)
            q[at : at + 4] /= q[at : at + 4].norm()
    world = pb.World(gravity=gravity)
    world.add(robot, name="robot", collision_links=[], **actuators)
    return world, robot, pb.State(q[None], values["qd"][None])


# -- what it conserves -----------------------------------------------------------------------------------------------


def energy_errors(world: pb.World, state: pb.State, dt: float, integrator: str) -> Tensor:
    """Return how far the energy is from that at the start, over 10,000 steps."""
    sim = world.compile(dt=dt, dtype=F64, integrator=integrator)
    states = sim.rollout(state, 10_000, checkpoint=20, check=True)
    energies = torch.cat([sum(sim.energies(states[k])) for k in range(len(states.q))])
    return energies - energies[0]


@pytest.mark.parametrize(
    ("make", "dt"), [(lambda: pendulum(2), 5e-3), (lambda: pendulum(3), 5e-3), (spinning_body, 2e-2)]
)
def test_energy_does_not_drift_over_ten_thousand_steps(make, dt):
    errors = energy_errors(*make(), dt, "midpoint")
    first, second = errors.chunk(2)
    assert float(second.abs().max()) < 2.0 * float(first.abs().max())
    assert abs(float(second.mean() - first.mean())) < 0.1 * float(errors.abs().max())
    # Runge and Kutta's goes one way
    errors = energy_errors(*make(), dt, "rk4")
    first, second = errors.chunk(2)
    assert abs(float(second.mean() - first.mean())) > 0.3 * float(errors.abs().max())


def test_a_robot_that_floats_keeps_its_momentum():
    world, robot, state = lossless(actuators=SPRING)
    sim = world.compile(dt=1e-2, dtype=F64, integrator="midpoint")
    states = sim.rollout(state, torch.full((1000, 1, sim.nu), 0.3, dtype=F64), checkpoint=1000)
    assert int(states.status.code[0]) == 0

    def momentum(state: pb.State) -> Tensor:
        """Return angular momentum about the world's origin, and linear momentum."""
        about_centre = robot.compute_centroidal_momentum(state.q[0], state.qd[0])
        arm = robot.compute_center_of_mass(state.q[0])
        return torch.cat([about_centre[:3] + torch.linalg.cross(arm, about_centre[3:]), about_centre[3:]])

    assert torch.allclose(momentum(states[-1]), momentum(state), rtol=0, atol=1e-9)


def test_going_back_leads_to_the_start():
    world, _, state = lossless(gravity=(0.1, 0, -9.81))
    sim = world.compile(dt=1e-2, dtype=F64, integrator="midpoint")
    there = sim.rollout(state, 50, check=True)[-1]
    back = sim.rollout(pb.State(there.q, -there.qd), 50, check=True)[-1]
    assert torch.allclose(back.q, state.q, rtol=0, atol=1e-9)
    assert torch.allclose(back.qd, -state.qd, rtol=0, atol=1e-9)


def symplectic_defect(integrator: str) -> float:
    """Return how far a step's Jacobian J is from J^T w' J = w, for a chain of all kinds of joints held by springs.

    In the axes of bodies, w((a, x), (b, y)) = x.b - y.a - p.[a, b], [a, b] the bracket of each joint's velocities.
    """
    world, robot, state = lossless(gravity=(0.1, 0, -9.81), actuators=SPRING)
    sim = world.compile(dt=2e-2, dtype=F64, integrator=integrator)
    u = torch.full((1, sim.nu), 0.3, dtype=F64)
    nv, q0, mass = robot.nv, state.q[0], robot.compute_lagrangian_inertia_matrix

    def after(x: Tensor, q1: Tensor | None = None) -> Tensor:
        q = midpoint.nudged(robot.model, q0, x[:nv])
        qd = torch.linalg.solve(mass(q), x[nv:])
        new = sim.step(pb.State(q[None], qd[None]), u)
        moved = new.q[0] if q1 is None else midpoint.displacement(robot.model, q1, new.q[0])
        return torch.cat([moved, mass(new.q[0]) @ new.qd[0]])

    x0 = torch.cat([torch.zeros(nv, dtype=F64), mass(q0) @ state.qd[0]])
    found = after(x0)
    J = torch.func.jacrev(lambda x: after(x, found[: robot.nq]))(x0)
    change = J.T @ form(robot, found[robot.nq :]) @ J - form(robot, x0[nv:])
    return float(change.abs().max())


def form(robot: pb.RobotModel, p: Tensor) -> Tensor:
    """Return the matrix of the symplectic form at a momentum."""
    nv = robot.nv
    w = torch.zeros(2 * nv, 2 * nv, dtype=F64)
    w[:nv, nv:], w[nv:, :nv] = -torch.eye(nv, dtype=F64), torch.eye(nv, dtype=F64)
    for body in robot.model.bodies:
        at = robot.model.v_start[body.joint.name]
        if body.kind in ("ball", "free"):
            # p.[a, b] = n.(a_w x b_w) + f.(a_w x b_v - b_w x a_v)
            w[at : at + 3, at : at + 3] -= cross_form(p[at : at + 3])
        if body.kind == "free":
            f = cross_form(p[at + 3 : at + 6])
            w[at : at + 3, at + 3 : at + 6] -= f
            w[at + 3 : at + 6, at : at + 3] -= f
    return w


def cross_form(p: Tensor) -> Tensor:
    """Return the matrix of p.(a x b)."""
    rows = [torch.linalg.cross(e, p) for e in torch.eye(3, dtype=F64)]
    return -torch.stack(rows)


def test_a_step_is_symplectic():
    assert symplectic_defect("midpoint") < 1e-9
    assert symplectic_defect("rk4") > 1e-6


# -- the reference ---------------------------------------------------------------------------------------------------


def reference_end(tree, x: dict[str, Tensor], dt: float) -> Tensor:
    """Return q and qd after the controls, or after four steps, by the plain torch reference."""
    model = robot_of(tree, {}, F64).model
    parameters, tip = description_parameters(model), model.link_index["tip"]
    for quantity, name in LINK_PARAMETERS.items():
        if quantity in x:
            value = 0.5 * (x[quantity] + x[quantity].T) if quantity == "inertia" else x[quantity]
            rows = parameters[name]
            parameters[name] = torch.cat([rows[:tip], value[None], rows[tip + 1 :]])
    joints = [body.joint.name for body in model.bodies if body.joint.type in BENT]
    driven, at = ([starts[name] for name in joints] for starts in (model.v_start, model.q_start))
    q, qd = x["q"], x["qd"]
    for u in x.get("u", [None] * 4):

        def force(q: Tensor, v: Tensor, u: Tensor | None = u) -> Tensor:
            total = -dof_values(model, parameters["joint_damping"]) * v
            if u is None:
                return total
            wanted = x["kp"] * (u - q[at]) - x["kd"] * v[driven]
            return total.index_add(0, torch.tensor(driven), torch.clamp(wanted, -x["limit"], x["limit"]))

        q, qd = midpoint.step(model, parameters, dt, q, qd, gravity=x["gravity"], force=force)
    return torch.cat([q, qd])


@pytest.mark.parametrize("kind", ["chain", "revolute", "screw", "ball"])
def test_states_and_gradients_are_those_of_the_reference(kind):
    tree, dt = mechanism(kind), 8e-3
    x = {name: value.clone().requires_grad_() for name, value in controls(start(tree, 1.0, 3), tree, 4, 4).items()}
    weights = torch.linspace(0.5, 20.0, 64, dtype=F64).sin()
    expected = reference_end(tree, x, dt)
    world = pb.World(gravity=x["gravity"])
    world.add(robot_of(tree, x, F64), name="robot", actuators=servos(one_world(x)), collision_links=[])
    sim = world.compile(dt=dt, dtype=F64, integrator="midpoint")
    last = sim.rollout(pb.State(x["q"][None], x["qd"][None]), x["u"][:, None] if "u" in x else 4)[-1]
    found = torch.cat([last.q[0], last.qd[0]])
    assert torch.allclose(found, expected, rtol=STATES, atol=STATES)
    both = [torch.autograd.grad(end @ weights[: len(end)], list(x.values())) for end in (found, expected)]
    for name, ours, theirs in zip(x, *both):
        assert float((ours - theirs).norm()) < GRADIENTS * max(1.0, float(theirs.norm())), name


def test_fast_turns_have_the_gradient_of_central_differences():
    """At 0.7 rad a step, where the Jacobian of the exponential is taken from its closed form."""
    world, state = spinning_body()
    sim = world.compile(dt=3e-2, dtype=F64, integrator="midpoint")

    def after(qd: Tensor) -> Tensor:
        new = sim.rollout(pb.State(state.q, qd[None]), 3)[-1]
        return torch.cat([new.q[0], new.qd[0]])

    qd = 2.4 * state.qd[0]
    jacobian = torch.func.jacrev(after)(qd)
    h = 1e-5
    columns = [(after(qd + h * e) - after(qd - h * e)) / (2 * h) for e in torch.eye(6, dtype=F64)]
    assert torch.allclose(jacobian, torch.stack(columns, -1), rtol=0, atol=1e-7)


def test_other_actuators_have_the_gradient_of_central_differences():
    def last(volts: Tensor, gear: Tensor) -> Tensor:
        world = pb.World()
        constants = torch.tensor([0.05, 0.4], dtype=F64)
        motor = pb.DCMotor(voltage=24.0, torque_constant=constants[0], resistance=constants[1], gear=gear)
        world.add(load("pendulum2"), name="arm", actuators=motor)
        sim = world.compile(dt=1e-2, dtype=F64, integrator="midpoint")
        return sim.rollout(sim.initial_state(1), volts.expand(10, 1, 2))[-1].qd[0, 1]

    at = torch.tensor(5.0, dtype=F64), torch.tensor(30.0, dtype=F64)
    leaves = [x.clone().requires_grad_() for x in at]
    found = torch.autograd.grad(last(*leaves), leaves)
    h = 1e-4
    for k, gradient in enumerate(found):
        shift = [h * (j == k) for j in range(2)]
        both = [last(*(x + sign * d for x, d in zip(at, shift))) for sign in (1.0, -1.0)]
        assert float((both[0] - both[1]) / (2 * h)) == pytest.approx(float(gradient), rel=1e-6)


def test_single_precision_and_many_worlds():
    world, _, state = lossless(gravity=(0.1, 0, -9.81))
    sim = world.compile(dt=1e-2, dtype=torch.float32, integrator="midpoint")
    first = pb.State(state.q.float().repeat(3, 1), state.qd.float().repeat(3, 1))
    first.qd[1] += 1.0
    qd = first.qd.requires_grad_()
    states = sim.rollout(pb.State(first.q, qd), 20)
    assert int(states.status.code.sum()) == 0
    last = states[-1]
    exact = end(world, state, 1e-2, 0.2, "midpoint")[0]
    assert torch.allclose(torch.cat([last.q[0], last.qd[0]]).double(), exact, rtol=0, atol=2e-4)
    assert torch.equal(last.q[0], last.q[2])
    assert not torch.equal(last.q[0], last.q[1])
    (gradient,) = torch.autograd.grad(last.q.sum(), qd)
    assert torch.equal(gradient[0], gradient[2])
    qd = state.qd.clone().requires_grad_()
    sim = world.compile(dt=1e-2, dtype=F64, integrator="midpoint")
    (expected,) = torch.autograd.grad(sim.rollout(pb.State(state.q, qd), 20)[-1].q.sum(), qd)
    assert torch.allclose(gradient[:1].double(), expected, rtol=1e-3, atol=1e-4)


# -- another engine --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pendulum3", "laikago"])
def test_the_limit_is_the_motion_by_pinocchio(name):
    """Accelerations are Pinocchio's, scipy integrates them; of our steps the limit is taken by extrapolation."""
    integrate = pytest.importorskip("scipy.integrate")
    from tests.robot.pinocchio_oracle import load_both

    robot, oracle = load_both(name)
    q0 = robot.neutral() + 0.3 * torch.linspace(-1.0, 1.0, robot.nq, dtype=F64)
    if name == "laikago":
        q0[3:7] /= q0[3:7].norm()
    qd0 = torch.linspace(2.0, -1.0, robot.nv, dtype=F64)
    still = torch.zeros(1, robot.nv, dtype=F64)

    def rate(_: float, y: np.ndarray) -> np.ndarray:
        q, qd = (torch.from_numpy(part)[None] for part in (y[: robot.nq], y[robot.nq :]))
        unit = q.clone()
        if name == "laikago":
            unit[0, 3:7] /= q[0, 3:7].norm()
        moved = oracle.tangent(q[0].numpy()) @ y[robot.nq :]
        return np.concatenate([moved, oracle.forward_dynamics(unit, qd, still)[0]])

    exact = integrate.solve_ivp(rate, (0.0, 0.2), torch.cat([q0, qd0]).numpy(), "DOP853", rtol=1e-11, atol=1e-11)
    world = pb.World()
    world.add(robot, name="robot", actuators={})
    state = pb.State(q0[None], qd0[None])
    options = {"without": ["contacts", "limits", "friction"]}
    coarse, fine = (end(world, state, dt, 0.2, "midpoint", **options)[0] for dt in (2e-3, 1e-3))
    difference = (4.0 * fine - coarse) / 3.0 - torch.from_numpy(exact.y[:, -1])
    assert float(difference.abs().max()) < 1e-6
    assert float((fine - coarse).abs().max()) > 1e-5


# -- how the equation is solved --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F64, torch.float32])
def test_stiff_servos_are_stable_and_converge(dtype):
    world = pb.World()
    world.add(load("pendulum3"), name="arm", actuators=pb.PositionServo(kp=1e6, kd=1e3, limit=1e9))
    sim = world.compile(dt=1e-2, dtype=dtype, integrator="midpoint", without=["limits", "friction"])
    u = torch.full((300, 1, 3), 0.5, dtype=dtype)
    states = sim.rollout(sim.initial_state(1), u)
    assert int(states.status.code[0]) == 0
    assert torch.allclose(states.q[-1], u[-1], rtol=0, atol=1e-3)
    explicit = world.compile(dt=1e-2, dtype=dtype, integrator="rk4", without=["limits", "friction"])
    assert int(explicit.rollout(explicit.initial_state(1), u).status.code[0]) == 1


def test_a_step_that_is_too_long_says_so():
    world, state = spinning_body()
    sim = world.compile(dt=3e-2, dtype=F64, integrator="midpoint")
    status = sim.rollout(pb.State(state.q, 12.0 * state.qd), 10).status
    assert int(status.code[0]) & NOT_CONVERGED
    assert int(status.unconverged[0]) > 0
    assert int(sim.rollout(state, 10).status.code[0]) == 0

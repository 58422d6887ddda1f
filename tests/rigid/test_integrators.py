"""Steps of worlds without contact: order, energy, the plain torch reference, closed forms and MuJoCo's own."""

import math

import numpy as np
import pytest
import torch

import pullback as pb
from checks.conformance_cases import Held, controls, mechanism, robot_of, servos, start
from tests.reference.runge_kutta import step as reference_step
from tests.rigid.worlds import F64, load, toes_on_ground

Tensor = torch.Tensor
EXPLICIT = ("explicit", "rk4")
# the same arithmetic in another order
STATES = 1e-11
GRADIENTS = 1e-9


def pendulum(links: int) -> tuple[pb.World, pb.State]:
    """Return a pendulum that is let go from its side, and the state it starts from."""
    world = pb.World()
    world.add(load(f"pendulum{links}"), name="arm")
    return world, pb.State(torch.linspace(0.3, -0.8, links, dtype=F64)[None], torch.zeros(1, links, dtype=F64))


def add_body(world: pb.World) -> None:
    inertia = np.array([[0.02, 0.003, 0.0], [0.003, 0.03, -0.002], [0.0, -0.002, 0.045]])
    box = pb.sdf.box((0.1, 0.1, 0.1))
    world.add_field("body", box, mass=1.3, com=(0.02, -0.03, 0.01), inertia=inertia)


def tumbling_body() -> tuple[pb.World, pb.State]:
    """Return a body of odd inertia, off its own origin, that tumbles and falls."""
    world = pb.World()
    add_body(world)
    q = torch.tensor([[0.1, -0.2, 0.3, 0.1, 0.3, -0.2, 0.9]], dtype=F64)
    return world, pb.State(q, torch.tensor([[2.0, 5.0, -3.0, 0.5, -1.0, 2.0]], dtype=F64))


def floating_robot() -> tuple[pb.World, pb.State]:
    """Return a floating base with hinges, a slide and a ball joint on it, servos in those of one dof."""
    tree = mechanism("chain")
    values = start(tree, 2.0, 3)
    values["limit"] = torch.full_like(values["limit"], 1e4)
    world = pb.World()
    world.add(robot_of(tree, {}, F64), name="robot", actuators=servos(one_world(values)), collision_links=[])
    q = values["q"][None].clone()
    return world, pb.State(q, values["qd"][None])


def one_world(values: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value[None] for name, value in values.items()}


def end(world: pb.World, state: pb.State, dt: float, seconds: float, integrator: str, **options) -> Tensor:
    """Return q and qd after some seconds, side by side."""
    sim = world.compile(dt=dt, dtype=F64, integrator=integrator, **options)
    last = sim.rollout(state, round(seconds / dt), checkpoint=round(seconds / dt), check=True)[-1]
    return torch.cat([last.q, last.qd], -1)


# -- how exact it is -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("links", "dt"), [(1, 1e-3), (3, 5e-4)])
def test_a_pendulum_keeps_its_energy_over_ten_thousand_steps(links, dt):
    world, state = pendulum(links)
    sim = world.compile(dt=dt, dtype=F64, integrator="rk4")
    states = sim.rollout(state, 10_000, checkpoint=100, check=True)
    energies = torch.stack([sum(sim.energies(states[k])) for k in range(len(states.q))])
    assert float((energies / energies[0] - 1.0).abs().max()) < 1e-6


@pytest.mark.parametrize(("integrator", "order"), [("explicit", 1), ("midpoint", 2), ("rk4", 4)])
@pytest.mark.parametrize("make", [lambda: pendulum(3), tumbling_body, floating_robot])
def test_errors_fall_with_the_order_of_the_method(make, integrator, order):
    world, state = make()
    step = 4e-3 if order > 1 else 1e-4
    fine = end(world, state, step / 16 if order > 1 else 5e-4, 0.2, "rk4")
    errors = [float((end(world, state, dt, 0.2, integrator) - fine).norm()) for dt in (2 * step, step)]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.25)


def test_substeps_are_steps():
    world, state = tumbling_body()
    assert torch.equal(end(world, state, 2e-3, 0.1, "rk4", substeps=4), end(world, state, 5e-4, 0.1, "rk4"))


def test_things_that_do_not_touch_move_as_each_alone():
    (world, arm), (_, body) = pendulum(3), tumbling_body()
    add_body(world)
    both = pb.State(torch.cat([arm.q, body.q], -1), torch.cat([arm.qd, body.qd], -1))
    last = end(world, both, 2e-3, 0.2, "rk4", without=["contacts"])[0]
    alone = [end(*thing, 2e-3, 0.2, "rk4")[0] for thing in (pendulum(3), tumbling_body())]
    expected = torch.cat([alone[0][:3], alone[1][:7], alone[0][3:], alone[1][7:]])
    assert torch.allclose(last, expected, rtol=0, atol=1e-12)


def test_a_spinning_body_falls_on_a_parabola_and_keeps_its_momentum():
    world = pb.World()
    world.add_cylinder("top", radius=0.2, length=0.1, mass=2.0)
    sim = world.compile(dt=2e-3, dtype=F64, integrator="rk4")
    state = sim.initial_state()
    state.qd[0] = torch.tensor([2.0, 0.0, 20.0, 1.0, 2.0, 3.0], dtype=F64)
    last = sim.rollout(state, 500, check=True)[-1]
    assert torch.allclose(last.q[0, :3], torch.tensor([1.0, 2.0, 3.0 - 0.5 * 9.81], dtype=F64), rtol=0, atol=1e-11)
    # a symmetric body's angular velocity goes round its axis at the rate (I3 / I1 - 1) w3
    across, along = 0.2**2 / 4 + 0.1**2 / 12, 0.2**2 / 2
    angle = (along / across - 1.0) * 20.0
    expected = torch.tensor([2.0 * math.cos(angle), 2.0 * math.sin(angle), 20.0], dtype=F64)
    assert torch.allclose(last.qd[0, :3], expected, rtol=0, atol=1e-5)


# -- the reference ---------------------------------------------------------------------------------------------------


def reference_end(robot, x: dict[str, Tensor], dt: float, method: str, substeps: int) -> Tensor:
    """Return q and qd after the controls by the plain torch reference."""
    driven = [
        robot.model.v_start[b.joint.name] for b in robot.model.bodies if b.joint.type in ("revolute", "prismatic")
    ]
    at = [robot.model.q_start[b.joint.name] for b in robot.model.bodies if b.joint.type in ("revolute", "prismatic")]

    def acceleration(q: Tensor, qd: Tensor, u: Tensor) -> Tensor:
        wanted = x["kp"] * (u - q[at]) - x["kd"] * qd[driven]
        force = torch.clamp(wanted, -x["limit"], x["limit"])
        tau = torch.zeros_like(qd).index_add(0, torch.tensor(driven), force)
        return robot.compute_forward_dynamics(q, qd, tau, use_damping=True, gravity=x["gravity"])

    q, qd = x["q"], x["qd"]
    for u in x["u"]:
        for _ in range(substeps):
            q, qd = reference_step(robot, method, dt / substeps, q, qd, u, acceleration)
    return torch.cat([q, qd])


@pytest.mark.parametrize("integrator", EXPLICIT)
@pytest.mark.parametrize(("kind", "substeps"), [("chain", 1), ("chain", 2), ("revolute", 1)])
def test_states_and_gradients_are_those_of_the_reference(kind, substeps, integrator):
    tree, dt = mechanism(kind), 4e-3
    values = controls(start(tree, 1.0, 3), tree, 6, 4)
    x = {name: value.clone().requires_grad_() for name, value in values.items()}
    weights = torch.linspace(0.5, 20.0, 64, dtype=F64).sin()
    expected = reference_end(robot_of(tree, x, F64), x, dt, integrator, substeps)
    world = pb.World(gravity=x["gravity"])
    world.add(robot_of(tree, x, F64), name="robot", actuators=servos(one_world(x)), collision_links=[])
    sim = world.compile(dt=dt, dtype=F64, integrator=integrator, substeps=substeps)
    last = sim.rollout(pb.State(x["q"][None], x["qd"][None]), x["u"][:, None])[-1]
    found = torch.cat([last.q[0], last.qd[0]])
    assert torch.allclose(found, expected, rtol=STATES, atol=STATES)
    both = [torch.autograd.grad(end @ weights[: len(end)], list(x.values())) for end in (found, expected)]
    for name, ours, theirs in zip(x, *both):
        assert float((ours - theirs).norm()) < GRADIENTS * max(1.0, float(theirs.norm())), name


@pytest.mark.parametrize("integrator", ["rk4", "midpoint"])
def test_every_schedule_gives_the_same_gradient(integrator):
    world, state = floating_robot()
    sim = world.compile(dt=2e-3, dtype=F64, integrator=integrator, substeps=2)
    u = torch.full((20, 1, sim.nu), 0.3, dtype=F64)

    def gradients(checkpoint) -> Tensor:
        leaves = [x.clone().requires_grad_() for x in (state.q, state.qd, u)]
        last = sim.rollout(pb.State(*leaves[:2]), leaves[2], checkpoint=checkpoint)[-1]
        found = torch.autograd.grad(last.q.sum() + last.qd.square().sum(), leaves)
        return torch.cat([x.flatten() for x in found])

    expected = gradients(1)
    for checkpoint in (3, 7, 20, pb.Binomial(2), pb.Binomial(5)):
        assert float((gradients(checkpoint) - expected).norm() / expected.norm()) < 1e-12


def test_a_step_differentiates_as_a_map():
    """The Jacobian that `linearize` does not give, as its error says to take it; central differences agree."""
    world, state = tumbling_body()
    sim = world.compile(dt=1e-2, dtype=F64, integrator="rk4")

    def after(qd: Tensor) -> Tensor:
        new = sim.step(pb.State(state.q, qd[None]))
        return torch.cat([new.q[0], new.qd[0]])

    jacobian = torch.func.jacrev(after)(state.qd[0])
    h = 1e-5
    columns = [(after(state.qd[0] + h * e) - after(state.qd[0] - h * e)) / (2 * h) for e in torch.eye(6, dtype=F64)]
    assert torch.allclose(jacobian, torch.stack(columns, -1), rtol=0, atol=1e-9)


def test_single_precision_and_many_worlds():
    world, state = pendulum(3)
    sim = world.compile(dt=1e-2, dtype=torch.float32, integrator="rk4")
    start = pb.State(state.q.float().repeat(3, 1), state.qd.float().repeat(3, 1))
    start.qd[1] = 1.0
    qd = start.qd.requires_grad_()
    last = sim.rollout(pb.State(start.q, qd), 20)[-1]
    assert torch.allclose(last.q[0].detach().double(), end(world, state, 1e-2, 0.2, "rk4")[0, :3], atol=1e-4)
    assert torch.equal(last.q[0], last.q[2])
    assert not torch.equal(last.q[0], last.q[1])
    (gradient,) = torch.autograd.grad(last.q.sum(), qd)
    assert torch.equal(gradient[0], gradient[2])
    assert bool(gradient.isfinite().all())


# -- another engine --------------------------------------------------------------------------------------------------

ARM = """
<mujoco>
  <compiler angle="radian"/>
  <option timestep="0.002" gravity="0.3 0 -9.81" integrator="RK4"/>
  <worldbody>
    <body name="a"><joint name="a" axis="0 1 0" damping="0.1" armature="0.02"/>
      <inertial mass="1.2" pos="0.2 0.01 0.02" diaginertia="0.01 0.02 0.03"/>
      <body name="b" pos="0.4 0 0"><joint name="b" axis="1 1 0" damping="0.05"/>
        <inertial mass="0.8" pos="0.1 -0.02 0" diaginertia="0.02 0.01 0.015"/>
        <body name="c" pos="0.3 0 0.1"><joint name="c" type="slide" axis="0 0.6 0.8" damping="0.3"/>
          <inertial mass="0.5" pos="0.05 0.02 0.1" diaginertia="0.004 0.003 0.002"/>
        </body>
        <body name="d" pos="0.3 0 -0.1"><joint name="d" axis="0 0 1"/>
          <inertial mass="0.4" pos="0.15 0 0" diaginertia="0.001 0.003 0.002"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <general joint="a" gainprm="30" biastype="affine" biasprm="0 -30 -1"/>
    <general joint="c" gainprm="30" biastype="affine" biasprm="0 -30 -1"/>
  </actuator>
</mujoco>
"""


def test_mujoco_takes_the_same_runge_kutta_steps(tmp_path):
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "arm.xml"
    path.write_text(ARM)
    world = pb.World(gravity=(0.3, 0.0, -9.81))
    servo = pb.PositionServo(kp=30.0, kd=1.0)
    world.add(pb.load(path, dtype=F64), name="arm", actuators={"a": servo, "c": servo})
    sim = world.compile(dt=2e-3, dtype=F64, integrator="rk4")
    model = mujoco.MjModel.from_xml_string(ARM)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = [0.3, -0.5, 0.05, 0.8], [1.0, 2.0, -0.3, 4.0]
    data.ctrl[:] = [0.5, 0.1]
    state = pb.State(torch.tensor(data.qpos)[None], torch.tensor(data.qvel)[None])
    last = sim.rollout(state, torch.tensor(data.ctrl).expand(100, 1, 2))[-1]
    for _ in range(100):
        mujoco.mj_step(model, data)
    assert np.abs(last.q[0].numpy() - data.qpos).max() < 1e-8
    assert np.abs(last.qd[0].numpy() - data.qvel).max() < 1e-8


# -- what it refuses -------------------------------------------------------------------------------------------------


def test_what_is_not_smooth_is_named_and_can_be_left_out():
    world = toes_on_ground()
    options = {"dt": 1e-3, "dtype": F64, "integrator": "rk4"}
    with pytest.raises(pb.PullbackError, match=r"'dog/toe../0' and 'ground' may touch; .*without=\['contacts'\]"):
        world.compile(**options)
    sim = world.compile(**options, without=["contacts"], max_contacts=9)
    assert sim.arrays.max_contacts == 0
    assert sim.contacts(sim.initial_state(2)) == [[], []]
    world = pb.World()
    world.add(load("iiwa7"), name="arm")
    with pytest.raises(pb.PullbackError, match=r"joint of 'arm/.*' has an end; .*without=\['limits'\]"):
        world.compile(**options)
    world.compile(**options, without=["limits"])
    arm = load("pendulum2")
    arm.make_link_param_learnable("link1", "joint_friction", Held(torch.tensor(0.1, dtype=F64)))
    world = pb.World()
    world.add(arm, name="arm")
    with pytest.raises(pb.PullbackError, match=r"'explicit' .* joint of 'arm/link1' has dry friction"):
        world.compile(dt=1e-3, dtype=F64, integrator="explicit")
    world.compile(dt=1e-3, dtype=F64, integrator="explicit", without=["friction"])


def test_contacts_can_be_left_out_of_the_default_step_as_well():
    world = pb.World()
    world.add_ground()
    world.add_sphere("ball", radius=0.1, mass=1.0, position=(0, 0, 0.1))
    sim = world.compile(dt=1e-2, dtype=F64, without=("contacts",))
    assert float(sim.rollout(sim.initial_state(), 10).q[-1, 0, 2]) < 0.1 - 0.04


def test_choices_that_do_not_go_together():
    world, state = pendulum(1)
    with pytest.raises(pb.PullbackError, match="'rk5'; choose 'semi_implicit', 'explicit', 'rk4' or 'midpoint'"):
        world.compile(dt=1e-3, integrator="rk5")
    for wrong in ("limits", None, ["limit"]):
        with pytest.raises(pb.PullbackError, match=r"without is .*; give a list of 'contacts', .* or 'tree_energy'"):
            world.compile(dt=1e-3, without=wrong)
    with pytest.raises(pb.PullbackError, match="'rk4' takes damping where its stages are"):
        world.compile(dt=1e-3, integrator="rk4", damping="implicit")
    sim = world.compile(dt=1e-3, dtype=F64, integrator="rk4")
    with pytest.raises(pb.PullbackError, match=r"linearize is for integrator='semi_implicit'.*jacrev"):
        sim.linearize(state, torch.zeros(1, 1, 1, dtype=F64))


def test_a_world_that_is_lost_says_so():
    world, state = pendulum(2)
    sim = world.compile(dt=1.0, dtype=F64, integrator="explicit")
    state.qd[:] = 1e150
    states = sim.rollout(state, 10)
    assert int(states.status.code[0]) == 1
    assert bool(states.q[-1].isnan().all())

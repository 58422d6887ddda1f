"""Hybrid models: corrections against physics that has them, gradients against differences, saving, and bad input."""

import pytest
import torch
from torch import nn

import pullback as pb
from pullback.core.errors import PullbackError
from pullback.learn.hybrid import Correction, Hybrid, Nothing, Residual, load_hybrid, save_hybrid
from pullback.learn.hybrid_fit import FitConfig, Motions, NetworkModel, fit, predict, prediction_error
from pullback.learn.residuals import ActuatorNetwork, JointTorque, LinkForce, LinkWrench, ShapeFriction, Together

F64 = torch.float64
DT = 2e-3
# a residual's forces are added before the step and held over it, controls within: they differ by dt²
FIRST_ORDER = 2e-3


def pendulum_world() -> pb.World:
    world = pb.World()
    world.add(pb.load("pendulum2", dtype=F64), name="arm")
    return world


@pytest.fixture(scope="module")
def sim():
    return pendulum_world().compile(dt=DT, dtype=F64, without=["contacts", "limits", "friction"])


@pytest.fixture(scope="module")
def start():
    return pb.State(
        torch.tensor([[-1.0, 0.3], [0.2, -0.4]], dtype=F64), torch.tensor([[1.0, -2.0], [0.5, 0.1]], dtype=F64)
    )


class Force(Residual):
    """A constant correction."""

    def __init__(self, **what):
        super().__init__()
        self.what = what

    def forward(self, state, u, memory):
        return Correction(**self.what)


def test_forces_at_joints_are_forces_of_motors(sim, start):
    push = torch.tensor([[2.0, -1.0]], dtype=F64).expand(2, 2)
    controls = torch.zeros(50, 2, 2, dtype=F64)
    mixed = Hybrid(sim, Force(torque=push)).rollout(start, controls)
    driven = sim.rollout(start, controls + push)
    torch.testing.assert_close(mixed.q, driven.q, atol=FIRST_ORDER, rtol=0)
    assert (mixed.q[-1] - sim.rollout(start, controls).q[-1]).abs().max() > 0.01


def test_a_wrench_that_holds_a_link_up_is_gravity_less_its_weight(start):
    """A force against the weight of the tip's body, at its centre of mass, is that body without weight."""
    sim = pendulum_world().compile(dt=DT, dtype=F64, without=["contacts", "limits", "friction"])
    robot = sim.world.robots["arm"]
    mass = robot.get_link_param("link1", "mass").item()
    jacobian = sim.link_jacobian(start, "arm/link1")
    up = torch.tensor([0.0, 0.0, 0.0, 0.0, 0.0, 9.81 * mass], dtype=F64).expand(2, 6)
    by_wrench = Hybrid(sim, Force(wrenches={"arm/link1": up}))._push(start, Correction(wrenches={"arm/link1": up})).qd
    tau = 9.81 * mass * jacobian[:, 2]
    by_torque = Hybrid(sim, Force())._push(start, Correction(torque=tau)).qd
    torch.testing.assert_close(by_wrench, by_torque)


def test_gradients_reach_the_network_through_the_physics(sim, start):
    residual = JointTorque(sim, (4,), seed=1)
    with torch.no_grad():
        for weight in residual.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, dtype=F64, generator=torch.Generator().manual_seed(0)))
    model, controls = Hybrid(sim, residual), torch.zeros(5, 2, 2, dtype=F64)

    def loss():
        return model.rollout(start, controls).q[-1].square().sum()

    loss().backward()
    weight = next(residual.parameters())
    found, step = weight.grad[0, 0].item(), 1e-5
    with torch.no_grad():
        weight[0, 0] += step
        above = loss().item()
        weight[0, 0] -= 2 * step
        below = loss().item()
        weight[0, 0] += step
    assert found == pytest.approx((above - below) / (2 * step), rel=1e-5)


def test_residuals_begin_as_physics_alone(sim, start):
    controls = torch.zeros(3, 2, 2, dtype=F64)
    alone = sim.rollout(start, controls).q
    links = LinkWrench(sim, "arm/link1"), LinkForce(sim, "arm/link1")
    several = Together(JointTorque(sim, local=True), *links, JointTorque(sim, positions=False))
    torch.testing.assert_close(Hybrid(sim, several).rollout(start, controls).q, alone)
    torch.testing.assert_close(Hybrid(sim, Nothing()).rollout(start, controls).q, alone)


def test_drag_on_a_point_is_drag_on_the_tip(sim, start):
    """Drag of 2 N·s/m half a metre from the origin of the last link, against the tip's own Jacobian."""
    residual = LinkForce(sim, "arm/link1", (2,), scale=2.0, reach=0.1)
    with torch.no_grad():
        residual.offset[1] = 5.0
        residual.linear[0].weight[:, 3:] = -torch.eye(3, dtype=F64)
    torch.testing.assert_close(residual.point, torch.tensor([0.0, 0.5, 0.0], dtype=F64))

    def tip(q):
        angles = q.cumsum(0)
        return 0.5 * torch.stack([angles.cos().sum(), angles.sin().sum()])

    resisting = []
    for q, qd in zip(start.q, start.qd):
        jacobian = torch.autograd.functional.jacobian(tip, q)
        resisting.append(-2.0 * jacobian.T @ (jacobian @ qd))
    found = residual(start, torch.zeros(2, 2, dtype=F64), residual.begin(start))
    model = Hybrid(sim, residual)
    by_point, by_torque = model._push(start, found), model._push(start, Correction(torque=torch.stack(resisting)))
    torch.testing.assert_close(by_point.qd, by_torque.qd)
    # where the point is can be learned
    residual.zero_grad()
    model.step(start, torch.zeros(2, 2, dtype=F64))[0].qd.square().sum().backward()
    assert residual.offset.grad is not None
    assert residual.offset.grad[1].abs() > 1e-4


def test_friction_may_depend_on_speed():
    world = pb.World()
    world.add_ground()
    world.add_box("block", size=(0.2, 0.2, 0.1), mass=1.0, position=(0, 0, 0.05), friction=0.3)
    sim = world.compile(dt=DT, dtype=F64)
    state = sim.initial_state()
    state.qd[:, 3] = 1.0
    residual = ShapeFriction(sim, "block", "block", (4,), start=0.3)
    model, none = Hybrid(sim, residual), torch.zeros(5, 1, 0, dtype=F64)
    end = model.rollout(state, none).q[-1, 0, 0]
    torch.testing.assert_close(end, sim.rollout(state, 5).q[-1, 0, 0])
    end.backward()
    last = list(residual.parameters())[-1]
    assert last.grad.item() < 0.0  # more friction, less way


def test_an_actuator_network_lags_as_its_gate_says():
    world = pb.World()
    world.add(pb.load("pendulum2", dtype=F64), name="arm", actuators=pb.PositionServo(kp=50.0, kd=5.0))
    sim = world.compile(dt=DT, dtype=F64, without=["contacts", "limits", "friction"])
    network = ActuatorNetwork(sim, (4,))
    state = sim.initial_state()
    memory = network.begin(state)
    torch.testing.assert_close(memory, state.q)
    u = memory + 1.0
    torch.testing.assert_close(network(state, u, memory).control, memory + 0.5)
    assert network(state, u, memory).memory is not memory


def test_a_fit_finds_damping_and_beats_physics_alone(sim, start):
    def simulate(steps, motions, seed):
        random = torch.Generator().manual_seed(seed)
        state = pb.State(
            *(2.0 * torch.rand(2, motions, 2, dtype=F64, generator=random) - 1.0).mul(torch.tensor([[[1.0]], [[3.0]]]))
        )
        states = [state]
        for _ in range(steps):
            state = sim.step(state, -1.5 * state.qd)
            states.append(state)
        u = torch.zeros(steps, motions, 2, dtype=F64)
        return Motions(torch.stack([s.q for s in states]), torch.stack([s.qd for s in states]), u)

    with torch.no_grad():
        data, tests = simulate(40, 24, 0), simulate(40, 4, 1)
    model = Hybrid(sim, JointTorque(sim, (8,), scale=3.0, local=True, positions=False))
    losses = fit(model, data, FitConfig(60, window=10, batch=16, rate=3e-2), progress=False)
    assert losses[-1] < 0.1 * losses[0]
    error = prediction_error(model, tests)
    alone = prediction_error(Hybrid(sim, Nothing()), tests)
    assert error[0] == 0.0
    assert error[-1] < 0.3 * alone[-1]
    network = NetworkModel(sim, (8,), past=2)
    assert fit(network, data, FitConfig(3, window=4), progress=False)
    assert predict(network, tests, warm=3).q.shape == (38, 4, 2)


def test_a_model_is_saved_with_its_robot(sim, start, tmp_path):
    residual = JointTorque(sim, (4,), seed=3)
    with torch.no_grad():
        for weight in residual.parameters():
            weight.add_(0.1)
    model, controls = Hybrid(sim, residual), torch.zeros(4, 2, 2, dtype=F64)
    folder = save_hybrid(model, tmp_path / "arm")
    assert {path.name for path in folder.iterdir()} == {"arm.urdf", "residual.pt"}
    world = pb.World()
    world.add(pb.load(folder / "arm.urdf", dtype=F64), name="arm")
    again = world.compile(dt=DT, dtype=F64, without=["contacts", "limits", "friction"])
    loaded = load_hybrid(folder, again, JointTorque(again, (4,)))
    torch.testing.assert_close(loaded.rollout(start, controls).q, model.rollout(start, controls).q)
    other = world.compile(dt=2 * DT, dtype=F64, without=["contacts", "limits", "friction"])
    with pytest.raises(PullbackError, match=r"was saved with dt = 0.002, here it is 0.004"):
        load_hybrid(folder, other, JointTorque(other, (4,)))
    with pytest.raises(PullbackError, match="was saved with residual = 'JointTorque'"):
        load_hybrid(folder, again, Nothing())
    with pytest.raises(PullbackError, match="does not fit the residual"):
        load_hybrid(folder, again, JointTorque(again, (5,)))


def test_bad_input_is_said(sim, start):
    u = torch.zeros(2, 2, dtype=F64)
    with pytest.raises(PullbackError, match=r"give world.compile"):
        Hybrid(sim.world, Nothing())
    with pytest.raises(PullbackError, match=r"give a torch.nn.Module"):
        Hybrid(sim, lambda state: None)
    with pytest.raises(PullbackError, match=r"return a Correction"):
        Hybrid(sim, Wrong()).step(start, u)
    with pytest.raises(PullbackError, match=r"the residual's torque is \(2, 3\); expected \(2, 2\)"):
        Hybrid(sim, Force(torque=torch.zeros(2, 3, dtype=F64))).step(start, u)
    with pytest.raises(PullbackError, match="creep is 0"):
        JointTorque(sim, creep=0.0)
    q, qd = torch.zeros(3, 1, 2, dtype=F64), torch.zeros(3, 1, 2, dtype=F64)
    with pytest.raises(PullbackError, match=r"expected \(T \+ 1, N, nq\)"):
        Motions(q, qd, torch.zeros(3, 1, 2, dtype=F64))
    with pytest.raises(PullbackError, match="qd of the recording is not finite"):
        Motions(q, qd / 0.0, torch.zeros(2, 1, 2, dtype=F64))
    data = Motions(q, qd, torch.zeros(2, 1, 2, dtype=F64))
    with pytest.raises(PullbackError, match="motions that are as long"):
        fit(Hybrid(sim, JointTorque(sim)), data, FitConfig(1, window=5))
    with pytest.raises(PullbackError, match="no weights that could learn"):
        fit(Hybrid(sim, Nothing()), data, FitConfig(1, window=1))
    with pytest.raises(PullbackError, match="does not depend on its weights; compute the correction by torch"):
        fit(Hybrid(sim, Detached()), data, FitConfig(1, window=1), progress=False)


class Detached(Residual):
    """A correction whose gradient is cut off."""

    def __init__(self):
        super().__init__()
        self.size = nn.Parameter(torch.ones(1, dtype=F64))

    def forward(self, state, u, memory):
        return Correction(torque=self.size.detach() * state.qd)


class Wrong(nn.Module):
    """A residual that returns a tensor."""

    def __init__(self):
        super().__init__()

    def forward(self, state, u, memory):
        return u

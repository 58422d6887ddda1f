"""Affine actuators, springs and fixed tendons: against MuJoCo, and gradients against central differences."""

import mujoco
import numpy as np
import pytest
import torch

import pullback as pb
from pullback.core.errors import PullbackError
from tests.rigid.worlds import F64, load

DT = 2e-3
STEPS = 40
# 40 steps of sums in another order
EXACT = 1e-10
AGREE = 1e-6
"""Central differences, relative."""

# the range of a control, that of a force, and none of both; a joint with two actuators
MODEL = f"""<mujoco model="arm"><option timestep="{DT}" integrator="Euler"><flag eulerdamp="disable"/></option>
<default><joint axis="0 1 0" damping="0.05" armature="0.01"/><geom type="capsule" size="0.04"/></default>
<worldbody><body name="base" pos="0.1 0.2 0.3" euler="20 30 40"><geom fromto="0 0 -.1 0 0 0"/>
<body name="upper"><joint name="a" stiffness="3" springref="30" ref="10"/><geom fromto="0 0 0 0.1 0 .3"/>
<body name="lower" pos="0.1 0 .3"><joint name="b" axis="1 1 0" stiffness="1"/><geom fromto="0 0 0 0 0 .3"/>
<body name="hand" pos="0 0 .3"><joint name="c"/><geom fromto="0 0 0 0.1 0.1 .1"/><site name="tip" pos="0.1 0.1 0.1"/>
</body></body></body></body></worldbody>
<tendon><fixed name="pair" stiffness="2" damping="0.03" springlength="0.2">
<joint joint="b" coef="1.5"/><joint joint="c" coef="-0.5"/></fixed></tendon>
<actuator><motor name="motor" joint="a" gear="2" ctrlrange="-0.5 0.7"/>
<position name="servo" joint="b" kp="8" kv="0.2" forcerange="-1 1.5"/>
<general name="general" joint="c" gear="-1.5" gaintype="affine" gainprm="1 0.3 -0.2" biastype="affine"
biasprm="0.1 -2 -0.1"/>
<damper name="brake" joint="c" kv="0.3" ctrlrange="0 1"/>
<position name="strap" tendon="pair" gear="0.8" kp="3" forcerange="-2 2"/></actuator>
</mujoco>"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    file = tmp_path_factory.mktemp("drives") / "arm.xml"
    file.write_text(MODEL)
    return file


def controls(steps=STEPS):
    time = torch.linspace(0.0, 5.0, steps, dtype=F64)[:, None]
    return (torch.sin(time * torch.tensor([1.0, 1.3, 0.7, 1.9, 1.1]) + torch.arange(5)) * 1.2)[:, None]


def simulation(path, robot=None, **options):
    world = pb.World(gravity=(0.0, 0.0, -9.81))
    world.add(robot or pb.load(path, dtype=F64), name="arm", collision_links=[])
    return world.compile(dt=DT, dtype=F64, without=["limits"], **options)


def test_mujoco_gives_the_same_motion(path):
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    sim = simulation(path, damping="explicit")
    assert sim.world.actuator_names == [f"arm/{name}" for name in ("motor", "servo", "general", "brake", "strap")]
    u = controls(200)
    ours = sim.rollout(sim.initial_state(), u)
    np.testing.assert_allclose(ours.q[0, 0].numpy(), data.qpos, atol=1e-15)
    theirs, forces = [], []
    for row in u[:, 0].numpy():
        data.ctrl[:] = row
        mujoco.mj_step(model, data)
        theirs.append(np.concatenate([data.qpos, data.qvel]))
        forces.append(data.actuator_force.copy())
    # every bound is met, and left again
    for bound, at in ((1.5, 1), (-2.0, 4), (0.7, 0)):
        share = np.mean(np.isclose(np.array(forces)[:, at], bound))
        assert 0.01 < share < 0.99
    found = torch.cat([ours.q, ours.qd], -1)[1:, 0].numpy()
    np.testing.assert_allclose(found, theirs, rtol=0, atol=EXACT)


def loss(sim, q, qd, u):
    states = sim.rollout(pb.State(q, qd), u)
    weights = torch.tensor([1.0, -0.7, 0.4], dtype=q.dtype)
    return (states.q[-1] * weights).sum() + 0.1 * (states.qd[STEPS // 2 :] * weights).sum()


@pytest.mark.parametrize("damping", ["explicit", "implicit"])
def test_gradients_by_state_controls_and_springs(path, damping):
    robot = pb.load(path, dtype=F64)
    for link, parameter in (("upper", "joint_stiffness"), ("upper", "joint_rest"), ("hand", "joint_stiffness")):
        robot.make_link_param_learnable(link, parameter, pb.UnconstrainedTensor())
    sim = simulation(path, robot, damping=damping)
    state, u = sim.initial_state(), controls()
    leaves = {"q": state.q, "qd": state.qd, "u": u, **{k: p.detach().clone() for k, p in robot.named_parameters()}}

    def at(name, step):
        moved = {k: x + step if k == name else x for k, x in leaves.items()}
        for k, p in robot.named_parameters():
            p.copy_(moved[k])
        return loss(sim, moved["q"], moved["qd"], moved["u"])

    given = {k: leaves[k].clone().requires_grad_() for k in ("q", "qd", "u")}
    loss(sim, **given).backward()
    gradients = {k: x.grad for k, x in (*given.items(), *robot.named_parameters())}
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, x in leaves.items():
            d = torch.randn(x.shape, generator=generator, dtype=F64)
            ours = float((gradients[name] * d).sum())
            found = [float(at(name, h * d) - at(name, -h * d)) / (2 * h) for h in (1e-5, 1e-6, 1e-7)]
            assert abs(ours) > 1e-6, name
            assert min(abs(x - ours) for x in found) < AGREE * abs(ours), name


def test_gradients_by_the_numbers_of_an_affine_actuator():
    """One joint meets the bounds of its control, the other those of its force."""
    names = ("gain", "kp", "kd", "bias", "position_gain", "velocity_gain", "least", "most", "low", "high")
    numbers = ((1.5, 2.0), (3.0, 1.0), (0.1, 0.2), (0.3, -0.2), (0.5, 0.1), (-0.2, 0.1))
    bounds = ((-9.0, -0.8), (9.0, 0.7), (-0.6, -9.0), (0.8, 9.0))
    start = {name: torch.tensor([x], dtype=F64) for name, x in zip(names, numbers + bounds)}
    time = torch.linspace(0.0, 6.0, 60, dtype=F64)
    u = torch.stack([torch.sin(3 * time), torch.cos(2 * time)], -1)[:, None]

    def at(values):
        *plain, least, most, low, high = values.values()
        actuator = pb.AffineActuator(*plain[:4], (least, most), (low, high), *plain[4:])
        world = pb.World()
        world.add(load("pendulum2"), name="arm", actuators=actuator)
        sim = world.compile(dt=DT, dtype=F64)
        states = sim.rollout(sim.initial_state(), u)
        return (states.q[-1] * torch.tensor([1.0, -0.7], dtype=F64)).sum() + 0.1 * states.qd[-1].sum()

    given = {name: x.clone().requires_grad_() for name, x in start.items()}
    at(given).backward()
    for name in names:
        ours = float(given[name].grad.sum())
        found = []
        for h in (1e-5, 1e-6, 1e-7):
            up, down = ({**start, name: start[name] + s * h} for s in (1, -1))
            found.append(float(at(up) - at(down)) / (2 * h))
        assert abs(ours) > 1e-8, name
        assert min(abs(x - ours) for x in found) < 1e-5 * abs(ours), name


@pytest.mark.parametrize("integrator", ["rk4", "midpoint"])
def test_springs_and_tendons_in_other_integrators(path, integrator):
    """Motion agrees with that of the plain step at a hundredth of its size, to its order."""
    sim = simulation(path, integrator=integrator)
    fine = simulation(path, substeps=100)
    u = controls(20)
    end, expected = (s.rollout(s.initial_state(), u).q[-1] for s in (sim, fine))
    plain = simulation(path)
    error = float((plain.rollout(plain.initial_state(), u).q[-1] - expected).abs().max())
    assert float((end - expected).abs().max()) < 0.1 * error


def test_linearization_of_tendons_and_springs(path):
    sim = simulation(path)
    state, u = sim.initial_state(), controls(1)[0]
    state.qd[:] = torch.tensor([0.3, -0.2, 0.5], dtype=F64)
    maps = sim.linearize(state, u[None])

    def after(q, qd, u):
        end = sim.step(pb.State(q, qd), u)
        return torch.cat([end.q, end.qd], -1)[0]

    jacobian = torch.autograd.functional.jacobian(after, (state.q, state.qd, u))
    A = torch.cat([jacobian[0][:, 0], jacobian[1][:, 0]], -1)
    torch.testing.assert_close(maps.A[0, 0], A, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(maps.B[0, 0], jacobian[2][:, 0], rtol=1e-9, atol=1e-12)


def test_energy_of_springs_is_kept(path):
    """Without dampers and actuators nothing is lost; world and robot agree about the energy."""
    robot = pb.load(path, dtype=F64)
    tree = robot.model.tree
    tree.springs[:] = [pb.description.tree.Drive(**{**vars(s), "kd": 0.0}) for s in tree.springs]
    for link in ("upper", "lower", "hand"):
        robot.set_link_param(link, "joint_damping", 0.0)
    world = pb.World()
    world.add(robot, name="arm", collision_links=[], actuators={})
    sim = world.compile(dt=DT, dtype=F64, integrator="rk4", without=["limits"])
    states = sim.rollout(sim.initial_state(), 300)
    kinetic, potential = (torch.stack(x) for x in zip(*(sim.energies(states[k]) for k in (0, 150, 300))))
    total = kinetic + potential
    assert float((potential - potential[0]).abs().max()) > 0.1
    torch.testing.assert_close(total, total[:1].expand_as(total), rtol=0, atol=1e-7)
    q = states.q[[0, 150, 300], 0]
    torch.testing.assert_close(robot.compute_potential_energy(q), potential[:, 0], rtol=1e-12, atol=1e-12)


def test_a_spring_given_later_needs_another_compilation(path):
    robot = pb.load(path, dtype=F64)
    sim = simulation(path, robot)
    robot.set_link_param("hand", "joint_stiffness", 1.0)
    with pytest.raises(PullbackError, match="arm/hand had no spring when the world was compiled"):
        sim.step(sim.initial_state(), controls(1)[0])
    with pytest.raises(PullbackError, match="only joints with one degree of freedom have springs"):
        robot.set_link_param("tip", "joint_stiffness", 1.0)

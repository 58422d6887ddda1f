"""Laikago and Ant against MuJoCo with the same numbers and contacts as stiff as its time step allows.

MuJoCo's contacts are springs with dampers. The time constant is twice the time step, its least, and the damping five
times critical: a critically damped contact throws back a share exp(-2) of the speed. What remains different is
friction: MuJoCo's contacts push apart where they slide, the more the faster (docs/physics.md).
"""

from typing import NamedTuple
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.description.tree import Joint, Link, Shape
from pullback.spatial.rotations_torch import rotate
from tests.rigid.worlds import F64, TOES, load

mujoco = pytest.importorskip("mujoco")

STANCE = np.array([0.2, 0.0, -0.5] * 4)
ANKLES = {"ankle_1": 1.0, "ankle_2": -1.0, "ankle_3": -1.0, "ankle_4": 1.0}
LEVEL = (0.0, 0.0, 0.0, 1.0)
TILTED = (0.1, 0.05, 0.0, 1.0)
SLIPPERY = 1e-4


# -- handing a model over ------------------------------------------------------------------------------------------


class Servo(NamedTuple):
    kp: float
    kd: float
    limit: float


def text(numbers) -> str:
    return " ".join(repr(float(x)) for x in np.ravel(numbers))


def wxyz(rotation: np.ndarray) -> str:
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.ascontiguousarray(rotation).ravel())
    return text(quat)


class Oracle:
    """A robot on a plane in MuJoCo, its states written our way."""

    def __init__(
        self, robot: pb.RobotModel, collision_links, *, dt: float, friction: float, servo: Servo | None
    ) -> None:
        self.robot = robot
        solref, solimp = text([2 * dt, 5.0]), "0.999 0.9999 0.001 0.5 2"
        self._surface = {"friction": f"{friction} 0 0", "condim": "3", "solref": solref, "solimp": solimp}
        self._limit = {"solreflimit": solref, "solimplimit": solimp}
        root = ElementTree.Element("mujoco")
        ElementTree.SubElement(root, "compiler", angle="radian")
        solver = {"solver": "Newton", "iterations": "200", "tolerance": "1e-14", "cone": "elliptic", "impratio": "100"}
        option = ElementTree.SubElement(root, "option", timestep=repr(dt), gravity="0 0 -9.81", **solver)
        # damping as we have it, at the start of the step
        ElementTree.SubElement(option, "flag", eulerdamp="disable")
        world = ElementTree.SubElement(root, "worldbody")
        plane = {"type": "plane", "size": "0 0 1", "contype": "0", "conaffinity": "1"}
        ElementTree.SubElement(world, "geom", name="ground", **plane, **self._surface)
        tree = robot.model.tree
        bodies = {"world": world}
        links = {link.name: link for link in tree.links}
        for joint in self._parents_first(tree.joints):
            touches = joint.child in collision_links
            bodies[joint.child] = self._body(bodies[joint.parent], joint, links[joint.child], touches)
        moving = [joint.name for joint in tree.joints if joint.type not in ("fixed", "floating")]
        if servo is not None:
            actuators = ElementTree.SubElement(root, "actuator")
            gains = {"gainprm": text([servo.kp]), "biastype": "affine", "biasprm": text([0, -servo.kp, -servo.kd])}
            for name in moving:
                span = text([-servo.limit, servo.limit])
                ElementTree.SubElement(actuators, "general", joint=name, forcelimited="true", forcerange=span, **gains)
        self.model = mujoco.MjModel.from_xml_string(ElementTree.tostring(root, encoding="unicode"))
        self.data = mujoco.MjData(self.model)
        # where MuJoCo's joints stand in our q and qd
        self._q = [robot.model.q_start[name] for name in moving]
        self._v = [robot.model.v_start[name] for name in moving]

    @staticmethod
    def _parents_first(joints: list[Joint]) -> list[Joint]:
        done, order = {"world"}, []
        while len(order) < len(joints):
            ready = [joint for joint in joints if joint.parent in done and joint.child not in done]
            order += ready
            done |= {joint.child for joint in ready}
        return order

    def _body(self, parent, joint: Joint, link: Link, touches: bool):
        place = {"pos": text(joint.origin.translation), "quat": wxyz(joint.origin.rotation)}
        body = ElementTree.SubElement(parent, "body", name=link.name, **place)
        if joint.type == "floating":
            ElementTree.SubElement(body, "freejoint")
        elif joint.type != "fixed":
            options = {"axis": text(joint.axis), "damping": repr(joint.damping), "armature": repr(joint.armature)}
            if np.isfinite(joint.limits.lower):
                options |= {"limited": "true", "range": text([joint.limits.lower, joint.limits.upper]), **self._limit}
            ElementTree.SubElement(body, "joint", name=joint.name, type="hinge", **options)
        I = link.inertia
        moments = text([I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]])
        ElementTree.SubElement(body, "inertial", mass=repr(float(link.mass)), pos=text(link.com), fullinertia=moments)
        for shape in link.shapes if touches else []:
            self._geom(body, link.name, shape)
        return body

    def _geom(self, body, name: str, shape: Shape) -> None:
        size = shape.size if shape.type == "sphere" else (shape.size[0], shape.size[1] / 2)
        place = {"pos": text(shape.origin.translation), "quat": wxyz(shape.origin.rotation)}
        groups = {"contype": "1", "conaffinity": "0", "mass": "0"}
        kind = {"type": shape.type, "size": text(size)}
        ElementTree.SubElement(body, "geom", name=name, **kind, **place, **groups, **self._surface)

    def run(self, q: np.ndarray, qd: np.ndarray, targets: np.ndarray | None, steps: int, every: int) -> np.ndarray:
        """Return one state in `every`, the first included, (n, nq)."""
        data = self.data
        data.qpos[:7] = q[[0, 1, 2, 6, 3, 4, 5]]
        data.qpos[7:] = q[self._q]
        R = np.zeros(9)
        mujoco.mju_quat2Mat(R, data.qpos[3:7])
        data.qvel[:] = np.concatenate([R.reshape(3, 3) @ qd[3:6], qd[:3], qd[self._v]])
        if targets is not None:
            data.ctrl[:] = targets[np.array(self._q) - 7]
        states = [q]
        for step in range(steps):
            mujoco.mj_step(self.model, data)
            if (step + 1) % every == 0:
                state = np.empty_like(q)
                state[:7] = data.qpos[[0, 1, 2, 4, 5, 6, 3]]
                state[self._q] = data.qpos[7:]
                states.append(state)
        return np.array(states)

    def normal_forces(self) -> dict[str, float]:
        """Return the force of the ground on each link that touches it [N]."""
        mujoco.mj_forward(self.model, self.data)
        forces: dict[str, float] = {}
        for i, contact in enumerate(self.data.contact):
            wrench = np.zeros(6)
            mujoco.mj_contactForce(self.model, self.data, i, wrench)
            names = {self.model.geom(geom).name for geom in contact.geom} - {"ground"}
            name = names.pop()
            forces[name] = forces.get(name, 0.0) + wrench[0]
        return forces


class Difference(NamedTuple):
    """The largest differences along a trajectory, and the forces at its end."""

    position: float  # [m]
    angle: float  # [degrees]
    joints: float  # [rad]
    height: float  # at the end [m]
    forces: dict[str, float]
    expected: dict[str, float]


def compare(
    robot: pb.RobotModel,
    q: np.ndarray,
    seconds: float,
    *,
    qd: np.ndarray | None = None,
    collision_links=None,
    friction: float = 1.0,
    servo: Servo | None = None,
    targets: np.ndarray | None = None,
    dt: float = 1e-3,
    oracle_dt: float | None = None,
) -> Difference:
    """Run a robot on the ground here and in MuJoCo."""
    links = [x.name for x in robot.model.links] if collision_links is None else collision_links
    world = pb.World()
    world.add_ground(friction=friction)
    drive = {} if servo is None else pb.PositionServo(*servo)
    world.add(robot, q=torch.from_numpy(q), actuators=drive, friction=friction, collision_links=links)
    sim = world.compile(dt=dt, dtype=F64, damping="explicit")
    start = sim.initial_state()
    start.qd[0] = torch.zeros(sim.nv, dtype=F64) if qd is None else torch.from_numpy(qd)
    steps = round(seconds / dt)
    u = torch.zeros(1, 0, dtype=F64) if targets is None else torch.from_numpy(targets)[None]
    states = sim.rollout(start, u.expand(steps, 1, sim.nu), check=True)
    found = states.q[:, 0].numpy()
    forces: dict[str, float] = {}
    for contact in sim.contacts(states[-1], u)[0]:
        name = contact.shapes[0].split("/")[1]
        forces[name] = forces.get(name, 0.0) + contact.force[2]

    oracle_dt = oracle_dt or dt
    oracle = Oracle(robot, links, dt=oracle_dt, friction=friction, servo=servo)
    every = round(dt / oracle_dt)
    expected = oracle.run(q, start.qd[0].numpy(), targets, steps * every, every)
    # the angle of conj(a) b
    a, b = found[:, 3:7], expected[:, 3:7]
    xyz = a[:, 3:] * b[:, :3] - b[:, 3:] * a[:, :3] - np.cross(a[:, :3], b[:, :3])
    return Difference(
        position=float(np.linalg.norm(found[:, :3] - expected[:, :3], axis=1).max()),
        angle=float(np.degrees(2 * np.arcsin(np.linalg.norm(xyz, axis=1).clip(max=1.0))).max()),
        joints=float(np.abs(found[:, 7:] - expected[:, 7:]).max()),
        height=float(abs(found[-1, 2] - expected[-1, 2])),
        forces=forces,
        expected=oracle.normal_forces(),
    )


@pytest.fixture(scope="module")
def laikago() -> pb.RobotModel:
    return load("laikago", "floating")


@pytest.fixture(scope="module")
def ant() -> pb.RobotModel:
    return load("ant")


def laikago_q(height: float) -> np.ndarray:
    return np.concatenate([[0, 0, height], LEVEL, STANCE])


def ant_q(robot: pb.RobotModel, height: float, orientation=LEVEL) -> np.ndarray:
    q = robot.neutral().numpy()
    q[2], q[3:7] = height, np.array(orientation) / np.linalg.norm(orientation)
    for name, angle in ANKLES.items():
        q[robot.model.q_start[name]] = angle
    return q


def same_forces(difference: Difference, tolerance: float) -> None:
    """Check the forces of all feet, the tolerance as a share of the weight."""
    assert difference.forces.keys() == difference.expected.keys()
    assert len(difference.forces) == 4
    weight = sum(difference.expected.values())
    for name, force in difference.expected.items():
        assert difference.forces[name] == pytest.approx(force, abs=tolerance * weight)


# -- free flight ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["laikago", "ant"])
def test_free_flight(name, request):
    """The same integrator: the same flight to rounding at one time step, first order in it otherwise."""
    robot = request.getfixturevalue(name)
    q = laikago_q(3.0) if name == "laikago" else ant_q(robot, 3.0)
    scale = np.concatenate([np.full(6, 2.0), np.full(robot.nv - 6, 0.2)])
    qd = scale * np.random.default_rng(0).normal(size=robot.nv)
    same = compare(robot, q, 0.5, qd=qd, collision_links=[])
    assert same.position < 1e-12
    assert same.angle < 1e-10
    assert same.joints < 1e-12
    finer = compare(robot, q, 0.5, qd=qd, collision_links=[], oracle_dt=1e-4)
    half = compare(robot, q, 0.5, qd=qd, collision_links=[], dt=5e-4, oracle_dt=1e-4)
    assert finer.position < 3e-3
    assert finer.angle < 0.05
    # errors 1 - 0.1 and 0.5 - 0.1
    assert finer.position / half.position == pytest.approx(9 / 4, rel=0.05)


# -- Laikago -------------------------------------------------------------------------------------------------------

LAIKAGO = {"collision_links": TOES, "friction": 0.8, "servo": Servo(150, 3, 100), "targets": STANCE}


def test_laikago_stands(laikago):
    difference = compare(laikago, laikago_q(0.4835), 0.5, **LAIKAGO)
    assert difference.position < 1e-4
    assert difference.angle < 0.01
    assert difference.joints < 2e-3


@pytest.mark.parametrize("oracle_dt", [1e-3, 1e-4])
def test_laikago_drops(laikago, oracle_dt):
    difference = compare(laikago, laikago_q(0.52), 0.5, oracle_dt=oracle_dt, **LAIKAGO)
    assert difference.position < 1e-3
    assert difference.angle < 0.1
    assert difference.joints < 0.01


def test_laikago_settles(laikago):
    difference = compare(laikago, laikago_q(0.4835), 5.0, **LAIKAGO)
    assert difference.height < 5e-5
    same_forces(difference, 1e-3)


# -- Ant -----------------------------------------------------------------------------------------------------------

HOLD = Servo(20, 10, 150)


def bent(q: np.ndarray) -> np.ndarray:
    return q[7:] + np.array([0.1, 0.02, -0.05, 0.04, 0.1, -0.02, 0.05, 0.04])


@pytest.mark.parametrize(("height", "oracle_dt"), [(0.566, 1e-3), (0.75, 1e-3), (0.75, 1e-4)])
def test_ant_lands_level(ant, height, oracle_dt):
    q = ant_q(ant, height)
    difference = compare(ant, q, 0.5, servo=HOLD, targets=q[7:], oracle_dt=oracle_dt)
    assert difference.position < 2e-3
    assert difference.angle < 0.01
    assert difference.height < 1e-4


def test_ant_moves_its_legs(ant):
    q = ant_q(ant, 0.566)
    difference = compare(ant, q, 0.5, servo=HOLD, targets=bent(q))
    assert difference.position < 2e-3
    assert difference.angle < 0.25


@pytest.mark.parametrize("bending", [True, False])
def test_ant_settles(ant, bending):
    """Feet that stick brace against each other, so that their shares are not unique: the pose and the sum are."""
    q = ant_q(ant, 0.566)
    difference = compare(ant, q, 5.0, servo=HOLD, targets=bent(q) if bending else q[7:])
    assert difference.height < 2e-4
    assert difference.angle < 0.25
    assert len(difference.forces) == 4
    assert min(difference.forces.values()) > 0.0
    assert sum(difference.forces.values()) == pytest.approx(sum(difference.expected.values()), rel=1e-4)


def test_ant_settles_on_ice(ant):
    """Without friction nothing braces, and every foot has its force."""
    q = ant_q(ant, 0.566)
    difference = compare(ant, q, 3.0, servo=HOLD, targets=bent(q), friction=SLIPPERY)
    assert difference.height < 1e-5
    same_forces(difference, 1e-3)


def test_ant_drops_tilted_on_ice(ant):
    """One foot after the other hits the ground; the difference goes with the time steps."""
    q = ant_q(ant, 0.75, TILTED)
    coarse = compare(ant, q, 0.5, friction=SLIPPERY, oracle_dt=1e-4)
    fine = compare(ant, q, 0.5, friction=SLIPPERY, dt=2e-4, oracle_dt=2e-5)
    assert coarse.position < 4e-3
    assert coarse.angle < 0.3
    assert fine.position < 1e-3
    assert fine.angle < 0.1


def test_ant_drops_tilted(ant):
    """Feet that slide when they hit: here MuJoCo's law of friction is another one, and smaller steps do not help."""
    difference = compare(ant, ant_q(ant, 0.75, TILTED), 0.5, oracle_dt=1e-4)
    assert difference.position < 0.02
    assert difference.angle < 1.5


def test_ant_obeys_the_laws_of_contact(ant):
    """With sweeps enough: no speed into the ground where it pushes, none along it where it sticks, else against it."""
    world = pb.World(contact=pb.PGS(iterations=2000))
    world.add_ground(friction=1.0)
    world.add(ant, q=torch.from_numpy(ant_q(ant, 0.557)), actuators=pb.Torque())
    sim = world.compile(dt=1e-3, dtype=F64)
    u = torch.randn(1, 8, dtype=F64, generator=torch.Generator().manual_seed(0))
    state, sticking, sliding = sim.initial_state(), 0, 0
    for _ in range(200):
        after = sim.step(state, u)
        # the new velocity in the axes before the step
        qd = after.qd.clone()
        back = state.q[:, 3:7] * torch.tensor([-1.0, -1.0, -1.0, 1.0], dtype=F64)
        qd[:, 3:6] = rotate(back, rotate(after.q[:, 3:7], qd[:, 3:6]))
        for contact in sim.contacts(state, u)[0]:
            link = contact.shapes[0].split("/")[1]
            linear, angular = ant.compute_endeffector_jacobian(state.q, link)
            arm = torch.tensor(contact.point, dtype=F64) - ant.compute_forward_kinematics(state.q, link)[0]
            turning = (angular @ qd[..., None])[..., 0]
            velocity = ((linear @ qd[..., None])[..., 0] + torch.linalg.cross(turning, arm))[0].numpy()
            force = np.array(contact.force)
            closing = velocity[2] + (1.0 if contact.gap > 0 else 0.1) * contact.gap / sim.dt
            assert closing > -1e-6
            if force[2] == 0.0:
                continue
            assert abs(closing) < 1e-6
            if np.linalg.norm(force[:2]) < (1 - 1e-6) * force[2]:
                sticking += 1
                assert np.linalg.norm(velocity[:2]) < 1e-6
            else:
                sliding += 1
                expected = -force[2] * velocity[:2] / np.linalg.norm(velocity[:2])
                np.testing.assert_allclose(force[:2], expected, rtol=0, atol=1e-3 * force[2])
        state = after
    assert min(sticking, sliding) > 100

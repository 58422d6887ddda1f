"""The Laikagos of the simulation benchmark as MuJoCo has them: on a CPU, and on a GPU with MuJoCo Warp.

The same links, joints, masses and toe spheres, written as MJCF from our own description. Bodies without a joint are
merged (`fusestatic`), as we merge them; the servos are MuJoCo's position actuators, so that its C code computes them;
friction cones are elliptic, as ours are round, unless asked for MuJoCo's default pyramids.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Literal
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np

from pullback.description.tree import Link, Tree

TIME_STEP = 1e-3
GRAVITY = (0.0, 0.0, -9.81)
SETTLING_STEPS = 1000

Solver = Literal["PGS", "Newton", "CG"]
Cone = Literal["elliptic", "pyramidal"]


def laikago_xml(
    tree: Tree,
    places: Sequence[tuple[float, float, float]],
    *,
    touching: Sequence[str],
    friction: float,
    servo: dict[str, float],
    solver: Solver = "PGS",
    cone: Cone = "elliptic",
    iterations: int = 50,
) -> str:
    """Return MJCF with a robot at each of `places` [m] on a plane.

    `touching` are the links whose spheres collide, with the plane only. `servo` has kp [N·m/rad], kd [N·m·s/rad] and
    the force `limit` [N·m] of every joint.
    """
    root = Element("mujoco", {"model": "bench"})
    _add(root, "compiler", angle="radian", fusestatic="true", autolimits="true")
    _add(root, "option", timestep=TIME_STEP, iterations=iterations, solver=solver, cone=cone, gravity=GRAVITY)
    world, actuators = _add(root, "worldbody"), _add(root, "actuator")
    surface = {"condim": 3, "friction": (friction, 0.005, 0.0001)}
    _add(world, "geom", type="plane", size=(0, 0, 1), contype=1, conaffinity=0, **surface)
    limit = servo["limit"]
    for number, place in enumerate(places):
        body = _add(world, "body", name=f"{number}", pos=place)
        _add(body, "freejoint", name=f"{number}/floating")
        _add_link(body, tree, _root(tree), f"{number}/", touching, surface)
        for joint in (each for each in tree.joints if each.type != "fixed"):
            law = {"kp": servo["kp"], "kv": servo["kd"], "forcerange": (-limit, limit)}
            _add(actuators, "position", joint=f"{number}/{joint.name}", **law)
    return tostring(root, encoding="unicode")


def _root(tree: Tree) -> Link:
    children = {joint.child for joint in tree.joints}
    return next(link for link in tree.links if link.name not in children)


def _add_link(
    body: Element, tree: Tree, link: Link, prefix: str, touching: Sequence[str], surface: dict[str, Any]
) -> None:
    """Fill the element of a link with its mass, its spheres and the links below it."""
    links = {each.name: each for each in tree.links}
    xx, xy, xz, _, yy, yz, _, _, zz = link.inertia.ravel()
    _add(body, "inertial", pos=link.com, mass=link.mass, fullinertia=(xx, yy, zz, xy, xz, yz))
    for shape in link.shapes if link.name in touching else ():
        if shape.type != "sphere":
            raise ValueError(f"{link.name!r} touches with a {shape.type}; the benchmark has spheres only")
        # meets the ground's contype, and no other sphere
        place = shape.origin.translation
        _add(body, "geom", type="sphere", size=shape.size, pos=place, contype=0, conaffinity=1, **surface)
    for joint in (each for each in tree.joints if each.parent == link.name):
        axes = joint.origin.rotation[:, :2].T
        child = _add(body, "body", name=prefix + joint.child, pos=joint.origin.translation, xyaxes=axes)
        if joint.type == "continuous":
            _add(child, "joint", name=prefix + joint.name, type="hinge", axis=joint.axis)
        elif joint.type != "fixed":
            raise ValueError(f"{joint.name!r} is {joint.type}; the benchmark has hinges only")
        _add_link(child, tree, links[joint.child], prefix, touching, surface)


def _add(parent: Element, tag: str, **attributes: Any) -> Element:
    """Add an element; numbers are written with all their digits."""
    text = {
        name: value if isinstance(value, str) else " ".join(repr(x) for x in np.ravel(value).tolist())
        for name, value in attributes.items()
    }
    return SubElement(parent, tag, text)


class MujocoRollout:
    """Steps of one model in a loop in C (`mujoco.rollout` on one thread), from a settled state, all states returned."""

    def __init__(self, xml: str, joints: np.ndarray) -> None:
        mujoco: Any = import_module("mujoco")
        self.model = mujoco.MjModel.from_xml_string(xml)
        self.data = mujoco.MjData(self.model)
        self.joints = joints
        robots = self.model.nu // len(joints)
        self.targets = np.tile(joints, robots)
        self.data.qpos[:] = self._start(robots)
        self.data.ctrl[:] = self.targets
        sweeps = []
        for _ in range(SETTLING_STEPS):
            mujoco.mj_step(self.model, self.data)
            sweeps.append(int(self.data.solver_niter[0]))
        self.contacts = int(self.data.ncon)
        self.sweeps = float(np.mean(sweeps[-100:]))
        spec = mujoco.mjtState.mjSTATE_FULLPHYSICS
        self._state = np.zeros(mujoco.mj_stateSize(self.model, spec))
        mujoco.mj_getState(self.model, self.data, self._state, spec)
        self._warm = self.data.qacc_warmstart.copy()
        self._rollout = import_module("mujoco.rollout").rollout

    def _start(self, robots: int) -> np.ndarray:
        """Return the model's coordinates with the joints at their targets."""
        qpos = self.model.qpos0.reshape(robots, -1).copy()
        qpos[:, 7:] = self.joints
        return qpos.ravel()

    def run(self, steps: int) -> Callable[[], Any]:
        """Return a function that takes so many steps and writes all states into arrays made beforehand."""
        control = np.tile(self.targets, (1, steps, 1))
        states = np.zeros((1, steps, len(self._state)))
        sensors = np.zeros((1, steps, self.model.nsensordata))
        start, warm = self._state[None], self._warm[None]

        def call() -> None:
            self._rollout(
                [self.model], [self.data], start, control, skip_checks=True, nstep=steps, initial_warmstart=warm,
                state=states, sensordata=sensors,
            )  # fmt: skip

        return call


def mujoco_warp_steps(xml: str, joints: np.ndarray, *, worlds: int, steps: int) -> Callable[[], Any]:
    """Return a function that takes `steps` steps of MuJoCo Warp in all worlds: one CUDA graph of one step, replayed.

    The worlds start settled, each with its joints a little elsewhere, as ours do.
    """
    wp: Any = import_module("warp")
    mujoco: Any = import_module("mujoco")
    mjwarp: Any = import_module("mujoco_warp")
    settled = MujocoRollout(xml, joints)
    model, data = settled.model, settled.data
    mujoco.mj_forward(model, data)
    contacts = max(8, 2 * settled.contacts)
    device_model = mjwarp.put_model(model)
    device_data = mjwarp.put_data(model, data, nworld=worlds, nconmax=contacts, njmax=4 * contacts)
    qpos = np.tile(data.qpos, (worlds, 1))
    qpos[:, 7:] += joint_offsets(worlds, qpos.shape[1] - 7)
    device_data.qpos.assign(qpos.astype(np.float32))
    start = wp.clone(device_data.qpos), wp.clone(device_data.qvel)
    mjwarp.step(device_model, device_data)  # compiles
    graph = None
    if wp.get_device().is_cuda:
        with wp.ScopedCapture() as capture:
            mjwarp.step(device_model, device_data)
        graph = capture.graph

    def run() -> Any:
        wp.copy(device_data.qpos, start[0])
        wp.copy(device_data.qvel, start[1])
        for _ in range(steps):
            if graph is None:
                mjwarp.step(device_model, device_data)
            else:
                wp.capture_launch(graph)
        wp.synchronize()
        return device_data

    return run


def joint_offsets(worlds: int, joints: int) -> np.ndarray:
    """Return what the joints of each world start away from the settled pose [rad], (worlds, joints)."""
    return np.random.default_rng(0).uniform(-0.02, 0.02, (worlds, joints))


def has_mujoco_warp() -> bool:
    """Tell whether MuJoCo Warp can be imported."""
    try:
        import_module("mujoco_warp")
    except Exception:  # a half-installed package fails in many ways
        return False
    return True

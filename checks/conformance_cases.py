"""The worlds of the conformance matrix: mechanisms of every joint type, in every way of touching something.

A case is a function of named tensors, the quantities that gradients are taken of. Each tensor has a leading dimension,
one for each world, so that all perturbed copies of a case run side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import nn

import pullback as pb
from checks.conformance_shapes import HEIGHT, HILL, LYING, PRIMITIVES, SIZES, add_shape
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Pose, Shape, Tree
from pullback.rigid.world.items import rotation_matrix

Tensor = torch.Tensor
Values = dict[str, Tensor]

DEPTH = 1e-4
"""How deep [m] things overlap that stay in contact: the error reduction then keeps the gap on one side of zero."""
TIP = 0.05
"""The radius [m] of the sphere that mechanisms touch with."""


@dataclass(frozen=True)
class Case:
    """A world and a motion: `make` builds it from batched values, solver and type.

    `holds` is what contacts must do all along. `cfm` is their softness: where there are more than hold a body, sweeps
    alone, as unrolled gradients have them, converge only if it is larger than usual. `options` are those of compile.
    """

    joint: str
    mode: str
    values: Values
    make: Callable[[Values, pb.PGS, torch.dtype], pb.World]
    steps: int
    dt: float
    bar: float
    holds: str = ""
    cfm: float = 1e-6
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Joint type and contact mode."""
        return f"{self.joint}, {self.mode}"


class Held(nn.Module):
    """A link parameter that is a tensor of ours."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = value

    def forward(self) -> Tensor:
        """Return the tensor."""
        return self.value


def tensor(*values: float) -> Tensor:
    """Return numbers in float64; one alone is a scalar."""
    return torch.tensor(values if len(values) != 1 else values[0], dtype=torch.float64)


# -- mechanisms ------------------------------------------------------------------------------------------------------

CHAINS: dict[str, list[tuple[str, str]]] = {
    "revolute": [("revolute", "z"), ("revolute", "y"), ("revolute", "y")],
    "prismatic": [("prismatic", "x"), ("prismatic", "y"), ("prismatic", "z")],
    "screw": [("revolute", "z"), ("screw", "y"), ("screw", "x")],
    "ball": [("ball", "z"), ("ball", "z")],
    "chain": [("revolute", "y"), ("prismatic", "z"), ("ball", "x"), ("revolute", "x")],
}
"""The joints of a mechanism from its base on, types and axes; the base of "chain" floats."""
BENT = {"revolute": 0.6, "prismatic": 0.1, "screw": 0.6}
PITCH = 0.05


def mechanism(kind: str, *, friction: float = 0.0, limit: float | None = None) -> Tree:
    """Return a chain of joints with odd inertias and a sphere at its end, the link "tip"."""
    rng = np.random.default_rng(7)
    joints, links = [], [link("base", rng, mass=3.0)]
    for k, (joint_type, axis) in enumerate(CHAINS[kind]):
        last = k == len(CHAINS[kind]) - 1
        name = "tip" if last else f"link{k}"
        offset = np.array([0.0, 0.05, -0.05]) if joint_type == "prismatic" else np.array([0.3, 0.05, -0.02])
        joint = Joint(f"joint{k}", joint_type, links[-1].name, name, Pose(offset if k else np.zeros(3)))  # pyright: ignore[reportArgumentType]
        joint.axis = np.eye(3)["xyz".index(axis)]
        joint.pitch = PITCH
        joint.damping, joint.friction, joint.armature = 0.2, friction, 0.05
        if limit is not None and joint_type in BENT:
            joint.limits = Limits(lower=-3.0, upper=BENT[joint_type] + limit)
        joints.append(joint)
        links.append(link(name, rng))
    links[-1].shapes = [Shape("sphere", (TIP,), Pose(np.array([0.25, 0.02, -0.1])))]
    return Tree(kind, links, joints, source=kind)


def link(name: str, rng: np.random.Generator, mass: float | None = None) -> Link:
    """Return a link with a random, physical inertia."""
    Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    moments = rng.uniform(0.005, 0.02, 3)
    inertia = Q @ np.diag(moments.sum() - moments) @ Q.T
    return Link(name, mass or rng.uniform(0.5, 1.5), rng.uniform(-0.05, 0.1, 3), 0.5 * (inertia + inertia.T))


def robot_of(tree: Tree, values: Values, dtype: torch.dtype) -> pb.RobotModel:
    """Return a robot whose tip has the parameters among the values."""
    robot = pb.RobotModel(compile_tree(tree, "floating" if tree.name == "chain" else "fixed"), dtype=dtype)
    for quantity, parameter in LINK_PARAMETERS.items():
        if quantity in values:
            robot.make_link_param_learnable("tip", parameter, Held(values[quantity]))
    return robot


LINK_PARAMETERS = {
    "mass": "mass",
    "com": "com",
    "inertia": "inertia_mat",
    "origin": "trans",
    "damping": "joint_damping",
    "armature": "joint_armature",
    "dry friction": "joint_friction",
}


def start(tree: Tree, speed: float, seed: int) -> Values:
    """Return a bent configuration with a speed, the parameters of the tip and servos that hold it."""
    robot = pb.RobotModel(compile_tree(tree, "floating" if tree.name == "chain" else "fixed"), dtype=torch.float64)
    rng = np.random.default_rng(seed)
    q = robot.neutral()
    bodies = robot.model.bodies
    for body in bodies:
        at = robot.model.q_start[body.joint.name]
        if body.joint.type in BENT:
            q[at] = BENT[body.joint.type]
        elif body.joint.type == "ball":
            q[at : at + 4] = torch.from_numpy(rng.normal(size=4) * 0.2 + np.array([0, 0.2, 0, 1.0]))
    if tree.name == "chain":
        q[:7] = tensor(0.1, -0.2, 0.8, 0.05, 0.1, -0.05, 1.0)
    qd = speed * torch.from_numpy(rng.normal(size=robot.nv))
    values = {"q": q, "qd": qd, "gravity": tensor(0.1, -0.2, -9.81)}
    for quantity, parameter in LINK_PARAMETERS.items():
        values[quantity] = robot.get_link_param("tip", parameter)
    if not bool(values["dry friction"] > 0):
        del values["dry friction"]
    n = sum(body.joint.type in BENT for body in bodies)
    if n:
        # the first servo always wants more than it may
        values |= {"kp": torch.full((n,), 40.0).double(), "kd": torch.full((n,), 2.0).double()}
        values["limit"] = tensor(1.5, *[300.0] * (n - 1)) if n > 1 else torch.full((1,), 1.5).double()
    return values


def controls(values: Values, tree: Tree, steps: int, seed: int, press: float = 0.0) -> Values:
    """Add targets near the configuration that press the tip down with a force [N]; the first is far off."""
    if "kp" not in values:
        return values
    rng = np.random.default_rng(seed)
    robot = robot_of(tree, {}, torch.float64)
    linear, _ = robot.compute_endeffector_jacobian(values["q"], "tip")
    driven = [body.joint for body in robot.model.bodies if body.joint.type in BENT]
    at = torch.tensor([BENT[joint.type] for joint in driven]).double()
    at = at - press * linear[2, [robot.model.v_start[joint.name] for joint in driven]] / values["kp"]
    u = at + 0.02 * torch.from_numpy(rng.normal(size=(steps, len(at))))
    u[:, 0] += 5.0
    return values | {"u": u}


def tip_velocity(tree: Tree, values: Values, *velocity: float) -> Tensor:
    """Return velocities that move the lowest point of the tip's sphere with a velocity [m/s]."""
    linear, angular = robot_of(tree, {}, torch.float64).compute_endeffector_jacobian(values["q"], "tip")
    arm = torch.from_numpy(tip_centre(tree, values) - tip_pose(tree, values)[0]) - tensor(0.0, 0.0, TIP)
    linear = linear + torch.linalg.cross(angular, arm[:, None].expand_as(angular), dim=0)
    return torch.linalg.pinv(linear) @ tensor(*velocity)


def servos(values: Values) -> pb.PositionServo | dict[str, pb.PositionServo]:
    """Return the servos of the values, or none."""
    return pb.PositionServo(values["kp"], values["kd"], values["limit"]) if "kp" in values else {}


def tip_pose(tree: Tree, values: Values, name: str = "tip") -> tuple[np.ndarray, np.ndarray]:
    """Return position and rotation of a link at the start."""
    robot = robot_of(tree, {}, torch.float64)
    p, quat = robot.compute_forward_kinematics(values["q"], name)
    return p.numpy(), rotation_matrix(quat.numpy())


def tip_centre(tree: Tree, values: Values) -> np.ndarray:
    """Return where the tip's sphere is at the start."""
    p, R = tip_pose(tree, values)
    return p + R @ tree.links[-1].shapes[0].origin.translation


def solid(values: Values, tree: Tree, friction: float, restitution: float | None = None) -> Values:
    """Add what contact depends on: surface, size and place of the tip's sphere."""
    more = {"friction": tensor(friction), "size": torch.full((1,), TIP).double()}
    more["placement"] = torch.from_numpy(tree.links[-1].shapes[0].origin.translation.copy())
    return values | more | ({} if restitution is None else {"restitution": tensor(restitution)})


# -- mechanisms in motion --------------------------------------------------------------------------------------------


def moving(kind: str, mode: str, bar: float, *, friction: float = 0.0, limit: float | None = None, speed: float = 1.0):
    """Return a mechanism that touches nothing: free, at a joint limit, or held by dry friction."""
    tree, steps = mechanism(kind, friction=friction, limit=limit), 50
    values = controls(start(tree, speed, 3), tree, steps, 4)
    if limit is not None:
        # into the limit, and none of the servos too weak
        values["qd"] = values["qd"].abs()
        values["limit"] = torch.full_like(values["limit"], 300.0)

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        world = pb.World(gravity=x["gravity"], contact=contact)
        world.add(robot_of(tree, x, dtype), name="robot", actuators=servos(x), collision_links=[])
        return world

    return Case(kind, mode, values, make, steps, 2e-3, bar)


def on_ground(
    kind: str, mode: str, holds: str, *, mu: float, velocity: tuple[float, ...], e: float | None = None
) -> Case:
    """Return a mechanism whose tip touches the ground, or, coming down, is about to."""
    tree = mechanism(kind)
    gap, steps = (-DEPTH, 100) if velocity[2] == 0.0 else (0.0052, 30)
    values = solid(controls(start(tree, 0.0, 5), tree, steps, 6, press=20.0), tree, mu, e)
    values["qd"] = tip_velocity(tree, values, *velocity)
    height = float(tip_centre(tree, values)[2] - TIP - gap)

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        world = pb.World(gravity=x["gravity"], contact=contact)
        world.add(robot_of(tree, x, dtype), name="robot", actuators=servos(x), collision_links=["tip"])
        world.add_ground(height=height, friction=x["friction"], restitution=x.get("restitution"))
        world.set_shape("robot", size=x["size"], position=x["placement"])
        return world

    return Case(kind, mode, values, make, steps, 1e-3, 1e-4, holds)


def on_itself() -> Case:
    """Return an arm whose tip slides on a sphere on its first link."""
    tree, steps = mechanism("revolute"), 100
    values = solid(controls(start(tree, 0.0, 5), tree, steps, 6), tree, 0.2)
    values["qd"] = tensor(0.5, 1.0, -1.5)
    p, R = tip_pose(tree, values, "link0")
    below = tip_centre(tree, values) - (2 * TIP - DEPTH) * np.array([0.48, 0.0, 0.877268])
    tree.links[1].shapes = [Shape("sphere", (TIP,), Pose(R.T @ (below - p)))]

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        world = pb.World(gravity=x["gravity"], contact=contact)
        robot = robot_of(tree, x, dtype)
        world.add(robot, name="robot", actuators=servos(x), self_collision=True, friction=x["friction"])
        world.set_shape("robot/tip", size=x["size"], position=x["placement"])
        return world

    return Case("revolute", "self-contact", values, make, steps, 1e-3, 1e-4, "touching")


def on_another() -> Case:
    """Return an arm whose tip lies on that of a gantry."""
    arm, gantry, steps = mechanism("revolute"), mechanism("prismatic"), 100
    values = solid(start(arm, 0.0, 5), arm, 1.0)
    other = start(gantry, 0.0, 5)
    below = tip_centre(arm, values) - (2 * TIP - DEPTH) * np.array([0.1, 0.0, 0.994987])
    position = below - tip_centre(gantry, other)
    targets = torch.cat(
        [controls(values, arm, steps, 6, press=20.0)["u"], controls(other, gantry, steps, 8, press=-35.0)["u"]], 1
    )
    for name in ("q", "qd", "kp", "kd", "limit"):
        values[name] = torch.cat([values[name], other[name]])
    values["limit"] = torch.full_like(values["limit"], 300.0)
    values["u"] = targets
    targets[:, [0, 3]] -= 5.0

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        world = pb.World(gravity=x["gravity"], contact=contact)
        halves = [{name: x[name][:, k : k + 3] for name in ("kp", "kd", "limit")} for k in (0, 3)]
        links = {"collision_links": ["tip"], "friction": x["friction"]}
        world.add(robot_of(arm, x, dtype), name="arm", actuators=servos(halves[0]), **links)
        world.add(
            robot_of(gantry, {}, dtype), name="gantry", position=position.tolist(), actuators=servos(halves[1]), **links
        )
        world.set_shape("arm", size=x["size"], position=x["placement"])
        return world

    return Case("revolute, prismatic", "robot on robot", values, make, steps, 1e-3, 1e-4, "touching")


# -- free bodies -----------------------------------------------------------------------------------------------------


def free_body(shape: str, mode: str, holds: str, qd: Tensor, *, on: str = "plane", mu: float, **options: float) -> Case:
    """Return a free body on a plane or on a static body below it."""
    gap, e, steps = options.get("gap", -DEPTH), options.get("e"), int(options.get("steps", 100))
    lies = shape == "capsule" or (shape == "cylinder" and mode == "rolling")
    height = SIZES[shape][0] if lies else HEIGHT[shape]
    top = HEIGHT.get(on, 0.0)
    q = torch.zeros(7, dtype=torch.float64)
    # turned a little about z, so that no two edges are parallel
    yaw = np.array([0.0, 0.0, np.sin(0.2), np.cos(0.2)])
    q[3:] = torch.from_numpy(quaternion_product(yaw, LYING) if lies else yaw)
    q[:3] = tensor(0.013, 0.007, top + height + gap)
    if on in ("sphere", "capsule") and shape == "sphere":
        # on one side of the top, moving along it
        q[:3] = (top + height + gap) * tensor(0.0, 0.28, 0.96)
        q[3:], qd = tensor(0.0, 0.0, 0.0, 1.0), tensor(0.3, -0.2, 0.4, 0.5, 0.0, 0.0)
    if on == "dish":
        q[:3] = tensor(0.0, 0.0, 0.3) + (SIZES["dish"][0] - height - gap) * tensor(0.0, 0.28, -0.96)
    if on == "hills":
        # in a valley
        x, y = -0.38, 0.007
        slopes = HILL * 4 * np.cos(4 * x) * np.cos(3 * y), -HILL * 3 * np.sin(4 * x) * np.sin(3 * y)
        q[:2] = tensor(x, y)
        q[2] = HILL * np.sin(4 * x) * np.cos(3 * y) + (height + gap) * np.linalg.norm((1.0, *slopes))
    values = {"q": q, "qd": qd, "gravity": tensor(0.1, -0.2, -9.81), "friction": tensor(mu)}
    values |= {
        "mass": tensor(1.3),
        "com": tensor(0.002, -0.001, -0.003),
        "inertia": torch.diag(tensor(8e-3, 9e-3, 1e-2)),
        "placement": torch.zeros(3).double(),
    }
    if on != "plane":
        values["placement below"] = torch.zeros(3).double()
    sizes = {"size": SIZES[shape], "size below": SIZES.get(on, ())}
    values |= {name: torch.tensor(size).double() for name, size in sizes.items() if size}
    if e is not None:
        values["restitution"] = tensor(e)

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        world = pb.World(gravity=x["gravity"], contact=contact)
        add_shape(world, "body", shape, x.get("size"), mass=1.0)
        robot = world.robots["body"].to(dtype)
        for quantity in ("mass", "com", "inertia"):
            robot.make_link_param_learnable("body", LINK_PARAMETERS[quantity], Held(x[quantity]))
        world.set_shape("body", position=x["placement"])
        surface = {"friction": x["friction"], "restitution": x.get("restitution")}
        if on == "plane":
            world.add_ground(**surface)
            return world
        orientation = LYING if on == "capsule" else (0.0, 0.0, 0.0, 1.0)
        add_shape(world, "below", on, x.get("size below"), static=True, orientation=orientation, **surface)
        world.set_shape("below", position=x["placement below"])
        return world

    name = f"{mode}: {shape} on {on}" if shape != "sphere" or on != "plane" else mode
    several = shape not in ("sphere", "ellipsoid") and not lies and on not in ("sphere", "capsule")
    return Case("free", name, values, make, steps, 1e-3, 1e-4, holds, 0.2 if several else 1e-6)


def more_shapes(sideways: Tensor, turning: Tensor) -> list[Case]:
    """Return free bodies of other shapes than primitives, and on them."""
    rolling = tensor(0.0, 0.0, 3.0, 0.0, -0.3, 0.0)
    return [
        free_body("cylinder", "sticking", "sticking", torch.zeros(6).double(), mu=0.5),
        free_body("cylinder", "sliding", "sliding", turning, mu=0.1),
        free_body("cylinder", "rolling", "sticking", rolling, mu=0.8),
        free_body("cylinder", "sliding", "touching", turning, on="box", mu=0.1, steps=30),
        free_body("sphere", "sliding", "touching", sideways, on="cylinder", mu=0.1, steps=30),
        free_body("ellipsoid", "sliding", "sliding", turning, mu=0.1),
        free_body("ellipsoid", "rolling", "sticking", tensor(2.0, -3.0, 0.0, -0.24, -0.16, 0.0), mu=0.8),
        free_body("ellipsoid", "sliding", "touching", turning, on="box", mu=0.1, steps=30),
        free_body("ellipsoid", "sliding", "touching", turning, on="hills", mu=0.1, steps=30),
        free_body("mesh", "sliding", "sliding", turning, mu=0.1),
        free_body("mesh", "sliding", "touching", turning, on="box", mu=0.1, steps=30),
        free_body("mesh", "sliding", "touching", turning, on="cylinder", mu=0.1, steps=30),
        free_body("block", "sliding", "sliding", turning, mu=0.1),
        free_body("box", "sliding", "touching", turning, on="block", mu=0.1, steps=30),
        free_body("sphere", "sliding", "touching", sideways, on="dish", mu=0.1),
        free_body("mesh", "sliding", "touching", turning, on="block", mu=0.1, steps=30),
        free_body("sphere", "rolling", "touching", tensor(2.0, -3.0, 0.0, -0.3, -0.2, 0.0), on="hills", mu=0.8),
    ]


def quaternion_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the product of two quaternions xyzw."""
    xyz = a[3] * b[:3] + b[3] * a[:3] + np.cross(a[:3], b[:3])
    return np.append(xyz, a[3] * b[3] - a[:3] @ b[:3])


def all_cases() -> list[Case]:
    """Return the rows of the matrix."""
    from checks.conformance_loops import loop_cases
    from checks.conformance_split import split_cases

    cases = [flying(), *smoothly(flying()), *loop_cases(), *split_cases()]
    for kind in CHAINS:
        cases += [moving(kind, "none", 1e-6), *smoothly(moving(kind, "none", 1e-6))]
        cases.append(on_ground(kind, "sticking", "sticking", mu=2.0, velocity=(0.0, 0.0, 0.0)))
        cases.append(on_ground(kind, "sliding", "sliding", mu=0.1, velocity=(0.6, 0.4, 0.0)))
        cases.append(on_ground(kind, "impact", "", mu=0.3, velocity=(0.3, 0.2, -1.0)))
        cases.append(on_ground(kind, "impact with restitution", "", mu=0.1, velocity=(0.3, 0.2, -1.0), e=0.6))
        if kind != "ball":
            cases.append(moving(kind, "joint limit", 1e-4, limit=0.02, speed=0.5))
        cases.append(moving(kind, "dry friction, stuck", 1e-4, friction=60.0, speed=0.0))
        cases.append(moving(kind, "dry friction, slipping", 1e-4, friction=0.1, speed=2.0))
    still, sideways = torch.zeros(6).double(), tensor(0.3, -0.2, 0.4, 0.9, 0.4, 0.0)
    turning = tensor(0.0, 0.0, 0.4, 0.9, 0.4, 0.0)
    down = tensor(3.0, -2.0, 1.0, 0.5, -0.2, -1.0)
    cases += [
        free_body("box", "sticking", "sticking", still, mu=0.5),
        free_body("sphere", "sliding", "sliding", sideways, mu=0.1),
        free_body("sphere", "rolling", "sticking", tensor(2.0, -3.0, 0.0, -0.3, -0.2, 0.0), mu=0.8),
        free_body("sphere", "exactly touching", "touching", still, mu=0.5, gap=0.0),
        free_body("sphere", "impact", "", down, mu=0.05, gap=0.0054, steps=30),
        free_body("sphere", "impact with restitution", "", down, mu=0.05, gap=0.0054, e=0.7, steps=30),
        free_body("capsule", "sliding", "sliding", tensor(0.0, 0.0, 0.4, 0.1, 0.4, -0.9), mu=0.1),
        free_body("box", "sliding", "sliding", turning, mu=0.1),
        *[
            free_body(a, "sliding", "touching", sideways, on=b, mu=0.1, steps=30)
            for a in PRIMITIVES
            for b in PRIMITIVES
        ],
        *more_shapes(sideways, turning),
        on_itself(),
        on_another(),
    ]
    return cases


def smoothly(case: Case) -> list[Case]:
    """Return a case without contact with the integrators for such motion."""
    return [
        replace(case, mode=f"{case.mode}, {name}", options={"integrator": name, "without": ["contacts"]})
        for name in ("explicit", "rk4", "midpoint")
    ]


def flying() -> Case:
    """Return a free body that tumbles far above the ground."""
    case = free_body("sphere", "none", "", tensor(3.0, -2.0, 1.0, 0.5, -0.2, -1.0), mu=0.5, gap=10.0)
    values = {k: v for k, v in case.values.items() if k not in ("friction", "size", "placement")}

    def make(x: Values, contact: pb.PGS, dtype: torch.dtype) -> pb.World:
        more = {"friction": tensor(0.5), "size": tensor(0.1)[None], "placement": torch.zeros(3).double()}
        return case.make({**more, **x}, contact, dtype)

    return Case("free", "none", values, make, case.steps, case.dt, 1e-6)

"""The screw joint against Pinocchio's helical joint, against a slider that follows a hinge, and on paper."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import pullback as pb
from pullback.core.errors import DescriptionError
from pullback.description.check import check_tree
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Link, Mimic, Pose, Tree

F64 = torch.float64
# two algorithms in float64
EXACT = 1e-11
PITCHES = {"coarse": 0.11, "left-handed": -0.04}
WORLDS = 5


def link(name: str, rng: np.random.Generator) -> Link:
    Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    moments = rng.uniform(0.02, 0.1, 3)
    inertia = Q @ np.diag(moments.sum() - moments) @ Q.T
    return Link(name, rng.uniform(0.5, 2.0), rng.uniform(-0.2, 0.2, 3), 0.5 * (inertia + inertia.T))


def rotation(rng: np.random.Generator) -> np.ndarray:
    Q, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    return Q * np.sign(np.linalg.det(Q))


def chain(armature: float = 0.0) -> Tree:
    """Return hinge, screw, screw, slider, all about odd axes."""
    rng = np.random.default_rng(3)
    types = ("revolute", "screw", "screw", "prismatic")
    links, joints = [link("link0", rng)], []
    for k, kind in enumerate(types):
        axis = rng.normal(size=3)
        place = Pose(rng.uniform(-0.3, 0.3, 3), rotation(rng))
        joint = Joint(f"joint{k}", kind, f"link{k}", f"link{k + 1}", place, axis / np.linalg.norm(axis))
        joint.armature = armature
        if kind == "screw":
            joint.pitch = list(PITCHES.values())[k - 1]
        joints.append(joint)
        links.append(link(f"link{k + 1}", rng))
    return Tree("chain", links, joints, source="chain")


def robot_of(tree: Tree) -> pb.RobotModel:
    check_tree(tree, strict=True)
    return pb.RobotModel(compile_tree(tree), dtype=F64)


def states(nv: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(WORLDS, nv, dtype=F64, generator=generator) for _ in range(3)]


def compare(got: torch.Tensor, expected) -> None:
    expected = torch.as_tensor(np.asarray(expected))
    assert (got - expected).abs().max() <= EXACT * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("armature", [0.0, 0.3])
def test_pinocchio(armature):
    pin = pytest.importorskip("pinocchio")
    tree = chain(armature)
    robot = robot_of(tree)
    models = {
        "revolute": lambda joint: pin.JointModelRevoluteUnaligned(joint.axis),
        "prismatic": lambda joint: pin.JointModelPrismaticUnaligned(joint.axis),
        "screw": lambda joint: pin.JointModelHelicalUnaligned(joint.axis, joint.pitch),
    }
    model = pin.Model()
    for k, (joint, body) in enumerate(zip(tree.joints, tree.links[1:])):
        place = pin.SE3(joint.origin.rotation, joint.origin.translation)
        added = model.addJoint(k, models[joint.type](joint), place, joint.name)
        model.appendBodyToJoint(added, pin.Inertia(body.mass, body.com, body.inertia), pin.SE3.Identity())
    model.armature[:] = armature
    data = model.createData()
    q, qd, x = states(robot.nv)

    def each(function):
        # Pinocchio returns views of its data
        return np.stack([np.array(function(*(y[w].numpy() for y in (q, qd, x)))) for w in range(WORLDS)])

    def full(M: np.ndarray) -> np.ndarray:
        return np.triu(M) + np.triu(M, 1).T

    def pose(q, qd, x):
        pin.forwardKinematics(model, data, q)
        return data.oMi[4].translation

    def jacobian(q, qd, x):
        pin.computeJointJacobians(model, data, q)
        return pin.getJointJacobian(model, data, 4, pin.ReferenceFrame.LOCAL_WORLD_ALIGNED)

    tip = "link4"
    compare(robot.compute_forward_kinematics(q, tip)[0], each(pose))
    compare(torch.cat(robot.compute_endeffector_jacobian(q, tip), -2), each(jacobian))
    compare(robot.compute_lagrangian_inertia_matrix(q), each(lambda q, qd, x: full(pin.crba(model, data, q))))
    compare(robot.compute_inverse_dynamics(q, qd, x), each(lambda q, qd, x: pin.rnea(model, data, q, qd, x)))
    compare(robot.compute_forward_dynamics(q, qd, x), each(lambda q, qd, x: pin.aba(model, data, q, qd, x)))
    # and how inverse dynamics changes with the state
    changes = torch.func.vmap(torch.func.jacrev(robot.compute_inverse_dynamics, argnums=(0, 1)))(q, qd, x)
    for number, change in enumerate(changes):
        compare(change, each(lambda q, qd, x, n=number: pin.computeRNEADerivatives(model, data, q, qd, x)[n]))


def test_a_slider_that_follows_a_hinge():
    tree = chain()
    links, joints = list(tree.links), []
    for joint in tree.joints:
        if joint.type != "screw":
            joints.append(joint)
            continue
        between = f"{joint.child}/between"
        links.append(Link(between))
        joints.append(replace(joint, type="revolute", child=between))
        follows = Mimic(joint.name, joint.pitch)
        place = {"origin": Pose(), "parent": between, "mimic": follows}
        joints.append(replace(joint, name=f"{joint.name}/slide", type="prismatic", **place))
    pair, screw = robot_of(Tree("pairs", links, joints, source="pairs")), robot_of(tree)
    q, qd, x = states(screw.nv)
    assert pair.joint_names == screw.joint_names
    for got, expected in zip(screw.compute_forward_kinematics(q, "link4"), pair.compute_forward_kinematics(q, "link4")):
        compare(got, expected)
    compare(screw.compute_inverse_dynamics(q, qd, x), pair.compute_inverse_dynamics(q, qd, x))
    compare(screw.compute_lagrangian_inertia_matrix(q), pair.compute_lagrangian_inertia_matrix(q))
    compare(screw.compute_centroidal_momentum(q, qd), pair.compute_centroidal_momentum(q, qd))


def spindle(**joint: float) -> pb.RobotModel:
    nut = Link("nut", mass=2.0, inertia=np.diag([0.02, 0.02, 0.03]))
    return robot_of(Tree("spindle", [Link("frame"), nut], [Joint("turn", "screw", "frame", "nut", **joint)]))


@pytest.mark.parametrize("integrator", ["contact", "rk4"])
def test_a_nut_sinks_and_turns(integrator):
    """(I + m h²) qdd = -m g h, a constant: on a nut that hangs on an upright spindle without friction."""
    pitch, steps, dt = 0.2, 50, 1e-3
    world = pb.World(gravity=(0.0, 0.0, -9.81))
    world.add(spindle(pitch=pitch), name="spindle", actuators={})
    options = {} if integrator == "contact" else {"integrator": integrator}
    sim = world.compile(dt=dt, dtype=F64, **options)
    end = sim.rollout(sim.initial_state(1), steps)
    qdd = -2.0 * 9.81 * pitch / (0.03 + 2.0 * pitch**2)
    assert end.qd[-1].item() == pytest.approx(steps * dt * qdd, rel=1e-12)
    height = world.robots["spindle"].compute_forward_kinematics(end.q[-1], "nut")[0][0, 2]
    assert height.item() == pytest.approx(pitch * end.q[-1].item(), rel=1e-12)


def test_a_pitch_must_be_finite():
    with pytest.raises(DescriptionError, match=r"joint 'turn' in : pitch is nan; give a finite number"):
        spindle(pitch=float("nan"))

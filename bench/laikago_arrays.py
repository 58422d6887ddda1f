"""The Laikago as arrays for bench/peers/laikago_step.py: links merged into four legs of three hinges."""

from __future__ import annotations

import numpy as np

import pullback as pb
from bench.laikagos import FRICTION, SERVO, TOES
from bench.peers.laikago_step import CFM, DT
from pullback.description.compile import Model

LEGS, HINGES = 4, 3


def laikago_arrays() -> dict[str, np.ndarray]:
    """Return everything that a step reads, by the names it has there."""
    model = pb.load("laikago", base="floating").model
    merged = [merged_body(model, k) for k in range(len(model.bodies))]
    hinges = np.arange(1, 13).reshape(LEGS, HINGES).T  # body of each joint and leg
    joints = [[model.bodies[k].joint for k in row] for row in hinges]
    axes = np.array([[joint.axis for joint in row] for row in joints])
    across = np.array([[cross_matrix(axis) for axis in row] for row in axes])
    arrays = {
        "offset": [[joint.origin.translation for joint in row] for row in joints],
        "placed": [[joint.origin.rotation for joint in row] for row in joints],
        "axis": axes, "across": across, "across_twice": across @ across, "eye": np.eye(3),
        "mass": [[merged[k][0] for k in row] for row in hinges],
        "com": [[merged[k][1] for k in row] for row in hinges],
        "inertia": [[merged[k][2] for k in row] for row in hinges],
    }  # fmt: skip
    mass, com, inertia = merged[0]
    C = cross_matrix(com)
    arrays |= {"base_mass": mass, "base_com": com, "base_inertia": inertia, "base_M": np.zeros((18, 18))}
    arrays["base_M"][:6, :6] = np.block([[inertia - mass * C @ C, mass * C], [-mass * C, mass * np.eye(3)]])
    # which dofs of base and leg move each hinge's link, and where a leg's nine dofs stand among the eighteen
    arrays["reach"] = np.array([[1.0] * 6 + [float(i <= k) for i in range(HINGES)] for k in range(HINGES)])
    spread = np.zeros((LEGS, 9, 18))
    for leg in range(LEGS):
        spread[leg, :6, :6] = np.eye(6)
        spread[leg, 6:, 6 + 3 * leg : 9 + 3 * leg] = np.eye(3)
    arrays["spread"] = spread
    arrays |= toes(model)
    servo_inertia = DT * (SERVO["kd"] + DT * SERVO["kp"])
    arrays |= {
        "kp": SERVO["kp"], "kd": SERVO["kd"], "servo_inertia": servo_inertia * np.diag([0.0] * 6 + [1.0] * 12),
        "friction": FRICTION, "softness": CFM * np.eye(12), "of_normals": np.kron(np.eye(4), [[1.0], [0.0], [0.0]]),
        "normal": [0.0, 0.0, 1.0], "contact_axes": np.eye(3)[[2, 0, 1]].T, "up": [0.0, 0.0, 9.81],
        "zero_3": np.zeros((4, 3)), "zero_33": np.zeros((4, 3, 3)), "zero_63": np.zeros((4, 6, 3)),
        "zero_393": np.zeros((3, 4, 9, 3)), "zero_6": np.zeros(6), "zero_12": np.zeros(12),
    }  # fmt: skip
    return {name: np.array(value) for name, value in arrays.items()}


def cross_matrix(x: np.ndarray) -> np.ndarray:
    """Return the matrix of x times a vector."""
    return np.array([[0.0, -x[2], x[1]], [x[2], 0.0, -x[0]], [-x[1], x[0], 0.0]])


def placed_in_body(model: Model, link: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rotation and origin of a link in the frame of the link below its nearest moving joint."""
    R, p = np.eye(3), np.zeros(3)
    joint = model.link_joint[link]
    while joint is not None and joint.type == "fixed":
        R, p = joint.origin.rotation @ R, joint.origin.translation + joint.origin.rotation @ p
        link = model.link_parent[link]
        joint = model.link_joint[link]
    return R, p


def merged_body(model: Model, body: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Return mass, centre of mass and inertia about it of all links of a body."""
    parts = []
    for k, link in enumerate(model.links):
        if model.link_body[k] == body:
            R, p = placed_in_body(model, k)
            parts.append((link.mass, p + R @ link.com, R @ link.inertia @ R.T))
    mass = sum(m for m, _, _ in parts)
    com = np.sum([m * c for m, c, _ in parts], 0) / mass
    arms = [cross_matrix(c - com) for _, c, _ in parts]
    return mass, com, np.sum([inertia - m * C @ C for (m, _, inertia), C in zip(parts, arms)], 0)


def toes(model: Model) -> dict[str, object]:
    """Return centres and radii of the toe spheres in leg order, and the order in which sweeps visit them."""
    centres, radii = np.zeros((LEGS, 3)), np.zeros(LEGS)
    order = []
    for k, link in enumerate(model.links):
        if link.name in TOES:
            leg = (model.link_body[k] - 1) // HINGES
            R, p = placed_in_body(model, k)
            (sphere,) = link.shapes
            centres[leg], radii[leg] = p + R @ sphere.origin.translation, sphere.size[0]
            order.append(leg)
    return {"toe": centres, "radius": radii, "order": order}

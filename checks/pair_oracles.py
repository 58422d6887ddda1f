"""What others say of the distance of two shapes: MuJoCo, coal, the definition, and points spread densely."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from checks.pair_scene import CORNERS, HALF, HILL, LENGTH, RADII, RADIUS, hills
from tests.reference.convex import separation, signed_distance

Poses = list[np.ndarray]
"""R_a, p_a, R_b, p_b, (n, ...) each."""
Distances = tuple[np.ndarray, np.ndarray]
"""Signed distance (n,) and direction from b to a (n, 3)."""
PRIMITIVES = ("sphere", "capsule", "box", "plane")


def oracle_name(a: str, b: str) -> str:
    """Return who is asked about a pair."""
    if b == "heights":
        return "dense points"
    if "cylinder" in (a, b) or "ellipsoid" in (a, b):
        return "definition"
    return "MuJoCo" if a in PRIMITIVES and b in PRIMITIVES else "coal"


def distances(a: str, b: str, poses: Poses, hints: list[np.ndarray] | None = None) -> Distances:
    """Return what the oracle of a pair says; `hints` are directions that a search may try besides."""
    ask = {"MuJoCo": mujoco_distances, "coal": coal_distances, "dense points": dense_distances}
    name = oracle_name(a, b)
    return defined_distances(a, b, poses, hints) if name == "definition" else ask[name](a, b, poses)


def coal_distances(a: str, b: str, poses: Poses) -> Distances:
    """Return what coal says, GJK and EPA to 1e-10."""
    coal: Any = import_module("coal")

    request = coal.DistanceRequest()
    request.enable_signed_distance = True
    request.gjk_tolerance = request.epa_tolerance = 1e-10
    request.gjk_max_iterations = request.epa_max_iterations = 500
    shapes = [_coal_shape(coal, name) for name in (a, b)]
    found, normals = np.empty(len(poses[0])), np.empty((len(poses[0]), 3))
    for w, (R_a, p_a, R_b, p_b) in enumerate(zip(*poses)):
        result = coal.DistanceResult()
        places = coal.Transform3s(R_a, p_a), coal.Transform3s(R_b, p_b)
        found[w] = coal.distance(shapes[0], places[0], shapes[1], places[1], request, result)
        normals[w] = -result.normal
    return found, normals


def _coal_shape(coal: Any, name: str) -> Any:
    if name == "mesh":
        from scipy.spatial import ConvexHull

        hull = ConvexHull(CORNERS)
        outwards = np.einsum("ij,ij->i", np.cross(*_sides(hull.simplices)), hull.equations[:, :3]) > 0
        points, triangles = coal.StdVec_Vec3s(), coal.StdVec_Triangle()
        points.extend(list(CORNERS))
        for (i, j, k), is_right in zip(hull.simplices.tolist(), outwards):
            triangles.append(coal.Triangle(i, j, k) if is_right else coal.Triangle(i, k, j))
        return coal.Convex(points, triangles)
    if name in ("box", "field"):
        return coal.Box(*(2 * HALF))
    if name == "plane":
        return coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0)
    if name == "sphere":
        return coal.Sphere(RADIUS)
    if name == "ellipsoid":
        return coal.Ellipsoid(*RADII)
    return {"capsule": coal.Capsule, "cylinder": coal.Cylinder}[name](RADIUS, LENGTH)


def _sides(triangles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first, second, third = (CORNERS[triangles[:, k]] for k in range(3))
    return second - first, third - first


def mujoco_distances(a: str, b: str, poses: Poses) -> Distances:
    """Return what MuJoCo's mj_geomDistance says."""
    mujoco: Any = import_module("mujoco")

    sizes = {
        "sphere": (RADIUS,),
        "capsule": (RADIUS, LENGTH / 2),
        "box": HALF,
        "plane": (0, 0, 1),
    }
    geoms = "".join(
        f'<body mocap="true"><geom type="{name}" size="{" ".join(map(str, sizes[name]))}"/></body>' for name in (a, b)
    )
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    found, normals = np.empty(len(poses[0])), np.empty((len(poses[0]), 3))
    segment, quat = np.empty(6), np.empty(4)
    for w, (R_a, p_a, R_b, p_b) in enumerate(zip(*poses)):
        for k, (R, p) in enumerate(((R_a, p_a), (R_b, p_b))):
            mujoco.mju_mat2Quat(quat, R.ravel())
            data.mocap_pos[k], data.mocap_quat[k] = p, quat
        mujoco.mj_kinematics(model, data)
        found[w] = mujoco.mj_geomDistance(model, data, 0, 1, 10.0, segment)
        normals[w] = (segment[:3] - segment[3:]) / found[w]
    return found, normals


def defined_distances(a: str, b: str, poses: Poses, hints: list[np.ndarray] | None) -> Distances:
    """Return the largest separation over all directions, which is what a signed distance is."""
    first, second = _supported(a), _supported(b)
    found, normals = np.empty(len(poses[0])), np.empty((len(poses[0]), 3))
    for w, (R_a, p_a, R_b, p_b) in enumerate(zip(*poses)):
        if b == "plane":
            normals[w] = R_b[:, 2]
            found[w] = separation(first, second, (R_a, p_a), (R_b, p_b), normals[w][None])[0]
        else:
            tried = () if hints is None else hints[w]
            found[w], normals[w] = signed_distance(first, second, (R_a, p_a), (R_b, p_b), tried)
    return found, normals


def _supported(name: str) -> tuple[str, Any, float]:
    return {
        "sphere": ("core", (0, 0, 0), RADIUS),
        "capsule": ("core", (0, 0, LENGTH / 2), RADIUS),
        "box": ("core", HALF, 0.0),
        "field": ("core", HALF, 0.0),
        "ellipsoid": ("ellipsoid", RADII, 0.0),
        "cylinder": ("cylinder", (RADIUS, RADIUS, LENGTH / 2), 0.0),
        "mesh": ("vertices", CORNERS, 0.0),
        "plane": ("core", (0, 0, 0), 0.0),
    }[name]


def dense_distances(a: str, b: str, poses: Poses) -> Distances:
    """Return the least distance of many points of a from the hills, each by Newton's steps to its foot."""
    points, radius = _surface(a)
    found, normals = np.empty(len(poses[0])), np.empty((len(poses[0]), 3))
    for w, (R, p, _, _) in enumerate(zip(*poses)):
        x = points @ R.T + p
        lowest = np.argsort(x[:, 2] - hills(x[:, 0], x[:, 1]))[:200]
        distance, normal = _to_hills(x[lowest])
        k = int(distance.argmin())
        found[w], normals[w] = distance[k] - radius, normal[k]
    return found, normals


def _surface(name: str) -> tuple[np.ndarray, float]:
    """Return points of a shape's core or surface, and the radius around them."""
    import trimesh

    if name == "sphere":
        return np.zeros((1, 3)), RADIUS
    if name == "capsule":
        return np.linspace(-0.5, 0.5, 400)[:, None] * np.array([0.0, 0.0, LENGTH]), RADIUS
    solids = {
        "box": lambda: trimesh.creation.box(2 * HALF),
        "field": lambda: trimesh.creation.box(2 * HALF),
        "ellipsoid": lambda: trimesh.creation.icosphere(5).apply_transform(np.diag([*RADII, 1.0])),
        "cylinder": lambda: trimesh.creation.cylinder(RADIUS, LENGTH, sections=400),
        "mesh": lambda: trimesh.convex.convex_hull(CORNERS),
    }
    solid = solids[name]()
    inner = np.asarray(trimesh.sample.sample_surface(solid, 20000, seed=0)[0])
    return np.concatenate([solid.vertices, inner]), 0.0


def _to_hills(x: np.ndarray) -> Distances:
    """Return signed distance and normal of the hills' surface nearest to points (n, 3), by minimising over (u, v)."""
    uv, slope, off = x[:, :2].copy(), np.zeros((len(x), 2)), np.zeros_like(x)
    for _ in range(50):
        u, v = uv.T
        slope = HILL * np.stack([4 * np.cos(4 * u) * np.cos(3 * v), -3 * np.sin(4 * u) * np.sin(3 * v)], 1)
        off = x - np.column_stack([uv, hills(u, v)])
        # Gauss-Newton on the squared distance: (1 + s sᵀ) d = off_xy + s off_z
        right = off[:, :2] + slope * off[:, 2:]
        uv = uv + right - slope * ((slope * right).sum(1) / (1.0 + slope[:, 0] ** 2 + slope[:, 1] ** 2))[:, None]
    normal = np.column_stack([-slope, np.ones(len(x))])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    return (off * normal).sum(1), normal

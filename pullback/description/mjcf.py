"""Read a robot from an MJCF file, through MuJoCo's own compiler."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from pullback.core.errors import DescriptionError, shortened
from pullback.description.check import check_tree
from pullback.description.mjcf_limits import check_asset_files, check_mjcf
from pullback.description.tree import Joint, JointType, Limits, Link, Loop, Pose, Shape, ShapeType, Tree
from pullback.description.xml_file import parse_xml

WORLD = 0
# quantities of newer MuJoCo versions that have no counterpart here
UNREAD = {
    "dof_dampingpoly": "damping that is not linear in the velocity",
    "jnt_stiffnesspoly": "stiffness that is not linear",
    "actuator_damping": "damping of actuators",
    "actuator_armature": "armature of actuators",
    "body_gravcomp": "gravity compensation of bodies",
}
# shapes, and what the numbers of a geom's size are multiplied by: most are half lengths
SIZES: dict[str, tuple[ShapeType, tuple[float, ...]]] = {
    "SPHERE": ("sphere", (1.0,)),
    "ELLIPSOID": ("ellipsoid", (1.0, 1.0, 1.0)),
    "CAPSULE": ("capsule", (1.0, 2.0)),
    "CYLINDER": ("cylinder", (1.0, 2.0)),
    "BOX": ("box", (2.0, 2.0, 2.0)),
    "PLANE": ("plane", ()),
}
JOINT_TYPES: dict[str, JointType] = {"FREE": "floating", "BALL": "ball", "SLIDE": "prismatic", "HINGE": "revolute"}


def read_mjcf(path: Path, *, strict: bool = False, repair: bool = False) -> Tree:
    """Read a robot from an MJCF file.

    One top body without joints, or with a free joint, becomes the root link, and `base` of the tree says which.
    Otherwise the root is a massless link `world` that carries every top body. Several joints on a body become a chain
    of massless links, so that the link named like the body always has the body's frame. What belongs to the scene
    (the geoms of the world body) and what has no counterpart here is left out and listed in the tree's `problems`.
    """
    path = Path(path)
    root = parse_xml(path)
    if root.tag != "mujoco":
        hint = "this is URDF: name it .urdf or call read_urdf" if root.tag == "robot" else "give an MJCF file"
        raise DescriptionError(f"{path.name} is not MJCF: its root element is <{root.tag}>, expected <mujoco>; {hint}")
    mujoco = _import_mujoco(path)
    check_mjcf(path, root)
    tree = _Reader(mujoco, path).read()
    check_tree(tree, strict=strict, repair=repair)
    return tree


def _import_mujoco(path: Path) -> Any:
    try:
        import mujoco
    except ImportError as error:
        raise DescriptionError(
            f'{path.name}: reading MJCF needs the package mujoco; install it with pip install "pullback[mjcf]"'
        ) from error
    return mujoco


def _parse_spec(mujoco: Any, path: Path) -> Any:
    if path.suffix == ".xml":
        return mujoco.MjSpec.from_file(str(path))
    # MuJoCo opens only files named .xml; its meshes are looked for from the folder of the model
    spec = mujoco.MjSpec.from_string(path.read_text(encoding="utf-8"))
    spec.modelfiledir = str(path.resolve().parent)
    return spec


def _drop_textures(spec: Any) -> None:
    """Remove what only concerns drawing: images are not read. The memory that a simulation sets aside is MuJoCo's."""
    for texture in list(spec.textures):
        spec.delete(texture)
    for material in spec.materials:
        material.textures = [""] * len(material.textures)
    spec.memory = -1


class _Reader:
    """A compiled MuJoCo model on its way to a Tree."""

    def __init__(self, mujoco: Any, path: Path) -> None:
        self.mujoco = mujoco
        self.path = path
        try:
            self.spec = _parse_spec(mujoco, path)
            check_asset_files(self.spec, path.resolve().parent, path.name)
            _drop_textures(self.spec)
            self.model = model = self.spec.compile()
        except DescriptionError:
            raise
        except (ValueError, OSError, MemoryError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise DescriptionError(f"{path.name}: MuJoCo cannot compile it: {shortened(reason, 400)}") from error
        self.tree = Tree(name=self.spec.modelname or path.stem, links=[], joints=[], source=path.name)
        self.taken: set[str] = set()
        self.link_names = [self._body_name(body) for body in range(model.nbody)]
        self.joint_names = [self._joint_name(joint) for joint in range(model.njnt)]

    def read(self) -> Tree:
        """Return the tree of all bodies."""
        model, tree = self.model, self.tree
        top = [body for body in range(1, model.nbody) if model.body_parentid[body] == WORLD]
        if not top:
            raise DescriptionError(f"{tree.source}: the world holds no body; expected a robot under <worldbody>")
        root = self._single_root(top)
        tree.base = "floating" if root is not None and model.body_jntnum[root] else "fixed"
        if root is None:
            tree.links.append(Link(self.link_names[WORLD]))
        for body in range(1, model.nbody):
            if body != root:
                self._add_joints(body)
            tree.links.append(self._link(body))
        self._add_actuators()
        self._add_loops(root)
        self._note_what_is_left_out(root)
        return tree

    def _single_root(self, top: list[int]) -> int | None:
        """Return the one top body that is the base itself, None if the world has to be the root."""
        if len(top) > 1:
            return None
        first, count = self.model.body_jntadr[top[0]], self.model.body_jntnum[top[0]]
        if count == 0 or self._type(first) == "floating":
            return top[0]
        return None

    def _link(self, body: int) -> Link:
        model = self.model
        axes = _rotation(model.body_iquat[body])
        link = Link(self.link_names[body], float(model.body_mass[body]), model.body_ipos[body].copy())
        link.inertia = axes @ np.diag(model.body_inertia[body]) @ axes.T
        first = model.body_geomadr[body]
        for geom in range(first, first + model.body_geomnum[body]):
            if model.geom_contype[geom] or model.geom_conaffinity[geom]:
                shape = self._shape(geom, link.name)
                if shape is not None:
                    link.shapes.append(shape)
        return link

    def _shape(self, geom: int, link: str) -> Shape | None:
        model = self.model
        kind = self.mujoco.mjtGeom(model.geom_type[geom]).name.removeprefix("mjGEOM_")
        origin = Pose(model.geom_pos[geom].copy(), _rotation(model.geom_quat[geom]))
        friction = float(model.geom_friction[geom, 0])
        if kind == "MESH":
            return self._mesh(model.geom_dataid[geom], origin, friction)
        if kind not in SIZES:
            self._note(f"link {link!r}: a geom of type {kind.lower()} is left out; no such shape here")
            return None
        shape, factors = SIZES[kind]
        size = tuple(factor * float(length) for factor, length in zip(factors, model.geom_size[geom]))
        return Shape(shape, size, origin, friction=friction)

    def _mesh(self, mesh: int, origin: Pose, friction: float) -> Shape:
        """Return the shape of a mesh file; the compiler has moved the vertices to the mesh's inertial frame."""
        model = self.model
        rotation = _rotation(model.mesh_quat[mesh])
        moved_back = Pose(-rotation.T @ model.mesh_pos[mesh], rotation.T)
        asset = self.spec.meshes[mesh]
        file = self.path.resolve().parent / (self.spec.meshdir or "") / asset.file if asset.file else None
        if file is None:
            self._note(f"mesh {asset.name!r} is written in the model itself and has no file; its shape has none either")
        scale = tuple(float(factor) for factor in asset.scale)
        return Shape("mesh", scale, origin @ moved_back, mesh=file, friction=friction)

    def _add_joints(self, body: int) -> None:
        """Connect a body to its parent: one joint, or a chain of joints over massless links.

        With the anchor p_i of joint i in body axes, X_PB(q) = X_PB(0) Π_i T(p_i) J_i(q_i) T(-p_i).
        """
        model, tree = self.model, self.tree
        link = self.link_names[body]
        parent = self.link_names[model.body_parentid[body]]
        frame = Pose(model.body_pos[body].copy(), _rotation(model.body_quat[body]))
        joints = range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
        for joint in joints:
            anchor = self._anchor(joint)
            is_last = joint == joints[-1] and not anchor.any()
            child = link if is_last else self._fresh(f"{link}/{self.joint_names[joint]}")
            if not is_last:
                tree.links.append(Link(child))
            tree.joints.append(self._joint(joint, parent, child, frame @ Pose(anchor)))
            parent, frame = child, Pose(-anchor)
        if parent != link:
            name = self._fresh(f"{link}/anchor" if len(joints) else f"{link}/fixed")
            tree.joints.append(Joint(name, "fixed", parent, link, frame))

    def _joint(self, joint: int, parent: str, child: str, frame: Pose) -> Joint:
        model = self.model
        kind = self._type(joint)
        name = self.joint_names[joint]
        dof = model.jnt_dofadr[joint]
        result = Joint(name, kind, parent, child, frame)
        if kind in ("revolute", "prismatic"):
            result.axis = model.jnt_axis[joint].copy()
            result.origin = frame @ self._zero(joint, result)
            if model.jnt_limited[joint]:
                lower, upper = (float(bound) for bound in model.jnt_range[joint])
                result.limits = Limits(lower, upper)
            elif kind == "revolute":
                result.type = "continuous"
        elif model.jnt_limited[joint]:
            self._note(f"joint {name!r}: the range of a {kind} joint is left out")
        result.damping = self._same("damping", model.dof_damping, dof, result)
        result.friction = self._same("frictionloss", model.dof_frictionloss, dof, result)
        result.armature = self._same("armature", model.dof_armature, dof, result)
        if model.jnt_stiffness[joint]:
            self._note(f"joint {name!r}: its spring (stiffness {model.jnt_stiffness[joint]:g}) is left out")
        return result

    def _zero(self, joint: int, result: Joint) -> Pose:
        """Return the motion of the joint from its reference position, where the body is drawn, back to q = 0."""
        reference = float(self.model.qpos0[self.model.jnt_qposadr[joint]])
        if result.type == "prismatic":
            return Pose(-reference * result.axis)
        half = -0.5 * reference
        return Pose(rotation=_rotation(np.array([np.cos(half), *(np.sin(half) * result.axis)])))

    def _anchor(self, joint: int) -> np.ndarray:
        # a translation and a free body do not turn about an anchor
        turns = self._type(joint) in ("revolute", "ball")
        return self.model.jnt_pos[joint].copy() if turns else np.zeros(3)

    def _same(self, quantity: str, values: np.ndarray, dof: int, joint: Joint) -> float:
        count = {"ball": 3, "floating": 6}.get(joint.type, 1)
        own = values[dof : dof + count]
        if np.any(own != own[0]):
            self._note(f"joint {joint.name!r}: {quantity} differs between its degrees of freedom; the first is used")
        return float(own[0])

    def _add_actuators(self) -> None:
        model = self.model
        by_name = {joint.name: joint for joint in self.tree.joints}
        on_joint = (int(self.mujoco.mjtTrn.mjTRN_JOINT), int(self.mujoco.mjtTrn.mjTRN_JOINTINPARENT))
        for actuator in range(model.nu):
            name = model.actuator(actuator).name or str(actuator)
            joint = None
            if int(model.actuator_trntype[actuator]) in on_joint:
                joint = by_name.get(self.joint_names[model.actuator_trnid[actuator, 0]])
            if joint is None or joint.type in ("ball", "floating"):
                self._note(f"actuator {name!r} is left out; only those on a hinge or slide joint are read")
            elif joint.gear is not None:
                self._note(f"actuator {name!r} is left out; joint {joint.name!r} already has one")
            else:
                self._drive(joint, actuator, name)

    def _drive(self, joint: Joint, actuator: int, name: str) -> None:
        """Give a joint the gear and the effort limit of its actuator."""
        model = self.model
        gear = float(model.actuator_gear[actuator, 0])
        is_motor = (
            int(model.actuator_dyntype[actuator]) == int(self.mujoco.mjtDyn.mjDYN_NONE)
            and int(model.actuator_gaintype[actuator]) == int(self.mujoco.mjtGain.mjGAIN_FIXED)
            and int(model.actuator_biastype[actuator]) == int(self.mujoco.mjtBias.mjBIAS_NONE)
        )
        # the force of a motor is gear * gain * control
        joint.gear = gear * float(model.actuator_gainprm[actuator, 0]) if is_motor else gear
        if not is_motor:
            self._note(f"actuator {name!r} is not a plain motor; only its gear and its force range are read")
        effort = inf
        if is_motor and model.actuator_ctrllimited[actuator]:
            effort = min(effort, abs(joint.gear) * float(np.abs(model.actuator_ctrlrange[actuator]).max()))
        if model.actuator_forcelimited[actuator]:
            effort = min(effort, abs(gear) * float(np.abs(model.actuator_forcerange[actuator]).max()))
        index = self.joint_names.index(joint.name)
        if model.jnt_actfrclimited[index]:
            effort = min(effort, float(np.abs(model.jnt_actfrcrange[index]).max()))
        joint.limits = Limits(joint.limits.lower, joint.limits.upper, joint.limits.velocity, effort)

    def _add_loops(self, root: int | None) -> None:
        """Read `connect` and `weld`; other equality constraints are left out."""
        model = self.model
        for number in range(model.neq):
            name = model.equality(number).name or f"equality{number}"
            kind = self.mujoco.mjtEq(model.eq_type[number]).name.removeprefix("mjEQ_").lower()
            if kind not in ("connect", "weld"):
                self._note(f"equality constraint {name!r} is left out: it is a {kind}; connect and weld are read")
            elif not model.eq_active0[number]:
                self._note(f"equality constraint {name!r} is left out: it is not active at the start")
            else:
                (a, frame_a), (b, frame_b) = self._loop_frames(number, kind)
                if a == WORLD:
                    (a, frame_a), (b, frame_b) = (b, frame_b), (a, frame_a)
                link_b = self.link_names[b]
                if b == WORLD and root is not None:
                    link_b, frame_b = self._on_the_world(root, frame_b)
                self.tree.loops.append(Loop(name, kind, self.link_names[a], link_b, frame_a, frame_b))

    def _loop_frames(self, number: int, kind: str) -> list[tuple[int, Pose]]:
        """Return the two bodies of an equality constraint, and the frames on them that it holds together."""
        model, data = self.model, self.model.eq_data[number]
        ids = [int(model.eq_obj1id[number]), int(model.eq_obj2id[number])]
        if int(model.eq_objtype[number]) == int(self.mujoco.mjtObj.mjOBJ_SITE):
            return [
                (int(model.site_bodyid[site]), Pose(model.site_pos[site].copy(), _rotation(model.site_quat[site])))
                for site in ids
            ]
        if kind == "connect":
            frames = [Pose(data[:3].copy()), Pose(data[3:6].copy())]
        else:
            frames = [Pose(data[3:6].copy(), _rotation(data[6:10])), Pose(data[:3].copy())]
        return list(zip(ids, frames))

    def _on_the_world(self, root: int, frame: Pose) -> tuple[str | None, Pose]:
        """Return link and frame of what is fixed to the world: on the root link if that is too."""
        if self.tree.base == "floating":
            return None, frame
        R, p = _rotation(self.model.body_quat[root]), self.model.body_pos[root]
        return self.link_names[root], Pose(-R.T @ p, R.T) @ frame

    def _note_what_is_left_out(self, root: int | None) -> None:
        model = self.model
        names = [model.geom(geom).name or f"geom {geom}" for geom in range(model.body_geomnum[WORLD])]
        if names:
            self._note(f"geoms of the world are left out ({', '.join(names)}); add the ground to the World instead")
        if model.ntendon:
            self._note(f"{model.ntendon} tendon(s) are left out")
        for field, what in UNREAD.items():
            values = getattr(model, field, None)
            if values is not None and np.any(values):
                self._note(f"{what} is left out")
        if root is not None and self.tree.base == "floating":
            dofs = slice(model.body_dofadr[root], model.body_dofadr[root] + 6)
            for quantity in ("armature", "damping", "frictionloss"):
                if np.any(getattr(model, f"dof_{quantity}")[dofs]):
                    self._note(f"{quantity} of the free joint of {self.link_names[root]!r} is left out")
        if root is not None and self.tree.base == "fixed":
            moved = model.body_pos[root].any() or np.any(model.body_quat[root] != (1.0, 0.0, 0.0, 0.0))
            if moved:
                place = ", ".join(f"{value:g}" for value in model.body_pos[root])
                self._note(f"the place of body {self.link_names[root]!r} in the world ({place}) is left out")

    def _type(self, joint: int) -> JointType:
        return JOINT_TYPES[self.mujoco.mjtJoint(self.model.jnt_type[joint]).name.removeprefix("mjJNT_")]

    def _note(self, text: str) -> None:
        self.tree.problems.append(f"{self.tree.source}: {text}")

    def _body_name(self, body: int) -> str:
        return self._fresh(self.model.body(body).name or f"body{body}")

    def _joint_name(self, joint: int) -> str:
        name = self.model.joint(joint).name
        return name or f"{self.link_names[self.model.jnt_bodyid[joint]]}/joint{joint}"

    def _fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _rotation(quaternion: np.ndarray) -> np.ndarray:
    """Return the rotation matrix of a unit quaternion in MuJoCo's order, wxyz."""
    w, x, y, z = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )

"""Read a robot from an MJCF file, through MuJoCo's own compiler."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from pullback.core.errors import DescriptionError, DescriptionWarning, shortened
from pullback.description.check import check_tree
from pullback.description.mjcf_drives import add_drives, add_mimics
from pullback.description.mjcf_left_out import note_what_is_left_out
from pullback.description.mjcf_limits import check_asset_files, check_mjcf
from pullback.description.mjcf_scene import add_terrain
from pullback.description.mjcf_states import add_options, add_states
from pullback.description.tree import Joint, JointType, Limits, Link, Loop, Pose, Shape, ShapeType, Tree
from pullback.description.xml_file import parse_xml

WORLD = 0
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

    One top body without joints that stands at the origin, or one with a free joint, becomes the root link, and `base`
    of the tree says which. Otherwise the root is a massless link `world` that carries every top body. Several joints on
    a body become a chain of massless links, so that the link named like the body always has the body's frame. Sites
    with a name are links without mass. What belongs to the scene (the geoms of the world body) is left out and listed
    in the tree's `problems`; what has no counterpart here as well, and in one warning.
    """
    path = Path(path)
    root = parse_xml(path)
    if root.tag != "mujoco":
        hint = "this is URDF: name it .urdf or call read_urdf" if root.tag == "robot" else "give an MJCF file"
        raise DescriptionError(f"{path.name} is not MJCF: its root element is <{root.tag}>, expected <mujoco>; {hint}")
    mujoco = import_mujoco(path)
    check_mjcf(path, root)
    tree = Reader(mujoco, path).read()
    check_tree(tree, strict=strict, repair=repair)
    return tree


def import_mujoco(path: Path) -> Any:
    """Return the package mujoco; raise an error that names the file where it is not installed."""
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


class Reader:
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
        self.tree.visual_file = path.resolve()
        self.left_out: list[str] = []
        self.root: int | None = None
        self.actuator_names: set[str] = set()
        self.taken: set[str] = set()
        self.link_names = [self._body_name(body) for body in range(model.nbody)]
        self.joint_names = [self._joint_name(joint) for joint in range(model.njnt)]

    def read(self) -> Tree:
        """Return the tree of all bodies."""
        model, tree = self.model, self.tree
        top = [body for body in range(1, model.nbody) if model.body_parentid[body] == WORLD]
        if not top:
            raise DescriptionError(f"{tree.source}: the world holds no body; expected a robot under <worldbody>")
        self.root = root = self._single_root(top)
        tree.base = "floating" if root is not None and model.body_jntnum[root] else "fixed"
        if root is None:
            tree.links.append(Link(self.link_names[WORLD]))
        for body in range(1, model.nbody):
            if body != root:
                self._add_joints(body)
            tree.links.append(self._link(body))
        self._add_sites()
        add_drives(self)
        add_mimics(self)
        self._add_loops(root)
        add_states(self)
        add_options(self)
        self._add_exclusions()
        note_what_is_left_out(self)
        add_terrain(self)
        self._warn()
        return tree

    def _single_root(self, top: list[int]) -> int | None:
        """Return the one top body that is the base itself, None if the world has to be the root."""
        if len(top) > 1:
            return None
        first, count = self.model.body_jntadr[top[0]], self.model.body_jntnum[top[0]]
        if count:
            return top[0] if self.type_of(first) == "floating" else None
        moved = self.model.body_pos[top[0]].any() or np.any(self.model.body_quat[top[0]] != (1.0, 0.0, 0.0, 0.0))
        return None if moved else top[0]

    def _link(self, body: int) -> Link:
        model = self.model
        axes = rotation(model.body_iquat[body])
        link = Link(self.link_names[body], float(model.body_mass[body]), model.body_ipos[body].copy())
        link.inertia = axes @ np.diag(model.body_inertia[body]) @ axes.T
        link.carried = float(model.body_gravcomp[body])
        first = model.body_geomadr[body]
        for geom in range(first, first + model.body_geomnum[body]):
            if any(self._masks(geom)):
                shape = self._shape(geom, link.name)
                if shape is not None:
                    link.shapes.append(shape)
        return link

    def _masks(self, geom: int) -> tuple[int, int]:
        """Return contype and conaffinity; the two geoms of an explicit pair have a bit of their own."""
        model = self.model
        pairs = [k for k in range(model.npair) if geom in (model.pair_geom1[k], model.pair_geom2[k])]
        own = sum(1 << (32 + pair) for pair in pairs)
        return int(model.geom_contype[geom]) | own, int(model.geom_conaffinity[geom]) | own

    def _shape(self, geom: int, link: str) -> Shape | None:
        shape = self.bare_shape(geom, link)
        if shape is not None:
            shape.contype, shape.conaffinity = self._masks(geom)
            shape.frictionless = int(self.model.geom_condim[geom]) == 1
        return shape

    def bare_shape(self, geom: int, link: str) -> Shape | None:
        """Return a geom as a shape on its link, without what it may touch; None for a kind that is left out."""
        model = self.model
        kind = self.mujoco.mjtGeom(model.geom_type[geom]).name.removeprefix("mjGEOM_")
        origin = Pose(model.geom_pos[geom].copy(), rotation(model.geom_quat[geom]))
        friction = float(model.geom_friction[geom, 0])
        if kind == "MESH":
            return self._mesh(model.geom_dataid[geom], origin, friction)
        if kind not in SIZES:
            self.leave_out(f"a geom of type {kind.lower()} of link {link!r}")
            return None
        shape, factors = SIZES[kind]
        size = tuple(factor * float(length) for factor, length in zip(factors, model.geom_size[geom]))
        return Shape(shape, size, origin, friction=friction)

    def _mesh(self, mesh: int, origin: Pose, friction: float) -> Shape:
        """Return the shape of a mesh file; the compiler has moved the vertices to the mesh's inertial frame."""
        model = self.model
        R = rotation(model.mesh_quat[mesh])
        moved_back = Pose(-R.T @ model.mesh_pos[mesh], R.T)
        asset = self.spec.meshes[mesh]
        file = self.path.resolve().parent / (self.spec.meshdir or "") / asset.file if asset.file else None
        if file is None:
            # written in the model itself: vertices as they were compiled
            first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
            vertices = model.mesh_vert[first : first + count].astype(np.float64)
            return Shape("mesh", (1.0, 1.0, 1.0), origin, friction=friction, vertices=vertices)
        scale = tuple(float(factor) for factor in asset.scale)
        return Shape("mesh", scale, origin @ moved_back, mesh=file, friction=friction)

    def _add_joints(self, body: int) -> None:
        """Connect a body to its parent: one joint, or a chain of joints over massless links.

        With the anchor p_i of joint i in body axes, X_PB(q) = X_PB(0) Π_i T(p_i) J_i(q_i) T(-p_i).
        """
        model, tree = self.model, self.tree
        link = self.link_names[body]
        parent = self.link_names[model.body_parentid[body]]
        frame = Pose(model.body_pos[body].copy(), rotation(model.body_quat[body]))
        joints = range(model.body_jntadr[body], model.body_jntadr[body] + model.body_jntnum[body])
        for joint in joints:
            if self.type_of(joint) == "floating":
                # its coordinates are those in the world, wherever the body is drawn
                frame = Pose()
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
        kind = self.type_of(joint)
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
            self.leave_out(f"the range of {name!r}, a {kind} joint")
        result.damping = self._same("damping", model.dof_damping, dof, result)
        result.friction = self._same("frictionloss", model.dof_frictionloss, dof, result)
        result.armature = self._same("armature", model.dof_armature, dof, result)
        if kind == "floating" and result.armature:
            # it resists acceleration along the world's axes there, along the body's here
            self.leave_out(f"armature of the free joint {name!r}")
            result.armature = 0.0
        if model.jnt_stiffness[joint] and kind in ("revolute", "prismatic"):
            result.stiffness = float(model.jnt_stiffness[joint])
            result.rest = float(model.qpos_spring[model.jnt_qposadr[joint]])
        elif model.jnt_stiffness[joint]:
            self.leave_out(f"the spring of {name!r}, a {kind} joint (stiffness {model.jnt_stiffness[joint]:g})")
        return result

    def _zero(self, joint: int, result: Joint) -> Pose:
        """Return the motion of the joint from its reference position, where the body is drawn, back to q = 0."""
        reference = float(self.model.qpos0[self.model.jnt_qposadr[joint]])
        if result.type == "prismatic":
            return Pose(-reference * result.axis)
        half = -0.5 * reference
        return Pose(rotation=rotation(np.array([np.cos(half), *(np.sin(half) * result.axis)])))

    def _anchor(self, joint: int) -> np.ndarray:
        # a translation and a free body do not turn about an anchor
        turns = self.type_of(joint) in ("revolute", "ball")
        return self.model.jnt_pos[joint].copy() if turns else np.zeros(3)

    def _same(self, quantity: str, values: np.ndarray, dof: int, joint: Joint) -> float:
        count = {"ball": 3, "floating": 6}.get(joint.type, 1)
        own = values[dof : dof + count]
        if np.any(own != own[0]):
            self.leave_out(f"{quantity} of the other degrees of freedom of {joint.name!r}; that of the first counts")
        return float(own[0])

    def _add_sites(self) -> None:
        """Add sites with a name as links without mass; those of the world only where it is a link."""
        model = self.model
        for site in range(model.nsite):
            name, body = model.site(site).name, int(model.site_bodyid[site])
            if name and (body != WORLD or self.root is None):
                frame = Pose(model.site_pos[site].copy(), rotation(model.site_quat[site]))
                link = self._fresh(name)
                self.tree.links.append(Link(link))
                joint = self._fresh_joint(f"{link}/site")
                self.tree.joints.append(Joint(joint, "fixed", self.link_names[body], link, frame))

    def _add_loops(self, root: int | None) -> None:
        """Read `connect` and `weld`; constraints of joints and tendons are read elsewhere."""
        model = self.model
        for number in range(model.neq):
            name = model.equality(number).name or f"equality{number}"
            kind = self.mujoco.mjtEq(model.eq_type[number]).name.removeprefix("mjEQ_").lower()
            if not model.eq_active0[number]:
                self.leave_out(f"equality constraint {name!r}: it is not active at the start")
            elif kind not in ("connect", "weld", "joint", "tendon"):
                self.leave_out(f"equality constraint {name!r}: it is a {kind}")
            elif kind in ("connect", "weld"):
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
                (int(model.site_bodyid[site]), Pose(model.site_pos[site].copy(), rotation(model.site_quat[site])))
                for site in ids
            ]
        if kind == "connect":
            frames = [Pose(data[:3].copy()), Pose(data[3:6].copy())]
        else:
            frames = [Pose(data[3:6].copy(), rotation(data[6:10])), Pose(data[:3].copy())]
        return list(zip(ids, frames))

    def _on_the_world(self, root: int, frame: Pose) -> tuple[str | None, Pose]:
        """Return link and frame of what is fixed to the world: on the root link if that is too."""
        if self.tree.base == "floating":
            return None, frame
        R, p = rotation(self.model.body_quat[root]), self.model.body_pos[root]
        return self.link_names[root], Pose(-R.T @ p, R.T) @ frame

    def _add_exclusions(self) -> None:
        """Read the pairs of bodies that never touch."""
        for signature in self.model.exclude_signature:
            first, second = (self.link_names[int(body)] for body in (signature >> 16, signature & 0xFFFF))
            self.tree.excluded.append((first, second))

    def _warn(self) -> None:
        """Warn once of all that is left out."""
        if self.left_out:
            text = "; ".join(dict.fromkeys(self.left_out))
            warnings.warn(f"{self.tree.source}: left out: {text}", DescriptionWarning, stacklevel=5)

    # -- for those who read parts of the model ---------------------------------------------------------------------

    def disables(self, flag: str) -> bool:
        """Tell whether an option of the model disables something; a flag that MuJoCo does not know is not set."""
        bit = getattr(self.mujoco.mjtDisableBit, f"mjDSBL_{flag}", None)
        return bit is not None and bool(int(self.model.opt.disableflags) & int(bit))

    def tree_joint(self, joint: int) -> str:
        """Return the name that a joint has in the compiled tree."""
        is_base = self.tree.base == "floating" and int(self.model.jnt_bodyid[joint]) == self.root
        return "floating_base" if is_base else self.joint_names[joint]

    def fresh_actuator(self, name: str, joints: dict[str, float]) -> str:
        """Return a name for an actuator that no other one, and no joint but the one it drives, has."""
        while name in self.actuator_names or (name in self.joint_names and [*joints] != [name]):
            name += "_"
        self.actuator_names.add(name)
        return name

    def leave_out(self, text: str) -> None:
        """Add to what the warning lists, and to the tree's problems."""
        self.left_out.append(text)
        self.note(f"left out: {text}")

    def type_of(self, joint: int) -> JointType:
        """Return the type that a joint becomes."""
        return JOINT_TYPES[self.mujoco.mjtJoint(self.model.jnt_type[joint]).name.removeprefix("mjJNT_")]

    def note(self, text: str) -> None:
        """Add to the tree's problems."""
        self.tree.problems.append(f"{self.tree.source}: {text}")

    def _body_name(self, body: int) -> str:
        return self._fresh(self.model.body(body).name or f"body{body}")

    def _joint_name(self, joint: int) -> str:
        name = self.model.joint(joint).name
        return name or f"{self.link_names[self.model.jnt_bodyid[joint]]}/joint{joint}"

    def _fresh_joint(self, name: str) -> str:
        while any(joint.name == name for joint in self.tree.joints):
            name += "_"
        return name

    def _fresh(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def rotation(quaternion: np.ndarray) -> np.ndarray:
    """Return the rotation matrix of a unit quaternion in MuJoCo's order, wxyz."""
    w, x, y, z = quaternion
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )

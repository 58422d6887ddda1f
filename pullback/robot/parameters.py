"""The numbers of a robot, link by link, and how they become the arrays that kernels read.

A link owns its inertia and the joint above it. Each parameter has the value of the description unless a module was put
in its place; then it is what the module returns, one value or one for each robot of a batch. Everything here is plain
torch: gradients reach the modules through it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from pullback.core.errors import PullbackError
from pullback.description.compile import COORDINATES, WORLD, Model
from pullback.robot.parametrizations import split_pseudo_inertia
from pullback.spatial.rotations_torch import rotation_from_rpy, rpy_from_rotation

Tensor = torch.Tensor

SHAPES: dict[str, tuple[int, ...]] = {
    "mass": (),
    "com": (3,),
    "inertia_mat": (3, 3),
    "inertial": (4, 4),
    "trans": (3,),
    "rot_angles": (3,),
    "joint_damping": (),
    "joint_friction": (),
    "joint_armature": (),
    "joint_stiffness": (),
    "joint_rest": (),
}
"""The parameters of a link and their shapes; "inertial" is mass, com and inertia_mat as one pseudo-inertia."""

KINEMATIC = ("trans", "rot_angles")
PARTS = ("mass", "com", "inertia_mat")
INERTIAL = (*PARTS, "inertial")
DOF = ("joint_armature", "joint_damping", "joint_friction")
SPRING = ("joint_stiffness", "joint_rest")


class Kinematics(NamedTuple):
    """Joint placements (b, nbody * 12), and where each link sits on its body: R_BL (b, L, 3, 3), p_BL (b, L, 3)."""

    placements: Tensor
    R_BL: Tensor
    p_BL: Tensor

    @property
    def shared(self) -> bool:
        """Whether one set of numbers serves all robots."""
        return self.R_BL.shape[0] == 1

    def frames(self, links: list[int]) -> Tensor:
        """Return the rows (b, 12 * len(links)) that kinematics kernels read."""
        rows = torch.cat([self.R_BL[:, links].flatten(2), self.p_BL[:, links]], -1)
        return rows.flatten(1)


class Values:
    """The description's numbers as tensors of one type on one device: (L, *shape) for each parameter."""

    def __init__(self, model: Model, dtype: torch.dtype, device: torch.device) -> None:
        def tensor(rows: object) -> Tensor:
            return torch.from_numpy(np.asarray(rows, dtype=np.float64)).to(device=device, dtype=dtype)

        joints = model.link_joint
        zero, identity = np.zeros(3), np.eye(3)
        rotations = np.asarray([identity if j is None else j.origin.rotation for j in joints])
        self.base: dict[str, Tensor] = {
            "mass": tensor([link.mass for link in model.links]),
            "com": tensor([link.com for link in model.links]),
            "inertia_mat": tensor([link.inertia for link in model.links]),
            "trans": tensor([zero if j is None else j.origin.translation for j in joints]),
            "rot_angles": tensor(rpy_from_rotation(torch.from_numpy(rotations))),
            "joint_damping": tensor([0.0 if j is None else j.damping for j in joints]),
            "joint_friction": tensor([0.0 if j is None else j.friction for j in joints]),
            "joint_armature": tensor([0.0 if j is None else j.armature for j in joints]),
            "joint_stiffness": tensor([0.0 if j is None else j.stiffness for j in joints]),
            "joint_rest": tensor([0.0 if j is None else j.rest for j in joints]),
        }
        self.R_BL = tensor([b.R_LB.T for b in model.bodies]).reshape(-1, 3, 3)


def state_arguments(module: nn.Module) -> list[str]:
    """Return which of `q` and `qd` a module's forward takes."""
    return [name for name in inspect.signature(module.forward).parameters if name in ("q", "qd")]


def check_module(module: nn.Module, parameter: str) -> None:
    """Refuse what cannot stand in for a parameter, before it is put in place."""
    if not isinstance(module, nn.Module):
        raise PullbackError(f"{parameter} is given by a module, got {module!r}; for instance pb.PositiveScalar()")
    needed = [
        p.name
        for p in inspect.signature(module.forward).parameters.values()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]
    foreign = [name for name in needed if name not in ("q", "qd")]
    if foreign:
        raise PullbackError(
            f"the module for {parameter!r} is called with q, qd or nothing, and its forward needs {foreign[0]!r}; "
            f"wrap it in one that does not"
        )
    dimensions = getattr(module, "dimensions", None)
    if dimensions is not None and len(SHAPES[parameter]) != dimensions:
        raise PullbackError(f"{type(module).__name__} cannot hold {parameter!r}, which has shape {SHAPES[parameter]}")


def call_module(module: nn.Module, parameter: str, states: Mapping[str, Tensor | None], like: Tensor) -> Tensor:
    """Call a parameter's module, handing it `q` and `qd` if its forward asks for them; return (b, *shape)."""
    wanted = state_arguments(module)
    missing = [name for name in wanted if states.get(name) is None]
    if missing:
        raise PullbackError(
            f"the module for {parameter!r} asks for {missing[0]!r}, which this computation does not have; "
            f"let its forward take only what every use of the parameter has"
        )
    value = module(**{name: states[name] for name in wanted})
    shape = SHAPES[parameter]
    if value.shape[value.ndim - len(shape) :] != shape:
        raise PullbackError(
            f"the module for {parameter!r} returned shape {tuple(value.shape)}; expected {shape} or (batch, *{shape})"
        )
    if value.dtype != like.dtype or value.device != like.device:
        raise PullbackError(
            f"the module for {parameter!r} returned {value.dtype} on {value.device}, the robot is {like.dtype} on "
            f"{like.device}; convert both with robot.to(...)"
        )
    return value.reshape(-1, *shape)


def substitute(base: Tensor, replaced: Mapping[int, Tensor]) -> Tensor:
    """Return (b, L, *shape): the base values with those of some links replaced by (b, *shape)."""
    if not replaced:
        return base[None]
    batch = common_batch(*replaced.values())
    rows = base.expand(batch, *base.shape).unbind(1)
    links = [replaced[k].expand(batch, *base.shape[1:]) if k in replaced else x for k, x in enumerate(rows)]
    return torch.stack(links, 1)


def common_batch(*parameters: Tensor) -> int:
    """Return for how many robots parameters (b, ...) are given, 1 where all robots share them."""
    sizes = sorted({len(x) for x in parameters} - {1})
    if len(sizes) > 1:
        raise PullbackError(f"per-robot parameters have different batches: {sizes}; give all of them one size")
    return sizes[0] if sizes else 1


def joint_kinematics(model: Model, values: Values, trans: Tensor, rot_angles: Tensor) -> Kinematics:
    """Chain the fixed joints: where links sit on bodies and joints on parent bodies, from (b, L, 3) each."""
    batch = common_batch(trans, rot_angles)
    rotation = rotation_from_rpy(rot_angles).expand(batch, -1, 3, 3).unbind(1)
    shift = trans.expand(batch, -1, 3).unbind(1)
    identity = torch.eye(3, dtype=trans.dtype, device=trans.device).expand(batch, 3, 3)
    origin = trans.new_zeros(batch, 3)
    R_BL: list[Tensor] = []
    p_BL: list[Tensor] = []
    placements: list[Tensor] = []
    for link, (joint, parent) in enumerate(zip(model.link_joint, model.link_parent)):
        if joint is None:
            R_BL.append(identity)
            p_BL.append(origin)
            continue
        # the joint's frame on the parent's body
        R = R_BL[parent] @ rotation[link]
        p = p_BL[parent] + (R_BL[parent] @ shift[link][..., None])[..., 0]
        if joint.type == "fixed":
            R_BL.append(R)
            p_BL.append(p)
        else:
            turn = values.R_BL[model.link_body[link]]
            placements.append(torch.cat([(R @ turn.mT).flatten(1), p], -1))
            R_BL.append(turn.expand(batch, 3, 3))
            p_BL.append(origin)
    rows = torch.cat(placements, 1) if placements else trans.new_zeros(batch, 0)
    return Kinematics(rows, torch.stack(R_BL, 1), torch.stack(p_BL, 1))


def body_inertias(model: Model, kinematics: Kinematics, mass: Tensor, com: Tensor, inertia: Tensor) -> Tensor:
    """Sum the links' inertias over each body: mass, first moment, xx xy xz yy yz zz about its origin, (b, 10 n)."""
    batch = common_batch(kinematics.R_BL, mass, com, inertia)
    R, p = kinematics.R_BL, kinematics.p_BL
    m = mass[..., None]
    inertia = 0.5 * (inertia + inertia.mT)
    c = (R @ com[..., None])[..., 0] + p
    square = (c * c).sum(-1)[..., None, None] * torch.eye(3, dtype=c.dtype, device=c.device)
    about_origin = R @ inertia @ R.mT + m[..., None] * (square - c[..., :, None] * c[..., None, :])
    upper = about_origin.flatten(-2)[..., [0, 1, 2, 4, 5, 8]]
    rows = torch.cat([x.expand(batch, -1, -1) for x in (m, m * c, upper)], -1)
    moving = [k for k, body in enumerate(model.link_body) if body != WORLD]
    bodies = torch.tensor([model.link_body[k] for k in moving], device=rows.device, dtype=torch.long)
    total = rows.new_zeros(batch, len(model.bodies), 10)
    return total.index_add(1, bodies, rows[:, moving]).flatten(1)


def dof_rows(model: Model, armature: Tensor, damping: Tensor, friction: Tensor) -> Tensor:
    """Spread the joints' armature, damping and friction over their degrees of freedom: (b, nv * 3)."""
    child = {joint.name: k for k, joint in enumerate(model.link_joint) if joint is not None}
    links = [child[b.joint.name] for b in model.bodies for _ in range(COORDINATES[b.kind][1])]
    batch = common_batch(armature, damping, friction)
    return torch.stack([x.expand(batch, -1)[:, links] for x in (armature, damping, friction)], -1).flatten(1)


def split_inertial(replaced: dict[str, dict[int, Tensor]]) -> dict[str, dict[int, Tensor]]:
    """Return the replacements with each "inertial" spelt out as mass, com and inertia_mat."""
    spelt = {name: dict(replaced.get(name, {})) for name in PARTS}
    for link, pseudo in replaced.get("inertial", {}).items():
        for name, value in zip(spelt, split_pseudo_inertia(pseudo)):
            spelt[name][link] = value
    return spelt

"""Find what an MJCF model has and a robot here does not: all of it stands in one warning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pullback.description.mjcf import Reader

# quantities, some of newer MuJoCo versions, that have no counterpart here
UNREAD = {
    "dof_dampingpoly": "damping that is not linear in the velocity",
    "jnt_stiffnesspoly": "stiffness that is not linear",
    "tendon_dampingpoly": "damping of tendons that is not linear",
    "tendon_stiffnesspoly": "stiffness of tendons that is not linear",
    "actuator_damping": "damping of actuators",
    "actuator_armature": "armature of actuators",
    "tendon_actfrclimited": "limits on what actuators do to tendons",
    "geom_margin": "margins of geoms; the contact solver has one",
    "geom_gap": "gaps of geoms",
    "nflex": "flexes (soft bodies)",
    "nplugin": "plugins",
}
# flags that change the physics
FLAGS = ("CONSTRAINT", "EQUALITY", "FRICTIONLOSS", "LIMIT", "CONTACT", "SPRING", "DAMPER", "ACTUATION", "FILTERPARENT")
SOFTNESS = {"solref": (0.02, 1.0), "solimp": (0.9, 0.95, 0.001, 0.5, 2.0)}


def note_what_is_left_out(reader: Reader) -> None:
    """Name everything of the model that changes its motion and is not read."""
    model = reader.model
    for field, what in UNREAD.items():
        if np.any(getattr(model, field, 0)):
            reader.leave_out(what)
    for text in (*_fluid(reader), *_contact(reader), *_floating_base(reader)):
        reader.leave_out(text)
    if np.any(model.body_gravcomp) and np.any(getattr(model, "jnt_actgravcomp", 0) & model.jnt_actfrclimited):
        reader.leave_out("limits on actuators' forces that count gravity compensation (actuatorgravcomp)")
    for flag in FLAGS:
        if reader.disables(flag):
            reader.leave_out(f"the flag that disables {flag.lower()}")
    if np.any(model.body_mocapid >= 0):
        reader.leave_out("mocap: such bodies stay where they are")


def _fluid(reader: Reader) -> Iterator[str]:
    option = reader.model.opt
    if option.density or option.viscosity or np.any(option.wind):
        yield f"forces of the fluid (density {option.density:g} kg/m³, viscosity {option.viscosity:g} Pa·s)"


def _contact(reader: Reader) -> Iterator[str]:
    """Yield what is special about contacts of the geoms that may touch."""
    model = reader.model
    touching = np.flatnonzero((model.geom_contype != 0) | (model.geom_conaffinity != 0))
    rolling = int((model.geom_condim[touching] > 3).sum())
    if rolling:
        yield f"torsional and rolling friction of {rolling} geoms (condim 4 and 6)"
    names: dict[str, None] = {}
    soft: dict[str, None] = {}
    for name, usual in SOFTNESS.items():
        fields: dict[str, Any] = {
            "geoms": getattr(model, f"geom_{name}")[touching],
            "joint limits": getattr(model, f"jnt_{name}"),
            "equality constraints": getattr(model, f"eq_{name}"),
        }
        for what, values in fields.items():
            if len(values) and np.any(values != usual):
                names[name] = soft[what] = None
    if soft:
        yield f"softness ({', '.join(names)}) of {', '.join(soft)}; the contact solver has its own"
    for pair in range(model.npair):
        own = float(model.pair_friction[pair, 0])
        geoms = int(model.pair_geom1[pair]), int(model.pair_geom2[pair])
        if own != max(float(model.geom_friction[geom, 0]) for geom in geoms):
            yield f"friction of the contact pair {model.pair(pair).name or pair!r}; that of its geoms counts"


def _floating_base(reader: Reader) -> Iterator[str]:
    """Yield what the free joint of a floating base has besides its motion."""
    model, root = reader.model, reader.root
    if root is None or reader.tree.base != "floating":
        return
    dofs = slice(model.body_dofadr[root], model.body_dofadr[root] + 6)
    for quantity in ("armature", "damping", "frictionloss"):
        if np.any(getattr(model, f"dof_{quantity}")[dofs]):
            yield f"{quantity} of the free joint of {reader.link_names[root]!r}"

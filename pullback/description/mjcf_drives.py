"""Read what acts on the joints of an MJCF model: actuators, springs on fixed tendons, joints that follow others."""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from pullback.description.tree import Drive, Joint, Limits, Mimic

if TYPE_CHECKING:
    from pullback.description.mjcf import Reader

# dynamics that only delay a force; with any other an actuator is left out
FILTERS = ("NONE", "FILTER", "FILTEREXACT")


def add_drives(reader: Reader) -> None:
    """Read the actuators, in the order of the file, and the springs of fixed tendons."""
    drives = [drive for number in range(reader.model.nu) if (drive := _actuator(reader, number)) is not None]
    reader.tree.drives = _within_joint_limits(reader, drives)
    slow = [d.name for d in drives if _name(reader, "mjtDyn", reader.model.actuator_dyntype[d.number]) != "NONE"]
    if slow:
        reader.leave_out(f"the filters of actuators ({', '.join(slow)}): forces follow controls at once")
    joints = {joint.name: joint for joint in reader.tree.joints}
    for drive in reader.tree.drives:
        if list(drive.joints.values()) == [1.0]:
            _describe(joints[next(iter(drive.joints))], drive)
    reader.tree.springs = [spring for t in range(reader.model.ntendon) if (spring := _spring(reader, t)) is not None]


def _actuator(reader: Reader, number: int) -> Drive | None:
    """Return an actuator on a joint or on a fixed tendon whose force is affine, None if it is left out."""
    model = reader.model
    target, joints = _transmission(reader, number)
    name = model.actuator(number).name or target or str(number)
    dynamics, gain_type, bias_type = (
        _name(reader, enum, field[number])
        for enum, field in (
            ("mjtDyn", model.actuator_dyntype),
            ("mjtGain", model.actuator_gaintype),
            ("mjtBias", model.actuator_biastype),
        )
    )
    if not joints:
        reader.leave_out(f"actuator {name!r}: only those on hinge and slide joints and on fixed tendons are read")
        return None
    if model.actuator_plugin[number] >= 0:
        reader.leave_out(f"actuator {name!r}: a plugin computes its force")
        return None
    if dynamics not in FILTERS or gain_type not in ("FIXED", "AFFINE") or bias_type not in ("NONE", "AFFINE"):
        reader.leave_out(f"actuator {name!r}: its force is not affine ({dynamics}, {gain_type}, {bias_type})".lower())
        return None
    gain = model.actuator_gainprm[number, :3] * (1.0 if gain_type == "AFFINE" else np.array([1.0, 0.0, 0.0]))
    bias = model.actuator_biasprm[number, :3] * (1.0 if bias_type == "AFFINE" else 0.0)
    controls = force = (-inf, inf)
    if model.actuator_ctrllimited[number] and not reader.disables("CLAMPCTRL"):
        controls = _pair(model.actuator_ctrlrange[number])
    if model.actuator_forcelimited[number]:
        force = _pair(model.actuator_forcerange[number])
    # of a single joint by its own coordinate: length = gear q, and the joint feels gear times the force
    gear = next(iter(joints.values())) if len(joints) == 1 else 1.0
    low, high = sorted(gear * bound if np.isfinite(bound) or gear else 0.0 for bound in force)
    return Drive(
        reader.fresh_actuator(name, joints),
        joints if len(joints) > 1 else dict.fromkeys(joints, 1.0),
        gain=float(gear * gain[0]),
        kp=float(-gear * gear * bias[1]),
        kd=float(-gear * gear * bias[2]),
        bias=float(gear * bias[0]),
        force_range=(low, high),
        control_range=controls,
        position_gain=float(gear * gear * gain[1]),
        velocity_gain=float(gear * gear * gain[2]),
        number=number,
    )


def _transmission(reader: Reader, number: int) -> tuple[str, dict[str, float]]:
    """Return the name of what an actuator acts on, and the joints with their shares; none if it is neither."""
    model = reader.model
    kind, target = _name(reader, "mjtTrn", model.actuator_trntype[number]), int(model.actuator_trnid[number, 0])
    gear = float(model.actuator_gear[number, 0])
    if kind in ("JOINT", "JOINTINPARENT"):
        name = reader.joint_names[target]
        return name, {name: gear} if reader.type_of(target) in ("revolute", "prismatic") else {}
    if kind == "TENDON":
        name = model.tendon(target).name or f"tendon{target}"
        return name, {joint: gear * share for joint, share in tendon_joints(reader, target).items()}
    return "", {}


def tendon_joints(reader: Reader, tendon: int) -> dict[str, float]:
    """Return the joints of a fixed tendon with their coefficients; none of a spatial one."""
    model = reader.model
    first, count = int(model.tendon_adr[tendon]), int(model.tendon_num[tendon])
    joints: dict[str, float] = {}
    for wrap in range(first, first + count):
        if _name(reader, "mjtWrap", model.wrap_type[wrap]) != "JOINT":
            return {}
        joint = reader.joint_names[int(model.wrap_objid[wrap])]
        joints[joint] = joints.get(joint, 0.0) + float(model.wrap_prm[wrap])
    return joints


def _spring(reader: Reader, tendon: int) -> Drive | None:
    """Return the spring and damper of a fixed tendon, None if it has neither."""
    model = reader.model
    name = model.tendon(tendon).name or f"tendon{tendon}"
    joints = tendon_joints(reader, tendon)
    stiffness, damping = float(model.tendon_stiffness[tendon]), float(model.tendon_damping[tendon])
    if not joints:
        reader.leave_out(f"tendon {name!r}: it is spatial; fixed tendons are read")
        return None
    for field, what in (("limited", "range"), ("frictionloss", "dry friction"), ("armature", "armature")):
        values = getattr(model, f"tendon_{field}", None)
        if values is not None and values[tendon]:
            reader.leave_out(f"the {what} of tendon {name!r}")
    low, high = (float(x) for x in model.tendon_lengthspring[tendon])
    if stiffness and low != high:
        reader.leave_out(f"the spring of tendon {name!r}: it is slack between {low:g} and {high:g}")
        stiffness = 0.0
    if not stiffness and not damping:
        return None
    return Drive(name, joints, kp=stiffness, kd=damping, bias=stiffness * low)


def _within_joint_limits(reader: Reader, drives: list[Drive]) -> list[Drive]:
    """Return the drives with the joints' own limits on what actuators do, where a joint has one actuator."""
    model = reader.model
    acting = Counter(joint for drive in drives for joint in drive.joints)
    limited = {
        reader.joint_names[j]: _pair(model.jnt_actfrcrange[j])
        for j in range(model.njnt)
        if model.jnt_actfrclimited[j] and reader.type_of(j) in ("revolute", "prismatic")
    }
    several = [name for name in limited if acting[name] > 1]
    several += [joint for d in drives if len(d.joints) > 1 for joint in d.joints if joint in limited]
    for name in dict.fromkeys(several):
        reader.leave_out(f"actuatorfrcrange of joint {name!r}: more than one joint or actuator would share it")
    result = []
    for drive in drives:
        name = next(iter(drive.joints))
        if len(drive.joints) == 1 and name in limited and name not in several:
            (low, high), (least, most) = drive.force_range, limited[name]
            bounds = (min(max(low, least), most), max(min(high, most), least))
            drive = Drive(**{**vars(drive), "force_range": bounds})
        result.append(drive)
    return result


def _describe(joint: Joint, drive: Drive) -> None:
    """Give a joint the gain of its first motor and the largest force that it can have."""
    if joint.gear is not None:
        return
    joint.gear = drive.gain
    effort = float(np.abs(drive.force_range).max())
    plain = not (drive.kp or drive.kd or drive.bias or drive.position_gain or drive.velocity_gain)
    if plain and np.isfinite(drive.control_range).all():
        effort = min(effort, abs(drive.gain) * float(np.abs(drive.control_range).max()))
    joint.limits = Limits(joint.limits.lower, joint.limits.upper, joint.limits.velocity, effort)


# -- joints that follow others ---------------------------------------------------------------------------------------


def add_mimics(reader: Reader) -> None:
    """Read equality constraints of joints, and of fixed tendons, that let one joint follow another."""
    model = reader.model
    for number in range(model.neq):
        kind = _name(reader, "mjtEq", model.eq_type[number])
        name = model.equality(number).name or f"equality{number}"
        if kind not in ("JOINT", "TENDON") or not model.eq_active0[number]:
            continue
        if np.any(model.eq_data[number, 2:5]):
            reader.leave_out(f"equality constraint {name!r}: its polynomial is not linear")
            continue
        shares, constant = _joint_equation(reader, number) if kind == "JOINT" else _tendon_equation(reader, number)
        if len(shares) != 2:
            reader.leave_out(f"equality constraint {name!r}: it holds {len(shares)} joints; two are read")
        elif not _follow(reader, shares, constant):
            reader.leave_out(f"equality constraint {name!r}: its joints follow others already")


def _joint_equation(reader: Reader, number: int) -> tuple[dict[str, float], float]:
    """Return the shares and the constant of Σ share q = constant: q1 - ref1 = a0 + a1 (q2 - ref2)."""
    model = reader.model
    a0, a1 = (float(x) for x in model.eq_data[number, :2])
    first, second = int(model.eq_obj1id[number]), int(model.eq_obj2id[number])
    references = [float(model.qpos0[model.jnt_qposadr[j]]) for j in (first, max(second, 0))]
    if second < 0:
        return {reader.joint_names[first]: 1.0}, references[0] + a0
    # the one that follows comes last
    shares = {reader.joint_names[second]: -a1, reader.joint_names[first]: 1.0}
    return shares, references[0] + a0 - a1 * references[1]


def _tendon_equation(reader: Reader, number: int) -> tuple[dict[str, float], float]:
    """Return the shares and the constant of Σ share q = constant: l1 - l1(0) = a0 + a1 (l2 - l2(0))."""
    model = reader.model
    a0, a1 = (float(x) for x in model.eq_data[number, :2])
    first, second = int(model.eq_obj1id[number]), int(model.eq_obj2id[number])
    shares = tendon_joints(reader, first)
    constant = float(model.tendon_length0[first]) + a0
    if second >= 0:
        for joint, share in tendon_joints(reader, second).items():
            shares[joint] = shares.get(joint, 0.0) - a1 * share
        constant -= a1 * float(model.tendon_length0[second])
    return {joint: share for joint, share in shares.items() if share}, constant


def _follow(reader: Reader, shares: dict[str, float], constant: float) -> bool:
    """Let the last of two joints follow the first, or the other way round; tell whether one can."""
    joints = {joint.name: joint for joint in reader.tree.joints}
    (a, share_a), (b, share_b) = shares.items()
    for leader, follower, by, of in ((a, b, share_a, share_b), (b, a, share_b, share_a)):
        joint = joints[follower]
        if joint.mimic is None and of and follower not in _leaders(joints, leader):
            joint.mimic = Mimic(leader, -by / of, constant / of)
            return True
    return False


def _leaders(joints: dict[str, Joint], name: str) -> list[str]:
    """Return a joint and those that it follows."""
    found, mimic = [name], joints[name].mimic
    while mimic is not None:
        found.append(mimic.joint)
        mimic = joints[mimic.joint].mimic
    return found


def _name(reader: Reader, enum: str, value: int) -> str:
    """Return the name of a value of one of MuJoCo's types."""
    return getattr(reader.mujoco, enum)(int(value)).name.partition("_")[2]


def _pair(bounds: np.ndarray) -> tuple[float, float]:
    low, high = (float(bound) for bound in bounds)
    return low, high

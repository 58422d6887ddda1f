"""What an MJCF file says about forces, states and contacts, and what a warning says is left out."""

import warnings
from math import inf

import numpy as np
import pytest

from pullback.core.errors import DescriptionError, DescriptionWarning
from pullback.description.check import check_tree
from pullback.description.mjcf import read_mjcf
from pullback.description.tree import Drive, Mimic, Tree

pytest.importorskip("mujoco")

ARM = """<worldbody><body name="base">
<geom size="0.1"/>
<body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0"/><geom size="0.1"/>
<body name="lower" pos="0 0 1"><joint name="elbow" axis="0 1 0" {elbow}/><geom size="0.1"/>
<body name="hand" pos="0 0 1"><joint name="wrist" axis="0 1 0"/><geom size="0.1"/>
<site name="tip" pos="0 0 0.5" euler="0 0 90"/></body></body></body></body></worldbody>"""
TENDON = (
    '<tendon><fixed name="both" {more}><joint joint="elbow" coef="2"/><joint joint="wrist" coef="-1"/></fixed></tendon>'
)


@pytest.fixture
def read(tmp_path):
    def read_text(rest: str = "", elbow: str = "", world: str = "") -> Tree:
        path = tmp_path / "arm.xml"
        path.write_text(f'<mujoco model="arm">{rest}{world or ARM.format(elbow=elbow)}</mujoco>')
        with warnings.catch_warnings():
            warnings.simplefilter("error", DescriptionWarning)
            return read_mjcf(path)

    return read_text


def drives(read, actuators: str, **options) -> list:
    return read(f"{options.pop('rest', '')}<actuator>{actuators}</actuator>", **options).drives


def test_motors_and_servos(read):
    motor, position, velocity = drives(
        read,
        '<motor joint="elbow" gear="2" ctrlrange="-1 3"/><position name="p" joint="wrist" kp="10" kv="2"/>'
        '<velocity joint="shoulder" kv="4" gear="3" forcerange="-1 2"/>',
    )
    assert (motor.name, motor.joints, motor.gain, motor.control_range) == ("elbow", {"elbow": 1.0}, 2.0, (-1.0, 3.0))
    assert (motor.kp, motor.kd, motor.bias, motor.force_range) == (0.0, 0.0, 0.0, (-inf, inf))
    assert (position.name, position.gain, position.kp, position.kd) == ("p", 10.0, 10.0, 2.0)
    # by the joint's own velocity: the servo's is three times that
    assert (velocity.gain, velocity.kd, velocity.force_range) == (12.0, 36.0, (-3.0, 6.0))


def test_general_and_damper(read):
    general, damper = drives(
        read,
        '<general joint="elbow" gear="-2" gaintype="affine" gainprm="3 4 5" biastype="affine" biasprm="6 7 8"/>'
        '<damper joint="wrist" kv="9" ctrlrange="0 1"/>',
    )
    assert (general.gain, general.position_gain, general.velocity_gain) == (-6.0, 16.0, 20.0)
    assert (general.bias, general.kp, general.kd) == (-12.0, -28.0, -32.0)
    assert (damper.gain, damper.velocity_gain, damper.control_range) == (0.0, -9.0, (0.0, 1.0))


def test_joint_limits_of_actuators(read):
    motor = '<motor name="{}" joint="elbow" gear="2" forcerange="-5 5"/>'
    (one,) = drives(read, motor.format("a"), elbow='actuatorfrcrange="-3 30"')
    assert one.force_range == (-3.0, 10.0)
    with pytest.raises(DescriptionWarning, match="actuatorfrcrange of joint 'elbow'"):
        drives(read, motor.format("a") + motor.format("b"), elbow='actuatorfrcrange="-3 30"')


def test_several_actuators_on_a_joint_have_names_of_their_own(read):
    found = drives(read, '<motor joint="elbow"/><motor joint="elbow"/><motor name="wrist" joint="shoulder"/>')
    assert [(drive.name, list(drive.joints)) for drive in found] == [
        ("elbow", ["elbow"]),
        ("elbow_", ["elbow"]),
        ("wrist_", ["shoulder"]),
    ]


def test_fixed_tendons(read):
    tree = read(
        TENDON.format(more='stiffness="3" damping="4" springlength="0.5"')
        + '<actuator><position name="pull" tendon="both" gear="10" kp="2"/></actuator>'
    )
    (drive,), (spring,) = tree.drives, tree.springs
    assert (drive.joints, drive.gain, drive.kp) == ({"elbow": 20.0, "wrist": -10.0}, 2.0, 2.0)
    assert (spring.joints, spring.kp, spring.kd, spring.bias) == ({"elbow": 2.0, "wrist": -1.0}, 3.0, 4.0, 1.5)


def test_springs_of_joints(read):
    joint = {joint.name: joint for joint in read(elbow='stiffness="2" springref="90"').joints}["elbow"]
    assert (joint.stiffness, joint.rest) == (2.0, pytest.approx(np.pi / 2))


@pytest.mark.parametrize(
    ("equality", "follower", "mimic"),
    [
        ('<joint joint1="wrist" joint2="elbow" polycoef="0.5 2 0 0 0"/>', "wrist", Mimic("elbow", 2.0, 0.5 - 0.4)),
        ('<tendon tendon1="both"/>', "wrist", Mimic("elbow", 2.0, -0.4)),
    ],
)
def test_equalities_let_joints_follow(read, equality, follower, mimic):
    tree = read(TENDON.format(more="") + f"<equality>{equality}</equality>", elbow='ref="11.459155902616466"')
    (found,) = [(joint.name, joint.mimic) for joint in tree.joints if joint.mimic]
    assert found[0] == follower
    assert found[1].joint == mimic.joint
    assert (found[1].multiplier, found[1].offset) == pytest.approx((mimic.multiplier, mimic.offset), abs=1e-12)


def test_equalities_that_go_round_are_left_out(read):
    both = '<joint joint1="wrist" joint2="elbow"/><joint name="back" joint1="elbow" joint2="wrist"/>'
    with pytest.raises(DescriptionWarning, match="'back': its joints follow others already"):
        read(f"<equality>{both}</equality>")


def test_sites_are_links(read):
    tree = read()
    assert tree.links[-1].name == "tip"
    joint = tree.joints[-1]
    assert (joint.type, joint.parent, joint.child) == ("fixed", "hand", "tip")
    np.testing.assert_allclose(joint.origin.rotation, [[0, -1, 0], [1, 0, 0], [0, 0, 1]], atol=1e-12)


def test_keyframes_and_options(read):
    tree = read(
        '<option timestep="0.004"/><actuator><motor joint="wrist"/></actuator>'
        '<keyframe><key name="home" qpos="1 2 3" qvel="4 5 6" ctrl="7"/></keyframe>'
    )
    key = tree.keyframes["home"]
    assert [float(key.q[name][0]) for name in ("shoulder", "elbow", "wrist")] == [1, 2, 3]
    assert [float(key.qd[name][0]) for name in ("shoulder", "elbow", "wrist")] == [4, 5, 6]
    assert key.controls == {"wrist": 7.0}
    assert (tree.timestep, tree.gravity) == (0.004, (0.0, 0.0, -9.81))
    with pytest.raises(DescriptionWarning, match=r"gravity \(0.0, 0.0, 0.0\) of worlds"):
        read('<option><flag gravity="disable"/></option>')


def test_contacts(read):
    geoms = '<geom name="{}" size="0.1" contype="{}" conaffinity="{}" condim="{}"/>'
    world = "".join(
        f'<body name="{name}">{geoms.format(name, *masks)}<joint/></body>'
        for name, masks in (("a", (1, 2, 1)), ("b", (4, 0, 3)), ("c", (0, 0, 3)))
    )
    tree = read(
        '<contact><exclude body1="a" body2="b"/><pair geom1="a" geom2="c"/></contact>',
        world=f'<worldbody><body name="base"><geom size="0.1"/>{world}</body></worldbody>',
    )
    shapes = {link.name: link.shapes[0] for link in tree.links}
    assert tree.excluded == [("a", "b")]
    assert [shapes[name].frictionless for name in "abc"] == [True, False, False]
    assert (shapes["b"].contype, shapes["b"].conaffinity) == (4, 0)
    assert (shapes["a"].contype & 0xFFFFFFFF, shapes["a"].conaffinity & 0xFFFFFFFF) == (1, 2)
    # a pair touches, whatever the masks say
    assert shapes["a"].contype & shapes["c"].conaffinity
    assert not shapes["b"].contype & shapes["c"].conaffinity


EVERYTHING = """<mujoco model="all">
<option density="1000" viscosity="0.1" gravity="0 0 -1"><flag contact="disable"/></option>
<extension><plugin plugin="mujoco.pid"><instance name="controller"/></plugin></extension>
<asset><hfield name="hills" nrow="4" ncol="4" size="1 1 1 0.1"/></asset>
<worldbody>
<body name="base"><freejoint/><geom name="lump" size="0.1" condim="6" margin="0.01" solref="0.01 1"/>
<body name="arm" gravcomp="1"><joint name="elbow" axis="0 1 0" stiffness="1 2 0" damping="1 2 0"
actuatorgravcomp="true" actuatorfrcrange="-1 1"/><geom size="0.1"/>
<site name="s1"/>
<body name="hand"><joint name="wrist" type="ball" stiffness="3" range="0 30"/><geom size="0.1"/>
<site name="s2" pos="0 0 1"/></body>
</body>
<body name="leg"><joint name="knee" axis="0 1 0" solreflimit="0.01 1" range="-1 1"/><geom size="0.1"/></body>
<body name="foot"><joint name="ankle" axis="0 1 0"/><geom size="0.1"/><geom type="hfield" hfield="hills"/></body>
</body>
<body name="target" mocap="true"><geom size="0.1" contype="0" conaffinity="0"/></body>
<flexcomp name="cloth" type="grid" count="3 3 1" spacing="0.1 0.1 0.1" pos="0 0 3" dim="2" mass="1"/>
</worldbody>
<tendon><spatial name="rope"><site site="s1"/><site site="s2"/></spatial>
<fixed name="strap" limited="true" range="0 1" frictionloss="1" stiffness="1" springlength="0 1">
<joint joint="knee" coef="1"/></fixed></tendon>
<actuator>
<muscle name="biceps" joint="elbow" lengthrange="0 1"/><motor name="pull" tendon="rope"/>
<position name="slow" joint="ankle" kp="1" timeconst="0.1"/><motor name="thrust" site="s1"/>
<motor name="turn" joint="wrist"/>
<intvelocity name="creep" joint="knee" kp="1" actrange="-1 1"/>
<plugin name="pid" joint="ankle" plugin="mujoco.pid" instance="controller"/>
</actuator>
<equality><joint name="bent" joint1="knee" joint2="ankle" polycoef="0 1 2 0 0"/><joint name="held" joint1="knee"/>
<weld name="off" body1="base" active="false"/></equality>
</mujoco>"""

NAMED = (
    "gravity (0.0, 0.0, -1.0)",
    "the fluid (density 1000 kg/m³, viscosity 0.1 Pa·s)",
    "the flag that disables contact",
    "plugins",
    "flexes",
    "limits on actuators' forces that count gravity compensation",
    "stiffness that is not linear",
    "damping that is not linear",
    "the spring of 'wrist', a ball joint",
    "the range of 'wrist', a ball joint",
    "a geom of type hfield of link 'foot'",
    "torsional and rolling friction of 1 geoms",
    "margins of geoms",
    "softness (solref) of geoms, joint limits",
    "tendon 'rope': it is spatial",
    "the range of tendon 'strap'",
    "the dry friction of tendon 'strap'",
    "the spring of tendon 'strap': it is slack",
    "actuator 'biceps': its force is not affine (muscle",
    "actuator 'pull': only those",
    "actuator 'thrust': only those",
    "actuator 'turn': only those",
    "the filters of actuators (slow)",
    "actuator 'pid': a plugin computes its force",
    "actuator 'creep': its force is not affine (integrator",
    "equality constraint 'bent': its polynomial is not linear",
    "equality constraint 'held': it holds 1 joints",
    "equality constraint 'off': it is not active at the start",
    "mocap",
)


def test_one_warning_names_everything_that_is_left_out(tmp_path):
    path = tmp_path / "all.xml"
    path.write_text(EVERYTHING)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tree = read_mjcf(path)
    (warning,) = [
        str(w.message) for w in caught if issubclass(w.category, DescriptionWarning) and "left out" in str(w.message)
    ]
    missing = [name for name in NAMED if name not in warning]
    assert not missing
    assert all(any(name in problem for problem in tree.problems) for name in NAMED)


def test_a_file_with_nothing_left_out_is_silent(read):
    assert read().problems == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"joints": {"hip": 1.0}}, "'pull' in arm.xml acts on an unknown joint: no joint named 'hip'"),
        ({"joints": {}}, "'pull' in arm.xml: give it a joint at least"),
        ({"kp": inf}, "'pull' in arm.xml: give it a joint at least, and finite numbers"),
    ],
)
def test_drives_are_checked(read, change, text):
    tree = read()
    tree.springs = [Drive(**{"name": "pull", "joints": {"elbow": 1.0}, **change})]
    with pytest.raises(DescriptionError, match=text):
        check_tree(tree)


def test_springs_are_checked(read):
    tree = read()
    next(joint for joint in tree.joints if joint.name == "elbow").stiffness = -1.0
    with pytest.raises(DescriptionError, match="stiffness is -1"):
        check_tree(tree)
    next(joint for joint in tree.joints if joint.name == "elbow").stiffness = 1.0
    next(joint for joint in tree.joints if joint.name == "elbow").type = "ball"
    with pytest.raises(DescriptionError, match="a spring needs a joint with one degree of freedom"):
        check_tree(tree)

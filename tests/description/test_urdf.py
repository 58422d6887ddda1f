"""Every URDF feature we read, and every way a URDF can be refused."""

from math import inf, pi
from pathlib import Path

import numpy as np
import pytest

from pullback.core.errors import DescriptionError, DescriptionWarning
from pullback.description.check import check_tree
from pullback.description.compile import compile_tree
from pullback.description.tree import Joint, Limits, Link, Mimic, Tree
from pullback.description.urdf import read_urdf

# two roundings of sin and cos
EXACT = 1e-15

INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'  # a ball


def joint(name="elbow", kind="revolute", parent="base", child="arm", inside="") -> str:
    return f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'


def links(*names) -> str:
    return "".join(f'<link name="{name}"/>' for name in names)


@pytest.fixture
def read(tmp_path):
    def read_text(body: str, *, strict: bool = False) -> Tree:
        path = tmp_path / "arm.urdf"
        path.write_text(f'<?xml version="1.0"?>\n<robot name="arm">\n{body}\n</robot>')
        return read_urdf(path, strict=strict)

    return read_text


def read_one_joint(read, kind="revolute", inside="") -> Joint:
    return read(links("base", "arm") + joint(kind=kind, inside=inside)).joints[0]


# --- joints


def test_tree_has_names_and_order_of_the_file(read):
    tree = read(links("arm", "hand", "base") + joint("b", child="hand", parent="arm") + joint("a"))
    assert (tree.name, tree.source, tree.base, tree.problems) == ("arm", "arm.urdf", None, [])
    assert [link.name for link in tree.links] == ["arm", "hand", "base"]
    assert [(j.name, j.parent, j.child) for j in tree.joints] == [("b", "arm", "hand"), ("a", "base", "arm")]


@pytest.mark.parametrize("kind", ["revolute", "continuous", "prismatic", "fixed", "floating", "planar"])
def test_joint_types(read, kind):
    assert read_one_joint(read, kind).type == kind


def test_axis_is_normalised_and_defaults_to_x(read):
    np.testing.assert_allclose(
        read_one_joint(read, inside='<axis xyz="0 3 4"/>').axis, [0, 0.6, 0.8], rtol=0, atol=EXACT
    )
    np.testing.assert_array_equal(read_one_joint(read).axis, [1, 0, 0])
    np.testing.assert_allclose(
        read_one_joint(read, "planar", '<axis xyz="0 2 0"/>').axis, [0, 1, 0], rtol=0, atol=EXACT
    )


@pytest.mark.parametrize("kind", ["fixed", "floating"])
def test_zero_axis_does_not_matter_without_axis(read, kind):
    assert read_one_joint(read, kind, '<axis xyz="0 0 0"/>').type == kind


def test_origin_is_roll_then_pitch_then_yaw(read):
    origin = read_one_joint(read, inside=f'<origin xyz="1 2 3" rpy="{pi / 2} 0 {pi / 2}"/>').origin
    np.testing.assert_array_equal(origin.translation, [1, 2, 3])
    # roll sends y to z, yaw then sends x to y and leaves z
    np.testing.assert_allclose(origin.rotation, [[0, 0, 1], [1, 0, 0], [0, 1, 0]], rtol=0, atol=EXACT)


def test_limits(read):
    limit = '<limit lower="-1" upper="2" velocity="3" effort="4"/>'
    assert read_one_joint(read, "revolute", limit).limits == Limits(-1, 2, 3, 4)
    assert read_one_joint(read, "prismatic", limit).limits == Limits(-1, 2, 3, 4)
    assert read_one_joint(read, "continuous", limit).limits == Limits(-inf, inf, 3, 4)
    assert read_one_joint(read, "revolute", '<limit effort="4"/>').limits == Limits(effort=4)
    assert read_one_joint(read, "revolute", '<limit lower="0" effort="inf"/>').limits == Limits(0, inf)
    assert read_one_joint(read, "revolute").limits == Limits()


def test_dynamics_and_armature_extension(read):
    found = read_one_joint(read, inside='<dynamics damping="0.5" friction="0.25" armature="0.125"/>')
    assert (found.damping, found.friction, found.armature, found.gear) == (0.5, 0.25, 0.125, None)
    assert read_one_joint(read, inside='<dynamics damping="0.5"/>').friction == 0.0


def test_mimic(read):
    body = links("base", "a", "b") + joint("a", child="a")
    follower = joint("b", child="b", inside='<mimic joint="a" multiplier="-2" offset="0.5"/>')
    assert read(body + follower).joints[1].mimic == Mimic("a", -2.0, 0.5)
    assert read(body + joint("b", child="b", inside='<mimic joint="a"/>')).joints[1].mimic == Mimic("a", 1.0, 0.0)


def test_mimic_chain_is_resolved(read):
    tree = read(
        links("base", "a", "b", "c")
        + joint("c", child="c", inside='<mimic joint="b" multiplier="3" offset="1"/>')
        + joint("b", child="b", inside='<mimic joint="a" multiplier="2" offset="0.5"/>')
        + joint("a", child="a")
    )
    # q_c = 3 (2 q_a + 0.5) + 1
    coupling = compile_tree(tree).coupling
    assert coupling is not None
    by_joint = {body.joint.name: body.q_start for body in compile_tree(tree).bodies}
    assert coupling.position[by_joint["c"]].tolist() == [6.0]
    assert coupling.offset[by_joint["c"]] == 2.5


# --- links and shapes


def test_inertia_is_rotated_into_link_axes(read):
    inertial = (
        f'<inertial><origin xyz="0.1 0.2 0.3" rpy="0 0 {pi / 2}"/><mass value="2"/>'
        '<inertia ixx="1" iyy="2" izz="2.5" ixy="0.1" ixz="0" iyz="0"/></inertial>'
    )
    link = read(f'<link name="base">{inertial}</link>').links[0]
    assert link.mass == 2.0
    np.testing.assert_array_equal(link.com, [0.1, 0.2, 0.3])
    np.testing.assert_allclose(link.inertia, [[2, -0.1, 0], [-0.1, 1, 0], [0, 0, 2.5]], rtol=0, atol=EXACT)


def test_link_without_inertial_is_massless(read):
    link = read(links("base")).links[0]
    assert link.mass == 0.0
    assert not link.inertia.any()


def test_all_shapes(read, tmp_path):
    (tmp_path / "part.stl").touch()
    shapes = (
        '<sphere radius="1"/>',
        '<cylinder radius="1" length="2"/>',
        '<capsule radius="1" length="2"/>',
        '<box size="1 2 3"/>',
        '<mesh filename="part.stl" scale="1 2 3"/>',
        '<mesh filename="part.stl" scale="2"/>',
        '<mesh filename="part.stl"/>',
    )
    body = "".join(
        f'<collision><origin xyz="0 0 {i}"/><geometry>{shape}</geometry></collision>' for i, shape in enumerate(shapes)
    )
    found = read(f'<link name="base">{body}</link>').links[0].shapes
    assert [(shape.type, shape.size) for shape in found] == [
        ("sphere", (1.0,)),
        ("cylinder", (1.0, 2.0)),
        ("capsule", (1.0, 2.0)),
        ("box", (1.0, 2.0, 3.0)),
        ("mesh", (1.0, 2.0, 3.0)),
        ("mesh", (2.0, 2.0, 2.0)),
        ("mesh", (1.0, 1.0, 1.0)),
    ]
    assert [shape.origin.translation[2] for shape in found] == list(range(7))
    assert found[4].mesh == (tmp_path / "part.stl").resolve()


def test_visuals_do_not_matter(read):
    tree = read('<link name="base"><visual><geometry><torus radius="x"/></geometry></visual></link>')
    assert tree.links[0].shapes == []


def test_friction_of_the_contact_extension(read):
    contact = '<contact><lateral_friction value="0.7"/></contact>'
    sphere = '<collision><geometry><sphere radius="1"/></geometry></collision>'
    assert read(f'<link name="base">{contact}{sphere}</link>').links[0].shapes[0].friction == 0.7
    assert read(f'<link name="base">{sphere}</link>').links[0].shapes[0].friction is None


def mesh_link(filename: str) -> str:
    return f'<link name="base"><collision><geometry><mesh filename="{filename}"/></geometry></collision></link>'


def write_urdf(folder: Path, body: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "arm.urdf"
    path.write_text(f'<robot name="arm">{body}</robot>')
    return path


def test_package_is_found_above_the_file(tmp_path):
    mesh = tmp_path / "my_robot" / "meshes" / "part.stl"
    mesh.parent.mkdir(parents=True)
    mesh.touch()
    for folder in (tmp_path / "my_robot" / "urdf", tmp_path / "elsewhere"):
        path = write_urdf(folder, mesh_link("package://my_robot/meshes/part.stl"))
        assert read_urdf(path).links[0].shapes[0].mesh == mesh.resolve()


def test_package_is_found_in_ros_package_path(tmp_path, monkeypatch):
    mesh = tmp_path / "ros" / "my_robot" / "part.stl"
    mesh.parent.mkdir(parents=True)
    mesh.touch()
    monkeypatch.setenv("ROS_PACKAGE_PATH", f"/nowhere:{tmp_path / 'ros'}")
    path = write_urdf(tmp_path / "a" / "b", mesh_link("package://my_robot/part.stl"))
    assert read_urdf(path).links[0].shapes[0].mesh == mesh


def test_mesh_beside_the_folder_of_the_file(tmp_path):
    mesh = tmp_path / "meshes" / "part.stl"
    mesh.parent.mkdir()
    mesh.touch()
    for filename in ("../meshes/part.stl", "meshes/part.stl", f"file://{mesh}"):
        path = write_urdf(tmp_path / "urdf", mesh_link(filename))
        assert read_urdf(path).links[0].shapes[0].mesh == mesh.resolve()


@pytest.mark.parametrize("filename", ["part.stl", "package://nowhere/part.stl"])
def test_missing_mesh_is_a_warning(read, tmp_path, filename):
    with pytest.warns(DescriptionWarning, match=rf"link 'base' in arm.urdf: mesh file '{filename}' does not exist"):
        tree = read(mesh_link(filename), strict=True)
    assert tree.links[0].shapes[0].mesh == (tmp_path / "part.stl").resolve()
    assert len(tree.problems) == 1


# --- what is refused: (body of the file, text of the error)

TWO = links("base", "arm")
ERRORS = {
    "joint type": (TWO + joint(kind="screw"), r"joint 'elbow' in arm.urdf: unknown joint type 'screw'; choose"),
    "zero axis": (
        TWO + joint(inside='<axis xyz="0 0 0"/>'),
        r"joint 'elbow' in arm.urdf: axis has zero length; give a unit vector or leave <axis> out",
    ),
    "no links": ("", r"arm.urdf: the robot has no links"),
    "same links": (links("base", "base"), r"arm.urdf: more than one link is named 'base'; give each its own name"),
    "same joints": (links("base", "arm", "b") + joint() + joint(child="b"), r"more than one joint is named 'elbow'"),
    "unknown parent": (
        TWO + joint(parent="bass"),
        r"joint 'elbow' in arm.urdf, parent: no link named 'bass'; did you mean 'base'\?",
    ),
    "unknown child": (TWO + joint(child="qq"), r"joint 'elbow' in arm.urdf, child: no link named 'qq'; choose from"),
    "two roots": (TWO, r"arm.urdf: 2 links have no parent \('base', 'arm'\); expected one root"),
    "two parents": (
        links("base", "a", "b") + joint("j", child="a") + joint("k", child="b") + joint("l", parent="b", child="a"),
        r"link 'a' in arm.urdf has two parents: joints 'j' and 'l' both move it",
    ),
    "loop": (
        links("base", "a", "b") + joint("j", parent="b", child="a") + joint("k", parent="a", child="b"),
        r"arm.urdf: links form a kinematic loop \(a -> b -> a\); a robot is a tree",
    ),
    "mimic circle": (
        links("base", "a", "b")
        + joint("a", child="a", inside='<mimic joint="b"/>')
        + joint("b", child="b", inside='<mimic joint="a"/>'),
        r"joint 'a' in arm.urdf: mimic joints follow each other in a circle \(a -> b -> a\)",
    ),
    "mimic of fixed": (
        links("base", "a", "b") + joint("a", "fixed", child="a") + joint("b", child="b", inside='<mimic joint="a"/>'),
        r"joint 'b' in arm.urdf mimics 'a', which is fixed; expected a joint with one degree of freedom",
    ),
    "mimic by planar": (
        links("base", "a", "b") + joint("a", child="a") + joint("b", "planar", child="b", inside='<mimic joint="a"/>'),
        r"joint 'b' in arm.urdf: a planar joint cannot mimic another",
    ),
    "mimic of nothing": (TWO + joint(inside="<mimic/>"), r"joint 'elbow' in arm.urdf: <mimic> names no joint"),
    "no parent": (TWO + '<joint name="elbow" type="fixed"><child link="arm"/></joint>', r"'elbow' .*: no parent link"),
    "no name": ("<link/>", r"arm.urdf, line 3: a <link> has no name"),
    "not a number": (
        '<link name="base"><inertial><mass value="heavy"/></inertial></link>',
        r"link 'base' in arm.urdf, line 3: <mass value=\"heavy\"> should be one finite number",
    ),
    "nan": (TWO + joint(inside='<origin xyz="0 nan 0"/>'), r"<origin xyz=\"0 nan 0\"> should be 3 finite numbers"),
    "two numbers": (TWO + joint(inside='<axis xyz="0 1"/>'), r"<axis xyz=\"0 1\"> should be 3 finite numbers"),
    "infinite damping": (TWO + joint(inside='<dynamics damping="inf"/>'), r"damping=\"inf\"> should be one finite"),
    "no ixx": (
        '<link name="base"><inertial><mass value="1"/><inertia iyy="1" izz="1"/></inertial></link>',
        r"link 'base' in arm.urdf, line 3: <inertia> has no ixx; write a number",
    ),
    "negative mass": (
        '<link name="base"><inertial><mass value="-2"/></inertial></link>',
        r"link 'base' in arm.urdf: mass is negative \(-2 kg\); give zero or more",
    ),
    "negative damping": (TWO + joint(inside='<dynamics damping="-1"/>'), r"'elbow' in arm.urdf: damping is -1; give"),
    "xacro": (
        TWO + joint(inside='<origin xyz="${width} 0 0"/>'),
        r"line 3: <origin xyz=.* is xacro, no number; expand",
    ),
    "xacro element": (
        '<xacro:include filename="a"/>',
        r"arm.urdf, line 3: <xacro:include> is xacro, no URDF; expand it",
    ),
    "plane": (
        '<link name="base"><collision><geometry><plane normal="0 0 0"/></geometry></collision></link>',
        r"link 'base' in arm.urdf, line 3: the normal of <plane> has zero length",
    ),
    "unknown shape": (
        '<link name="base"><collision><geometry><torus/></geometry></collision></link>',
        r"link 'base' in arm.urdf, line 3: <collision> has an unknown shape <torus>; expected",
    ),
    "no shape": ('<link name="base"><collision/></link>', r"<collision> has no shape; expected"),
    "mesh without file": (mesh_link(""), r"link 'base' in arm.urdf: <mesh> names no file"),
}


@pytest.mark.parametrize(("body", "text"), ERRORS.values(), ids=ERRORS.keys())
def test_refused(read, body, text):
    with pytest.raises(DescriptionError, match=text):
        read(body)


def test_missing_file_lists_close_names(tmp_path):
    (tmp_path / "arm_left.urdf").touch()
    with pytest.raises(DescriptionError, match=r"no file '.*/arm_lefd.urdf'; did you mean 'arm_left.urdf'\?"):
        read_urdf(tmp_path / "arm_lefd.urdf")
    with pytest.raises(DescriptionError, match=r"no file there has a similar name"):
        read_urdf(tmp_path / "q.urdf")
    with pytest.raises(DescriptionError, match=r"the folder '.*/nowhere' does not exist; check the path"):
        read_urdf(tmp_path / "nowhere" / "arm.urdf")
    with pytest.raises(DescriptionError, match=r"is a folder; give the path of a .urdf or .xml file in it"):
        read_urdf(tmp_path)


def test_malformed_xml_names_the_line(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text('<robot name="arm">\n<link name="base">\n</robot>')
    with pytest.raises(DescriptionError, match=r"arm.urdf, line 3: not well-formed XML: .*mismatch"):
        read_urdf(path)


@pytest.mark.parametrize(("root", "hint"), [("mujoco", "this is MJCF"), ("sdf", "give a URDF file")])
def test_other_documents(tmp_path, root, hint):
    path = tmp_path / "arm.urdf"
    path.write_text(f"<{root}/>")
    with pytest.raises(DescriptionError, match=rf"arm.urdf is not a URDF: its root element is <{root}>.*; {hint}"):
        read_urdf(path)


# --- inertias no body can have

BAD_INERTIAS = {
    "triangle": ("1", '<inertia ixx="1" iyy="1" izz="2.1"/>', "sum to less than the largest", "1, 1, 2.1"),
    "negative": ("1", '<inertia ixx="1" iyy="1" izz="1" ixy="2"/>', "a principal moment is negative", "-1, 1, 3"),
    "no mass": ("0", '<inertia ixx="1" iyy="1" izz="1"/>', "the mass is zero but the inertia is not", "1, 1, 1"),
}


@pytest.mark.parametrize(("mass", "inertia", "fault", "moments"), BAD_INERTIAS.values(), ids=BAD_INERTIAS.keys())
def test_non_physical_inertia(read, mass, inertia, fault, moments):
    body = f'<link name="base"><inertial><mass value="{mass}"/>{inertia}</inertial></link>'
    text = rf"link 'base' in arm.urdf: inertia is not physical: .*{fault} .*principal moments {moments} kg"
    with pytest.warns(DescriptionWarning, match=text):
        tree = read(body)
    assert len(tree.problems) == 1
    with pytest.raises(DescriptionError, match=rf"{text}.*; correct it, or load without strict=True"):
        read(body, strict=True)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("mass", "moments"),
    [(0.0, (0, 0, 0)), (1.0, (1, 1, 2)), (1.0, (1, 1, 2 + 1e-7))],
    ids=["nothing", "disc", "disc with rounding"],
)
def test_physical_inertia(mass, moments):
    tree = Tree("arm", [Link("base", mass, inertia=np.diag(np.array(moments, dtype=float)))], [], source="arm")
    check_tree(tree, strict=True)


def test_trees_written_by_hand_are_checked_too():
    links = [Link("base"), Link("arm")]
    long_axis = Joint("elbow", "revolute", "base", "arm", axis=np.array([0.0, 0.0, 2.0]))
    with pytest.raises(DescriptionError, match=r"joint 'elbow' in arm: axis has length 2; give a unit vector"):
        check_tree(Tree("arm", links, [long_axis], source="arm"))
    lopsided = Link("base", 1.0, inertia=np.array([[1.0, 0.1, 0], [0, 1, 0], [0, 0, 1]]))
    with pytest.raises(DescriptionError, match=r"the matrix is not symmetric"):
        check_tree(Tree("arm", [lopsided], [], source="arm"), strict=True)
    nowhere = Link("base", float("nan"))
    with pytest.raises(DescriptionError, match=r"link 'base' in arm: mass, .* is not finite; write finite numbers"):
        check_tree(Tree("arm", [nowhere], [], source="arm"))
    enormous = Link("base", 1.0, inertia=1e308 * np.eye(3))
    with pytest.raises(DescriptionError, match=r"link 'base' in arm: mass, .* has a number of 1e\+308; write kg"):
        check_tree(Tree("arm", [enormous], [], source="arm"))

"""What other readers of URDF overlook is read here too, with a warning that says how."""

import numpy as np
import pytest

from pullback.core.errors import DescriptionWarning
from pullback.description.tree import Joint, Limits, Tree
from pullback.description.urdf import read_urdf

EXACT = 1e-15
TWO = '<link name="base"/><link name="arm"/>'
JOINT = '<joint name="elbow" type="%s"><parent link="base"/><child link="arm"/>%s</joint>'


@pytest.fixture
def read(tmp_path):
    def read_text(body: str) -> Tree:
        path = tmp_path / "arm.urdf"
        path.write_text(f'<robot name="arm">{body}</robot>')
        return read_urdf(path)

    return read_text


def one_joint(read, kind: str, inside: str) -> Joint:
    return read(TWO + JOINT % (kind, inside)).joints[0]


MENDED = {
    "version": (
        '<?xml version="0.0" ?><robot name="arm">BODY</robot>',
        r'<\?xml version="0.0" \?> is read as version 1.0',
    ),
    "late declaration": (
        '\n\n<?xml version="1.0"?><robot name="arm">BODY</robot>',
        "declaration comes after other text",
    ),
    "unbound prefix": (
        '<robot name="arm">BODY<gazebo><sensor:a/></gazebo></robot>',
        "prefixes without a declaration.*sensor",
    ),
    "after the end": ('<robot name="arm">BODY</robot>\n\0', "2 bytes after </robot> are left out"),
}


@pytest.mark.parametrize(("text", "warning"), MENDED.values(), ids=MENDED.keys())
def test_mended_xml(tmp_path, text, warning):
    path = tmp_path / "arm.urdf"
    path.write_text(text.replace("BODY", TWO + JOINT % ("revolute", "")))
    with pytest.warns(DescriptionWarning, match=rf"^arm.urdf: .*{warning}"):
        tree = read_urdf(path)
    assert [link.name for link in tree.links] == ["base", "arm"]
    assert len(tree.problems) == 1


def test_a_point_behind_a_number(read):
    with pytest.warns(DescriptionWarning, match=r"<limit lower=\"-1.57.\"> is read as '-1.57'"):
        joint = one_joint(read, "revolute", '<limit lower="-1.57." upper="1" effort="1" velocity="1"/>')
    assert joint.limits.lower == -1.57


def test_encoding_of_a_mended_declaration(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_bytes(
        '<?xml version="0.0" encoding="iso-8859-1"?><robot name="é"><link name="a"/></robot>'.encode("latin-1")
    )
    with pytest.warns(DescriptionWarning):
        assert read_urdf(path).name == "é"


def test_swapped_limits(read):
    with pytest.warns(
        DescriptionWarning, match=r"'elbow' in arm.urdf: lower limit 1 is above upper limit -1; they are swapped"
    ):
        limits = one_joint(read, "revolute", '<limit lower="1" upper="-1"/>').limits
    assert limits == Limits(-1, 1)


def test_unknown_mimic_moves_by_itself(read):
    with pytest.warns(DescriptionWarning, match=r"an unknown joint move by themselves: 'elbow' \(of 'elbov'\)"):
        assert one_joint(read, "revolute", '<mimic joint="elbov"/>').mimic is None


def test_numbers_too_many(read):
    with pytest.warns(DescriptionWarning, match=r'<origin rpy="0 0 0 7"> has 4 numbers; the first 3 are read'):
        one_joint(read, "revolute", '<origin rpy="0 0 0 7"/>')
    mesh = (
        '<link name="base"><collision><geometry><mesh filename="a.stl" scale="1 2 3 4"/></geometry></collision></link>'
    )
    with pytest.warns(DescriptionWarning):
        assert read(mesh).links[0].shapes[0].size == (1.0, 2.0, 3.0)


def test_defaults_of_ros_variables(read, monkeypatch):
    inside = '<origin xyz="$(optenv ARM_XYZ 0.1 0 0.2)"/>'
    with pytest.warns(DescriptionWarning, match="is read as '0.1 0 0.2'"):
        assert one_joint(read, "fixed", inside).origin.translation.tolist() == [0.1, 0.0, 0.2]
    monkeypatch.setenv("ARM_XYZ", "1 2 3")
    with pytest.warns(DescriptionWarning, match="is read as '1 2 3'"):
        assert one_joint(read, "fixed", inside).origin.translation.tolist() == [1.0, 2.0, 3.0]


def test_elements_of_other_readers_do_not_matter(read):
    other = '<collision_checking><capsule name="test"/></collision_checking>'
    assert read(f'<link name="base">{other}</link>').links[0].shapes == []
    cdf = '<collision><geometry><cdf filename="a"/></geometry></collision>'
    with pytest.warns(DescriptionWarning, match="a <collision> of type cdf is left out"):
        assert read(f'<link name="base">{cdf}</link>').links[0].shapes == []


def test_spherical_joint_and_plane(read):
    assert one_joint(read, "spherical", '<axis xyz="0 0 0"/>').type == "ball"
    body = '<link name="base"><collision><geometry><plane normal="2 0 0"/></geometry></collision></link>'
    shape = read(body).links[0].shapes[0]
    assert (shape.type, shape.size) == ("plane", ())
    np.testing.assert_allclose(shape.origin.rotation[:, 2], [1, 0, 0], rtol=0, atol=EXACT)

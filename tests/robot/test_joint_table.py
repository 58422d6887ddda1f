"""The table of joint types and their kernel files."""

from __future__ import annotations

from pathlib import Path

import pytest

import pullback
from pullback.description.joints import JOINT_KINDS, KIND_OF_TYPE, JointKind
from pullback.robot.joints import table


def test_only_the_table_reads_which_kind_a_joint_is():
    package = Path(pullback.__file__).parent
    readers = [str(f.relative_to(package)) for f in package.rglob("*.py") if "topology.kind[" in f.read_text("utf-8")]
    assert readers == ["robot/joints/table.py"]


def test_each_type_of_a_description_is_one_kind():
    assert len(KIND_OF_TYPE) == sum(len(kind.types) for kind in JOINT_KINDS)


def test_a_kind_with_more_coordinates_must_define_everything(monkeypatch):
    odd = JointKind("odd", ("odd",), nq=4, nv=3)
    monkeypatch.setattr(table, "JOINT_KINDS", (odd,))
    with pytest.raises(NotImplementedError, match=r"joints/odd_kernels.py has no function 'integrate'"):
        table.of_joints()(lambda_named("joint_integrate"))


def lambda_named(name: str):
    def declaration(topology, i):
        """Declare."""

    declaration.__name__ = name
    return declaration

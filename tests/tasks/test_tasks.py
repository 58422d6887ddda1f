"""The list of tasks: what is in the folder is in it, and each keeps to the form the command line relies on."""

from dataclasses import fields, is_dataclass

import pytest

from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.tasks import find_task, task_names


def test_names_are_file_names_with_dashes():
    assert "identify-masses" in task_names()
    assert all("_" not in name for name in task_names())


@pytest.mark.parametrize("name", task_names())
def test_a_task_has_a_summary_and_options_that_all_have_defaults(name):
    task = find_task(name)
    assert task.summary.endswith(".")
    assert is_dataclass(task.options)
    task.options()
    assert {field.name for field in fields(task.options)} >= {"seed", "out"}


def test_an_unknown_task_names_the_close_one():
    with pytest.raises(PullbackError, match="no task named 'identify-mass'; did you mean 'identify-masses'"):
        find_task("identify-mass")


def test_an_unknown_device_lists_those_there_are():
    assert find_device("cpu").type == "cpu"
    with pytest.raises(PullbackError, match=r"no device named 'tpu' on this machine; choose from: cpu"):
        find_device("tpu")

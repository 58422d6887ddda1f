"""Broken and hostile files are refused by name, soon, and in little memory: hostile_files.py writes them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.description.hostile_files import CASES

# what a refusal may cost: processor time, and memory beyond what was there before
SECONDS, MEGABYTES = 2.0, 200.0
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="measured by /proc")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    pytest.importorskip("mujoco")
    pytest.importorskip("meshio")
    command = [sys.executable, "-m", "tests.description.hostile_runner", str(tmp_path_factory.mktemp("hostile"))]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=900)
    return {found["name"]: found for found in map(json.loads, ran.stdout.splitlines())}


@pytest.mark.parametrize("name", CASES)
def test_is_refused_soon_and_by_name(outcomes, name):
    found = outcomes[name]
    _, _, readable = CASES[name]
    if readable:
        assert found["outcome"] == "read", found
    else:
        assert found["outcome"] == "refused", found
        assert name.removesuffix(".xz").removesuffix(".gz")[:40] in found["text"]
        assert len(found["text"]) < 1500
    assert found["seconds"] < SECONDS
    assert found["megabytes"] < MEGABYTES

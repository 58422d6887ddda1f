"""The layer check complains about each kind of wrong import, and the repository passes it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import check_layers

LETTERS = "a, b, c, d, e, f, g, h, i, j, k, l, m"
ROOT = Path(__file__).resolve().parents[2]


def complaints_about(tmp_path: Path, path: str, text: str) -> list[str]:
    """Write one file into a tree and check the tree."""
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).write_text(text, encoding="utf-8")
    return check_layers.check_tree(tmp_path)


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        # direction
        ("pullback/core/a.py", "from pullback.robot import aba", r"^pullback/core/a.py:1: core imports pullback.robot"),
        ("pullback/core/a.py", "from ..robot import aba", r"core imports pullback.robot; core may import: core$"),
        ("pullback/core/a.py", "from ..robot.aba import x", r"core imports pullback.robot.aba"),
        ("pullback/robot/a.py", "\nfrom .. import tasks", r"^pullback/robot/a.py:2: robot imports pullback.tasks"),
        ("pullback/robot/a.py", "from pullback import tasks", r"robot imports pullback.tasks"),
        ("pullback/robot/a.py", "import pullback.viewer.live", r"robot imports pullback.viewer.live"),
        ("pullback/robot/a.py", "def f():\n    import pullback.tasks", r"a.py:2: robot imports pullback.tasks"),
        ("pullback/rigid/a.py", "from pullback import World", r"rigid imports pullback; rigid may import: .*robot"),
        ("pullback/rigid/a.py", "import pullback as pb", r"rigid imports pullback;"),
        ("pullback/rigid/a.py", "from pullback.thermal import mesh", r"rigid may import: (?!.*thermal)"),
        ("pullback/thermal/a.py", "from ..rigid import step", r"thermal imports pullback.rigid"),
        ("pullback/control/a.py", "from pullback.tasks import leap", r"control imports pullback.tasks"),
        ("pullback/cli.py", "import bench.robot", r"^pullback/cli.py:1: imports bench.robot, which is not part"),
        ("pullback/mpm/a.py", "x = 1", r"^pullback/mpm/a.py:1: 'mpm' has no layer"),
        # torch and warp
        (
            "pullback/robot/aba_kernels.py",
            "import warp as wp\nimport torch",
            r"^.*_kernels.py:2: a kernel file imports",
        ),
        ("pullback/spatial/rotation.py", "from torch import nn", r"a kernel file imports torch"),
        ("pullback/robot/aba.py", "import torch\nimport warp as wp", r"aba.py:2: imports both torch and warp"),
        ("pullback/spatial/rotation_torch.py", "import torch\nimport warp", r"imports both torch and warp"),
        # optional packages
        ("pullback/robot/a.py", "import mujoco", r"a.py:1: imports the optional mujoco .*description/mjcf.py"),
        (
            "pullback/cli.py",
            "try:\n    from viser import X\nexcept ImportError:\n    X = 0",
            r"cli.py:2: .*optional viser",
        ),
        # size
        ("pullback/robot/a.py", "x = 1\n" * 451, r"^pullback/robot/a.py:451: 451 lines; at most 450"),
        ("tests/test_a.py", "x = 1\n" * 451, r"at most 450"),
        ("examples/01_a.py", "x = 1\n" * 81, r"at most 80"),
        # parameters
        (
            "pullback/robot/a.py",
            f"def f({LETTERS[:31]}): ...",
            r"^pullback/robot/a.py:1: f has 11 parameters; at most 10",
        ),
        ("pullback/robot/a.py", f"def f({LETTERS[:25]}, *, x, y): ...", r"f has 11 parameters"),
        ("pullback/robot/a_kernels.py", f"@wp.func\ndef f({LETTERS}): ...", r"f has 13 parameters; at most 12"),
    ],
)
def test_complains(tmp_path, path, text, expected):
    complaints = complaints_about(tmp_path, path, text)
    assert len(complaints) == 1
    assert re.search(expected, complaints[0])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("pullback/tasks/a.py", "from ..rigid import step\nfrom ..robot import aba\nfrom pullback.core import errors"),
        ("pullback/rigid/a.py", "from . import step\nfrom .step import f\nfrom ..rollout import rollout"),
        ("pullback/rigid/solvers/pgs.py", "from ..step import f\nfrom ...core import launch"),
        ("pullback/__init__.py", "from .rigid import World\nfrom .thermal import Part\nfrom .cli import main"),
        ("pullback/cli.py", "from pullback import __version__\nfrom .viewer import live\nimport torch"),
        ("pullback/core/tensors.py", "import torch\nimport warp as wp"),
        ("pullback/robot/aba_kernels.py", "import warp as wp\nfrom ..spatial.rotation import quat_mul"),
        ("pullback/spatial/rotation_torch.py", "import torch"),
        ("pullback/description/mjcf.py", "import mujoco"),
        ("pullback/viewer/live.py", "import viser"),
        ("pullback/robot/a.py", "def f():\n    import mujoco"),
        ("pullback/cli.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import viser"),
        ("examples/01_a.py", "import pullback as pb\nimport torch, warp"),
    ],
)
def test_accepts(tmp_path, path, text):
    assert complaints_about(tmp_path, path, text) == []


def test_neighbours_lean_one_way(tmp_path):
    assert complaints_about(tmp_path, "pullback/robot/a.py", "from ..rollout import schedule") == []
    (complaint,) = complaints_about(tmp_path, "pullback/rollout/b.py", "\nfrom ..robot import aba")
    expected = "pullback/robot/a.py:1: robot imports rollout, and rollout imports robot at pullback/rollout/b.py:2"
    assert complaint.startswith(expected)


def test_a_reason_excuses_a_long_file(tmp_path, monkeypatch):
    monkeypatch.setitem(check_layers.LONG_FILES, "pullback/robot/a.py", "one table")
    assert complaints_about(tmp_path, "pullback/robot/a.py", "x = 1\n" * 451) == []


def test_command_prints_and_fails(tmp_path):
    (tmp_path / "pullback" / "core").mkdir(parents=True)
    (tmp_path / "pullback" / "core" / "a.py").write_text("import pullback.robot")
    command = [sys.executable, str(ROOT / "tools" / "check_layers.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout.startswith("pullback/core/a.py:1: core imports pullback.robot")


def test_this_repository_passes():
    assert check_layers.check_tree(ROOT) == []

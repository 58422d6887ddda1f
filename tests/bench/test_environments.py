"""Programs of peers: they end with all that they started, and what does not install says so."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from bench import environments
from bench.benchmark import NoResultError
from bench.environments import cache, python_of, run_alone

STARTER = """
import subprocess, sys, time
print("a last word", file=sys.stderr)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(("seconds", "cap"), [(0.0, 30.0), (60.0, 3.0)])
def test_a_program_ends_with_all_that_it_started(tmp_path, seconds, cap):
    command = [sys.executable, "-c", STARTER, str(tmp_path / "pid"), str(seconds)]
    before = time.monotonic()
    if seconds > cap:
        with pytest.raises(NoResultError, match="over 3 s"):
            run_alone(command, dict(os.environ), tmp_path / "log", cap)
    else:
        assert run_alone(command, dict(os.environ), tmp_path / "log", cap) == 0
        assert (tmp_path / "log").read_text() == "a last word\n"
    assert time.monotonic() - before < 20.0
    assert ended(int((tmp_path / "pid").read_text()))


def ended(process: int) -> bool:
    """Tell whether a process is gone, or is only waited for by nobody."""
    for _ in range(100):
        stat = Path(f"/proc/{process}/stat")
        if not stat.exists() or stat.read_text().split(") ")[1][0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_what_does_not_install_says_so_and_is_tried_again_by_the_next_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(environments, "wanted", lambda name: ["no-such-package"])
    tried = []

    def failing(command: list[str]) -> str:
        tried.append(command)
        return "" if "venv" in command else "No matching distribution found for no-such-package"

    (tmp_path / "gone").mkdir()
    monkeypatch.setattr(environments, "_run", failing)
    for _ in range(2):
        with pytest.raises(NoResultError, match="does not install: No matching distribution"):
            python_of("gone")
    assert len(tried) == 2
    environments._made.cache_clear()
    with pytest.raises(NoResultError):
        python_of("gone")
    assert len(tried) == 4


def test_an_environment_sees_the_packages_of_the_checkout_that_asks(monkeypatch, tmp_path):
    monkeypatch.setenv("PULLBACK_BENCH_CACHE", str(tmp_path))
    monkeypatch.setattr(environments, "wanted", lambda name: ["torch"])
    monkeypatch.setattr(environments, "_run", lambda command: "")
    packages = cache() / "one" / "lib" / "python3" / "site-packages"
    packages.mkdir(parents=True)
    python_of("one")
    beside = packages / "zz_beside.pth"
    ours = beside.read_text()
    beside.write_text("/of/another\n")
    environments._made.cache_clear()
    monkeypatch.setattr(environments, "_run", lambda command: pytest.fail("made again"))
    python_of("one")
    assert beside.read_text() == ours
    assert json.loads((cache() / "one" / "installed.json").read_text())["packages"] == ["torch"]
    # a checkout with other packages beside it
    environments._made.cache_clear()
    made: list[list[str]] = []
    with monkeypatch.context() as patch:
        patch.setattr(environments, "distributions", list)
        patch.setattr(environments, "_run", lambda command: made.append(command) or "")
        python_of("one")
        assert made
    # back again, and another Python
    monkeypatch.setattr(environments, "_run", lambda command: "")
    environments._made.cache_clear()
    python_of("one")
    environments._made.cache_clear()
    monkeypatch.setattr(environments.platform, "python_version", lambda: "3.99.0")
    made = []
    monkeypatch.setattr(environments, "_run", lambda command: made.append(command) or "")
    python_of("one")
    assert made
    shutil.rmtree(cache())

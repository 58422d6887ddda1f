"""The command line as a newcomer meets it: what it prints, its exit status, and its answers to typing mistakes."""

import json
import subprocess
import sys

import pytest
import torch

import pullback
from pullback import cli
from pullback.cli.doctor import CHECKS
from pullback.core.errors import PullbackError
from pullback.core.extras import EXTRAS
from pullback.description.load import shipped_robots


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    """Return exit status, output and error output, the last two on one line."""
    try:
        status = cli.main(list(arguments))
    except SystemExit as stop:
        status = int(stop.code or 0)
    captured = capsys.readouterr()
    return status, " ".join(captured.out.split()), " ".join(captured.err.split())


def test_version(capsys):
    assert run(capsys, "--version") == (0, f"pullback {pullback.__version__}", "")


@pytest.mark.parametrize("arguments", [(), ("--help",)])
def test_help_lists_the_commands(capsys, arguments):
    status, out, _ = run(capsys, *arguments)
    assert status == 0
    assert all(command in out for command in ("info", "view", "run", "compile", "doctor"))


@pytest.mark.parametrize("name", shipped_robots())
def test_info_shows_every_shipped_robot(capsys, name):
    status, out, _ = run(capsys, "info", name.replace("N", "2"))
    assert status == 0
    assert "problems found: none" in out


def test_info_shows_links_joints_limits_and_masses(capsys):
    status, out, _ = run(capsys, "info", "panda_gripper")
    assert status == 0
    for text in ("panda_hand_tcp", "panda_joint4", "-3.072", "17.452 kg", "follows panda_finger_joint1", "nv 8"):
        assert text in out


def test_info_with_a_floating_base(capsys):
    _, out, _ = run(capsys, "info", "ur5", "--base", "floating")
    assert "nq 13, nv 12, floating base" in out


def test_info_prints_the_problems_of_a_file_once(capsys, tmp_path):
    file = tmp_path / "odd.urdf"
    file.write_text(
        '<robot name="odd"><link name="a"><inertial><mass value="1"/>'
        '<inertia ixx="1" iyy="1" izz="9" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>'
    )
    status, out, err = run(capsys, "info", str(file))
    assert status == 0
    assert "problems found: 1" in out
    assert "not physical" in out
    assert err == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("info", "pandas"), "error: no robot named 'pandas'; did you mean 'panda'"),
        (("info", "no/such.urdf"), "error: no file 'no/such.urdf'"),
        (("run", "identify-mases"), "error: no task named 'identify-mases'; did you mean 'identify-masses'"),
        (
            ("run", "zzz"),
            "error: no task named 'zzz'; choose from: crawl, drape, figure-5, fold, golf, heat-treatment",
        ),
        (("run", "identify-masses", "--robot", "iwa7"), "error: no robot named 'iwa7'; did you mean 'iiwa7'"),
        (("run", "identify-masses", "--device", "tpu"), "error: no device named 'tpu'"),
        (("run", "identify-masses", "--samples", "0"), "error: samples is 0; give a number above zero"),
        (("run", "identify-masses", "--epoch", "3"), "--epochs"),
        (("info", "panda", "--base", "flying"), "fixed"),
        (("inform", "panda"), "info, view, run, runs, sweep, compile, doctor"),
        (("view", "pandas", "--no-open"), "error: no robot named 'pandas'; did you mean 'panda'"),
        (("view", "nowhere.html", "--no-open"), "error: no replay (.html) at 'nowhere.html'"),
        (("info", "robot.usd"), "error: robot.usd is no robot description: USD is not read; export the robot as URDF"),
        (("info", "arm.stl"), "error: arm.stl is no robot description: this is a mesh, without joints"),
        (("compile", "rond"), "error: no set of kernels or robot named 'rond'; did you mean 'round'"),
        (("compile", "linearize"), "error: linearize and feedback are compiled for sets of shapes: add round"),
        (("compile", "robots", "--device", "cuda:9"), "error: no device named 'cuda:9'"),
        (("compile", "robots", "--into", "/dev/null/x"), "error: --into /dev/null/x: /dev/null is a file"),
        (("compile", "robots", "--into", "k", "--target", "arm"), "error: --target arm: give x86-64-v3, or a GPU's"),
        (("run", "throw", "--out", "/dev/null/x"), "error: --out /dev/null/x: /dev/null is a file; give the name of a"),
    ],
)
def test_mistakes_get_one_line_of_help_and_status_2(capsys, arguments, text):
    status, out, err = run(capsys, *arguments)
    assert status == 2
    assert text in err
    assert "Traceback" not in out + err


def test_run_lists_the_tasks(capsys):
    status, out, _ = run(capsys, "run")
    assert status == 0
    assert "identify-masses Identify the masses" in out


def test_run_passes_options_on(capsys, tmp_path):
    flags = ["--epochs", "2", "--samples", "100", "--out", str(tmp_path), "--robot", "pendulum2"]
    status, out, _ = run(capsys, "run", "identify-masses", *flags)
    assert status == 0
    assert "after 2 epochs" in out
    assert (tmp_path / "identify_masses.png").is_file()


def test_doctor_passes_here(capsys):
    status, out, _ = run(capsys, "doctor")
    assert status == 0
    assert torch.__version__ in out
    assert "all is well" in out
    assert "FAIL" not in out
    assert "a step with contact" in out
    assert "robots float64" in out
    assert all(package in out for package in EXTRAS)


def test_doctor_fails_where_a_gradient_is_wrong(capsys, monkeypatch):
    def wrong(device: str) -> str:
        raise RuntimeError("Jacobian mismatch\nwith much detail")

    monkeypatch.setitem(CHECKS, "a gradient", wrong)
    status, out, _ = run(capsys, "doctor")
    assert status == 1
    assert "FAIL" in out
    assert "Jacobian mismatch (" in out


def test_a_warning_is_one_line(capsys, tmp_path):
    file = tmp_path / "arm.urdf"
    file.write_text(
        '<robot name="arm"><link name="a"/><link name="b"><inertial><mass value="1"/><origin xyz="0 0.5 0"/>'
        '<inertia ixx="1" iyy="1" izz="9" ixy="0" ixz="0" iyz="0"/></inertial></link>'
        '<joint name="j" type="continuous"><parent link="a"/><child link="b"/><axis xyz="1 0 0"/></joint></robot>'
    )
    flags = ["--robot", str(file), "--epochs", "1", "--samples", "50", "--out", str(tmp_path)]
    status, _, err = run(capsys, "run", "identify-masses", *flags)
    assert status == 0
    assert "warning: link 'b' in arm.urdf: inertia is not physical" in err
    assert "warnings.warn" not in err


def test_compile_lists_and_compiles(capsys):
    status, out, _ = run(capsys, "compile", "robots", "--list", "--json", "--dtype", "float64")
    found = json.loads(out)["modules"]
    assert status == 0
    assert len(found) == 14
    assert set(found.values()) <= {"here", "shipped", "none"}
    status, out, _ = run(capsys, "compile", "pendulum2", "round", "--list", "--dtype", "float64")
    assert (status, "crba.float64" in out, "rollout_round_finish.float64" in out) == (0, True, True)


def test_debug_shows_where_an_error_came_from():
    with pytest.raises(PullbackError, match="did you mean 'panda'"):
        cli.main(["--debug", "info", "pandas"])


def test_json(capsys, tmp_path):
    assert cli.main(["info", "panda", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["nq"], found["base"], found["problems"]) == (7, "fixed", [])
    assert found["joints"][3]["lower"] == pytest.approx(-3.1416)
    flags = ["--epochs", "2", "--samples", "100", "--out", str(tmp_path), "--robot", "pendulum2", "--json"]
    assert cli.main(["run", "identify-masses", *flags]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["task"] == "identify-masses"
    assert found["options"]["robot"] == "pendulum2"
    assert str(tmp_path / "identify_masses.png") in found["files"]
    assert "after 2 epochs" in captured.err


def test_view_opens_the_newest_replay_of_a_folder(capsys, tmp_path):
    (tmp_path / "throw.html").write_text("<html>")
    status, out, _ = run(capsys, "view", str(tmp_path), "--no-open")
    assert status == 0
    assert out == f"replay: {(tmp_path / 'throw.html').as_uri()}"


@pytest.mark.parametrize("module", ["pullback", "pullback.cli"])
def test_the_installed_command_runs(module):
    result = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stdout.startswith("pullback ")

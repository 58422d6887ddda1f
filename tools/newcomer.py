"""Walk a newcomer's path with the installed package, and print the seconds of each step.

Usage: python tools/newcomer.py FOLDER ROBOT.urdf ROBOT.urdf ROBOT.urdf

Run it with the Python of a clean environment into which the wheel was installed with the extra `viz`. It looks at each
robot, views the first (a picture too where Chromium is found), drops it, pulls at it, differentiates through its
contacts, learns a friction, and exports a page and a video to FOLDER.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MEASURED: list[tuple[str, float, str]] = []
BROWSER = ("chromium", "chromium-browser", "google-chrome")


def step(name: str, work: Callable[[], Any]) -> Any:
    """Do one step of the path, and note how long it took and what it gave."""
    start = time.perf_counter()
    found, told = work()
    MEASURED.append((name, round(time.perf_counter() - start, 2), told))
    print(f"{MEASURED[-1][1]:8.2f} s  {name}: {told}", flush=True)
    return found


def command(*arguments: str) -> Callable[[], tuple[str, str]]:
    """Return a step that runs the installed command, as a fresh process; its last line is what it gave."""

    def run() -> tuple[str, str]:
        line = [sys.executable, "-m", "pullback", *arguments]
        done = subprocess.run(line, check=True, capture_output=True, text=True)
        return done.stdout, done.stdout.strip().splitlines()[-1]

    return run


def photograph(url: str, path: Path) -> None:
    """Take a picture of a page, where there is a browser."""
    browser = next((found for name in BROWSER if (found := shutil.which(name))), None)
    if browser is not None:
        flags = ["--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        flags += ["--window-size=900,560", "--virtual-time-budget=8000", f"--screenshot={path}", url]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([browser, *flags], check=False, capture_output=True, timeout=30)


def main() -> int:
    """Walk the path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("robots", nargs=3)
    options = parser.parse_args()
    out: Path = options.folder
    out.mkdir(parents=True, exist_ok=True)
    step("pullback --version", command("--version"))
    for robot in options.robots:
        step(f"pullback info {Path(robot).name}", command("info", robot))
    step("pullback run throw", command("run", "throw", "--cma-iterations", "0", "--out", str(out / "throw")))
    pb = step("import pullback", _import)
    robots = [step(f"load {Path(name).name}", lambda name=name: _load(pb, name)) for name in options.robots]
    step("view the first", lambda: _view(pb, robots[0], out / "view.png"))
    sim, motion = step("drop it, 1 s", lambda: _drop(pb, robots[0]))
    step("pull at it by a spring, 1 s", lambda: _pull(sim))
    step("gradient of where it lands", lambda: _differentiate(pb, sim))
    step("learn the friction of a box", lambda: _learn(pb))
    step("export HTML", lambda: _export(pb.viewer.save_replay, sim, motion, out / "drop.html"))
    step("export mp4", lambda: _export(pb.viewer.save_video, sim, motion, out / "drop.mp4"))
    photograph((out / "drop.html").resolve().as_uri(), out / "drop.png")
    (out / "newcomer.json").write_text(json.dumps(MEASURED, indent=1))
    return 0


def _import() -> tuple[Any, str]:
    import pullback as pb

    return pb, pb.__version__


def _load(pb: Any, name: str) -> tuple[Any, str]:
    robot = pb.load(name, base="floating")
    return robot, f"{len(robot.get_link_names())} links, nv {robot.nv}"


def _view(pb: Any, robot: Any, picture: Path) -> tuple[None, str]:
    viewer = pb.view(robot, port=None, block=False)
    try:
        photograph(viewer.url, picture)
        return None, f"{viewer.url}, picture {'taken' if picture.exists() else 'not taken: no Chromium'}"
    finally:
        viewer.stop()


def _drop(pb: Any, robot: Any) -> tuple[Any, str]:
    world = pb.World()
    world.add_ground()
    world.add(robot, name="robot", position=(0.0, 0.0, 0.6))
    sim = world.compile(dt=2e-3)
    motion = sim.rollout(sim.initial_state(), sim.initial_state().q.new_zeros(500, 1, sim.nu))
    return (sim, motion), f"base at {motion.q[-1, 0, 2].item():.3f} m, {len(sim.contacts(motion[-1])[0])} contacts"


def _pull(sim: Any) -> tuple[None, str]:
    import numpy as np

    from pullback.viewer.physics import Physics, Pull

    # some files begin with links that stand for the world, which have no mass
    robot = sim.world.robots["robot"]
    name = next(name for name in robot.get_link_names() if robot.get_link_param(name, "mass") > 0.0)
    physics, pull = Physics(sim, sim.initial_state()), Pull(f"robot/{name}", np.zeros(3))
    pull.target = np.array([0.3, 0.0, 0.8])
    before = np.linalg.norm(pull.target - pull.point(sim, physics.state))
    for _ in range(30):
        physics.advance(1.0 / 30.0, pull)
    after = np.linalg.norm(pull.target - pull.point(sim, physics.state))
    return None, f"{name} from {before:.2f} to {after:.2f} m of where it is pulled to"


def _differentiate(pb: Any, sim: Any) -> tuple[None, str]:
    start = sim.initial_state()
    qd = start.qd.clone().requires_grad_()
    motion = sim.rollout(pb.State(start.q, qd, start.impulses), start.q.new_zeros(300, 1, sim.nu))
    motion.q[-1, 0, 0].backward()
    return None, f"d x / d throw = {qd.grad[0, 3].item():.3f} m per m/s"


def _learn(pb: Any) -> tuple[None, str]:
    import torch

    friction = torch.tensor(0.6, requires_grad=True)
    world = pb.World()
    world.add_ground(friction=friction)
    world.add_box("box", size=(0.2, 0.2, 0.1), mass=1.0, position=(0, 0, 0.05), friction=1.0)
    sim = world.compile(dt=2e-3)
    start = sim.initial_state()
    start.qd[:, 3] = 1.0
    search = torch.optim.Adam([friction], lr=0.02)
    for _ in range(60):
        search.zero_grad()
        # it was seen to stop after 0.17 m
        loss = (sim.rollout(start, 400).q[-1, 0, 0] - 0.17).square()
        loss.backward()
        search.step()
    return None, f"friction {friction.item():.3f}, {1e3 * loss.item() ** 0.5:.1f} mm off"


def _export(save: Callable[..., Path], sim: Any, motion: Any, path: Path) -> tuple[Path, str]:
    save(sim, motion, path, title="a robot is dropped")
    return path, f"{path.stat().st_size / 1e6:.1f} MB"


if __name__ == "__main__":
    sys.exit(main())

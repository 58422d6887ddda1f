"""Build wheel and sdist, install the wheel in a clean environment, and run a gradient through contact from it.

Usage: python tools/check_package.py [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

PROGRAM = """
import torch
import pullback as pb

world = pb.World()
world.add_ground()
world.add_sphere("ball", radius=0.1, mass=1.0, position=(0.0, 0.0, 0.1))
sim = world.compile(dt=1e-2, dtype=torch.float64)
start = sim.initial_state()
qd = start.qd.clone()
qd[0, 3] = 1.0
qd.requires_grad_()
motion = sim.rollout(pb.State(start.q, qd, start.impulses), 20)
motion.q[-1, 0, 0].backward()
assert torch.isfinite(qd.grad).all() and qd.grad[0, 3] > 0.0
print(pb.__version__, pb.__file__, qd.grad[0, 3].item())
"""


def main() -> int:
    """Build, look into the files, install, run; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="where wheel and sdist are left")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        out = options.keep or Path(temporary) / "dist"
        run([sys.executable, "-m", "build", "--sdist", "--wheel", "--outdir", str(out), str(ROOT)])
        (wheel,), (sdist,) = sorted(out.glob("*.whl")), sorted(out.glob("*.tar.gz"))
        check_names(wheel, sdist)
        environment = Path(temporary) / "venv"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        run([str(python), "-m", "pip", "install", "--quiet", "-c", str(ROOT / "constraints.txt"), str(wheel)])
        run([str(python), "-c", PROGRAM], cwd=temporary)
        run([str(environment / "bin" / "pullback"), "--version"], cwd=temporary)
        run([str(environment / "bin" / "pullback"), "info", "panda", "--json"], cwd=temporary, quiet=True)
    return 0


def check_names(wheel: Path, sdist: Path) -> None:
    """Raise if a file is missing that users or the licence ask for."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    for needed in ("pullback/py.typed", "pullback/__main__.py"):
        assert needed in names, f"{needed} is not in {wheel.name}"
    for needed in ("LICENSE", "NOTICE"):
        assert any(name.endswith(f"licenses/{needed}") for name in names), f"{needed} is not in {wheel.name}"
    with tarfile.open(sdist) as archive:
        names = archive.getnames()
    for needed in ("README.md", "Makefile", "CITATION.cff", "docs/README.md", "tests/conftest.py", "mkdocs.yml"):
        assert any(name.endswith(f"/{needed}") for name in names), f"{needed} is not in {sdist.name}"
    print(f"{wheel.name} {wheel.stat().st_size / 1e6:.1f} MB, {sdist.name} {sdist.stat().st_size / 1e6:.1f} MB")


def run(command: list[str], cwd: str | Path | None = None, quiet: bool = False) -> None:
    """Run a command, and raise if it fails."""
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL if quiet else None)


if __name__ == "__main__":
    sys.exit(main())

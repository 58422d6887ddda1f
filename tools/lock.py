"""Write the packages that `make test` installs, all of them, with their versions and hashes.

    python tools/lock.py [FILE]        # requirements.lock

`make test LOCK=requirements.lock` then installs nothing but those files. The lock is for one platform and one index: a
package index that builds a wheel anew (torch for CPUs only, say) serves other bytes, and pip refuses them. So it is not
what `make test` does unasked; `constraints.txt` is.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def resolve(extra: str = "dev") -> list[tuple[str, str, str]]:
    """Return name, version and sha256 of every package that an extra brings, pullback itself left out."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed"]
        command += ["--report", str(report), "-c", "constraints.txt", "-e", f".[{extra}]"]
        subprocess.run(command, cwd=ROOT, check=True)
        found = json.loads(report.read_text())["install"]
    rows = []
    for package in found:
        name, version = package["metadata"]["name"], package["metadata"]["version"]
        hashes = package["download_info"].get("archive_info", {}).get("hashes", {})
        if hashes:
            rows.append((name.lower().replace("_", "-"), version, hashes["sha256"]))
    return sorted(rows)


def main(path: Path) -> None:
    """Write the lock file."""
    platform = f"Python {sys.version_info.major}.{sys.version_info.minor}, {sys.platform}"
    lines = [f"# every package of pullback[dev] on {platform}; written by `make lock`"]
    lines += [f"{name}=={version} --hash=sha256:{digest}" for name, version, digest in resolve()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{path}: {len(lines) - 1} packages")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "requirements.lock")

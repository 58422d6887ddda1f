"""Start ranks as torchrun does: processes that know their number from environment variables."""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start(count: int, *arguments: str, **variables: str) -> list[subprocess.Popen]:
    """Start `python ARGUMENTS` on `count` ranks; the first of them keeps the store."""
    port, processes = free_port(), []
    for rank in range(count):
        env = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT), **{k: v.format(rank=rank) for k, v in variables.items()},
        }  # fmt: skip
        command = [sys.executable, *arguments]
        processes.append(
            subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    return processes


def finish(processes: list[subprocess.Popen], timeout: float = 300.0) -> list[str]:
    """Wait for all ranks and return what they printed; one that failed is an error."""
    try:
        printed = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, (process, text) in enumerate(zip(processes, printed)):
        assert process.returncode == 0, f"rank {rank} of {len(processes)}:\n{text[-3000:]}"
    return printed

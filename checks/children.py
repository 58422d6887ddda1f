"""Run a function in a forked process, so that nothing it does can hang, crash or fill the one that asks."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from collections.abc import Callable
from typing import Any

from pullback.core.errors import PullbackError

LONGEST = 60_000
"""Bytes of an answer."""


def memory(field: str) -> float:
    """Return a figure of this process [MB]: VmRSS, VmHWM."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) / 1000


def measure(function: Callable[[], Any]) -> dict[str, Any]:
    """Call a function and return what it cost: outcome, seconds of processor time, megabytes, text, value.

    The outcome is "read" where it returned, "refused" where it raised a PullbackError, "raw ..." for other errors.
    Processor time: other work on the machine does not count.
    """
    before, start, value, text = memory("VmRSS"), time.process_time(), None, ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = function()
        outcome = "read"
    except PullbackError as error:
        outcome, text = "refused", str(error)[:2000]
    except BaseException as error:
        outcome, text = f"raw {type(error).__name__}", str(error)[:500]
    seconds = time.process_time() - start
    return {
        "outcome": outcome,
        "seconds": seconds,
        "megabytes": memory("VmHWM") - before,
        "text": text,
        "value": value,
    }


def in_a_child(function: Callable[[], Any], patience: int = 30) -> dict[str, Any]:
    """Measure a function in a forked process, which is ended after `patience` seconds; its value must be JSON."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        # readers of others print
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(patience)
        try:
            os.write(theirs, json.dumps(measure(function)).encode()[:LONGEST])
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        found = pipe.read()
    _, status = os.waitpid(child, 0)
    if found:
        return json.loads(found)
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    why = f"took more than {patience} s" if number == signal.SIGALRM else f"ended by signal {number}"
    return {"outcome": why, "seconds": float(patience), "megabytes": 0.0, "text": "", "value": None}

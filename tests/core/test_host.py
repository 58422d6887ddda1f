"""Importing and using the library leaves the host's process-wide settings as they were."""

import gc
import subprocess
import sys
import threading

import pytest
import warp as wp

from pullback.core.host import Held, collection_paused, warp_silenced

SNAPSHOT = """
import gc, logging, signal, sys, warnings
import numpy, torch, warp as wp
from warp._src import context

def snapshot():
    methods = {
        f"{kind.__name__}.{name}": value
        for kind in (context.Module, context.ModuleBuilder, context.Kernel, context.Function, context.Device)
        for name, value in vars(kind).items() if callable(value)
    }
    return {
        "frozen": gc.get_freeze_count(),
        "collects": (gc.isenabled(), gc.get_threshold(), list(gc.callbacks)),
        "warp": {k: v for k, v in vars(wp.config).items() if not k.startswith("__") and k != "kernel_cache_dir"},
        "warp logger": wp._src.logger.get_logger(),
        "methods": methods,
        "functions": {k: v for k, v in vars(context).items() if callable(v)},
        "logging": {n: getattr(x, "level", 0) for n, x in logging.root.manager.loggerDict.items()},
        "root logger": logging.root.level,
        "torch": (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
                  torch.are_deterministic_algorithms_enabled(), torch.get_float32_matmul_precision()),
        "warnings": list(warnings.filters),
        "numpy": numpy.geterr(),
        "signals": (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)),
        "excepthook": sys.excepthook,
        "switch": sys.getswitchinterval(),
    }

def differences(before):
    after = snapshot()
    return [name for name in before if before[name] != after[name]]

before = snapshot()
import pullback as pb
assert not differences(before), differences(before)
"""

USE = """
import pullback.thermal, pullback.control
world = pb.World()
world.add(pb.load("pendulum3"), name="arm")
sim = world.compile(dt=1e-3)
q = sim.initial_state().q.clone().requires_grad_()
sim.rollout(pb.State(q, 0 * q), 3).q.sum().backward()
assert q.grad.abs().sum() > 0
assert not differences(before), differences(before)
"""


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_an_import_changes_nothing_of_the_hosts():
    run(SNAPSHOT)


def test_a_gradient_changes_nothing_either_and_prints_nothing():
    assert run(SNAPSHOT + USE) == ""


def test_a_log_level_that_was_chosen_is_kept():
    chosen = "import warp as wp\nwp.config.log_level = wp.LOG_DEBUG\n"
    printed = run(chosen + "import pullback as pb\n" + USE.rsplit("assert not", 1)[0])
    assert "initialized" in printed


def test_the_collector_stays_off_where_it_was_off():
    gc.disable()
    try:
        with collection_paused:
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_blocks_nest_and_errors_restore():
    assert gc.isenabled()

    def fail():
        with collection_paused:
            with collection_paused:
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert gc.isenabled()
    level = wp.config.log_level
    with warp_silenced:
        assert wp.config.log_level >= wp.LOG_WARNING
    assert wp.config.log_level == level


def test_threads_that_overlap_restore_once():
    log: list[str] = []

    def change():
        log.append("changed")
        return lambda: log.append("restored")

    held, inside, leave = Held(change), threading.Barrier(3), threading.Event()

    def work():
        with held:
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    with held:
        inside.wait()
        assert log == ["changed"]
    leave.set()
    for thread in threads:
        thread.join()
    assert log == ["changed", "restored"]


def test_warp_says_nothing_of_a_missing_driver_and_all_else_is_still_said():
    """In a process of its own, whose stderr is a pipe."""
    code = (
        "import os, pullback as pb\n"
        "from pullback.core.host import without_driver_warning\n"
        "from pullback.core.modules import initialize\n"
        "initialize()\n"
        "with without_driver_warning():\n"
        "    os.write(2, b'kept\\n')\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stderr == "kept\n"

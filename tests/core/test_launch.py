"""Launches over threads: first ones, many at once, and how a batch is cut."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import pullback as pb
from pullback.core.modules import made_once
from pullback.core.threads import WORLDS_PER_SHARD, shards_for

FIRST_LAUNCHES = """
import sys, torch, warp as wp, pullback as pb
torch.set_num_threads(2)
sys.setswitchinterval(1e-5)
from pullback.core.modules import kernel_module
for _ in range(60):
    for kernel in ("poses", "poses_vjp"):
        kernel_module(kernel, wp.float64).unload()
    robot = pb.load("pendulum3", dtype=torch.float64)
    q = robot.random_q(400).requires_grad_()
    robot.compute_forward_kinematics(q, "link2")[0].sum().backward()
    assert q.grad.abs().max() > 0
"""


def test_a_first_launch_may_be_on_two_threads():
    """Loading a kernel on two threads at once crashes the process, so this runs in one of its own."""
    done = subprocess.run([sys.executable, "-c", FIRST_LAUNCHES], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]


def test_one_robot_on_many_threads():
    robot = pb.load("panda", dtype=torch.float64)
    inputs = []
    for k in range(16):
        generator = torch.Generator().manual_seed(k)
        qd = torch.randn(200 + k, robot.nv, dtype=torch.float64, generator=generator)
        inputs.append((robot.random_q(200 + k, generator=generator), qd))

    def run(state):
        q, qd = (x.clone().requires_grad_() for x in state)
        qdd = robot.compute_forward_dynamics(q, qd, qd)
        return qdd.detach(), *torch.autograd.grad(qdd.sum(), (q, qd))

    expected = [run(state) for state in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, right in zip(pool.map(run, inputs), expected, strict=True):
                assert all(torch.equal(a, b) for a, b in zip(found, right, strict=True))


@pytest.mark.parametrize(
    ("worlds", "threads", "shards"),
    [(0, 4, 1), (1, 4, 1), (WORLDS_PER_SHARD - 1, 4, 1), (2 * WORLDS_PER_SHARD, 4, 2), (10**6, 4, 4), (10**6, 1, 1)],
)
def test_a_batch_is_cut_into_no_more_pieces_than_pay(worlds, threads, shards):
    assert shards_for(worlds, threads) == shards


@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("worlds", [128, 129, 191, 192, 449, 500])
def test_every_world_is_worked_once_however_the_batch_is_cut(worlds, threads):
    robot = pb.load("pendulum3", dtype=torch.float64)
    q = robot.random_q(worlds, generator=torch.Generator().manual_seed(0))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected, _ = robot.compute_forward_kinematics(q, "link2")
        torch.set_num_threads(threads)
        found, _ = robot.compute_forward_kinematics(q, "link2")
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found, expected)


FORK = """
import os, sys, torch
import pullback as pb
torch.set_num_threads(2)
robot = pb.load("pendulum3", dtype=torch.float64)
x = torch.ones(1024, 3, dtype=torch.float64)
before = robot.compute_forward_dynamics(x, x, x)
child = os.fork()
if child == 0:
    os._exit(0 if torch.equal(robot.compute_forward_dynamics(x, x, x), before) else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_computes_with_threads_of_its_own():
    """The threads of the parent's pool do not exist in the child, which used to wait for them for ever."""
    assert subprocess.run([sys.executable, "-c", FORK], timeout=120, check=False).returncode == 0


def test_kernels_are_made_once_whoever_comes_first():
    made = []

    @made_once
    def make(real: type) -> object:
        time.sleep(0.02)
        made.append(real)
        return object()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(make, [float] * 4))
    assert made == [float]
    assert all(x is found[0] for x in found)

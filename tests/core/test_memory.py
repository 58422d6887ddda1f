"""Too little memory on a GPU: the error says how many worlds would fit."""

import pytest
import torch

import pullback as pb
from pullback.core import memory
from pullback.core.arrays import LaunchArrays


@pytest.mark.parametrize("backward", [False, True])
def test_the_error_says_how_many_worlds_fit(monkeypatch, backward):
    robot = pb.load("pendulum2", dtype=torch.float64)
    q = torch.zeros(4096, 2, dtype=torch.float64, requires_grad=True)
    masses = robot.compute_lagrangian_inertia_matrix(q)

    def launch(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")

    monkeypatch.setattr(LaunchArrays, "launch", launch)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1_000_000)
    with pytest.raises(pb.PullbackError, match=r"mass matrix of 4,096 worlds needs .* GiB on cpu") as raised:
        masses.sum().backward() if backward else robot.compute_lagrangian_inertia_matrix(q)
    text = str(raised.value)
    fit = int(text.split("about ")[1].split(" worlds")[0].replace(",", ""))
    needed = float(text.split("needs ")[1].split(" GiB")[0]) * 2**30
    # 0.9 of a megabyte is what so many worlds need
    assert fit * needed / 4096 == pytest.approx(0.9e6, rel=0.02)


def test_not_even_one(monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10)
    assert "not even one world" in str(memory.no_memory("a step", [torch.zeros(2, 3)], 100))

"""Blocks on a GPU: as small as it takes to keep all of it busy, and no larger than the kernel was compiled for."""

import pytest

from pullback.core.launch import threads_a_block


@pytest.mark.parametrize(
    ("worlds", "threads"),
    [(1, 1), (256, 1), (528, 1), (529, 2), (1024, 2), (4096, 8), (16384, 32), (32768, 64), (10**6, 64)],
)
def test_few_worlds_are_spread_over_all_multiprocessors(worlds, threads):
    # an H200 has 132 multiprocessors of four schedulers
    assert threads_a_block(worlds, multiprocessors=132, most=64) == threads


def test_a_device_that_does_not_say_its_size():
    assert threads_a_block(1000, multiprocessors=0, most=64) == 64

"""How large the blocks are in which a GPU takes its worlds."""

import pytest

from pullback.core.launch import MANY_WORLDS, threads_a_block
from pullback.core.modules import GPU_BLOCK


@pytest.mark.parametrize("worlds", [1, 1000, MANY_WORLDS - 1, MANY_WORLDS, 10**6])
def test_blocks_are_no_larger_than_kernels_are_compiled_for(worlds):
    threads = threads_a_block(worlds, GPU_BLOCK)
    assert threads <= GPU_BLOCK
    # whole warps, whose worlds wait for each other
    assert threads % 32 == 0


def test_many_worlds_come_in_larger_blocks():
    assert threads_a_block(MANY_WORLDS, 128) > threads_a_block(MANY_WORLDS - 1, 128)

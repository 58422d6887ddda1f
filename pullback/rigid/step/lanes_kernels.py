"""Worlds that a GPU steps in lockstep, brought together again after they went different ways.

A GPU runs the stages of a step (docs/derivations/contact_step.md) for 32 worlds as the lanes of one warp. Where their
branches differ, as in the number of sweeps, it runs each way by itself, and nothing sees to it that lanes meet again:
the same stage is then run once for each group of lanes. So stages that take worlds apart are followed by `converge`,
where they wait for each other. If all worlds of a block take part in a step, the whole block waits: its warps then run
the same code at the same time, and share the instruction cache.

Who waits for whom stands in two rows of a world's scratch: the lanes of its warp as bits, and whether it is the whole
block. `together` writes them where all threads of the block pass, `alone` where threads may be anywhere. Worlds that
leave a loop early are taken out by `narrow`, and put back by `widen` after the loop. On a CPU all of these do nothing.
"""

from __future__ import annotations

import warp as wp

_ROW = """
#if defined(__CUDA_ARCH__)
    char* at = reinterpret_cast<char*>(scratch.data) + static_cast<long long>(w) * scratch.strides[1]
        + static_cast<long long>(row) * scratch.strides[0];
    unsigned& lanes = *reinterpret_cast<unsigned*>(at);
    unsigned& block = *reinterpret_cast<unsigned*>(at + scratch.strides[0]);
    {body}
#else
    {otherwise}
#endif
"""


def _on_gpu(body: str, otherwise: str = "") -> str:
    return _ROW.format(body=body, otherwise=otherwise)


_NARROW = """
    const unsigned still = __ballot_sync(lanes, again);
    if (again) { lanes = still; block = 0; }
"""
_WIDEN = """
    if (kept == 0) { __syncthreads(); lanes = __ballot_sync(0xffffffffu, true); block = 1; }
    else { lanes = static_cast<unsigned>(kept); block = 0; __syncwarp(lanes); }
"""

for _real in (wp.float32, wp.float64):
    _a = wp.array2d(dtype=_real)

    @wp.func_native(_on_gpu("block = __syncthreads_and(takes_part); lanes = __ballot_sync(0xffffffffu, takes_part);"))
    def together(takes_part: bool, row: int, w: int, scratch: _a):
        """Let the worlds that take part wait for each other from here on; all threads of the block must call this."""

    @wp.func_native(_on_gpu("lanes = 1u << (threadIdx.x & 31); block = 0;"))
    def alone(row: int, w: int, scratch: _a):
        """Let this world wait for no other."""

    @wp.func_native(_on_gpu("if (block) __syncthreads(); else __syncwarp(lanes);"))
    def converge(row: int, w: int, scratch: _a):
        """Wait for the worlds that do this step together; all of them must come here."""

    @wp.func_native(_on_gpu(_NARROW))
    def narrow(again: bool, row: int, w: int, scratch: _a):
        """Let only worlds that go through a loop again wait for each other; all of the last round must call this."""

    @wp.func_native(_on_gpu("return block ? 0 : static_cast<wp::int32>(lanes);", "return 0;"))
    def lanes_of(row: int, w: int, scratch: _a) -> int:
        """Return who waits for each other, for `widen`."""

    @wp.func_native(_on_gpu(_WIDEN))
    def widen(kept: int, row: int, w: int, scratch: _a):
        """Wait for all worlds that there were before a loop."""

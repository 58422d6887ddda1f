"""Kernels of heat and of particles compile for a GPU, which takes none: in a process of their own."""

import subprocess
import sys
from textwrap import dedent

import pytest

COMPILE = """
import sys
import warp as wp
from warp._src import context

for name, module in list(context.user_modules.items()):
    if name.startswith(f"pullback.{sys.argv[1]}_") and module.kernels:
        wp.compile_aot_module(module, arch=90, module_dir=sys.argv[2], use_ptx=True)
        print("compiled", name)
"""
SCENES = {
    "thermal": """
        import torch
        from tests.thermal.cases import wall
        process = wall(threads=1)
        power = torch.full((process.steps,), 100.0, dtype=torch.float64, requires_grad=True)
        process.run(power).final.sum().backward()
    """,
    "soft": """
        import torch
        from tests.soft.scenes import scene, start
        sim = scene(dim=2)
        state = start(sim)
        state.x.requires_grad_()
        sim.rollout(state, 2).final.x.sum().backward()
    """,
}


@pytest.mark.parametrize("kind", SCENES)
def test_kernels_compile_for_a_gpu(kind, tmp_path):
    given = [sys.executable, "-c", dedent(SCENES[kind]) + COMPILE, kind, str(tmp_path)]
    done = subprocess.run(given, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.count("compiled") >= 3

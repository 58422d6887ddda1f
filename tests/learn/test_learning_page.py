"""The environment of docs/learning.md runs, its load differs from world to world, and it can be learned in."""

import re
from pathlib import Path

import torch

from pullback.learn import SHAC, Config

PAGE = Path(__file__).parents[2] / "docs" / "learning.md"


def test_the_environment_of_the_page():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(next(block for block in blocks if "class Reach" in block), names)
    # in float64 its kernels are those of other tests
    env = names["Reach"](4, seed=1, dtype=torch.float64)
    run = SHAC(env, Config.of(env, horizon=3, critic_passes=1))
    run.iterate()
    assert run.history[-1].gradient_norm > 0.0
    assert env._randomized[0].value.unique().numel() == 4
    assert torch.isfinite(env.state.q).all()

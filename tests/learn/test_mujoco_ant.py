"""The ant in MuJoCo takes the steps of Gymnasium's own environment."""

import numpy as np
import pytest
import torch

from pullback.learn import make
from pullback.learn.envs.mujoco_ant import _matrix

F64 = torch.float64


def test_steps_are_those_of_gymnasium():
    pytest.importorskip("mujoco")
    gymnasium = pytest.importorskip("gymnasium")
    env = make("mujoco-ant", 2, dtype=F64, seed=0)
    options = {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0, "healthy_z_range": (0.2, 1.0)}
    theirs = gymnasium.make("Ant-v5", **options).unwrapped
    theirs.reset(seed=0)
    q, qd = env.state.q[0].numpy(), env.state.qd[0].numpy()
    turn = _matrix(q[3:7])
    theirs.set_state(
        np.array([*q[:3], q[6], *q[3:6], *q[7:]]), np.array([*(turn @ qd[3:6]), *qd[:3], *qd[6:]])
    )  # fmt: skip
    random = np.random.default_rng(0)
    for _ in range(6):
        # motors are in another order there
        action = random.uniform(-1.0, 1.0, 8)
        step = env.step(torch.tensor(np.stack([action, action])))
        seen, reward, ended, _, _ = theirs.step(action[[6, 7, 0, 1, 2, 3, 4, 5]])
        ours = step.info["final_observation"][0].numpy()
        assert np.allclose(ours[5:13], seen[5:13], atol=1e-12)
        assert ours[4] == pytest.approx(seen[0], abs=1e-12)
        assert np.allclose(ours[:4], seen[[2, 3, 4, 1]], atol=1e-12)
        assert np.allclose(ours[13:16], 0.05 * seen[16:19], atol=1e-12)
        turn = _matrix(ours[:4])
        assert np.allclose(turn @ ours[16:19], 0.05 * seen[13:16], atol=1e-12)
        # Gymnasium's speed is of positions one of MuJoCo's steps old
        assert step.reward[0].item() == pytest.approx(float(reward), abs=0.02)
        assert bool(step.terminated[0]) == ended

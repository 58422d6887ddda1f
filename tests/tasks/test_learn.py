"""The task learn: it trains, tries, saves, exports, resumes, and names what does not fit."""

import numpy as np
import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import load_policy
from pullback.tasks import learn
from pullback.tasks.learn import Options, run


def test_a_short_run_writes_all_its_files_and_can_go_on(tmp_path, capsys):
    threads = torch.get_num_threads()
    options = Options(worlds=4, iterations=2, horizon=4, out=tmp_path, replay=False)
    found = run(options)
    assert torch.get_num_threads() == threads
    assert {path.name for path in found.files} == {
        "learn_cart_pole.pt", "policy_cart_pole.pt", "learn_cart_pole.npz", "learn_cart_pole.png",
    }  # fmt: skip
    text = capsys.readouterr().out
    assert "return before" in text
    assert "worlds no longer finite" in text
    assert load_policy(tmp_path / "policy_cart_pole.pt").sizes == (5, 64, 64, 1)
    again = run(Options(worlds=4, iterations=2, horizon=4, out=tmp_path, replay=False, resume=True))
    assert again.run.done == 2
    assert again.after == found.after


def test_ppo_of_rsl_rl_stands_beside_it(tmp_path, capsys, monkeypatch):
    pytest.importorskip("rsl_rl")
    options = Options(worlds=4, iterations=2, horizon=24, ppo=2.0, out=tmp_path, replay=False)
    found = run(options)
    # two iterations of 24 steps each are as many steps as two of PPO's; twice that was asked for
    assert [report.steps for report in found.ppo.history] == [96, 192, 288, 384]
    assert "PPO, return after" in capsys.readouterr().out
    saved = np.load(tmp_path / "learn_cart_pole.npz")
    assert saved["ppo_steps"].tolist() == [96, 192, 288, 384]
    # the same steps, tried on the same starts
    again = run(options)
    assert again.ppo.after == found.ppo.after
    monkeypatch.setattr(learn, "find_spec", lambda name: None)
    with pytest.raises(PullbackError, match=r"pip install 'pullback\[rl\]', or leave --ppo out"):
        run(options)


def test_what_does_not_fit_is_said(tmp_path):
    with pytest.raises(PullbackError, match="no environment named 'cart-poles'; did you mean 'cart-pole'"):
        run(Options(env="cart-poles", out=tmp_path))
    with pytest.raises(PullbackError, match="no option of the environment 'ant' named 'links'"):
        run(Options(env="ant", links=3, out=tmp_path))

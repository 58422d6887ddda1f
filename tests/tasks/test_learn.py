"""The task learn: it trains, tries, saves, exports, resumes, and names what does not fit."""

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import load_policy
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


def test_what_does_not_fit_is_said(tmp_path):
    with pytest.raises(PullbackError, match="no environment named 'cart-poles'; did you mean 'cart-pole'"):
        run(Options(env="cart-poles", out=tmp_path))
    with pytest.raises(PullbackError, match="no option of the environment 'ant' named 'links'"):
        run(Options(env="ant", links=3, out=tmp_path))

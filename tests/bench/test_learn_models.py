"""The benchmark of learned models: rows with their extra samples, and a line for each radius."""

import torch

from bench.learn_models import WORLDS, collect, compare, load_policy
from pullback.learn.enhance import Extra, with_extra_samples
from pullback.learn.ensemble import EnsembleConfig
from pullback.learn.seeded import SeededPolicy, generators


def test_lines_of_each_radius(capsys, monkeypatch):
    monkeypatch.setattr("bench.learn_models.EnsembleConfig", lambda: EnsembleConfig(hidden=(8,), most_passes=2))
    compare("swing-up", 2, 4, [0.01], None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"swing-up, {4 * WORLDS} transitions")
    assert [line.split(" | ")[0].strip("| ") for line in lines[3:]] == ["no extra samples", "0.01"]
    assert all(float(x) > -10.0 for line in lines[3:] for x in line.strip("| ").split(" | ")[2:])


def test_transitions_are_followed_by_their_extra_samples(tmp_path):
    policy = SeededPolicy(generators(0, 2), [12, 16, 2])
    torch.save({"state": {"policy": policy.state_dict()}}, tmp_path / "run.pt")
    rows = collect("swing-up", 2, 1, 2, load_policy(tmp_path / "run.pt"))
    given = with_extra_samples(rows, Extra(9, 0.1), torch.Generator().manual_seed(0))
    first = given["next"].unflatten(1, (-1, 10))
    assert torch.equal(first[:, :, 0], rows["next"])
    assert not torch.equal(first[:, :, 1], rows["next"])
    # derivatives are those of the true action only
    assert given.keys() == rows.keys() - {"next_by_action", "reward_by_action"}

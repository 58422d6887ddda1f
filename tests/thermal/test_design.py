"""Designs end where they should, and an interruption, a bad number or a full stop loses nothing."""

import os
import signal

import pytest
import torch

import pullback as pb
import pullback.thermal as th

TARGET = torch.linspace(-1.0, 1.0, 5, dtype=torch.float64)


class Valley(torch.nn.Module):
    """Rosenbrock's valley, in five numbers; `at` maps a call's number to what happens in it."""

    def __init__(self, at=None):
        super().__init__()
        self.x = torch.nn.Parameter(torch.full((5,), -0.7, dtype=torch.float64))
        self.calls, self.at = 0, at or {}

    def loss(self):
        self.calls += 1
        x = self.x
        loss = (100.0 * (x[1:] - x[:-1] ** 2).square() + (1.0 - x[:-1]).square()).sum()
        return self.at.get(self.calls, lambda loss: loss)(loss)


def ctrl_c(loss):
    signal.raise_signal(signal.SIGINT)
    return loss


@pytest.mark.parametrize("optimizer", ["adam", "lbfgs"])
def test_interrupted_and_resumed_is_the_same_as_in_one_go_bit_for_bit(tmp_path, optimizer, capsys):
    options = {"optimizer": optimizer, "iterations": 24}
    straight = Valley()
    whole = th.design(straight.loss, straight, **options)
    module = Valley({7: ctrl_c})
    first = th.design(module.loss, module, folder=tmp_path, **options)
    assert first.interrupted
    assert 0 < len(first.losses) < 24
    assert f"stopped after {len(first.losses)} iterations" in capsys.readouterr().out
    # a new process: a new module, and nothing in memory but the file
    again = Valley()
    second = th.design(again.loss, again, folder=tmp_path, **options)
    assert not second.interrupted
    assert second.losses == whole.losses
    assert second.best_loss == whole.best_loss
    assert second.best_iteration == whole.best_iteration
    assert torch.equal(again.x, straight.x)
    # and no iteration was computed twice: at most the point the line search ended at
    assert module.calls + again.calls - straight.calls == (0 if optimizer == "adam" else 1)


def test_a_random_objective_goes_on_with_the_same_numbers(tmp_path):
    def train(iterations, folder):
        module = Valley()
        return th.design(lambda: module.loss() + module.x @ torch.randn(5).double(), module, iterations=iterations,
                         folder=folder).losses  # fmt: skip

    torch.manual_seed(5)
    whole = train(6, None)
    torch.manual_seed(5)
    train(3, tmp_path)
    torch.manual_seed(99)
    assert train(6, tmp_path) == whole


def test_lbfgs_reaches_the_minimum_and_stops_there_without_needless_gradients():
    module = Valley()
    found = th.design(module.loss, module, optimizer="lbfgs", iterations=200)
    assert found.best_loss < 1e-20
    assert found.converged
    assert len(found.losses) < 80
    assert found.evaluations == module.calls
    # about one gradient for each step of the search along a line, none for its start
    assert module.calls < 2.0 * len(found.losses)
    torch.testing.assert_close(module.x.detach(), torch.ones(5, dtype=torch.float64))


def test_the_module_holds_the_best_values_and_the_losses_are_those_at_the_beginning_of_iterations():
    module = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    torch.nn.init.constant_(module.weight, 0.15)
    found = th.design(lambda: module.weight.square().sum(), module, learning_rate=0.1, iterations=6)
    # 0.15, 0.05, then past the minimum
    assert found.losses[0] == pytest.approx(0.0225)
    assert found.best_loss == min(found.losses) == pytest.approx(module.weight.item() ** 2)
    assert found.best_iteration == found.losses.index(found.best_loss) < 5
    assert found.reduction == pytest.approx(0.0225 / found.best_loss)
    assert found.seconds > 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_and_the_last_good_state_stays(tmp_path, bad):
    module = Valley({5: lambda loss: loss * bad})
    with pytest.raises(pb.PullbackError, match=rf"the loss in iteration 4 is {bad}; the module holds the best values"):
        th.design(module.loss, module, iterations=9, folder=tmp_path)
    # what it holds is the best of the four good iterations
    reference = Valley()
    whole = th.design(reference.loss, reference, iterations=9)
    assert module.loss().item() == min(whole.losses[:4])
    again = Valley()
    assert th.design(again.loss, again, iterations=9, folder=tmp_path).losses == whole.losses


def test_a_gradient_that_is_no_number_is_found_too():
    module = Valley({2: lambda loss: loss + 0.0 * torch.sqrt(torch.abs(loss - loss))})
    with pytest.raises(pb.PullbackError, match="the gradient in iteration 1 is not finite"):
        th.design(module.loss, module, iterations=9)


def test_a_crash_while_writing_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    module = Valley()
    replace, calls = os.replace, []

    def crash(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise OSError("disk full")
        replace(*arguments)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="disk full"):
        th.design(module.loss, module, iterations=9, folder=tmp_path)
    again = Valley()
    assert len(th.design(again.loss, again, iterations=2, folder=tmp_path).losses) == 2
    assert again.calls == 0


def test_a_checkpoint_of_another_design_is_refused(tmp_path):
    module = Valley()
    th.design(module.loss, module, iterations=2, folder=tmp_path, settings={"seed": 0})
    for options, message in (
        ({"settings": {"seed": 1}}, "was written with seed = 0, now it is 1; give another folder"),
        ({"settings": {"seed": 0}, "optimizer": "lbfgs"}, "was written with optimizer = 'adam', now it is 'lbfgs'"),
        ({"settings": {"seed": 0}, "learning_rate": 1.0}, "was written with learning_rate = 0.01, now it is 1.0"),
    ):
        with pytest.raises(pb.PullbackError, match=message):
            th.design(module.loss, module, iterations=3, folder=tmp_path, **options)
    other = torch.nn.Linear(2, 2)
    with pytest.raises(pb.PullbackError, match="was written for another module"):
        th.design(lambda: other.weight.sum(), other, iterations=3, folder=tmp_path, settings={"seed": 0})
    fresh = th.design(module.loss, module, iterations=1, folder=tmp_path, settings={"seed": 1}, resume=False)
    assert len(fresh.losses) == 1
    fresh.checkpoint.write_bytes(b"half a file")
    with pytest.raises(pb.PullbackError, match=r"checkpoint.pt cannot be read .*; give another folder"):
        th.design(module.loss, module, iterations=2, folder=tmp_path)


def test_what_cannot_be_designed_is_refused():
    module = Valley()
    for options, message in (
        ({"optimizer": "newton"}, "optimizer is 'newton'; choose from 'adam', 'lbfgs'"),
        ({"iterations": 0}, "iterations is 0"),
    ):
        with pytest.raises(pb.PullbackError, match=message):
            th.design(module.loss, module, **options)
    with pytest.raises(pb.PullbackError, match=r"returned shape \(5,\); expected one number"):
        th.design(lambda: module.x, module)
    with pytest.raises(pb.PullbackError, match="does not depend on the module's parameters"):
        th.design(lambda: torch.ones(()), module)
    with pytest.raises(pb.PullbackError, match="no parameter that requires a gradient"):
        th.design(module.loss, torch.nn.ReLU())

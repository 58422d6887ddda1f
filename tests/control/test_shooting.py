"""Shooting: every method finds a minimum, keeps to bounds, can be resumed, and never passes on what is not finite."""

import os
import pickle
import signal
import warnings

import pytest
import torch

import pullback as pb
from pullback.control import minimize, random_starts, train
from pullback.control.search.box import Box
from pullback.core.errors import GradientError, PullbackError

F64 = torch.float64
CENTRE = torch.tensor([0.3, -0.2, 0.5], dtype=F64)


def bowl(x):
    """A bowl with different curvatures."""
    return ((x - CENTRE).square() * torch.tensor([1.0, 10.0, 0.3], dtype=F64)).sum(-1)


def start(rows=4, seed=0):
    return torch.randn(rows, 3, dtype=F64, generator=torch.Generator().manual_seed(seed))


def rmsprop(tensors):
    return torch.optim.RMSprop(tensors, lr=0.02)


METHODS = {
    "adam": {"learning_rate": 0.1, "iterations": 150},
    "sgd": {"learning_rate": 0.05, "iterations": 300},
    "lbfgs": {"iterations": 12},
    "cma": {"spread": 0.5, "iterations": 60},
    "random": {"spread": 1.0, "iterations": 60, "population": 64},
    rmsprop: {"iterations": 300},
}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: getattr(method, "__name__", method))
def test_every_method_finds_the_minimum_and_returns_the_same_kind_of_result(method):
    options = METHODS[method]
    found = minimize(bowl, start(), method=method, progress=False, **options)
    assert found.loss < (0.5 if method == "random" else 1e-3)
    assert found.loss == pytest.approx(bowl(found.best).item())
    assert found.loss == found.losses.min().item() == found.curve[-1].item()
    rows = found.losses.shape[1]
    assert found.losses.shape == found.gradient_norms.shape == (options["iterations"], rows)
    assert found.evaluations.tolist() == [rows * (k + 1) for k in range(options["iterations"])]
    assert (found.seconds.diff() > 0).all()
    assert found.best.shape == (3,)
    assert found.each.shape == (rows, 3)
    assert found.gradient_norms.isnan().all() == (method in ("cma", "random"))
    assert found.reason == "iterations"
    torch.testing.assert_close(bowl(found.each), found.each_loss)


def test_lbfgs_rows_do_not_depend_on_each_other_and_solve_a_valley():
    def valley(x):
        return 100 * (x[:, 1] - x[:, 0].square()).square() + (1 - x[:, 0]).square()

    rows = torch.tensor([[-1.2, 1.0], [0.0, 0.0], [2.0, -1.0]], dtype=F64)
    found = minimize(valley, rows, method="lbfgs", iterations=70, progress=False)
    assert (found.each_loss < 1e-8).all()
    alone = minimize(valley, rows[2:], method="lbfgs", iterations=70, progress=False)
    torch.testing.assert_close(alone.losses[:20, 0], found.losses[:20, 2], rtol=1e-9, atol=0.0)


def test_a_method_stops_at_its_target_or_when_it_gets_no_better():
    found = minimize(bowl, start(), learning_rate=0.1, iterations=500, target=1e-2, progress=False)
    assert found.reason == "target"
    assert found.loss <= 1e-2
    assert found.losses[:-1].min() > 1e-2
    flat = minimize(lambda x: x.sum(1) * 0 + 1.0, start(), iterations=50, patience=5, progress=False)
    assert flat.reason == "patience"
    assert len(flat.losses) == 6
    asked = minimize(bowl, start(), iterations=50, callback=lambda k, found: k == 2, progress=False)
    assert (asked.reason, len(asked.losses)) == ("callback", 3)


@pytest.mark.parametrize("method", ["adam", "lbfgs", "cma"])
def test_bounds_are_never_left_and_a_minimum_outside_is_approached(method):
    seen = []

    def watched(x):
        seen.append(x.detach())
        return bowl(x)

    lower, upper = torch.tensor([0.4, -torch.inf, -1.0], dtype=F64), torch.tensor([1.0, -0.4, 1.0], dtype=F64)
    rows = torch.tensor([[0.4, -0.9, 0.0], [0.9, -2.0, 1.0]], dtype=F64)
    found = minimize(
        watched, rows, method=method, iterations=200, learning_rate=None if method == "cma" else 0.05,
        lower=lower, upper=upper, progress=False, spread=0.2,
    )  # fmt: skip
    every = torch.cat(seen)
    assert ((every >= lower) & (every <= upper)).all()
    torch.testing.assert_close(found.best, torch.tensor([0.4, -0.4, 0.5], dtype=F64), atol=0.03, rtol=0.0)


def test_the_map_into_the_box_is_invertible_and_about_as_fast_as_the_free_numbers():
    points = torch.tensor([[0.2, 3.0, -4.0, 7.0]], dtype=F64)
    box = Box(points, [-1.0, 1.0, -torch.inf, -torch.inf], [1.0, torch.inf, -2.0, torch.inf])
    z = box.outside(points).requires_grad_()
    torch.testing.assert_close(box.inside(z), points)
    (slope,) = torch.autograd.grad(box.inside(z).sum(), z)
    assert ((slope > 0.5) & (slope <= 1.0)).all()


@pytest.mark.parametrize("method", ["adam", "lbfgs", "cma", "random"])
def test_resumed_it_ends_where_it_would_have_without_the_break(tmp_path, method):
    options = {"method": method, "lower": -2.0, "upper": 2.0, "seed": 3, "progress": False}
    rows = start().clamp(-1.9, 1.9)
    whole = minimize(bowl, rows, iterations=20, **options)
    minimize(bowl, rows, iterations=8, checkpoint=tmp_path / "new" / "search.pt", **options)
    rest = minimize(bowl, rows, iterations=20, resume=tmp_path / "new" / "search.pt", **options)
    assert torch.equal(rest.losses, whole.losses)
    assert torch.equal(rest.best, whole.best)
    assert torch.equal(rest.each, whole.each)
    assert torch.equal(rest.evaluations, whole.evaluations)
    again = minimize(bowl, rows, iterations=20, resume=tmp_path / "new" / "search.pt", **options)
    assert torch.equal(again.losses, whole.losses)


@pytest.mark.parametrize("method", ["cma", "random"])
def test_after_an_error_in_an_iteration_it_resumes_from_the_last_finished_one(tmp_path, method):
    calls = []

    def failing(x):
        calls.append(1)
        if len(calls) == 5:
            raise RuntimeError("lost")
        return bowl(x)

    file, options = tmp_path / "search.pt", {"method": method, "iterations": 9, "progress": False}
    with pytest.raises(RuntimeError, match="lost"):
        minimize(failing, start(), checkpoint=file, **options)
    rest = minimize(bowl, start(), resume=file, **options)
    assert torch.equal(rest.losses, minimize(bowl, start(), **options).losses)


class Trap:
    """Makes a directory when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_of_cma_runs_no_code_and_says_what_is_wrong_with_it(tmp_path):
    file, options = tmp_path / "search.pt", {"method": "cma", "iterations": 4, "progress": False, "spread": 0.2}
    minimize(bowl, start(), checkpoint=file, **options)
    good = torch.load(file, weights_only=True)

    def refused(match, rows=None, **changes):
        with pytest.raises(PullbackError, match=rf"search\.pt {match}.*; .*start over without resume"):
            minimize(bowl, start() if rows is None else rows, resume=file, **{**options, "iterations": 6, **changes})

    # a pickle in the place of the state, as bytes in a tensor (as the first format had it) and as itself
    packed = torch.frombuffer(bytearray(pickle.dumps(Trap(tmp_path / "ran"))), dtype=torch.uint8)
    torch.save({"fingerprint": {}, "record": good["state"]["record"], "method": {"strategy": packed}}, file)
    refused(r"is not a checkpoint that this version of Pullback reads")
    crafted = {**good, "state": {**good["state"], "method": {"strategy": packed}}}
    torch.save(crafted, file)
    refused(r"cannot be resumed from: 'losses'")
    torch.save({**good, "state": {**good["state"], "method": Trap(tmp_path / "ran")}}, file)
    refused(r"cannot be read as a checkpoint")
    assert not (tmp_path / "ran").exists()

    method = good["state"]["method"]
    torch.save({**good, "state": {**good["state"], "method": {**method, "losses": torch.zeros(2, 3)}}}, file)
    refused(r"cannot be resumed from: it has losses of shape \(2, 3\); expected \(n, 7\)")
    torch.save(good, file)
    refused(r"cannot be resumed from: its losses do not lead to its state", rows=start(seed=1))
    refused(r"was written with spread = 0\.2, now it is 0\.3", spread=0.3)


def test_ctrl_c_saves_and_the_search_goes_on_from_there(tmp_path):
    calls = []

    def impatient(x):
        calls.append(1)
        if len(calls) == 4:
            signal.raise_signal(signal.SIGINT)
        return bowl(x)

    file = tmp_path / "search.pt"
    found = minimize(impatient, start(), iterations=10, checkpoint=file, progress=False)
    assert found.interrupted
    assert len(found.losses) == 4
    rest = minimize(bowl, start(), iterations=10, resume=file, progress=False)
    assert torch.equal(rest.losses, minimize(bowl, start(), iterations=10, progress=False).losses)
    with pytest.raises(PullbackError, match=r"search\.pt was written with method = 'adam', now it is 'sgd'"):
        minimize(bowl, start(), method="sgd", iterations=10, resume=file, progress=False)
    with pytest.raises(PullbackError, match=r"was written with start = \[4, 3\], now it is \[2, 3\]"):
        minimize(bowl, start(2), iterations=10, resume=file, progress=False)
    (tmp_path / "other.pt").write_text("no checkpoint")
    with pytest.raises(PullbackError, match=r"other\.pt cannot be read as a checkpoint \(.*start over without resume"):
        minimize(bowl, start(), iterations=10, resume=tmp_path / "other.pt", progress=False)


@pytest.mark.parametrize("method", ["adam", "lbfgs", "cma"])
def test_worlds_that_are_not_finite_are_reported_and_left_where_they_were(method):
    seen = []

    def holed(x):
        seen.append(x.detach())
        return torch.where(x[:, 0] > 1.0, torch.nan, bowl(x))

    rows = torch.tensor([[0.9, 0.0, 0.0], [1.5, 0.0, 0.0]], dtype=F64)
    with pytest.warns(UserWarning, match=r"not finite in \d+ of \d+ worlds \(.*\); (their steps|they count)"):
        found = minimize(holed, rows, method=method, iterations=40, spread=0.5, seed=1, progress=False)
    assert bowl(found.best).isfinite()
    assert found.bad.max() > 0
    assert found.losses.isnan().any()
    if method != "cma":
        assert all(torch.equal(x[-1], rows[1]) for x in seen)
        assert found.each_loss[1] == torch.inf
        assert found.loss < bowl(rows[:1]).item()


@pytest.mark.parametrize(("method", "rate"), [("adam", 0.5), ("sgd", 2.0)])
def test_a_row_that_becomes_not_finite_goes_back_and_takes_shorter_steps(method, rate):
    def walled(x):
        # the minimum, at 0.9, is next to where nothing is finite; both first steps go beyond
        return torch.where(x[:, 0] > 1.0, torch.nan, (x - 0.9).square().sum(1))

    rows = torch.tensor([[0.7], [0.85]], dtype=F64)
    with pytest.warns(UserWarning, match=r"not finite in 2 of 2 worlds \(0, 1\); their steps are shortened"):
        found = minimize(walled, rows, method=method, learning_rate=rate, iterations=200, progress=False)
    assert found.bad[0] == 0
    assert found.bad[1] == 2
    # both come near the minimum, and are finite again
    assert found.each_loss.max() < 1e-3
    assert found.bad[-1] < 2


def test_rows_that_stay_not_finite_are_an_error_after_some_tries():
    calls = []

    def once(x):
        calls.append(len(x))
        return bowl(x) * (1.0 if len(calls) == 1 else torch.nan)

    with (
        pytest.warns(UserWarning, match="4 of 4 worlds"),
        pytest.raises(PullbackError, match=r"iteration 21: the loss or its gradient is not finite in all 4 worlds"),
    ):
        minimize(once, start(), progress=False)


def test_a_gradient_that_is_not_finite_stops_its_own_world_only():
    def kinked(x):
        # the square root's slope at zero is infinite
        return bowl(x) + torch.where(x[:, 0] == 0.0, x[:, 0].abs().sqrt(), 0.0)

    rows = torch.tensor([[0.0, 0.5, 0.0], [0.9, 0.0, 0.0]], dtype=F64)
    with pytest.warns(UserWarning, match=r"not finite in 1 of 2 worlds \(0\)"):
        found = minimize(kinked, rows, iterations=20, progress=False)
    assert torch.equal(found.bad, torch.ones(20, dtype=torch.int64))
    assert found.each_loss[1] < bowl(rows)[1]

    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.worlds = (x[:, 0] > 1.0).nonzero().flatten().tolist()
            return bowl(x)

        @staticmethod
        def backward(ctx, adjoint):
            if ctx.worlds:
                raise GradientError("not finite", ctx.worlds)
            return adjoint[:, None].expand(-1, 3)

    rows[0, 0] = 2.0
    with pytest.warns(UserWarning, match=r"not finite in 1 of 2 worlds \(0\)"):
        found = minimize(Refusing.apply, rows, iterations=5, progress=False)
    assert found.losses[:, 1].diff().lt(0).all()


def test_no_finite_world_left_is_an_error_that_names_the_iteration():
    with pytest.raises(PullbackError, match=r"iteration 0: the loss or its gradient is not finite in all 4 worlds"):
        minimize(lambda x: bowl(x) * torch.nan, start(), progress=False)


def test_bad_input_is_named_before_anything_runs():
    def never(x):
        raise AssertionError

    for match, arguments in (
        (r"no room: lower 1, upper -1 at \(0,\)", {"lower": 1.0, "upper": -1.0}),
        (r"outside the bounds: .* at \(0, 0\), bounds 5 to 6", {"lower": 5.0, "upper": 6.0}),
        (r"upper is \(2,\), a candidate \(3,\)", {"upper": torch.ones(2)}),
        (r"lower has values that are not numbers", {"lower": torch.nan}),
        (r"iterations is 0; give 1 or more", {"iterations": 0}),
        (r"patience is 0", {"patience": 0}),
        (r"learning_rate is -1", {"learning_rate": -1}),
        (r"no method named 'adan'; did you mean 'adam'", {"method": "adan"}),
        (r"no option of minimize named 'learning_rates'; did you mean 'learning_rate'", {"learning_rates": 0.1}),
        (r"spread is 0", {"method": "cma", "spread": 0.0}),
        (r"population is 1", {"method": "random", "population": 1}),
        (r"no checkpoint to resume from at gone\.pt", {"resume": "gone.pt"}),
        (r"torch\.optim\.LBFGS mixes the rows", {"method": torch.optim.LBFGS}),
    ):
        with pytest.raises(PullbackError, match=match):
            minimize(never, start(), progress=False, **arguments)
    with pytest.raises(PullbackError, match=r"the start is not finite at \(1, 0\): nan"):
        minimize(never, torch.tensor([[0.0], [torch.nan]]), progress=False)
    with pytest.raises(PullbackError, match=r"the start is torch.int64 \(3,\)"):
        minimize(never, torch.arange(3), progress=False)
    with pytest.raises(PullbackError, match=r"returned \(4, 3\) for 4 candidates; return one loss each, \(4,\)"):
        minimize(lambda x: x, start(), progress=False)
    with pytest.raises(PullbackError, match=r"the loss does not depend on the candidates"):
        minimize(lambda x: bowl(x.detach()), start(), progress=False)


def test_random_starts_hold_the_given_one_and_stay_in_bounds():
    starts = random_starts(CENTRE, 50, 1.0, seed=1, lower=-0.5, upper=0.6)
    assert torch.equal(starts[0], CENTRE)
    assert ((starts >= -0.5) & (starts <= 0.6)).all()
    assert torch.equal(starts, random_starts(CENTRE, 50, 1.0, seed=1, lower=-0.5, upper=0.6))
    assert starts.std() > 0.3


@pytest.mark.parametrize(("method", "iterations"), [("adam", 200), ("lbfgs", 60), ("cma", 80)])
def test_a_module_is_trained_and_left_with_its_best_parameters(tmp_path, method, iterations):
    x = torch.linspace(-1, 1, 20, dtype=F64)[:, None]

    def fit(iterations, **options):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).double()
        found = train(
            lambda: (module(x) - x.sin()).square().flatten(), module, method=method, iterations=iterations,
            learning_rate=None if method == "cma" else 0.05, spread=0.3, progress=False, **options,
        )  # fmt: skip
        return module, found

    module, found = fit(iterations)
    assert found.loss < 0.02 * found.losses[0].min()
    assert (module(x) - x.sin()).square().mean().item() == pytest.approx(found.loss)
    fit(5, checkpoint=tmp_path / "module.pt")
    assert torch.equal(fit(12, resume=tmp_path / "module.pt")[1].losses, found.losses[:12])


def test_worlds_of_a_module_that_are_not_finite_are_left_out():
    module = torch.nn.Linear(1, 1).double()
    inputs, lost = torch.tensor([[1.0], [3.0], [2.0]], dtype=F64), torch.tensor([False, True, False])
    found = train(
        lambda: torch.where(lost, torch.nan, (module(inputs) - 1.0).square().flatten()),
        module,
        iterations=5,
        progress=False,
    )
    assert found.losses[:, 0].diff().lt(0).all()
    with pytest.raises(PullbackError, match="nothing to train"):
        train(lambda: torch.ones(()), torch.nn.Tanh())


def sliding():
    """A box that slides on the ground and may bump into a ball."""
    world = pb.World()
    world.add_ground(friction=0.3)
    world.add_box("block", size=(0.2, 0.2, 0.1), mass=1.0, position=(0, 0, 0.05))
    sim = world.compile(dt=5e-3, dtype=F64)
    return sim


def test_an_initial_velocity_through_a_rollout_with_contact_modes():
    sim = sliding()
    rest = sim.initial_state()

    def objective(speed):
        zero = torch.zeros(len(speed), 6, dtype=F64)
        qd = zero.index_add(1, torch.tensor([3]), speed[:, None])
        states = sim.rollout(pb.State(rest.q.expand(len(speed), -1).contiguous(), qd), 40)
        modes = pb.control.diagnostics.contact_modes(sim, states.detach(), every=10)
        return (states.q[-1, :, 0] - 0.1).square(), modes

    found = minimize(objective, torch.tensor([1.5, 0.9], dtype=F64), method="lbfgs", iterations=12, progress=False)
    assert found.loss < 1e-8
    # it slides to rest: v² = 2 μ g x
    assert found.best.item() == pytest.approx((2 * 0.3 * 9.81 * 0.1) ** 0.5, rel=0.05)
    assert found.mode_changes[0].isnan()
    assert (found.mode_changes[1:] == 0).all()


def test_diagnostics_see_where_modes_change_and_name_what_is_not_finite():
    from pullback.control.search.diagnostics import changed_worlds, contact_modes, gradient_by_step, share_with_changes

    sim = sliding()
    rest = sim.initial_state(batch=2)
    rest.q[1, 2] += 0.1
    states = sim.rollout(rest, 60)
    modes = contact_modes(sim, states)
    assert modes.shape == (2, 60)
    assert (modes[0] != 0).all()
    assert modes[1, 0] == 0
    assert modes[1, -1] == modes[0, -1]
    assert share_with_changes(modes) == 0.5
    assert changed_worlds(modes, modes.flip(0)).all()
    assert not changed_worlds(modes, modes).any()

    gradient = torch.zeros(5, 2, 3)
    gradient[3, 1] = torch.tensor([0.0, 3.0, 4.0])
    assert gradient_by_step(gradient)[3, 1] == 5.0
    torch.testing.assert_close(gradient_by_step(gradient.transpose(0, 1), time=1), gradient_by_step(gradient))
    gradient[2, 0, 0] = torch.nan
    with pytest.raises(PullbackError, match="not finite at step 2 in world 0"):
        gradient_by_step(gradient)


def test_the_progress_bar_tells_loss_gradient_and_time_left(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        minimize(bowl, start(), iterations=3, label="rolling")
    text = capsys.readouterr().out
    assert "rolling" in text
    assert "best loss" in text
    assert "gradient" in text
    assert "left" in text

"""Identification recovers parameters, states their accuracy, and names what the data does not determine."""

import signal
import warnings

import pytest
import torch

import pullback as pb
from pullback.control import AmbiguityWarning, Recording, Unknown
from pullback.control.identify import fit, windows
from pullback.control.identify.identify import identify
from pullback.control.identify.unknowns import Unknowns
from pullback.control.identify.windows import _by_differences, _by_reverse_mode, cut, linearized, residuals

DT = 5e-3
DOUBLE = torch.float64


def slide(friction=0.4, mass=1.0, **options):
    """A block that is thrown along the ground, turning, in three worlds."""
    world = pb.World(**options)
    world.add_ground()
    world.add_box("block", size=(0.2, 0.2, 0.1), mass=mass, position=(0, 0, 0.05), friction=friction)
    sim = world.compile(dt=DT, dtype=DOUBLE)
    start = sim.initial_state(batch=3)
    start.qd[:, 2:5] = torch.tensor([[1.0, 1.0, 0.3], [-2.0, 1.5, -0.2], [3.0, 0.5, 0.5]], dtype=DOUBLE)
    with torch.no_grad():
        motion = sim.rollout(start, 40)
    return sim, Recording(motion.q, motion.qd, None, DT)


def swing(batch=2, steps=100, **values):
    """A pendulum of one link with a tip welded to its end, driven by a torque."""
    world = pb.World()
    world.add(pb.load("pendulum1", dtype=DOUBLE), name="arm")
    for name, value in values.items():
        world.robots["arm"].set_link_param("link0", name, value)
    sim = world.compile(dt=DT, dtype=DOUBLE)
    time = DT * torch.arange(steps, dtype=DOUBLE)
    torque = torch.stack([4.0 * (3.0 * time + k).sin() for k in range(batch)], -1)[..., None]
    with torch.no_grad():
        motion = sim.rollout(sim.initial_state(batch=batch), torque)
    return sim, Recording(motion.q, motion.qd, torque, DT)


def noisy(recording, share, generator):
    def add(x):
        return x + share * x.std(0) * torch.randn(x.shape, dtype=DOUBLE, generator=generator)

    return Recording(add(recording.q), add(recording.qd), recording.controls, recording.dt)


@pytest.fixture
def sliding():
    return slide()


@pytest.fixture
def swinging():
    return swing(joint_damping=0.3)


@pytest.mark.parametrize("method", ["lm", "gauss-newton"])
def test_least_squares_finds_friction_through_contact(sliding, method):
    sim, recording = sliding
    found = identify(sim, recording, [Unknown("block", "friction", start=0.25)], method=method, window=10)
    assert found["friction of block"].item() == pytest.approx(0.4, rel=1e-4)
    assert found.converged
    assert found.losses[-1] < 1e-6 * found.losses[0]
    # what was found is left in the world
    assert float(sim.world.items[1].shapes[0].friction) == pytest.approx(0.4, rel=1e-4)


def test_adam_comes_close_and_says_that_it_ended(sliding):
    sim, recording = sliding
    found = identify(
        sim, recording, [Unknown("block", "friction", start=0.25)], method="adam", window=20, fit_starts=False,
        learning_rate=0.1, iterations=60,
    )  # fmt: skip
    assert found["friction of block"].item() == pytest.approx(0.4, rel=0.01)
    assert found.losses[-1] < 1e-2 * found.losses[0]
    assert found.reason


def test_cma_searches_without_derivatives(sliding):
    pytest.importorskip("cma")
    sim, recording = sliding
    unknowns = [Unknown("block", "friction", start=0.25), Unknown("block", "restitution", start=0.2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AmbiguityWarning)
        found = identify(sim, recording, unknowns, method="cma", window=20, iterations=15)
    assert found["friction of block"].item() == pytest.approx(0.4, rel=0.05)
    assert len(found.losses) == len(found.seconds) == len(found.path)


def test_both_ways_to_the_derivative_agree_and_match_differences_of_whole_windows(sliding):
    sim, recording = sliding
    windows = cut(sim, recording, 10, None, (1.0, 1.0))
    unknowns = Unknowns(sim, [Unknown("block", "friction", start=0.3), Unknown("block", "mass", start=1.2, solid=True)])
    z = torch.tensor([0.1, -0.2], dtype=DOUBLE)
    shift = torch.zeros(windows.count, 2 * sim.nv, dtype=DOUBLE)
    with torch.no_grad():
        unknowns.connect(z[None])
        path = sim.rollout(windows.start(sim), windows.controls)
    quick, exact = (f(sim, unknowns, path, windows.controls, z) for f in (_by_differences, _by_reverse_mode))
    for a, b in zip(quick, exact):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    _, _, Jz = linearized(sim, unknowns, windows, z, shift)
    change = torch.tensor([1e-4, 0.0], dtype=DOUBLE)
    with torch.no_grad():
        sides = [residuals(sim, unknowns, windows, (z + s * change)[None], None)[0] for s in (-1.0, 1.0)]
    by_differences = ((sides[1] - sides[0]) / 2e-4).transpose(0, 1).flatten(1)
    torch.testing.assert_close(Jz[..., 0], by_differences, rtol=1e-3, atol=1e-5)
    unknowns.settle(z)


def test_free_states_are_fitted_on_their_manifold(sliding):
    sim, recording = sliding
    generator = torch.Generator().manual_seed(0)
    found = identify(sim, noisy(recording, 0.01, generator), [Unknown("block", "friction", start=0.3)], window=20)
    assert found["friction of block"].item() == pytest.approx(0.4, rel=0.025)


def test_standard_errors_are_those_of_repeated_experiments(swinging):
    sim, recording = swinging
    generator = torch.Generator().manual_seed(1)
    unknowns = [Unknown("arm/link0", "mass", start=1.1), Unknown("arm/link0", "joint_damping", start=0.25)]
    levels = tuple(0.02 * x.flatten(0, 1).std(0) for x in (recording.q, recording.qd))
    numbers, stated = [], []
    for _ in range(12):
        data = Recording(
            recording.q + levels[0] * torch.randn(recording.q.shape, dtype=DOUBLE, generator=generator),
            recording.qd + levels[1] * torch.randn(recording.qd.shape, dtype=DOUBLE, generator=generator),
            recording.controls,
            DT,
        )
        found = identify(sim, data, unknowns, noise=levels, tolerance=1e-5)
        assert found.noise == pytest.approx(1.0, abs=0.15)
        numbers.append(found.numbers)
        stated.append(found.standard_error)
    deviation = (torch.stack(numbers) - torch.tensor([1.0, 0.3], dtype=DOUBLE)) / torch.stack(stated)
    # of 24 normal deviations
    assert 0.5 < deviation.square().mean().sqrt() < 1.6


def test_without_velocities_positions_are_enough(swinging):
    sim, recording = swinging
    data = Recording(recording.q, None, recording.controls, DT)
    found = identify(sim, data, [Unknown("arm/link0", "mass", start=1.5)], window=50)
    assert found["mass of arm/link0"].item() == pytest.approx(1.0, rel=1e-4)


def test_data_of_a_coarser_step_and_a_physical_inertia(swinging):
    sim, recording = swinging
    coarse = Recording(recording.q[::2], recording.qd[::2], recording.controls, 2 * DT)
    with pytest.warns(AmbiguityWarning, match=r"inertial of arm/link0: the data does not determine some"):
        found = identify(sim, coarse, [Unknown("arm/link0", "inertial")], window=25, iterations=3)
    assert found.entries[:2] == ["mass of arm/link0", "com x of arm/link0"]
    assert found.covariance.shape == (10, 10)
    inertia = sim.world.robots["arm"].get_link_param("link0", "inertia_mat")
    assert torch.linalg.eigvalsh(inertia).min() > 0.0


def test_it_says_that_only_the_sum_of_two_masses_shows(swinging):
    sim, recording = swinging
    # both sit at the end of the pendulum
    unknowns = [Unknown("arm/link0", "mass", start=0.7), Unknown("arm/link-1", "mass", start=0.2)]
    with pytest.warns(AmbiguityWarning, match=r"mass of arm/link-1: the data does not determine .* only their sum"):
        found = identify(sim, recording, unknowns)
    assert found.numbers.sum().item() == pytest.approx(1.01, rel=1e-5)
    assert (found.standard_error > 1e3).all()
    assert not found.ambiguities[0].is_seen


def test_it_says_what_changes_nothing(sliding):
    sim, recording = sliding
    unknowns = [Unknown("block", "friction", start=0.3), Unknown("block", "mass", start=2.0, solid=True)]
    with pytest.warns(AmbiguityWarning, match=r"^mass of block: the data does not determine it: it changes nothing"):
        found = identify(sim, recording, unknowns, window=10, fit_starts=False)
    # the mass that stays wrong changes how far the contact solver gets, and friction by a trifle
    assert found["friction of block"].item() == pytest.approx(0.4, rel=5e-3)


def test_bounds_hold_by_construction(swinging):
    sim, recording = swinging
    unknown = Unknown("arm/link0", "mass", start=1.5, lower=1.2, upper=2.0)
    with pytest.warns(AmbiguityWarning, match="hardly determines it"):
        found = identify(sim, recording, [unknown], iterations=8)
    assert 1.2 <= found["mass of arm/link0"].item() < 1.25


def test_anything_else_by_a_function(swinging):
    sim, recording = swinging

    def put(gain):
        sim.world.set_actuators("arm", pb.Torque(gain))

    found = identify(sim, recording, [Unknown("motor", "gain", start=0.6, lower=0.0, apply=put)])
    assert found["gain of motor"].item() == pytest.approx(1.0, rel=1e-5)


def test_a_robot_away_from_the_origin_with_an_integrator_that_linearize_is_not_for():
    world = pb.World()
    world.add(
        pb.load("pendulum1", dtype=DOUBLE), name="arm", position=(1.0, 0.0, 1.0), orientation=(0.0, 0.0, 1.0, 1.0)
    )
    sim = world.compile(dt=2e-2, dtype=DOUBLE, integrator="rk4")
    with torch.no_grad():
        motion = sim.rollout(sim.initial_state(), torch.full((20, 1, 1), 3.0, dtype=DOUBLE))
    recording = Recording(motion.q, motion.qd, torch.full((20, 1, 1), 3.0, dtype=DOUBLE), 2e-2)
    found = identify(sim, recording, [Unknown("arm/link0", "mass", start=1.4)])
    assert found["mass of arm/link0"].item() == pytest.approx(1.0, rel=1e-4)


def test_stopped_by_the_user_it_keeps_the_best(swinging, monkeypatch):
    sim, recording = swinging
    calls = []
    true_linearized = windows.linearized

    def impatient(*arguments):
        calls.append(1)
        if len(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return true_linearized(*arguments)

    monkeypatch.setattr(fit, "linearized", impatient)
    found = identify(sim, recording, [Unknown("arm/link0", "mass", start=2.0)])
    assert found.interrupted
    assert "stopped by the user" in found.reason
    assert found.losses[-1] < found.losses[0]


def bad(recording, **changes):
    fields = {name: getattr(recording, name) for name in ("q", "qd", "controls", "dt")}
    return Recording(**{**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"q": torch.zeros(5, 2)}, r"q of recording 0 has shape \(5, 2\); expected \(T, 1\) or \(T, B, 1\)"),
        ({"qd": torch.full((101, 2, 1), torch.nan)}, r"qd of recording 0 is not finite at sample 0"),
        ({"qd": torch.zeros(100, 2, 1)}, r"q for 101 samples of 2 worlds and qd for \(100, 2\)"),
        ({"controls": torch.zeros(7, 2, 1)}, r"controls \(7, 2, 1\); expected \(100, 2, 1\)"),
        ({"dt": 0.008}, r"1.6 steps of the simulation; compile it with a dt that goes into 0.008"),
        ({"dt": 0.0}, r"dt of recording 0 is 0"),
        ({"q": torch.zeros(101, 2, 1), "qd": torch.zeros(101, 2, 1)}, r"nothing moves in the recordings"),
    ],
)
def test_bad_data_is_named(swinging, changes, text):
    sim, recording = swinging
    with pytest.raises(pb.PullbackError, match=text):
        identify(sim, bad(recording, **changes), [Unknown("arm/link0", "mass")])


@pytest.mark.parametrize(
    ("unknown", "text"),
    [
        (Unknown("arm/link7", "mass"), r"no link named 'link7'"),
        (Unknown("leg", "mass"), r"no robot or free body named 'leg'"),
        (Unknown("arm", "mass"), r"'arm' has 2 links with a mass; say which: arm/link0, arm/link-1"),
        (Unknown("arm/link0", "masss"), r"no parameter named 'masss'.*did you mean 'mass'"),
        (Unknown("floor", "friction"), r"no shape named 'floor'"),
        (Unknown("arm/link0", "mass", start=-1.0), r"starts at -1.0, which is not between 0 and inf"),
        (Unknown("arm/link0", "mass", lower=2.0, upper=1.0), r"bounds 2 and 1; the lower must be below"),
        (Unknown("arm/link0", "mass", start=float("nan")), r"start of mass of arm/link0 is nan; give finite"),
        (Unknown("arm/link0", "com", start=[1.0]), r"start of com of arm/link0 has shape \(1,\); expected \(3,\)"),
        (Unknown("arm/link0", "com", solid=True), r"only a mass can be"),
    ],
)
def test_bad_unknowns_are_named(swinging, unknown, text):
    sim, recording = swinging
    with pytest.raises(pb.PullbackError, match=text):
        identify(sim, recording, [unknown])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"window": 0}, r"window is 0; give a whole number of samples"),
        ({"window": 500}, r"window is 500 samples, and a recording has 100"),
        ({"stride": 0}, r"stride is 0"),
        ({"windows": 5}, r"no option of identify named 'windows'; did you mean 'window'"),
        ({"method": "newton"}, r"method is 'newton'; choose from: lm, gauss-newton, adam"),
        ({"iterations": -1}, r"iterations is -1"),
        ({"noise": (0.0, 1.0)}, r"noise is \[0.0, 1.0\]; give positive numbers"),
    ],
)
def test_bad_options_are_named(swinging, options, text):
    sim, recording = swinging
    with pytest.raises(pb.PullbackError, match=text):
        identify(sim, recording, [Unknown("arm/link0", "mass")], **options)


def test_no_unknowns_no_recordings_and_the_same_unknown_twice(swinging):
    sim, recording = swinging
    with pytest.raises(pb.PullbackError, match="nothing to find"):
        identify(sim, recording, [])
    with pytest.raises(pb.PullbackError, match="no recordings"):
        identify(sim, [], [Unknown("arm/link0", "mass")])
    with pytest.raises(pb.PullbackError, match="given twice"):
        identify(sim, recording, 2 * [Unknown("arm/link0", "mass")])

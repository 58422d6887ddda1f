"""The task hybrid: a short run of each case writes its files, and the pendulum's friction is found."""

import pytest
import torch

from pullback.core.errors import PullbackError
from pullback.learn import Hybrid, JointTorque, load_hybrid
from pullback.tasks.common.hybrid_cases import make_case
from pullback.tasks.hybrid import Options, overall, run


def test_a_short_run_writes_all_its_files(tmp_path, capsys):
    found = run(Options(amounts=(1, 2), tests=2, iterations=15, network_iterations=2, out=tmp_path))
    assert set(found.hybrid) == set(found.network) == {1, 2}
    assert found.physics.shape == (101,)
    assert overall(found.hybrid[2]) < overall(found.physics)
    assert (tmp_path / "hybrid_pendulum.png").stat().st_size > 10_000
    text = capsys.readouterr().out
    assert "physics alone" in text
    assert "hybrid with 1 motions" in text
    case = make_case("pendulum")
    residual = case.residual()
    assert isinstance(residual, JointTorque)
    model = load_hybrid(tmp_path / "hybrid_pendulum", case.sim, residual)
    assert isinstance(model, Hybrid)
    # friction resists, both ways
    rates = torch.tensor([[2.0, 2.0], [-2.0, -2.0]], dtype=torch.float64)
    state = case.sim.initial_state(2)
    state.qd[:] = rates
    pushed = residual(state, torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, 0, dtype=torch.float64)).control
    assert (pushed * rates < 0.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("case", ["arm", "quadruped"])
def test_the_other_cases_learn_what_is_missing(tmp_path, case):
    if case == "arm":
        pytest.importorskip("mujoco")
    found = run(Options(case=case, amounts=(4,), tests=4, iterations=60, network_iterations=2, out=tmp_path))
    assert found.hybrid[4].isfinite().all()
    assert overall(found.hybrid[4]) < 0.5 * overall(found.physics)


def test_what_does_not_fit_is_said(tmp_path):
    with pytest.raises(PullbackError, match="no case named 'pendulums'; did you mean 'pendulum'"):
        run(Options(case="pendulums", out=tmp_path))  # type: ignore[arg-type]
    with pytest.raises(PullbackError, match="amounts is 0; give at least 1"):
        run(Options(amounts=(0,), out=tmp_path))

"""Every example runs; those that learn something reach the truth."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_has_a_test_here():
    here = Path(__file__).read_text(encoding="utf-8")
    for file in EXAMPLES.glob("*.py"):
        assert f'example("{file.stem}")' in here, f"{file.name} is run by no test"


def test_load_robot(capsys):
    tau = example("01_load_robot").main()
    assert tau.shape == (1000, 7)
    assert "panda_joint7" in capsys.readouterr().out


def test_differentiate():
    # a difference quotient of step 1e-6 is good to 1e-8 or so
    assert example("02_differentiate").main() < 1e-7


def test_learn_dynamics():
    # the data has no noise, so what stops the optimiser is rounding
    errors = example("03_learn_dynamics_iiwa").main()
    assert errors["loss"] < 1e-10
    assert max(errors["mass"], errors["com"], errors["inertia_mat"]) < 1e-4


def test_learn_kinematics():
    # 200 positions measured to 0.1 mm tell an origin to 0.01 mm
    assert example("04_learn_kinematics").main() < 3e-5


def test_learn_friction_network():
    # of a friction between 0.5 and 0.9 N·m; the guess before learning is off by about 0.4
    assert example("05_learn_friction_network").main() < 0.06


def test_inverse_kinematics():
    assert example("06_inverse_kinematics").main() >= 0.98


def test_domain_randomization(monkeypatch):
    module = example("07_domain_randomization")
    monkeypatch.setattr(module, "STEPS", 10)
    before, after = module.main()
    assert after < before
    assert torch.isfinite(torch.tensor(after))

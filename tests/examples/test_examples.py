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


def test_drop(capsys):
    # through an impact on four corners; a difference quotient of step 1e-6 is good to 1e-8 or so
    assert example("08_drop").main() < 1e-7
    assert "capsule on ground" in capsys.readouterr().out


def test_stand():
    # after two seconds it still creeps a little in its servos
    share, error = example("09_stand").main()
    assert share == pytest.approx(1.0, abs=1e-3)
    assert error < 2e-3


def test_push():
    # a box of 20 cm, 38 cm from its goal
    assert example("10_push").main() < 0.01


def test_slide():
    # the simulation decelerates in steps, which makes a difference of mu g dt / 2
    module = example("11_slide")
    speed, by_hand = module.main()
    assert speed == pytest.approx(by_hand + module.FRICTION * module.GRAVITY * module.DT / 2, abs=1e-4)


def test_friction_identification():
    # 301 positions with a millimetre of noise tell it to about 2e-4
    module = example("12_friction_identification")
    friction = module.main()
    torch.testing.assert_close(friction, torch.full_like(friction, module.TRUTH), rtol=0.0, atol=1e-3)


def test_gradient_care():
    distances = example("13_gradient_care").main()
    assert max(distances[name] for name in distances if name.endswith(("first", "zeroth", "mixed"))) < 0.03
    # where nothing touches, the sides of a kink are none; where the carriage leans on the ball, they are
    assert min(distances["away, plain"], distances["away, downhill"]) > 0.31
    assert distances["touched, plain"] > 0.41
    assert distances["touched, downhill"] < 0.03


def test_print_a_wall():
    module = example("14_print_a_wall")
    first, last = module.main()
    assert first < 1.0
    assert last == pytest.approx(module.WANTED, abs=0.15)

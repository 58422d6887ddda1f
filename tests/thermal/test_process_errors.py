"""What a process refuses, and in which words."""

import numpy as np
import pytest
import torch

import pullback as pb
import pullback.thermal as th
from tests.thermal.cases import TOY, wall


def test_an_unstable_step_names_the_element_and_the_largest_stable_step():
    limit = wall().stable_dt
    process = wall(dt=1.01 * limit)
    with pytest.raises(pb.PullbackError, match=rf"largest stable step is {limit:.4g} s, set by element \d+ at \("):
        process.run(100.0)
    assert torch.isfinite(wall(dt=0.99 * limit).run(100.0).final).all()
    # a run with other numbers has another limit
    with pytest.raises(pb.PullbackError, match="is not stable"):
        wall().run(100.0, density=TOY.density / 10)


def test_the_stable_step_is_stable_and_not_wasteful():
    mesh = th.box((0.01, 0.01, 0.01), 0.001)
    rng = np.random.default_rng(0)
    start = torch.as_tensor(300.0 + rng.random(len(mesh.nodes)))
    options = {"material": th.constant_material(10.0, 500.0, 8000.0), "initial": start}
    limit = th.Process(mesh, dt=1e-3, duration=1.0, **options).stable_dt
    assert float(th.Process(mesh, dt=0.999 * limit, duration=500 * limit, **options).run().final.std()) < 0.1
    process = th.Process(mesh, dt=1.6 * limit, duration=500 * limit, **options)
    process._check_step = lambda numbers: None
    with pytest.raises(pb.PullbackError, match=r"the temperature of node \d+ is (nan|inf|-inf) at the end"):
        process.run()


def test_a_toolpath_off_the_part_names_step_and_row():
    process = wall()
    far = th.Toolpath(process.path.t, process.path.x + 0.1, process.path.y, process.path.z, process.path.on)
    with pytest.raises(
        pb.PullbackError, match=r"leaves the part: at step 0 \(0.01 s, on the way to row 1 of the toolpath\)"
    ):
        th.Process(process.mesh, far, material=TOY, births=process.births, dt=0.02, source=th.Gaussian(1e-3))


@pytest.mark.parametrize(
    ("power", "text"),
    [
        (torch.ones(7), r"power has shape \(7,\); expected \(60,\), one number \[W\] a step"),
        (-1.0, r"power is -1 W in step 0, 60 such steps"),
        (torch.full((60,), 1.0).index_fill(0, torch.tensor([5]), float("nan")), r"power is nan W in step 5, 1 such"),
        (float("inf"), r"power is inf W in step 0"),
    ],
)
def test_bad_power(power, text):
    with pytest.raises(pb.PullbackError, match=text):
        wall().run(power)


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"conductivty": 1.0}, r"no parameter named 'conductivty'; did you mean 'conductivity'"),
        ({"conductivity": [10.0, 12.0]}, r"conductivity has shape \(2,\); material 'toy' has 3 temperatures"),
        ({"conductivity": [10.0, -1.0, 3.0]}, r"material 'toy', row 1 of its table: conductivity is -1"),
        ({"ambient": float("nan")}, r"ambient is not finite"),
        ({"initial": torch.ones(3)}, r"initial has shape \(3,\)"),
        ({"positions": torch.ones(3, 3)}, r"positions have shape \(3, 3\); expected \(60, 3\)"),
        ({"radius": 0.0}, r"the beam's size is .* expected positive"),
        ({"density": [1.0, 2.0]}, r"density has shape \(2,\); expected one number"),
    ],
)
def test_bad_parameters(parameters, text):
    with pytest.raises(pb.PullbackError, match=text):
        wall().run(100.0, **parameters)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"dt": 0.0}, "dt is 0; expected a positive number"),
        ({"duration": -1.0}, "duration is -1"),
        ({"source": None}, "a toolpath needs a source"),
        ({"dtype": torch.float16}, "expected torch.float32 or torch.float64"),
        ({"method": "leapfrog"}, "method is 'leapfrog'"),
        ({"material": {"build": TOY}}, r"element \d+ has no material"),
        ({"fixed": {"bottem": 300.0}}, "bottem"),
        ({"emissivity": float("nan")}, "emissivity is nan"),
        ({"births": np.zeros(3)}, r"births have shape \(3,\)"),
    ],
)
def test_bad_processes(options, text):
    with pytest.raises(pb.PullbackError, match=text):
        wall(**options)


def test_an_option_that_does_not_exist_is_refused():
    with pytest.raises(pb.PullbackError, match=r"no option of Process named 'emisivity'; did you mean 'emissivity'"):
        wall(emisivity=0.3)
    mesh = wall().mesh
    with pytest.raises(pb.PullbackError, match=r"no option of layers named 'travelspeed'; did you mean 'travel_speed'"):
        th.layers(mesh, speed=0.01, travelspeed=0.1)


def test_bad_probes_and_snapshots():
    process = wall()
    with pytest.raises(
        pb.PullbackError, match=r"probe 1 at \(0, 0, 90\) mm is outside of the mesh; the nearest element"
    ):
        process.probes([[0, 0, 0], [0, 0, 0.09]])
    with pytest.raises(pb.PullbackError, match=r"probe at node 9999"):
        process.probes(nodes=[9999])
    with pytest.raises(pb.PullbackError, match=r"snapshots name step 61; there are 0 to 60"):
        process.run(1.0, snapshots=[61])
    with pytest.raises(pb.PullbackError, match="expected an integer k"):
        process.run(1.0, checkpoint="often")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_temperatures_that_overflow_are_an_error(dtype):
    # a table has a last row, and a walk through it an end
    process = wall(dtype=dtype)
    with pytest.raises(pb.PullbackError, match=r"the temperature of node \d+ is (inf|nan|-inf) at the end"):
        process.run(1e3 * torch.finfo(dtype).max ** 0.9)

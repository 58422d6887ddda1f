"""Materials: what is shipped, what is refused."""

import numpy as np
import pytest

import pullback as pb
import pullback.thermal as th
from pullback.thermal.material import SHIPPED, enthalpies, segment_rows


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_materials_are_metals(name):
    material = th.material(name)
    assert material.name == name
    assert len(material.source) > 40
    assert material.conductivity.min() > 5.0
    assert material.conductivity.max() < 70.0
    assert material.heat_capacity.min() > 400.0
    assert material.heat_capacity.max() < 1000.0
    assert 1e-6 < material.highest_diffusivity() < 2e-5


def test_two_sources_of_inconel_differ_as_they_do():
    ours, theirs = th.material("in718"), th.material("in718_agazhanov")
    for T, ratio in ((298, -0.10), (673, 0.08), (1273, 0.10)):
        k = [np.interp(T, m.temperatures, m.conductivity) for m in (ours, theirs)]
        assert k[0] / k[1] - 1 == pytest.approx(ratio, abs=0.015)


def test_enthalpy_is_the_integral_of_the_capacity():
    material = th.material("in718")
    numbers = np.concatenate([[2.7e5, 1533.0, 1609.0, 8190.0], material.heat_capacity, material.conductivity])
    rows, phases = segment_rows([material], numbers)
    T = np.linspace(250.0, 2000.0, 200_001)
    h = enthalpies(rows, phases[0], T)
    middle = 0.5 * (T[1:] + T[:-1])
    cp = np.interp(middle, material.temperatures, material.heat_capacity)
    outside = (middle < 1532.0) | (middle > 1610.0)
    assert np.allclose(np.diff(h)[outside] / np.diff(T)[outside], cp[outside], rtol=1e-4)
    melting = np.interp([1533.0, 1609.0], T, h)
    sensible = np.trapezoid(np.interp(np.linspace(1533, 1609, 9999), material.temperatures, material.heat_capacity),
                            np.linspace(1533, 1609, 9999))  # fmt: skip
    assert melting[1] - melting[0] - sensible == pytest.approx(2.7e5, rel=1e-5)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"temperatures": [300, 600, 500]}, r"material 'bad', row 2 of its table: 500 K comes after 600 K"),
        ({"temperatures": [300, 600, 600]}, r"row 2 .* temperatures must increase"),
        ({"conductivity": [1, 0, 2]}, r"material 'bad', row 1 of its table: conductivity is 0; expected a positive"),
        ({"heat_capacity": [500, 500, -1]}, r"row 2 of its table: heat_capacity is -1"),
        ({"heat_capacity": [500, float("nan"), 1]}, r"row 1 of its table: heat_capacity is nan"),
        ({"conductivity": [1, 2]}, r"conductivity has 2 entries and temperatures 3"),
        ({"density": 0.0}, r"density is 0.0 kg/m³"),
        ({"latent_heat": 1e5}, r"has latent heat; give both solidus and liquidus"),
        ({"latent_heat": 1e5, "solidus": 1500.0, "liquidus": 1500.0}, r"the solidus must be below the liquidus"),
    ],
)
def test_bad_tables_are_refused(change, text):
    good = {
        "temperatures": [300, 600, 900],
        "conductivity": [10, 12, 14],
        "heat_capacity": [500, 510, 520],
        "density": 8000.0,
    }
    th.Material("bad", **good)
    with pytest.raises(pb.PullbackError, match=text):
        th.Material("bad", **{**good, **change})


def test_an_unknown_material_lists_the_known():
    with pytest.raises(pb.PullbackError, match="did you mean 'in718'"):
        th.material("in719")

"""Gradients through contact of every material with moving bodies: checks/conformance_soft.py."""

import pytest

from checks.conformance_soft import BAR, LAWS, MATERIALS, measure

SOME = {"separate": ("x", "stiffness", "qd", "u", "friction"), "slip": ("v", "q"), "stick": ("F", "mass")}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("material", MATERIALS)
def test_some_quantities(material, law):
    errors = measure(material, law, SOME[law], sizes=(1e-4,))
    assert max(errors.values()) < BAR, errors


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("material", MATERIALS)
def test_every_quantity(material, law):
    errors = measure(material, law)
    assert max(errors.values()) < BAR, errors

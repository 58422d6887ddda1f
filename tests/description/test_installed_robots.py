"""Robots that nobody here has chosen: all that the installed packages bring load, and agree with Pinocchio."""

from importlib.metadata import PackageNotFoundError, distribution

import pytest

from checks.robots import AGREES, COLLECTIONS, examine, files_of

# file -> why nobody can load it
REFUSED = {
    "falcon_description/urdf/falcon.urdf": "no link named 'Z_propeller'",
    "ur_description/urdf/ur3.urdf": "has no links",
    "torus_deform.urdf": "has no links",
}


@pytest.mark.parametrize("collection", [c for c in COLLECTIONS if c.pattern == "*.urdf"], ids=lambda c: c.name)
def test_they_load_and_agree(collection):
    pytest.importorskip("pinocchio")
    try:
        distribution(collection.package)
    except PackageNotFoundError:
        pytest.skip(f"{collection.package} is not installed")
    rows = [examine(*found) for found in files_of(collection)]
    assert len(rows) >= 13
    for row in rows:
        assert row.loads != (row.name in REFUSED), row
        assert row.loads or REFUSED[row.name] in row.said
        assert row.worst <= AGREES["*.urdf"], row
    compared = sum(bool(row.errors) for row in rows)
    assert compared >= 0.35 * len(rows) or "random" in collection.name

"""Read what an MJCF model has of the scene around its robot: height fields; the other geoms of the world are noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pullback.description.tree import Terrain

if TYPE_CHECKING:
    from pullback.description.mjcf import Reader

WORLD = 0


def add_terrain(reader: Reader) -> None:
    """Read the height fields of the world body that may be touched, and name its other geoms."""
    model, others = reader.model, []
    for geom in range(model.body_geomnum[WORLD]):
        name = model.geom(geom).name
        touches = model.geom_contype[geom] or model.geom_conaffinity[geom]
        if int(model.geom_type[geom]) != int(reader.mujoco.mjtGeom.mjGEOM_HFIELD) or not touches:
            others.append(name or f"geom {geom}")
            continue
        field = int(model.geom_dataid[geom])
        rows, columns = int(model.hfield_nrow[field]), int(model.hfield_ncol[field])
        first = int(model.hfield_adr[field])
        # rows go along y, columns along x; the samples are fractions of the elevation
        samples = model.hfield_data[first : first + rows * columns].reshape(rows, columns).T
        half_x, half_y, elevation, _ = (float(length) for length in model.hfield_size[field])
        reader.tree.terrain.append(
            Terrain(
                name or model.hfield(field).name or f"terrain{geom}",
                elevation * samples.astype(np.float64),
                (2.0 * half_x, 2.0 * half_y),
                tuple(model.geom_pos[geom].tolist()),
                (*model.geom_quat[geom].tolist()[1:], float(model.geom_quat[geom, 0])),
                float(model.geom_friction[geom, 0]),
            )
        )
    if others:
        reader.note(f"geoms of the world are left out ({', '.join(others)}); add the ground to the World instead")
    if reader.tree.terrain:
        names = ", ".join(repr(terrain.name) for terrain in reader.tree.terrain)
        reader.note(f"height fields of the world ({names}): add them to a World by add_terrain")

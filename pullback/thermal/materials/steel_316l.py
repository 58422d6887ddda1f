"""Stainless steel 316L."""

import numpy as np

from pullback.thermal.material import Material

# straight lines in the solid, from room temperature to the solidus; in the liquid k is one too and cp constant
_T = np.array([298.0, 1670.0, 1730.0, 3000.0])
_CP = np.append(459.3 + 0.1329 * _T[:2], [770.4, 770.4])
_K = np.append(9.248 + 0.01571 * _T[:2], 12.41 + 0.003279 * _T[2:])

MATERIALS = {
    "316l": Material(
        "316l", _T, _K, _CP, 7955.0, 2.68e5, 1670.0, 1730.0,
        "C. S. Kim, Thermophysical properties of stainless steels, ANL-75-55 (1975), fits for 316 with T in kelvin; "
        "density at 298 K",
    )
}  # fmt: skip

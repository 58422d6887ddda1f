"""Titanium Ti-6Al-4V."""

import numpy as np

from pullback.thermal.material import Material

# straight lines below and above the beta transus at 1268 K, where both values jump, here over 10 K; then the liquid
_T = np.array([298.0, 1263.0, 1273.0, 1878.0, 1928.0, 3000.0])
_CP = np.concatenate([483.04 + 0.215 * _T[:2], 412.7 + 0.1801 * _T[2:4], [831.0, 831.0]])
_K = np.concatenate([1.2595 + 0.0157 * _T[:2], 3.5127 + 0.0127 * _T[2:4], -12.752 + 0.024 * _T[4:]])

MATERIALS = {
    "ti64": Material(
        "ti64", _T, _K, _CP, 4420.0, 2.86e5, 1878.0, 1928.0,
        "straight-line fits, as melt-pool models commonly quote them, to K. C. Mills, Recommended Values of "
        "Thermophysical Properties for Selected Commercial Alloys (2002); density at 298 K",
    )
}  # fmt: skip

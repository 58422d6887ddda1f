"""Inconel 718 from two sources, which differ by some 10 % in conductivity: take both to see what that means."""

import numpy as np

from pullback.thermal.material import Material

SOLIDUS, LIQUIDUS, LATENT_HEAT = 1533.0, 1609.0, 2.7e5


def _northwestern() -> Material:
    table = np.array(
        [
            # K, J/(kg K), W/(m K)
            [298, 435, 8.9],
            [373, 455, 10.8],
            [473, 479, 12.9],
            [573, 497, 15.2],
            [673, 515, 17.4],
            [773, 527, 18.7],
            [873, 558, 20.8],
            [973, 568, 21.9],
            [1073, 680, 26.9],
            [1173, 640, 25.8],
            [1273, 620, 26.7],
            [1373, 640, 28.3],
            [1443, 650, 29.3],
            [1609, 720, 29.6],
        ]
    )
    T, cp, k = table.T
    return Material(
        "in718", T, k, cp, 8190.0, LATENT_HEAT, SOLIDUS, LIQUIDUS,
        "tables of GAMMA, Northwestern University's solver for directed energy deposition; melting range 1260 to "
        "1336 °C after Special Metals SMC-045; of the latent heats quoted there, 250 to 270 kJ/kg, the upper one",
    )  # fmt: skip


def _agazhanov() -> Material:
    T = np.array(
        [298, 400, 500, 600, 700, 800, 825, 850, 875, 900, 1070, 1173, 1225, 1275, 1325, 1361, 1375], dtype=float
    )
    # no single-phase value between 900 and 1070 K (cp) and between 800 and 1173 K (k): straight lines across
    known_cp = (T <= 900) | ((T >= 1070) & (T <= 1361))
    known_k = (T <= 800) | (T >= 1173)
    cp = np.where(T <= 800, 362 + 0.2118 * T, np.where(T <= 900, -946 + 2.95 * T - 1.379e-3 * T**2, 639 - 0.003355 * T))
    k = np.where(T <= 800, 5.291 + 0.0152 * T + 1.382e-6 * T**2, 11.75 + 0.011 * T - 9.327e-7 * T**2)
    return Material(
        "in718_agazhanov", T, np.interp(T, T[known_k], k[known_k]), np.interp(T, T[known_cp], cp[known_cp]), 8170.0,
        LATENT_HEAT, SOLIDUS, LIQUIDUS,
        "A. Sh. Agazhanov et al., J. Phys.: Conf. Ser. 1382 (2019) 012175: its fits at the temperatures listed; "
        "straight lines across the transitions (cp 900 to 1070 K, k 800 to 1173 K); constant beyond 1361 K (cp) and "
        "1375 K (k); "
        "melting range and latent heat, which it does not give, as for 'in718'",
    )  # fmt: skip


MATERIALS = {"in718": _northwestern(), "in718_agazhanov": _agazhanov()}

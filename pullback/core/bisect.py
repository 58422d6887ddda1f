"""Pieces of about equal work, for ranks that work side by side: recursive bisection."""

from __future__ import annotations

import numpy as np


def bisect(places: np.ndarray, work: np.ndarray, parts: int) -> np.ndarray:
    """Return the part (e,) of each item at places (e, k) with work (e,); parts have about equal work.

    Each cut is at the weighted median along the coordinate in which the piece is longest. Items at the same place
    stay together.
    """
    owner = np.zeros(len(places), dtype=np.int32)
    _bisect(places, work, np.arange(len(places)), owner, 0, parts)
    return owner


def _bisect(places: np.ndarray, work: np.ndarray, items: np.ndarray, owner: np.ndarray, first: int, parts: int) -> None:
    if parts == 1 or not len(items):
        owner[items] = first
        return
    lower = parts // 2
    here = places[items]
    # items of one place stay together: rounding must not split them
    here = here - here.min(axis=0)
    place = np.round(here / (float(here.max()) or 1.0) * 1e6).astype(np.int64)
    axis = int(np.ptp(place, axis=0).argmax())
    order = [axis, *[k for k in range(place.shape[1]) if k != axis]]
    columns, column = np.unique(place[:, order], axis=0, return_inverse=True)
    column = column.ravel()
    total = np.cumsum(np.bincount(column, work[items], len(columns)))
    cut = int(np.argmin(np.abs(total - total[-1] * lower / parts)))
    if len(columns) >= parts:
        # nobody is left without work
        cut = min(max(cut, lower - 1), len(columns) - 1 - (parts - lower))
    below = column <= cut
    _bisect(places, work, items[below], owner, first, lower)
    _bisect(places, work, items[~below], owner, first + lower, parts - lower)

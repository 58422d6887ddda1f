"""Identifiability: covariance of the unknowns, and in words which of them the data does not determine.

With J the derivative of the residuals by the variables z, after elimination of the windows' initial states, directions
v of z with J v = 0 change nothing that was measured: the null space of J. A direction with singular value s is known to
σ / s, σ the noise of a residual.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

Tensor = torch.Tensor

UNSEEN = 1e-5
"""Singular values below this fraction of the largest count as zero."""
HUGE = 1e6
"""The relative standard deviation of directions that the data does not determine."""
WEAK = 0.1
"""Directions with a larger relative standard deviation are poorly determined."""
TAKES_PART = 0.1
"""Unknowns that change by less than this fraction of the largest change are not named."""
ALIKE = 0.05
"""Two changes that differ by less than this fraction of the larger count as equal."""


class AmbiguityWarning(UserWarning):
    """The data does not determine some of the unknowns."""


@dataclass(frozen=True)
class Ambiguity:
    """A direction that the data does not determine, or hardly: the unknowns that change along it, and a sentence."""

    names: tuple[str, ...]
    text: str
    is_seen: bool
    """Whether the data depends on the direction at all, and only noise hides it."""


@dataclass(frozen=True)
class Names:
    """Names of the variables z (P,), and for scalars their values (P,) and slopes dn/dz (P,)."""

    labels: list[str]
    parameters: list[str]
    numbers: Tensor
    slopes: Tensor
    single: list[bool]


def projected(Jx: Tensor, Jz: Tensor) -> Tensor:
    """Return Jz (W, m, P) projected onto the orthogonal complement of Jx (W, m, n), as (W m, P)."""
    Q, _ = torch.linalg.qr(Jx)
    return (Jz - Q @ (Q.mT @ Jz)).flatten(0, 1)


def covariance_of(J: Tensor, sigma: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return σ² (Jᵀ J)⁻¹ (P, P), singular values (P,) and directions (P, P) by column; null directions are huge."""
    _, s, Vh = torch.linalg.svd(J, full_matrices=False)
    seen = s > UNSEEN * s.max()
    deviation = torch.where(seen, sigma / s.clamp(min=torch.finfo(s.dtype).tiny), HUGE)
    return Vh.mT @ (deviation.square()[:, None] * Vh), s, Vh.mT


def ambiguities(s: Tensor, V: Tensor, sigma: float, names: Names) -> list[Ambiguity]:
    """Return the undetermined directions, then those that noise hides, in a sparse basis."""
    unseen = s <= UNSEEN * s.max() if bool(s.max() > 0.0) else torch.ones_like(s, dtype=torch.bool)
    weak = ~unseen & (sigma > WEAK * s)
    found = [_in_words(v, names, False) for v in _sparse(V[:, unseen])]
    return found + [_in_words(v, names, True) for v in _sparse(V[:, weak])]


def _sparse(basis: Tensor) -> list[Tensor]:
    """Return vectors that span the same space as the columns of a basis (P, k), each with a variable of its own."""
    rows, found = basis.mT.clone(), []
    for k in range(len(rows)):
        # pivot: the largest entry of the remaining rows
        part = rows[k:].abs()
        row, column = divmod(int(part.argmax()), part.shape[1])
        rows[[k, k + row]] = rows[[k + row, k]]
        rows[k] /= rows[k, column].clone()
        others = torch.arange(len(rows)) != k
        rows[others] -= rows[others, column, None] * rows[k]
    for row in rows:
        found.append(row / row.abs().max())
    return found


def _in_words(v: Tensor, names: Names, is_seen: bool) -> Ambiguity:
    """Describe a direction v (P,) of the variables."""
    moves: dict[str, float] = {}
    for label, change in zip(names.labels, v.tolist()):
        moves[label] = max(moves.get(label, 0.0), abs(change))
    most = max(moves.values())
    taking = [label for label, size in moves.items() if size >= TAKES_PART * most]
    places = [names.labels.index(label) for label in taking]
    text = _sentence(taking, places, v, names, is_seen)
    return Ambiguity(tuple(taking), text, is_seen)


def _sentence(taking: list[str], places: list[int], v: Tensor, names: Names, is_seen: bool) -> str:
    data = "the data hardly determines" if is_seen else "the data does not determine"
    if not all(names.single[k] for k in places):
        if len(taking) == 1:
            return f"{taking[0]}: {data} some of its numbers"
        return f"{_listed(taking)}: {data} some of their numbers separately"
    if len(taking) == 1:
        why = "noise hides it; more or livelier motion helps" if is_seen else "it changes nothing that was measured"
        return f"{taking[0]}: {data} it: {why}"
    change = torch.stack([names.slopes[k] * v[k] for k in places])
    share = change / torch.stack([names.numbers[k] for k in places])
    only = _known_combination(places, change, share, names)
    if only is not None:
        return f"{_listed(taking)}: {data} them separately, only {only}"
    largest = share.abs().max()
    ways = [f"{name} by {100.0 * float(x / largest):+.2g} %" for name, x in zip(taking, share)]
    return f"{_listed(taking)}: {data} them separately; changing {_listed(ways)} gives the same motion"


def _known_combination(places: list[int], change: Tensor, share: Tensor, names: Names) -> str | None:
    """Return the simple combination of unknowns that is constant along a direction, if there is one."""
    same_kind = len({names.parameters[k] for k in places}) == 1
    if len(places) > 2:
        if _alike(share.min(), share.max()):
            return "their ratios"
        return "their sum" if same_kind and float(change.sum().abs()) < ALIKE * float(change.abs().max()) else None
    a, b = change.unbind()
    ways = [("their sum", _alike(a, -b)), ("their difference", _alike(a, b))] if same_kind else []
    x, y = share.unbind()
    ways += [("their product", _alike(x, -y)), ("their ratio", _alike(x, y))]
    return next((text for text, holds in ways if holds), None)


def _alike(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).abs() < ALIKE * torch.maximum(a.abs(), b.abs()))


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]

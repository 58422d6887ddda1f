"""A growing part, a beam and probes as tensors on a device: what no run changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from pullback.thermal.growth import Growth
from pullback.thermal.material import Material

if TYPE_CHECKING:
    from pullback.thermal.region import Region

Tensor = torch.Tensor


@dataclass(frozen=True, eq=False)
class PartModel:
    """A growing part over `steps` steps of length dt [s].

    tensors: the arrays of `growth.py` by name; shape (e,) and conductances (shapes, 28), the shape of each element and
    its 28 numbers; material (e,) where there are several; held (n,) int32 and held_temperature (n,).
    region: what of the part is here, all of it unless there are several ranks.
    """

    region: Region
    dt: float
    steps: int
    materials: tuple[Material, ...]
    dtype: torch.dtype
    device: torch.device
    threads: int
    tensors: dict[str, Tensor]

    @property
    def growth(self) -> Growth:
        """Return the growth of what is here."""
        return self.region.growth

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.growth.user)

    def events(self, state: int) -> tuple[int, int]:
        """Return the first of the nodes whose volume or area changes at a state, and how many there are."""
        first, last = self.growth.event_starts[state : state + 2].tolist()
        return first, last - first


@dataclass(frozen=True, eq=False)
class Beam:
    """Where the laser's heat goes: entries of step k are those from starts[k] to starts[k + 1]; node (entries,)."""

    starts: np.ndarray
    node: Tensor

    def entries(self, step: int) -> tuple[int, int]:
        """Return the first entry of a step, and how many it has."""
        first, last = self.starts[step : step + 2].tolist()
        return first, last - first


@dataclass(frozen=True, eq=False)
class Probes:
    """Observed points: probe p is the sum of weight times temperature over its nodes, from starts[p] on.

    The same by node: `nodes` are observed by the probes from node_starts[j] on. Probes that move have rows (state,
    probe), one after the other, and state_starts (states + 1,) says where the nodes of each state begin.
    """

    starts: Tensor
    node: Tensor
    weight: Tensor
    nodes: Tensor
    node_starts: Tensor
    probe: Tensor
    node_weight: Tensor
    state_starts: np.ndarray | None = None

    def __len__(self) -> int:
        rows = len(self.starts) - 1
        return rows if self.state_starts is None else rows // (len(self.state_starts) - 1)

    def lines(self, seen: Tensor) -> Tensor:
        """Return observations (states, p) as kernels index them: all in one line if the probes move."""
        return seen if self.state_starts is None else seen.view(1, -1)

    def rows_at(self, state: int) -> tuple[int, int, int]:
        """Return the first row of a state, how many it has, and its line."""
        return (0, len(self), state) if self.state_starts is None else (state * len(self), len(self), 0)

    def nodes_at(self, state: int) -> tuple[int, int, int]:
        """Return the first of the nodes observed in a state, how many there are, and the line of the observations."""
        if self.state_starts is None:
            return 0, len(self.nodes), state
        first, last = self.state_starts[state : state + 2].tolist()
        return first, last - first, 0

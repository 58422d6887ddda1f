"""The region of a part that one rank computes: its own nodes, their elements, and copies of nodes around them.

A node belongs to one rank, which has all of its elements and so computes its temperature as one process would, bit for
bit. The corners of these elements that belong to other ranks are ghosts: copies that their owners send after each step.
The operator of conduction is symmetric, so the backward pass needs the same: cotangents of ghosts from their owners
(docs/derivations/decomposition.md).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from pullback.core.ranks import Ranks
from pullback.thermal.growth import Growth, element_lists
from pullback.thermal.part import Beam, Probes

Tensor = torch.Tensor


class Region:
    """All of a part, computed by one process."""

    nodes: np.ndarray | slice = slice(None)
    """Nodes of the part that are here, in the order of their birth, and elements."""
    elements: np.ndarray | slice = slice(None)

    def __init__(self, growth: Growth) -> None:
        self.growth = growth

    def exchange(self, *vectors: Tensor) -> None:
        """Write into vectors (n,) what other ranks have computed for nodes that are theirs."""

    def dot(self, a: Tensor, b: Tensor) -> float:
        """Return the product of two vectors over the first nodes of the whole part."""
        return float(a @ b)

    def norm(self, a: Tensor) -> float:
        """Return the length of a vector over the first nodes of the whole part."""
        return float(torch.linalg.vector_norm(a))

    def on_mesh(self, x: Tensor, rank: Tensor, out: Tensor | None = None) -> Tensor:
        """Return numbers of nodes in the order of the whole mesh; `rank` is where each of them is here."""
        return torch.index_select(x, 0, rank, out=out)

    def sum_nodes(self, rows: np.ndarray) -> np.ndarray:
        """Return the sum over the last dimension, the nodes of the whole part."""
        return rows.sum(axis=-1)

    def sum_events(self, rows: np.ndarray) -> np.ndarray:
        """Return the sum over the last dimension, events of the whole part."""
        return rows.sum(axis=-1)

    def take_beam(self, beam: Beam) -> Beam:
        """Return the entries of a beam that heat nodes of this region."""
        return beam

    def take_power(self, power: Tensor) -> Tensor:
        """Return the power of these entries."""
        return power

    def give_power(self, adj_power: Tensor) -> Tensor:
        """Return the cotangents of all entries, of those of this region."""
        return adj_power

    def take_probes(self, probes: Probes | None) -> Probes | None:
        """Return probes that see nodes of this region."""
        return probes

    def give_seen(self, seen: Tensor) -> Tensor:
        """Return what probes of all regions see."""
        return seen


class SharedRegion(Region):
    """The region of one of several ranks; owner (n,) is the rank of each node, in the order of birth."""

    def __init__(self, growth: Growth, owner: np.ndarray, ranks: Ranks, device: torch.device) -> None:
        self.ranks, self.whole, self.owner, self.device = ranks, growth, owner, device
        of_corner = owner[growth.corners]
        self.elements = np.flatnonzero((of_corner == ranks.rank).any(axis=1))
        corners, of_corner = growth.corners[self.elements], of_corner[self.elements]
        self.nodes = np.union1d(corners.ravel(), np.flatnonzero(owner == ranks.rank))
        self.local = np.full(len(owner), -1, dtype=np.int64)
        self.local[self.nodes] = np.arange(len(self.nodes))
        self.owned = owner[self.nodes] == ranks.rank
        self.growth = part_of(growth, self.nodes, self.elements, self.local)
        # a ghost of rank r is a corner of an element of ours; what r has of ours are our corners of elements of r's
        self._receive, self._send = [], []
        for r in range(ranks.count):
            theirs = np.flatnonzero(owner[self.nodes] == r)
            if r == ranks.rank or not len(theirs):
                continue
            touched = corners[(of_corner == r).any(axis=1)]
            ours = np.unique(touched[owner[touched] == ranks.rank])
            # nodes without an element in common are no neighbours, though both may be here
            known = np.unique(touched[owner[touched] == r])
            self._receive.append((r, self._put(self.local[known])))
            self._send.append((r, self._put(self.local[ours])))
        self._mask = torch.as_tensor(self.owned).to(device)
        self._own = self._put(np.flatnonzero(self.owned))
        self._own_on_mesh = self._put(self.growth.user[self.owned])
        self._entries = torch.zeros(0, dtype=torch.int64, device=device)
        self._all_entries = 0

    def _put(self, index: np.ndarray) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(index)).to(self.device, torch.int64)

    @property
    def halo(self) -> int:
        """Return how many ghosts there are."""
        return sum(len(index) for _, index in self._receive)

    def exchange(self, *vectors: Tensor) -> None:
        """Send the numbers of own nodes that others have copies of, and receive those of ghosts."""
        like = vectors[0]
        receive = [(r, like.new_empty(len(vectors), len(index))) for r, index in self._receive]
        send = [(r, torch.stack([x[index] for x in vectors])) for r, index in self._send]
        self.ranks.swap(send, receive)
        for (_, index), (_, found) in zip(self._receive, receive):
            for x, values in zip(vectors, found):
                x.index_copy_(0, index, values)

    def dot(self, a: Tensor, b: Tensor) -> float:
        """Return the product over nodes of all ranks, each counted by its owner."""
        own = self._mask[: len(a)]
        return float(self.ranks.sum(torch.where(own, a * b, 0.0).sum()))

    def norm(self, a: Tensor) -> float:
        """Return the length over nodes of all ranks."""
        return self.dot(a, a) ** 0.5

    def on_mesh(self, x: Tensor, rank: Tensor, out: Tensor | None = None) -> Tensor:
        """Return numbers of nodes of all ranks, in the order of the mesh."""
        out = x.new_zeros(len(self.owner)) if out is None else out.zero_()
        out[self._own_on_mesh] = x[self._own]
        return self.ranks.sum(out)

    def sum_nodes(self, rows: np.ndarray) -> np.ndarray:
        """Return the sum over nodes of all ranks."""
        return self._sum(rows[..., self.owned].sum(axis=-1))

    def sum_events(self, rows: np.ndarray) -> np.ndarray:
        """Return the sum over events of nodes of all ranks."""
        return self._sum(rows[..., self.owned[self.growth.event_node]].sum(axis=-1))

    def _sum(self, x: np.ndarray) -> np.ndarray:
        return self.ranks.sum(torch.as_tensor(np.asarray(x, dtype=np.float64))).numpy()

    def take_beam(self, beam: Beam) -> Beam:
        """Return the entries of own nodes; ghosts get their heat from their owner."""
        node = beam.node.cpu().numpy()
        kept = self.owner[node] == self.ranks.rank
        self._entries, self._all_entries = self._put(np.flatnonzero(kept)), len(node)
        starts = np.append(0, np.cumsum(kept))[beam.starts]
        return Beam(starts, self._put(self.local[node[kept]]).to(torch.int32))

    def take_power(self, power: Tensor) -> Tensor:
        """Return the power of own entries."""
        return power[self._entries]

    def give_power(self, adj_power: Tensor) -> Tensor:
        """Return the cotangents of all entries, each from the rank whose it is."""
        found = adj_power.new_zeros(self._all_entries)
        found[self._entries] = adj_power
        return self.ranks.sum(found)

    def take_probes(self, probes: Probes | None) -> Probes | None:
        """Return the same rows of probes: empty where another rank has the first node.

        A probe's nodes are corners of one element, so that whoever owns the first has all of them. Going back, every
        rank adds cotangents to all nodes that it has, ghosts as well.
        """
        if probes is None:
            return None
        arrays = {name: getattr(probes, name).cpu().numpy() for name in PROBE_ARRAYS}
        row, node = np.diff(arrays["starts"]), arrays["node"]
        mine = self.owner[node[np.minimum(arrays["starts"][:-1], max(len(node) - 1, 0))]] == self.ranks.rank
        kept = np.repeat(mine, row)
        there = self.local[arrays["nodes"]] >= 0
        count = np.diff(arrays["node_starts"])
        kept_too = np.repeat(there, count)
        found = {
            "starts": np.append(0, np.cumsum(np.where(mine, row, 0))),
            "node": self.local[node[kept]],
            "weight": arrays["weight"][kept],
            "nodes": self.local[arrays["nodes"][there]],
            "node_starts": np.append(0, np.cumsum(count[there])),
            "probe": arrays["probe"][kept_too],
            "node_weight": arrays["node_weight"][kept_too],
        }
        tensors = {
            name: torch.as_tensor(np.ascontiguousarray(x)).to(getattr(probes, name)) for name, x in found.items()
        }
        states = probes.state_starts
        if states is not None:
            states = np.append(0, np.cumsum(there))[states]
        return replace(probes, **tensors, state_starts=states)

    def give_seen(self, seen: Tensor) -> Tensor:
        """Return what probes of all ranks see."""
        return self.ranks.sum(seen)


PROBE_ARRAYS = ("starts", "node", "weight", "nodes", "node_starts", "probe", "node_weight")


def part_of(growth: Growth, nodes: np.ndarray, elements: np.ndarray, local: np.ndarray) -> Growth:
    """Return the growth of some nodes and elements, in the order of their birth; local (n,) is where each node is."""
    corners = local[growth.corners[elements]].astype(np.int32)
    slots, more_starts, more = element_lists(corners, len(nodes))
    events = local[growth.event_node] >= 0
    rank = local[growth.rank]
    return Growth(
        user=growth.user[nodes],
        rank=rank,
        elements=growth.elements[elements],
        corners=corners,
        slots=slots,
        more_starts=more_starts,
        more=more,
        elements_alive=np.searchsorted(elements, growth.elements_alive),
        nodes_alive=np.searchsorted(nodes, growth.nodes_alive),
        volume=growth.volume[:, nodes],
        area=growth.area[nodes],
        event_starts=np.append(0, np.cumsum(events))[growth.event_starts],
        event_node=local[growth.event_node[events]].astype(np.int32),
        volume_before=growth.volume_before[:, events],
        volume_after=growth.volume_after[:, events],
        area_before=growth.area_before[events],
        area_after=growth.area_after[events],
    )

"""Shares of a growing part: all nodes once, about equal work at all times, and lists that fit together."""

import numpy as np
import pytest
import torch

from pullback.core.bisect import bisect
from pullback.core.ranks import Ranks
from pullback.thermal.partition import node_owners
from pullback.thermal.region import SharedRegion
from tests.thermal.cases import wall


@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_parts_have_equal_work(parts):
    grid = np.stack(np.meshgrid(*[np.arange(12.0)] * 3, indexing="ij"), -1).reshape(-1, 3)
    owner = bisect(grid[:, :2], np.ones(len(grid)), parts)
    count = np.bincount(owner, minlength=parts)
    assert len(count) == parts
    assert count.max() <= 1.15 * count.mean()
    # a column is never cut
    columns = owner.reshape(12, 12, 12)
    assert (columns == columns[:, :, :1]).all()


@pytest.mark.parametrize("count", [2, 3, 4])
def test_regions_fit_together(count):
    process = wall()
    growth = process.growth
    owner = node_owners(process.mesh, growth, count)
    assert set(owner.tolist()) == set(range(count))
    regions = [SharedRegion(growth, owner, Ranks(r, count), torch.device("cpu")) for r in range(count)]
    assert sum(region.owned.sum() for region in regions) == len(owner)
    for r, region in enumerate(regions):
        # a node of one's own has all its elements
        inside = np.isin(growth.corners, region.nodes[region.owned]).any(axis=1)
        assert np.array_equal(np.flatnonzero(inside), region.elements)
        received = 0
        for other, index in region._receive:
            # what one rank sends is what the other expects, node by node
            (sent,) = [i for rank, i in regions[other]._send if rank == r]
            assert np.array_equal(region.nodes[index], regions[other].nodes[sent])
            received += len(index)
        assert received == (~region.owned).sum() == region.halo
        # a birth at every state is in the lists of all that have the node
        for state in range(process.steps + 1):
            first, last = growth.event_starts[state : state + 2]
            mine = region.local[growth.event_node[first:last]]
            here = slice(*region.growth.event_starts[state : state + 2])
            assert np.array_equal(mine[mine >= 0], region.growth.event_node[here])

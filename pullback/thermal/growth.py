"""Elements, nodes and faces in the order of their birth, and what changes at each step: what kernels read of a part.

State n stands at time n·dt and has what was born until then. Elements and nodes are renumbered so that those alive at
any step are the first; what changes at a step is a list of nodes with their volume and area before and after.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pullback.thermal.births import FreeFaces
from pullback.thermal.geometry import corner_areas, corner_volumes, in_chunks
from pullback.thermal.mesh import Mesh

SLACK = 1e-6
"""A birth this share of a step after its beginning counts for it."""


@dataclass(frozen=True, eq=False)
class Growth:
    """A growing part over `steps` steps; nodes in the order of their birth unless it says otherwise.

    Those that are born together stand in the order of their elements.
    user (n,): each node's number in the mesh; rank (n,): each mesh node's number here; elements (e,): the same of
    elements; corners (e, 8); slots (n, 8): where a node's corners stand, 8 element + corner, 8 e where there is none;
    more_starts (n + 1,), more: the same for the ninth and later ones;
    elements_alive, nodes_alive (steps + 1,); volume (materials, n), area (n,) of state 0; event_starts (steps + 2,):
    the events of state k are those from event_starts[k] on; event_node and the rest: the node and what it has before
    and after.
    """

    user: np.ndarray
    rank: np.ndarray
    elements: np.ndarray
    corners: np.ndarray
    slots: np.ndarray
    more_starts: np.ndarray
    more: np.ndarray
    elements_alive: np.ndarray
    nodes_alive: np.ndarray
    volume: np.ndarray
    area: np.ndarray
    event_starts: np.ndarray
    event_node: np.ndarray
    volume_before: np.ndarray
    volume_after: np.ndarray
    area_before: np.ndarray
    area_after: np.ndarray


def birth_steps(times: np.ndarray, dt: float, steps: int) -> np.ndarray:
    """Return the first state in which what is born at these times [s] is there; steps + 1: never."""
    clipped = np.clip(times / dt, 0.0, steps + 1.0)
    return np.minimum(np.ceil(clipped - SLACK), steps + 1).astype(np.int64)


def grow(
    mesh: Mesh, births: np.ndarray, faces: FreeFaces, material: np.ndarray, materials: int, dt: float, steps: int
) -> Growth:
    """Return the part as it grows; material (e,) is the material of each of the mesh's elements."""
    born = birth_steps(births, dt, steps)
    elements = np.argsort(born, kind="stable")
    node, after, step, first = _histories(mesh, born, faces, material, materials, dt, steps)
    node_born = step[first]
    # nodes that are born together stand as their elements do, so that the thread that writes flows also adds them up
    met_by = np.full(len(mesh.nodes), len(elements))
    met_by[mesh.elements[elements[::-1]].ravel()] = np.repeat(np.arange(len(elements))[::-1], 8)
    user = np.lexsort((met_by, node_born))
    rank = np.empty_like(user)
    rank[user] = np.arange(len(user))

    corners = rank[mesh.elements[elements]].astype(np.int32)
    slots, more_starts, more = element_lists(corners, len(user))

    before = np.zeros_like(after)
    follows = np.ones(len(node), dtype=bool)
    follows[first] = False
    before[:, follows] = after[:, np.flatnonzero(follows) - 1]
    now = np.zeros((materials + 1, len(user)))
    there = np.flatnonzero(step == 0)
    now[:, rank[node[there]]] = after[:, there]

    later = np.flatnonzero((step > 0) & (step <= steps))
    later = later[np.lexsort((rank[node[later]], step[later]))]
    states = np.arange(steps + 1)
    return Growth(
        user=user,
        rank=rank,
        elements=elements,
        corners=corners,
        slots=slots,
        more_starts=more_starts,
        more=more,
        elements_alive=np.searchsorted(born[elements], states, side="right"),
        nodes_alive=np.searchsorted(node_born[user], states, side="right"),
        volume=now[:-1],
        area=now[-1],
        event_starts=np.searchsorted(step[later], np.arange(steps + 2)),
        event_node=rank[node[later]].astype(np.int32),
        volume_before=before[:-1, later],
        volume_after=after[:-1, later],
        area_before=before[-1, later],
        area_after=after[-1, later],
    )


def element_lists(corners: np.ndarray, nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return slots, more_starts and more of elements with corners (e, 8): where the corners of each node stand."""
    flat = corners.ravel()
    entries = np.argsort(flat, kind="stable").astype(np.int32)
    starts = np.searchsorted(flat[entries], np.arange(nodes + 1))
    order = np.arange(len(flat)) - starts[flat[entries]]
    slots = np.full((nodes, 8), len(flat), dtype=np.int32)
    slots[flat[entries[order < 8]], order[order < 8]] = entries[order < 8]
    more = entries[order >= 8]
    more_starts = np.searchsorted(flat[more], np.arange(nodes + 1)).astype(np.int32)
    return slots, more_starts, more


def _histories(mesh, born, faces, material, materials, dt, steps):
    """Return nodes and steps at which something changes, sorted, what a node has then, and where each begins."""
    corners = mesh.nodes[mesh.elements]
    volumes = in_chunks(corner_volumes, corners)
    areas = in_chunks(corner_areas, mesh.nodes[faces.nodes])
    start, end = birth_steps(faces.start, dt, steps), birth_steps(faces.end, dt, steps)
    # a face that is covered in the step in which it appears was never free
    free, covered = start < end, (start < end) & (end <= steps)
    parts = [
        (mesh.elements.ravel(), np.repeat(born, 8), np.repeat(material, 8), volumes.ravel()),
        (faces.nodes[free].ravel(), np.repeat(start[free], 4), materials, areas[free].ravel()),
        (faces.nodes[covered].ravel(), np.repeat(end[covered], 4), materials, -areas[covered].ravel()),
    ]
    node, step, channel, amount = (
        np.concatenate([np.broadcast_to(part[k], part[0].shape) for part in parts]) for k in range(4)
    )
    keys, place = np.unique(node.astype(np.int64) * (steps + 2) + step, return_inverse=True)
    change = np.stack([np.bincount(place[channel == c], amount[channel == c], len(keys)) for c in range(materials + 1)])
    node, step = keys // (steps + 2), keys % (steps + 2)
    first = np.searchsorted(node, np.arange(len(mesh.nodes)))
    # sum up node by node: the k-th changes of all nodes at once
    after = change.copy()
    rows = np.flatnonzero(np.append(False, node[1:] == node[:-1]))
    level = np.arange(len(node)) - first[node]
    for k in range(1, level.max(initial=0) + 1):
        now = rows[level[rows] == k]
        after[:, now] = after[:, now - 1] + change[:, now]
    # what is left of an area that is covered is nothing
    after[-1][after[-1] < 1e-9 * areas.max(initial=0.0)] = 0.0
    return node, after, step, first

"""What moves in a trajectory: its moments, the poses of links in them, and the forces of contacts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pullback.core.errors import PullbackError, unknown_name
from pullback.description.compile import WORLD
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory
from pullback.rigid.world.items import Placed, rotation_matrix
from pullback.spatial.rotations_torch import quaternion_product

Tensor = torch.Tensor


class Film(NamedTuple):
    """Some moments of a trajectory: times [s] (F,), the step that starts in each (F,), and the states of all worlds."""

    times: np.ndarray
    steps: np.ndarray
    q: Tensor
    """(F, B, nq)"""
    qd: Tensor
    impulses: Tensor | None
    chosen: np.ndarray
    """Which states of the trajectory these are (F,)."""


def film(sim: Sim, states: Trajectory | Sequence[State], fps: float) -> Film:
    """Return the moments of a trajectory that are nearest to the frames of a film; all of them if there are fewer."""
    if isinstance(states, Trajectory):
        q, qd, impulses, steps = states.q, states.qd, states.impulses, states.steps.numpy()
    else:
        if not len(states) or not all(isinstance(state, State) for state in states):
            raise PullbackError("there are no states to draw; give the trajectory of a rollout, or a list of states")
        q, qd = (torch.stack([getattr(state, name) for state in states]) for name in ("q", "qd"))
        kept = [state.impulses for state in states if state.impulses is not None]
        impulses = torch.stack(kept) if len(kept) == len(states) else None
        steps = np.arange(len(states))
    if q.ndim != 3 or q.shape[-1] != sim.nq:
        raise PullbackError(f"the states have q {tuple(q.shape)}; expected (T, B, {sim.nq}), as sim.rollout gives")
    if not fps > 0.0:
        raise PullbackError(f"fps is {fps}; give the number of frames a second, more than 0")
    times = sim.dt * steps
    wanted = np.arange(int(times[-1] * fps + 1e-9) + 1) / fps
    chosen = np.unique([*np.abs(times[None] - wanted[:, None]).argmin(1), len(times) - 1])
    at = torch.from_numpy(chosen).to(q.device)
    q, qd = q.detach()[at], qd.detach()[at]
    return Film(times[chosen], steps[chosen], q, qd, None if impulses is None else impulses.detach()[at], chosen)


def finite_part(moments: Film, worlds: Sequence[int]) -> Film:
    """Return the moments before one of the worlds became not finite, with a warning where that is not all of them."""
    batch = moments.q.shape[1]
    for world in worlds:
        if not isinstance(world, int) or not 0 <= world < batch:
            raise PullbackError(f"world is {world}; the states have {batch}: give 0 to {batch - 1}")
    pick = list(worlds)
    ok = torch.isfinite(moments.q[:, pick]).all(-1) & torch.isfinite(moments.qd[:, pick]).all(-1)
    lost = (~ok).nonzero()
    if not len(lost):
        return moments
    count, number = lost[0].tolist()
    if not count:
        raise PullbackError(f"world {pick[number]} is not finite from the start; there is nothing to draw")
    warnings.warn(
        f"world {pick[number]} is not finite from {moments.times[count]:g} s on; the replay ends there", stacklevel=4
    )
    cut: list[Any] = [None if x is None else x[:count] for x in moments]
    return Film(*cut)


Poses = tuple[np.ndarray, np.ndarray]
"""Positions (F, W, 3) [m] and quaternions wxyz (F, W, 4) in F moments of W worlds."""


def link_poses(items: Sequence[Placed], item: Placed, q: Tensor, worlds: Sequence[int]) -> dict[int, Poses]:
    """Return the poses of each link of one of the items in some of the worlds; q (F, B, nq) of all items."""
    robot = item.robot
    if robot is None:
        shape = (len(q), len(worlds))
        return {WORLD: (np.zeros((*shape, 3)), np.broadcast_to([1.0, 0.0, 0.0, 0.0], (*shape, 4)))}
    moving = [other.robot for other in items[: list(items).index(item)] if other.robot is not None]
    first = sum(other.model.nq_all for other in moving)
    given = [first + k for k in robot.model.independent_coordinates()]
    own, pick = q[..., given].to(robot.device, robot.dtype), list(worlds)
    # parameters that are learned may differ between worlds, and are then given for all of them
    if not len(robot.learned):
        own, pick = own[:, pick], list(range(len(pick)))
    with torch.no_grad():
        links = robot.compute_forward_kinematics_all_links(own)
    R, turn = rotation_matrix(item.orientation), torch.from_numpy(item.orientation)
    poses = {}
    for name, (position, quat) in links.items():
        p, o = position[:, pick].double().cpu(), quat[:, pick].double().cpu()
        if robot.model.base == "fixed":
            p, o = p @ torch.from_numpy(R.T) + torch.from_numpy(item.position), quaternion_product(turn.expand_as(o), o)
        poses[robot.link_number(name)] = p.numpy(), np.roll(o.numpy(), 1, axis=-1)
    return poses


class Forces(NamedTuple):
    """Forces of contacts in one moment: where they act (n, 3) [m], and what acts on the body that moves (n, 3) [N]."""

    points: np.ndarray
    forces: np.ndarray


def contact_forces(sim: Sim, moments: Film, controls: Tensor | None, world: int) -> list[Forces]:
    """Return the forces of contacts in each moment; the last one has the control of the step before it."""
    static = {shape.name for item in sim.world.items if item.robot is None for shape in item.shapes}
    u = _controls_of(sim, moments, controls)
    worlds = moments.q.shape[1]
    if sim.parameters.packed().shape[0] == 1:
        # one world for each moment: all of them in one call
        kept = None if moments.impulses is None else moments.impulses[:, world]
        inputs = [u[:, world if u.shape[1] > 1 else 0].contiguous()] if u is not None else []
        contacts = sim.contacts(
            State(moments.q[:, world].contiguous(), moments.qd[:, world].contiguous(), kept), *inputs
        )
    else:
        contacts = []
        for k in range(len(moments.times)):
            kept = None if moments.impulses is None else moments.impulses[k]
            inputs = [u[k].expand(worlds, -1).contiguous()] if u is not None else []
            contacts.append(sim.contacts(State(moments.q[k], moments.qd[k], kept), *inputs)[world])
    found = []
    for moment in contacts:
        signs = np.array([-1.0 if contact.shapes[0] in static else 1.0 for contact in moment]).reshape(-1, 1)
        points = np.array([contact.point for contact in moment]).reshape(-1, 3)
        found.append(Forces(points, signs * np.array([contact.force for contact in moment]).reshape(-1, 3)))
    return found


def vectors_at(
    moments: Film, given: Tensor | np.ndarray, name: str, points: np.ndarray, worlds: Sequence[int]
) -> list[Forces]:
    """Return vectors that act on a link at points (F, W, 3), such as gradients, in each moment.

    Given for every state of the trajectory, (T+1, 3) for one world or (T+1, B, 3).
    """
    vectors = given.detach().cpu().double().numpy() if isinstance(given, Tensor) else np.asarray(given, float)
    if vectors.ndim == 2:
        vectors = vectors[:, None]
    batch = moments.q.shape[1]
    last = int(moments.chosen[-1])
    if vectors.ndim != 3 or vectors.shape[1] not in (1, batch) or vectors.shape[2] != 3 or len(vectors) <= last:
        raise PullbackError(
            f"the gradient of {name!r} has shape {tuple(np.shape(given))}; expected ({last + 1}, {batch}, 3): a vector "
            f"in world axes for each state of the trajectory"
        )
    pick = [0 if vectors.shape[1] == 1 else world for world in worlds]
    return [Forces(points[k], vectors[moment][pick]) for k, moment in enumerate(moments.chosen)]


def _controls_of(sim: Sim, moments: Film, controls: Tensor | None) -> Tensor | None:
    """Return the controls (F, 1 or B, nu) of the steps that start in the moments."""
    if controls is None:
        return None
    worlds = moments.q.shape[1]
    if controls.ndim == 2:
        controls = controls[:, None]
    if controls.ndim != 3 or controls.shape[-1] != sim.nu or controls.shape[1] not in (1, worlds) or not len(controls):
        raise PullbackError(
            f"controls are {tuple(controls.shape)}; expected (T, {worlds}, {sim.nu}), as for sim.rollout"
        )
    steps = np.minimum(moments.steps, len(controls) - 1)
    return controls.detach()[torch.from_numpy(steps).to(controls.device)].to(sim.device, sim.dtype)


def find_link(items: Sequence[Placed], name: str) -> tuple[Placed, int]:
    """Return the robot and the link that a name, `robot/link` or that of a robot or free body, stands for."""
    robot_name, _, link = name.partition("/")
    item = next((i for i in items if i.name == robot_name and i.robot is not None), None)
    if item is None or item.robot is None:
        raise unknown_name("robot or free body", robot_name, [i.name for i in items if i.robot is not None])
    if link:
        return item, item.robot.link_number(link)
    return item, next((k for k, body in enumerate(item.robot.model.link_body) if body != WORLD), 0)


def is_free_body(item: Placed) -> bool:
    """Tell whether a thing is one link that moves freely."""
    return [body.kind for body in item.bodies] == ["free"]

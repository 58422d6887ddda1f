"""What is drawn of a trajectory: the moments, the poses of links in them, and the forces of contacts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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
    return Film(times[chosen], steps[chosen], q, qd, None if impulses is None else impulses.detach()[at])


def link_poses(sim: Sim, item: Placed, q: Tensor, world: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Return position (F, 3) [m] and quaternion wxyz (F, 4) of each link of a robot; q (F, B, nq) of all robots."""
    robot = item.robot
    if robot is None:
        return {WORLD: (np.zeros((len(q), 3)), np.tile([1.0, 0.0, 0.0, 0.0], (len(q), 1)))}
    moving = [other.robot for other in sim.world.items[: sim.world.items.index(item)] if other.robot is not None]
    first = sum(other.model.nq_all for other in moving)
    given = [first + k for k in robot.model.independent_coordinates()]
    own = q[..., given].to(robot.device, robot.dtype)
    # parameters that are learned may differ between worlds, and are then given for all of them
    own = own if len(robot.learned) else own[:, world : world + 1]
    with torch.no_grad():
        links = robot.compute_forward_kinematics_all_links(own)
    pick = world if len(robot.learned) else 0
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

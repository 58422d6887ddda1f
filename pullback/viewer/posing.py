"""The panels of a robot and of a simulation: joints by sliders, physics that runs, a body pulled by a spring."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pullback.description.compile import COORDINATES, Body
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.actuators import PositionServo
from pullback.rigid.world.items import Placed, one_dof
from pullback.rigid.world.world import World
from pullback.robot.model import RobotModel
from pullback.viewer.motion import Film, Forces, contact_forces, find_link, is_free_body
from pullback.viewer.panels import Panel
from pullback.viewer.physics import Physics, Pull
from pullback.viewer.stage import Frame, Stage, corners_of
from pullback.viewer.things import FORCE, Arrows, Segments

Tensor = torch.Tensor

DT = 1.0 / 240.0
"""Step of a robot that is dropped into physics [s]."""
STIFFNESS = 15.0
"""Frequency [rad/s] of a joint's servo and the inertia about the joint."""
HANGS = -0.1
"""A robot with a fixed base that reaches below this height [m] hangs, and has its ground further down."""
SUNK = 2e-3
"""Links that overlap the ground by more than this [m] at the start, as those that stand in it, do not touch it."""
PUSH = 1.0
"""Velocity that a push gives [m/s]."""
ROOM = 1.2
"""Room around what is there for what will move, as a factor of its radius."""
FAR = 20.0
"""Ground that is further away, in radii of what is there, is not looked at."""
MANY_WORLDS = 64
"""Worlds that are drawn side by side unless asked for."""


class Joints:
    """Sliders for the coordinates of all joints with one degree of freedom."""

    def __init__(self, panel: Panel, items: Sequence[Placed], q: np.ndarray) -> None:
        self.sliders: list[tuple[int, str, Any]] = []
        """Which coordinate, `robot/joint`, and its slider."""
        self.changed: list[int] = []
        """The coordinates whose sliders a user moved since this was emptied."""
        self.items = [item for item in items if item.robot is not None]
        first = 0
        for item in items:
            if item.robot is None:
                continue
            model = item.robot.model
            driven = [body for body in model.bodies if one_dof(body) and body.joint.mimic is None]
            if driven:
                with panel.gui.add_folder(f"joints of {item.name}"):
                    for body in driven:
                        self._add(panel, item, body, first + _place(model, body), q)
            first += model.nq_all

    def _add(self, panel: Panel, item: Placed, body: Body, place: int, q: np.ndarray) -> None:
        joint, here = body.joint, float(q[place])
        reach = 1.0 if body.kind == "prismatic" else np.pi
        low = joint.limits.lower if np.isfinite(joint.limits.lower) else min(-reach, here)
        high = joint.limits.upper if np.isfinite(joint.limits.upper) else max(reach, here)
        # whole steps, within the limits
        low, high = np.ceil(1e4 * min(low, here)) / 1e4, np.floor(1e4 * max(high, here)) / 1e4
        here = float(np.clip(here, low, high))
        unit = "m" if body.kind == "prismatic" else "rad"
        step = 1e-4 if high - low < 0.5 else 1e-3
        slider = panel.gui.add_slider(joint.name, low, high, step, here, hint=f"{low:.3g} to {high:.3g} {unit}")
        panel.on_update(slider, lambda: self.changed.append(place))
        self.sliders.append((place, f"{item.name}/{joint.name}", slider))

    def write(self, q: Tensor, places: Sequence[int] | None = None) -> Tensor:
        """Return q (B, nq) with the sliders' values, all or those of some coordinates."""
        q = q.clone()
        for place, _, slider in self.sliders:
            if places is None or place in places:
                q[:, place] = float(slider.value)
        # mimic joints follow
        first = 0
        for item in self.items:
            assert item.robot is not None
            model = item.robot.model
            if model.coupling is not None:
                own = q[:, [first + k for k in model.independent_coordinates()]]
                map_, offset = (torch.from_numpy(x).to(q) for x in (model.coupling.position, model.coupling.offset))
                q[:, first : first + model.nq_all] = own @ map_.T + offset
            first += model.nq_all
        return q

    def read(self, q: Tensor) -> None:
        """Put the sliders where the first world is."""
        here = q[0].tolist()
        for place, _, slider in self.sliders:
            value = float(np.clip(here[place], slider.min, slider.max))
            if abs(value - slider.value) > slider.step:
                slider.value = value


def _place(model: Any, body: Body) -> int:
    """Return the place of a body's coordinates among all of its robot, mimic joints included."""
    return sum(COORDINATES[other.kind][0] for other in model.bodies[: model.bodies.index(body)])


class SimPanel(Panel):
    """A simulation that runs, is paused, reset and pulled at."""

    def __init__(self, server: Any, sim: Sim | None, start: State, worlds: int | Sequence[int] | None) -> None:
        given = range(min(len(start.q), MANY_WORLDS)) if worlds is None else worlds
        stage = Stage(self._items(sim), [given] if isinstance(given, int) else list(given))
        frame = _with_ground(stage, start.q[None])
        super().__init__(server, stage, frame)
        self.stage, self.frame = stage, frame
        self.start, self.physics = start, None if sim is None else Physics(sim, start)
        self.q = start.q
        self.running = False
        with self.gui.add_folder("physics"):
            self.toggle = self.button("run", self._toggle)
            self.button("reset", self._reset)
            self.speed = self.gui.add_dropdown("speed", ("0.05", "0.1", "0.25", "0.5", "1"), initial_value="1")
            self.show_forces = self.gui.add_checkbox("contact forces", False)
            names = stage.links()
            chosen = names[0 if self._floats(stage) else -1] if names else ""
            self.body = self.gui.add_dropdown("pull or push", names, initial_value=chosen) if names else None
            if self.body is not None:
                self.button("push", self._push)
        self.joints = Joints(self, stage.items, start.q[0].double().cpu().numpy())
        self.pull: Pull | None = None
        self.dragging = False
        self.arrows = Arrows("contact forces", " N", FORCE, frame.radius / np.sqrt(len(stage.worlds)))
        self.rope = server.scene.add_line_segments(
            "/pull/spring", np.zeros((1, 2, 3), np.float32), FORCE, thickness=0.006 * frame.radius, visible=False
        )
        self.handle = server.scene.add_transform_controls(
            "/pull/handle", 0.22 * frame.radius, disable_rotations=True, depth_test=False, visible=False
        )
        self.handle.on_update(self._dragged)
        if self.body is not None:
            self.on_update(self.body, self._select)
            for actor, node in self.scene.nodes:
                self._select_by_click(actor, node)
        self._draw()

    def _items(self, sim: Sim | None) -> Sequence[Placed]:
        assert sim is not None
        return sim.world.items

    @staticmethod
    def _floats(stage: Stage) -> bool:
        """Tell whether the first thing that moves is a robot without a fixed base, which is pulled at its base."""
        robots = [item.robot for item in stage.items if item.robot is not None]
        return bool(robots) and robots[0].model.base == "floating"

    def _select_by_click(self, actor: Any, node: Any) -> None:
        robot = actor.item.robot
        if robot is None or self.body is None:
            return
        name = (
            actor.item.name if is_free_body(actor.item) else f"{actor.item.name}/{robot.model.links[actor.link].name}"
        )
        if name in self.body.options:
            node.on_click(lambda _: self.note(lambda: self._choose(name)))

    def _choose(self, name: str) -> None:
        assert self.body is not None
        self.body.value = name
        self._select()

    # -- buttons -------------------------------------------------------------------------------------------------

    def _toggle(self) -> None:
        self.running = not self.running
        self.toggle.label = "pause" if self.running else "run"
        if self.running and self.physics is None:
            self.say("compiling the simulation; the first time on a machine this takes half a minute or so")
            self.server.flush()
            self.physics = self._compile()
            self.say("")
        if self.running:
            self._take_sliders(None)
            self._select()
        else:
            self.joints.read(self.q)

    def _compile(self) -> Physics:
        raise NotImplementedError

    def _reset(self) -> None:
        if self.running:
            self._toggle()
        if self.physics is not None:
            self.physics.reset()
        self.q = self.start.q
        self.joints.read(self.q)
        self.handle.visible = False
        self.pull = None
        self.say("")
        self._draw()

    def _select(self) -> None:
        """Put the handle of the spring at the middle of the chosen body."""
        if self.physics is None or self.body is None:
            return
        item, link = find_link(self.stage.items, self.body.value)
        actors = [a for a in self.stage.actors if a.item is item and a.link == link]
        points = np.concatenate([a.mesh.vertices for a in actors]) if actors else np.zeros((1, 3))
        self.pull = Pull(self.body.value, 0.5 * (points.min(0) + points.max(0)), self.stage.worlds[0])
        # its arrows stand out of the body
        reach = float(np.linalg.norm(points.max(0) - points.min(0)))
        self.handle.scale = max(0.25 * self.frame.radius, 0.8 * reach)
        self.handle.visible = self.running
        self._follow()

    def _follow(self) -> None:
        if self.pull is not None and self.physics is not None and not self.dragging:
            self.handle.position = self.pull.point(self.physics.sim, self.physics.state) + self.stage.offsets[0]

    def _dragged(self, event: Any) -> None:
        self.dragging = event.phase != "end"

    def _push(self) -> None:
        if not self.running:
            self._toggle()
        if self.pull is not None and self.physics is not None:
            angle = torch.rand(1).item() * 2.0 * np.pi
            velocity = PUSH * np.array([np.cos(angle), np.sin(angle), 0.3])
            self.physics.state = self.pull.push(self.physics.sim, self.physics.state, velocity)

    # -- frames --------------------------------------------------------------------------------------------------

    def tick(self, seconds: float) -> None:
        """Simulate up to the time it is, or move joints as the sliders say."""
        self.do_notes()
        moved, self.joints.changed[:] = list(self.joints.changed), []
        if moved:
            self._take_sliders(moved)
        if self.running and self.physics is not None:
            pull = self.pull if self.dragging else None
            if pull is not None:
                pull.target = np.array(self.handle.position) - self.stage.offsets[0]
            if not self.physics.advance(seconds * float(self.speed.value), pull):
                self._toggle()
                self.say("the simulation is not finite any more, and was stopped; reset it")
            else:
                self.say(f"{self.physics.time:.2f} s")
            self.q = self.physics.state.q
            self._follow()
        if moved or self.running:
            self._draw()

    def _take_sliders(self, places: list[int] | None) -> None:
        """Move joints as the sliders say, or tell servos while physics runs."""
        physics = self.physics
        if self.running and physics is not None:
            targets = {name: float(slider.value) for _, name, slider in self.joints.sliders}
            for k, name in enumerate(physics.sim.arrays.actuator_names):
                servo = physics.sim.world.actuators[k]
                if isinstance(servo, PositionServo) and name in targets:
                    physics.controls[:, k] = targets[name]
            return
        if places is None:
            return
        self.q = self.joints.write(self.q, places)
        if physics is not None:
            physics.state = State(self.q, torch.zeros_like(physics.state.qd), physics.state.impulses)

    def _draw(self) -> None:
        self.scene.show(self.stage.poses(self.q[None]))
        if self.show_forces.value and self.physics is not None:
            self.scene.draw(self.arrows.name, self._forces(self.physics))
        else:
            self.scene.hide(self.arrows.name)
        pulling = self.dragging and self.running and self.pull is not None
        self.rope.visible = bool(pulling)
        if pulling and self.pull is not None and self.physics is not None:
            here = self.pull.point(self.physics.sim, self.physics.state) + self.stage.offsets[0]
            self.rope.points = np.stack([here, np.array(self.handle.position)])[None].astype(np.float32)

    def _forces(self, physics: Physics) -> Segments:
        state = physics.state
        impulses = None if state.impulses is None else state.impulses[None]
        now = np.zeros(1, int)
        moment = Film(np.zeros(1), now, state.q[None], state.qd[None], impulses, now)
        controls = physics.controls[None] if physics.sim.nu else None
        found = [contact_forces(physics.sim, moment, controls, world)[0] for world in self.stage.worlds]
        points = np.concatenate([each.points + at for each, at in zip(found, self.stage.offsets)])
        forces = Forces(points, np.concatenate([each.forces for each in found]))
        if not self.arrows.scale:
            self.arrows.fit([forces])
        return self.arrows.drawn(forces)


class RobotPanel(SimPanel):
    """A robot on the ground: joints by sliders, and physics with servos that hold the sliders' angles once it runs."""

    def __init__(self, server: Any, robot: RobotModel) -> None:
        self.robot = robot
        self.world = World()
        self.ground = self.world.add_ground()
        self.name = self.world.add(robot, q=_within_limits(robot), missing_meshes="ignore", collision_links=())
        self.height = self._stand()
        q = self.world.initial_q(dtype=torch.float64)[None]
        super().__init__(server, None, State(q, torch.zeros(1, robot.nv, dtype=torch.float64)), 0)

    def _items(self, sim: Sim | None) -> Sequence[Placed]:
        return self.world.items

    def _stand(self) -> float:
        """Put a robot that floats on the ground, and the ground below one that hangs; return the ground's height."""
        stage, item = Stage(self.world.items), self.world.items[-1]
        poses = stage.poses(self.world.initial_q(dtype=torch.float64)[None, None])
        corners = [corners_of(actor, poses[item.name][actor.link])[..., 2].min() for actor in stage.actors]
        lowest = float(min(corners, default=0.0))
        if self.robot.model.base == "floating":
            item.position = item.position - np.array([0.0, 0.0, lowest])
            return 0.0
        height = lowest - 0.5 * abs(lowest) if lowest < HANGS else 0.0
        self.world.set_shape(self.ground, position=(0.0, 0.0, height))
        return height

    def _compile(self) -> Physics:
        with warnings.catch_warnings():
            # what overlaps is left out below
            warnings.simplefilter("ignore")
            sim = self._sim(None)
            start = sim.initial_state()
            sunk = {shape for contact in sim.contacts(start)[0] if contact.gap < -SUNK for shape in contact.shapes}
        if sunk:
            links = {shape.split("/")[1] for shape in sunk if "/" in shape}
            sim = self._sim([link.name for link in self.robot.model.links if link.name not in links])
            start = sim.initial_state()
        return Physics(sim, State(self.q.to(start.q), start.qd, start.impulses))

    def _sim(self, links: Sequence[str] | None) -> Sim:
        """Return the robot on the ground, where shapes of some of its links, or of all of them, may touch."""
        world, item = World(), self.world.items[-1]
        world.add_ground(height=self.height)
        floating = self.robot.model.base == "floating"
        world.add(
            self.robot,
            name=self.name,
            position=item.position.tolist() if floating else None,
            orientation=item.orientation.tolist() if floating else None,
            actuators=self._servos(),
            collision_links=links,
            missing_meshes="ignore",
        )
        return world.compile(dt=DT, dtype=torch.float64)

    def _servos(self) -> dict[str, PositionServo]:
        """Return servos that hold each joint as firmly as the inertia about it asks for."""
        robot = self.robot
        q = robot.initial_q().double()
        with torch.no_grad():
            inertia = robot.compute_lagrangian_inertia_matrix(q.to(robot.dtype)).double()
        servos = {}
        for body in robot.model.bodies:
            if one_dof(body) and body.joint.mimic is None:
                k = robot.model.v_start[body.joint.name]
                mass = max(float(inertia[k, k]), 1e-4)
                servos[body.joint.name] = PositionServo(kp=mass * STIFFNESS**2, kd=2.0 * mass * STIFFNESS, limit=np.inf)
        return servos


def _with_ground(stage: Stage, q: Tensor) -> Frame:
    """Return where the action of q (1, B, nq) is, with the ground that things will fall to."""
    centre, radius = stage.arrange(q)
    feet = [centre - plane.rotation[:, 2] * ((centre - plane.point) @ plane.rotation[:, 2]) for plane in stage.planes]
    near = [foot[None] for foot in feet if np.linalg.norm(foot - centre) < FAR * radius]
    centre, radius = stage.arrange(q, near)
    return Frame(centre, ROOM * radius)


def _within_limits(robot: RobotModel) -> dict[str, float]:
    """Return the coordinates of joints whose limits the robot's start is outside of, at their limits."""
    start, found = robot.initial_q().tolist(), {}
    for body in robot.model.bodies:
        if one_dof(body) and body.joint.mimic is None:
            here, limits = start[robot.model.q_start[body.joint.name]], body.joint.limits
            if not limits.lower <= here <= limits.upper:
                found[body.joint.name] = float(np.clip(here, limits.lower, limits.upper))
    return found

"""The numbers of a world as the rows that kernels read, computed in torch so that gradients flow through them.

Rows are (b, n), b = 1 where all worlds share them. What depends on nothing that can change is computed once; the rest
again whenever something it depends on was changed, and on every call where a gradient may be asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from pullback.core.errors import PullbackError
from pullback.description.compile import COORDINATES, WORLD
from pullback.rigid.compile.drives import spring_rows, stiff_actuators
from pullback.rigid.compile.scene import ACTUATOR_ROWS, MATERIAL_ROWS, VELOCITY_GAIN
from pullback.rigid.compile.shape_rows import ShapeRows
from pullback.rigid.world.actuators import Actuator
from pullback.rigid.world.couplings import coupling_rows
from pullback.rigid.world.items import Placed, has_dry_friction, has_spring, one_dof
from pullback.rigid.world.loops import loop_rows
from pullback.rigid.world.values import Remembered, Sources, Tensor, Value, are_same, as_constant, batched, check_value
from pullback.rigid.world.world import World
from pullback.robot.learnable import GivenValue
from pullback.robot.model import RobotModel
from pullback.robot.parameters import KINEMATIC, common_batch, state_arguments
from pullback.robot.parametrizations import Parametrization
from pullback.sdf.program import Program


class Rows(NamedTuple):
    """All numbers of a world, (b, n) each; `pullback.rigid.compile.scene` says what the rows are."""

    gravity: Tensor
    placements: Tensor
    inertias: Tensor
    dofs: Tensor
    friction: Tensor
    actuators: Tensor
    shapes: Tensor
    fields: Tensor
    pairs: Tensor
    limits: Tensor
    loops: Tensor
    couplings: Tensor
    material: Tensor
    compensation: Tensor


class WorldParameters:
    """The rows of a compiled world for one type and device; call it for those of the present values.

    `pairs` are the first and the second shapes (npair,) of the pairs that may touch; `ahead` is the time step [s] where
    damping and servos act at the velocity after the step, else 0.
    """

    def __init__(
        self,
        world: World,
        pairs: tuple[np.ndarray, np.ndarray],
        *,
        dtype: torch.dtype,
        device: torch.device | str | None = None,
        ahead: float = 0.0,
    ) -> None:
        self.world = world
        self.items = list(world.items)
        self.loops = list(world.loops)
        self.couplings = list(world.couplings)
        self.robots = [(item, item.robot) for item in self.items if item.robot is not None]
        self.like = torch.zeros(0, dtype=dtype, device=device)
        self.ahead = ahead
        self.stiff = stiff_actuators(self.items)
        shapes = [shape for item in self.items for shape in item.shapes]
        self.shape_rows = ShapeRows(shapes, *pairs, self.like)
        self._driven = [tuple(item.actuators) for item, _ in self.robots]
        self._sprung = [{b.joint.child for b in item.bodies if has_spring(item, b)} for item, _ in self.robots]
        self._rubbing = [{b.joint.child for b in item.bodies if has_dry_friction(item, b)} for item, _ in self.robots]
        self._learned: list[dict[str, Any]] = [robot.learned._modules for _, robot in self.robots]
        self._same_type: dict[int, RobotModel] = {}
        others = (
            "springs",
            "actuators",
            "shapes",
            "fields",
            "pairs",
            "limits",
            "loops",
            "couplings",
            "material",
            "compensation",
        )
        self._groups = {name: Remembered() for name in ("gravity", "robots", *others)}
        self._sources: dict[str, Sources] = {}
        self._modules: list[object] = []
        self._given: list[tuple[object, Tensor | None]] | None = None
        self._version = -1
        self._rows: Rows | None = None
        self._packed: Tensor | None = None
        self._watched: list[tuple[Tensor, int]] = []

    def __call__(self) -> Rows:
        """Return the rows of the present values, differentiable in all that requires a gradient."""
        rows = self._rows
        if rows is None or self._version != self.world.version or (any(self._learned) and not self._is_as_given()):
            return self._refresh()
        for tensor, version in self._watched:
            if tensor._version != version or tensor.requires_grad:
                return self._refresh()
        return rows

    def packed(self) -> Tensor:
        """Return all rows in one tensor (b, n), in the order of `Rows`."""
        rows = self()
        if rows is not self._rows:
            return _join(self._stiffened(rows), self.like)
        packed = self._packed
        if packed is None:
            packed = self._packed = as_constant(lambda: _join(self._stiffened(rows), self.like))
        return packed

    def requires_grad(self) -> bool:
        """Tell whether a gradient may be asked of some value."""
        self()
        return any(x.requires_grad for given in self._sources.values() for x in given.tensors)

    def _stiffened(self, rows: Rows) -> Rows:
        """Return rows that make damping and servos implicit (docs/derivations/integration.md, eqs. (9) and (10)).

        Joint damping adds to the armature, the stiffness of servos to how their forces fall with velocity.
        """
        if self.ahead == 0.0:
            return rows
        dofs = rows.dofs.unflatten(1, (-1, 3))
        armature = torch.nn.functional.pad(self.ahead * dofs[..., 1:2], (0, 2))
        numbers = rows.actuators.unflatten(1, (-1, int(ACTUATOR_ROWS)))
        stiff = self.stiff.to(numbers) * (numbers[..., int(VELOCITY_GAIN)] == 0.0)
        fall = torch.nn.functional.pad(self.ahead * (numbers[..., 1] * stiff)[..., None], (2, int(ACTUATOR_ROWS) - 3))
        return rows._replace(dofs=(dofs + armature).flatten(1), actuators=(numbers + fall).flatten(1))

    def _refresh(self) -> Rows:
        self._look_at_world()
        self._rows = self._packed = None
        sources, groups, shapes = self._sources, self._groups, self.shape_rows
        placements, inertias, dofs, friction = groups["robots"](sources["robots"], self._make_robots)
        springs = groups["springs"](sources["robots"], self._make_springs)
        rows = Rows(
            groups["gravity"](sources["gravity"], lambda: batched(self.world.gravity, (3,), self.like)),
            placements,
            inertias,
            dofs,
            friction,
            _join([groups["actuators"](sources["actuators"], self._make_actuators), springs], self.like),
            groups["shapes"](sources["shapes"], lambda: shapes.geometry(*self._links_on_bodies())),
            groups["fields"](sources["fields"], shapes.fields),
            groups["pairs"](sources["pairs"], shapes.surfaces),
            groups["limits"](sources["limits"], self._make_limits),
            groups["loops"](sources["loops"], lambda: loop_rows(self.loops, self.links, self.like)),
            groups["couplings"](sources["couplings"], lambda: coupling_rows(self.couplings, self.like)),
            groups["material"](sources["material"], self._make_material),
            groups["compensation"](sources["robots"], self._make_compensation),
        )
        common_batch(*rows)
        tensors = [x for given in sources.values() for x in given.tensors]
        if all(group.is_remembered for group in groups.values()) and not any(x.requires_grad for x in tensors):
            self._rows = rows
            self._watched = [(x, x._version) for x in tensors]
        return rows

    def _look_at_world(self) -> None:
        """Find what each group of rows depends on, if something was replaced since the last look."""
        modules = [x for learned in self._learned for m in learned.values() for x in (m, *m.parameters(), *m.buffers())]
        if self._version == self.world.version and are_same(modules, self._modules):
            return
        self._check()
        self.shape_rows.renew()
        shapes = self.shape_rows.shapes
        places = [x for s in shapes for x in (s.size, s.position, s.orientation)]
        fields = [x for s in shapes if isinstance(s.source, Program) for x in s.source.tensors()]
        moved = [robot for _, robot in self.robots if _learns_kinematics(robot)]
        fields_of = [x for item, _ in self.robots for a in item.actuators.values() for x in vars(a).values()]
        actuators = [x for field in fields_of for x in (field if isinstance(field, tuple) else (field,))]
        self._sources = {
            "gravity": Sources([self.world.gravity]),
            "robots": _robot_sources([robot for _, robot in self.robots], []),
            "actuators": Sources(actuators),
            "shapes": _robot_sources(moved, [*places, *fields]),
            "fields": Sources(fields),
            "pairs": Sources([x for s in shapes for x in (s.friction, s.restitution)]),
            "limits": Sources([]),
            "loops": _robot_sources(moved, [x for loop in self.loops for end in loop.ends for x in end.values]),
            "couplings": Sources([x for c in self.couplings for x in (c.multiplier, c.offset)]),
            "material": Sources(self._material()),
        }
        self._version, self._modules = self.world.version, modules
        learned = [module for learned in self._learned for module in learned.values()]
        is_given = all(isinstance(module, GivenValue) for module in learned)
        self._given = [(module, module._buffers["value"]) for module in learned] if is_given else None

    def _is_as_given(self) -> bool:
        """Tell whether robots have the values that were set when last looked at, and nothing that learns."""
        given = self._given
        if given is None:
            return False
        now = [module for learned in self._learned for module in learned.values()]
        return len(now) == len(given) and all(
            module is known and module._buffers["value"] is value for module, (known, value) in zip(now, given)
        )

    def _check(self) -> None:
        """Refuse what changed since the world was compiled in a way that its arrays do not know."""
        known = zip(self.robots, self._driven, self._rubbing, self._sprung)
        for (item, robot), driven, rubbing, sprung in known:
            if tuple(item.actuators) != driven:
                raise PullbackError(f"{item.name!r} has other joints driven than when it was compiled; compile again")
            for key, module in robot.learned.items():
                link, parameter = robot._split_key(key)
                if state_arguments(module):
                    raise PullbackError(
                        f"the module for {parameter!r} of {item.name}/{link} asks for {state_arguments(module)[0]!r}; "
                        f"in a World parameters cannot depend on the state, use one whose forward takes nothing"
                    )
                if parameter == "joint_stiffness" and link not in sprung:
                    raise PullbackError(f"{item.name}/{link} had no spring when the world was compiled; compile again")
                if parameter == "joint_friction" and link not in rubbing:
                    raise PullbackError(
                        f"{item.name}/{link} had no dry friction when the world was compiled; compile again"
                    )

    # -- robots --------------------------------------------------------------------------------------------------

    def _make_robots(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return placements, inertias, dofs without dry friction, and dry friction."""
        placements, inertias, dofs = [], [], []
        for item, robot in self.robots:
            robot = self._of_our_type(item, robot)
            kinematics = robot.kinematics({})
            placements.append(self._put_joints(item, robot, kinematics.placements))
            inertias.append(robot.inertias(kinematics, {}))
            dofs.append(robot.dofs({}, damping=True, friction=True))
        rows = _join(dofs, self.like).unflatten(1, (-1, 3))
        smooth = rows * rows.new_tensor([1.0, 1.0, 0.0])
        return _join(placements, self.like), _join(inertias, self.like), smooth.flatten(1), rows[..., 2]

    def _make_compensation(self) -> Tensor:
        """Return mass and first moment of each body whose weight is carried, (b, 4 n); nothing if there is none."""
        if not any(robot.compensates_gravity for _, robot in self.robots):
            return self.like.new_zeros(1, 0)
        rows = [self._of_our_type(item, robot).carried_masses({}) for item, robot in self.robots]
        return _join([x.unflatten(1, (-1, 10))[..., :4].flatten(1) for x in rows], self.like)

    def _of_our_type(self, item: Placed, robot: RobotModel) -> RobotModel:
        """Return the robot, or, where it has the description's numbers only, one like it of the world's type."""
        if robot.dtype == self.like.dtype and robot.device == self.like.device:
            return robot
        if robot.learned:
            raise PullbackError(
                f"{item.name!r} has parameters that were set or are learnable and is {robot.dtype} on {robot.device}, "
                f"the world is compiled for {self.like.dtype} on {self.like.device}; convert it with "
                f"world.robots[{item.name!r}].to(...)"
            )
        if id(robot) not in self._same_type:
            self._same_type[id(robot)] = RobotModel(robot.model, dtype=self.like.dtype, device=self.like.device)
        return self._same_type[id(robot)]

    def _put(self, item: Placed, R: Tensor, p: Tensor, chosen: Sequence[bool]) -> tuple[Tensor, Tensor]:
        """Move the chosen frames (b, n) from a robot's root to the world: X_WF = X_WR X_RF."""
        R_WR, p_WR = self.like.new_tensor(item.rotation), self.like.new_tensor(item.position)
        moves = torch.tensor(chosen, device=self.like.device)[:, None]
        return torch.where(moves[..., None], R_WR @ R, R), torch.where(moves, p @ R_WR.mT + p_WR, p)

    def _put_joints(self, item: Placed, robot: RobotModel, placements: Tensor) -> Tensor:
        """Put a robot with a fixed base in its place."""
        bodies = robot.model.bodies
        if robot.model.base == "floating" or not bodies:
            return placements
        rows = placements.unflatten(1, (-1, 12))
        on_world = [body.parent == WORLD for body in bodies]
        R, p = self._put(item, rows[..., :9].unflatten(-1, (3, 3)), rows[..., 9:], on_world)
        return torch.cat([R.flatten(-2), p], -1).flatten(1)

    def _links_on_bodies(self) -> tuple[Tensor, Tensor]:
        """Return where the links of the shapes sit on their bodies, R_BL (b, n, 3, 3) and p_BL (b, n, 3)."""
        rotations, positions = [torch.zeros(1, 0, 3, 3).to(self.like)], [torch.zeros(1, 0, 3).to(self.like)]
        for item in self.items:
            R, p = self.links(item, [shape.link for shape in item.shapes])
            rotations.append(R)
            positions.append(p)
        batch = common_batch(*rotations)
        R_BL, p_BL = ([x.expand(batch, *x.shape[1:]) for x in parts] for parts in (rotations, positions))
        return torch.cat(R_BL, 1), torch.cat(p_BL, 1)

    def links(self, item: Placed | None, links: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return where links of an item sit on their bodies, R_BL (b, n, 3, 3) and p_BL (b, n, 3)."""
        if item is None or item.robot is None:
            R = torch.eye(3).to(self.like).expand(1, len(links), 3, 3)
            return R, self.like.new_zeros(1, len(links), 3)
        kinematics = self._of_our_type(item, item.robot).kinematics({})
        R, p = kinematics.R_BL[:, links], kinematics.p_BL[:, links]
        model = item.robot.model
        if model.base != "floating" and links:
            R, p = self._put(item, R, p, [model.link_body[link] == WORLD for link in links])
        return R, p

    # -- contact -------------------------------------------------------------------------------------------------

    def _material(self) -> list[Value]:
        """Return the numbers of the contact's force law that gradients reach; rigid contact has none."""
        numbers = self.world.contact.material()
        values: list[Value] = [check_value(name, value) for name, value in numbers.items()]
        unused: list[Value] = [np.zeros(())] * (int(MATERIAL_ROWS) - len(values))
        return values + unused

    def _make_material(self) -> Tensor:
        return _join([batched(value, (1,), self.like) for value in self._material()], self.like)

    # -- joints --------------------------------------------------------------------------------------------------

    def _make_actuators(self) -> Tensor:
        return _join([self._item_actuators(item, robot) for item, robot in self.robots], self.like)

    def _item_actuators(self, item: Placed, robot: RobotModel) -> Tensor:
        """Return the numbers of each of a robot's actuators (world/actuators.py), (b, 10 n)."""
        efforts = {body.joint.name: body.joint.limits.effort for body in robot.model.bodies}
        names = list(item.actuators)
        order: list[int] = []
        parts: list[Tensor] = []
        for actuator in {id(a): a for a in item.actuators.values()}.values():
            places = [k for k, name in enumerate(names) if item.actuators[name] is actuator]
            order += places
            parts.append(self._coefficients(item.name, actuator, [efforts.get(names[k], np.inf) for k in places]))
        if not parts:
            return self.like.new_zeros(1, 0)
        batch = common_batch(*parts)
        rows = torch.cat([part.expand(batch, -1, -1) for part in parts], 1)
        return rows[:, np.argsort(order)].flatten(1)

    def _coefficients(self, name: str, actuator: Actuator, efforts: list[float]) -> Tensor:
        """Return the numbers of one actuator for each of its joints, (b, n, 10)."""
        n = len(efforts)
        columns = []
        for field, value in actuator.numbers(f"the actuator of {name!r}")._asdict().items():
            if value is None:
                columns.append((-1.0 if field == "lower" else 1.0) * self.like.new_tensor(efforts)[None])
            elif value.ndim == 2 and value.shape[1] != n:
                raise PullbackError(
                    f"a {type(actuator).__name__} of {name!r} has values of shape {tuple(value.shape)} and drives {n} "
                    f"joints; expected (), (B,) or (B, {n})"
                )
            else:
                columns.append(batched(value, (n,) if value.ndim == 2 else (1,), self.like).expand(-1, n))
        batch = common_batch(*columns)
        return torch.stack([column.expand(batch, n) for column in columns], -1)

    def _make_springs(self) -> Tensor:
        rows = [spring_rows(item, self._of_our_type(item, robot), self.like) for item, robot in self.robots]
        return _join(rows, self.like)

    def _make_limits(self) -> Tensor:
        ends: list[float] = []
        for item in self.items:
            for body in item.bodies:
                limits = body.joint.limits
                pair = [limits.lower, limits.upper] if one_dof(body) else [-np.inf, np.inf]
                ends += pair * COORDINATES[body.kind][1]
        return self.like.new_tensor(ends)[None]


def _learns_kinematics(robot: RobotModel) -> bool:
    return any(robot._split_key(key)[1] in KINEMATIC for key in robot.learned)


def _robot_sources(robots: Sequence[RobotModel], others: Sequence[object]) -> Sources:
    """Return what the replaced parameters of robots depend on, with other things."""
    modules = [module for robot in robots for module in robot.learned.values()]
    tensors = [x for module in modules for x in (*module.parameters(), *module.buffers())]
    unknown = not all(isinstance(module, GivenValue | Parametrization) for module in modules)
    return Sources([*modules, *tensors, *others], unknown=unknown)


def _join(rows: Sequence[Tensor], like: Tensor) -> Tensor:
    """Put rows (b, n) side by side; those of all worlds are repeated where others are given per world."""
    if not rows:
        return like.new_zeros(1, 0)
    batch = common_batch(*rows)
    return torch.cat([x.expand(batch, -1) for x in rows], 1)

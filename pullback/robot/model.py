"""A robot as a torch module: kinematics, dynamics and energies, differentiable in everything.

Tensors are (n,) or (*batch, n) of the robot's dtype and on its device; batch dimensions broadcast. nq coordinates and
nv velocities are those of `joint_names` in order (docs/conventions.md). Nothing passed in is modified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch

from pullback.core.errors import PullbackError
from pullback.core.finite import refuse_not_finite
from pullback.core.graph import while_tracing
from pullback.description.compile import Model
from pullback.robot.loops import close_loops
from pullback.robot.operators import Programs
from pullback.robot.parameters import Kinematics
from pullback.robot.springs import Springs
from pullback.spatial.rotations_torch import (
    conjugate,
    rotate,
)

Tensor = torch.Tensor
Gravity = Tensor | Sequence[float]
Rows = TypeVar("Rows", Tensor, Kinematics)

STANDARD_GRAVITY = (0.0, 0.0, -9.81)


class RobotModel(Springs):
    """A robot: a tree of links and joints whose every number can be learned."""

    def __init__(
        self, model: Model, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> None:
        super().__init__(model, dtype, device)
        self._programs = Programs(model)

    def __repr__(self) -> str:
        """Name the robot and its size."""
        m = self.model
        size = f"links={len(m.links)}, nq={m.nq}, nv={m.nv}"
        return f"RobotModel({m.tree.name!r}, base={m.base!r}, {size}, dtype={self.dtype})"

    @property
    def gravity(self) -> tuple[float, ...]:
        """The acceleration of free fall [m/s²] (3,) that the description says, else (0, 0, -9.81)."""
        return self.model.tree.gravity or STANDARD_GRAVITY

    # -- kinematics ----------------------------------------------------------------------------------------------

    def compute_forward_kinematics(self, q: Tensor, link_name: str) -> tuple[Tensor, Tensor]:
        """Return a link's position [m] (*batch, 3) and quaternion xyzw, w >= 0, (*batch, 4) in the world."""
        poses = self._poses(q, (self.link_number(link_name),))
        return poses[..., 0, :3], poses[..., 0, 3:]

    def compute_forward_kinematics_all_links(self, q: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
        """Return position and quaternion of every link by name."""
        poses = self._poses(q, tuple(range(len(self.model.links))))
        return {name: (poses[..., k, :3], poses[..., k, 3:]) for k, name in enumerate(self.get_link_names())}

    def compute_endeffector_jacobian(self, q: Tensor, link_name: str) -> tuple[Tensor, Tensor]:
        """Return the linear and the angular Jacobian (*batch, 3, nv) of a link's frame, in world axes.

        J_linear @ qd is the velocity [m/s] of the link's origin, J_angular @ qd its angular velocity [rad/s].
        """
        link = self.link_number(link_name)
        batch, (flat,) = self._flatten(q=(q, self.nq))
        kinematics = self._for_batch(self.kinematics({"q": flat}), batch)
        out = self._programs.jacobian(link)(self._coordinates(flat), kinematics.placements, kinematics.frames([link]))
        jacobian = out.unflatten(-1, (6, self.model.nv_all))
        if self.model.coupling is not None:
            jacobian = jacobian @ self._coupling()[2]
        jacobian = jacobian.reshape(*batch, 6, self.nv)
        return jacobian[..., :3, :], jacobian[..., 3:, :]

    def close_loops(self, q: Tensor, *, iterations: int = 30, tolerance: float | None = None) -> Tensor:
        """Return coordinates (*batch, nq) near q at which the loops of the description are closed.

        Joints move as little as they can, a floating base not at all. `tolerance` [m, rad] is 1e-12, in float32 1e-6,
        unless given. Gradients are those of the projection, to first order in how far the loops were open.
        """
        self._flatten(q=(q, self.nq))
        usual = 1e-12 if self.dtype == torch.float64 else 1e-6
        return close_loops(self, q, iterations=iterations, tolerance=usual if tolerance is None else tolerance)

    def _poses(self, q: Tensor, links: tuple[int, ...]) -> Tensor:
        batch, (flat,) = self._flatten(q=(q, self.nq))
        kinematics = self._for_batch(self.kinematics({"q": flat}), batch)
        frames = kinematics.frames(list(links))
        out = self._programs.poses(links)(self._coordinates(flat), kinematics.placements, frames)
        return out.reshape(*batch, len(links), 7)

    # -- dynamics ------------------------------------------------------------------------------------------------

    def compute_inverse_dynamics(
        self,
        q: Tensor,
        qd: Tensor,
        qdd_des: Tensor,
        *,
        include_gravity: bool = True,
        use_damping: bool = False,
        use_friction: bool = False,
        include_springs: bool = True,
        gravity: Gravity | None = None,
        external_forces: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Return the joint forces tau [N·m, N] (*batch, nv) that give the accelerations `qdd_des` [rad/s², m/s²].

        `gravity` [m/s²] (3,) or (*batch, 3) replaces `self.gravity`. `external_forces` maps link names to wrenches
        (*batch, 6): torque [N·m] then force [N], in world axes, acting at the link's origin. Damping and dry
        friction resist the motion where asked for; armature always counts, and springs unless left out.
        """
        batch, (q, qd, qdd, *wrenches) = self._flatten(
            q=(q, self.nq), qd=(qd, self.nv), qdd_des=(qdd_des, self.nv), **_named(external_forces)
        )
        terms = self._terms(
            batch, q, qd, include_gravity, use_damping, use_friction, gravity, external_forces, wrenches
        )
        tau = self._programs.inverse_dynamics()(
            self._coordinates(q), self._velocities(qd), self._velocities(qdd), *terms
        )
        if include_springs and self.has_springs:
            tau = tau - self._spring_forces(q, qd, use_damping)
        if include_gravity and self.compensates_gravity:
            tau = tau - self._carried_weights(batch, q, terms)
        if self.model.coupling is not None:
            tau = tau @ self._coupling()[2]
        return tau.reshape(*batch, self.nv)

    def compute_non_linear_effects(
        self,
        q: Tensor,
        qd: Tensor,
        *,
        include_gravity: bool = True,
        use_damping: bool = False,
        use_friction: bool = False,
        include_springs: bool = True,
        gravity: Gravity | None = None,
        external_forces: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Return the joint forces [N·m, N] (*batch, nv) at zero acceleration, springs included."""
        return self.compute_inverse_dynamics(
            q,
            qd,
            self._like.new_zeros(self.nv),
            include_gravity=include_gravity,
            use_damping=use_damping,
            use_friction=use_friction,
            include_springs=include_springs,
            gravity=gravity,
            external_forces=external_forces,
        )

    def compute_lagrangian_inertia_matrix(self, q: Tensor) -> Tensor:
        """Return the mass matrix [kg·m², kg·m, kg] (*batch, nv, nv), armature included."""
        batch, (q,) = self._flatten(q=(q, self.nq))
        kinematics, inertias, dofs = self._rows(batch, {"q": q})
        out = self._programs.mass_matrix()(self._coordinates(q), kinematics.placements, inertias, dofs)
        mass = out.unflatten(-1, (self.model.nv_all, self.model.nv_all))
        if self.model.coupling is not None:
            velocity = self._coupling()[2]
            mass = velocity.mT @ mass @ velocity
        return mass.reshape(*batch, self.nv, self.nv)

    def compute_forward_dynamics(
        self,
        q: Tensor,
        qd: Tensor,
        f: Tensor,
        *,
        include_gravity: bool = True,
        use_damping: bool = False,
        use_friction: bool = False,
        include_springs: bool = True,
        gravity: Gravity | None = None,
        external_forces: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Return the joint accelerations [rad/s², m/s²] (*batch, nv) under the joint forces `f` [N·m, N].

        The other arguments are those of `compute_inverse_dynamics`.
        """
        if self.model.coupling is not None:
            _, flat = self._flatten(q=(q, self.nq), qd=(qd, self.nv), f=(f, self.nv))
            refuse_not_finite("f", flat[2])
            bias = self.compute_non_linear_effects(
                q,
                qd,
                include_gravity=include_gravity,
                use_damping=use_damping,
                use_friction=use_friction,
                include_springs=include_springs,
                gravity=gravity,
                external_forces=external_forces,
            )
            mass = self.compute_lagrangian_inertia_matrix(q)
            try:
                return torch.linalg.solve(mass, (f - bias)[..., None])[..., 0]
            except RuntimeError as error:
                raise PullbackError(f"forward dynamics: the mass matrix is singular; {error}") from error
        batch, (q, qd, tau, *wrenches) = self._flatten(
            q=(q, self.nq), qd=(qd, self.nv), f=(f, self.nv), **_named(external_forces)
        )
        terms = self._terms(
            batch, q, qd, include_gravity, use_damping, use_friction, gravity, external_forces, wrenches
        )
        if include_springs and self.has_springs:
            tau = tau + self._spring_forces(q, qd, use_damping)
        if include_gravity and self.compensates_gravity:
            tau = tau + self._carried_weights(batch, q, terms)
        return self._programs.forward_dynamics()(q, qd, tau, *terms).reshape(*batch, self.nv)

    # -- the robot as a whole ------------------------------------------------------------------------------------

    def compute_center_of_mass(self, q: Tensor) -> Tensor:
        """Return the centre of mass [m] (*batch, 3) of the links that move."""
        totals, mass = self._totals(q, self._like.new_zeros(self.nv))
        return totals[..., 6:9] / mass

    def compute_centroidal_momentum(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return angular [kg·m²/s] and linear [kg·m/s] momentum (*batch, 6) about the centre of mass, in world axes."""
        totals, mass = self._totals(q, qd)
        linear = totals[..., 3:6]
        angular = totals[..., :3] - torch.linalg.cross(totals[..., 6:9] / mass, linear)
        return torch.cat([angular, linear], -1)

    def compute_kinetic_energy(self, q: Tensor, qd: Tensor) -> Tensor:
        """Return the kinetic energy [J] (*batch,), that of armatures included."""
        totals, _ = self._totals(q, qd)
        batch, (q_flat, flat) = self._flatten(q=(q, self.nq), qd=(qd, self.nv))
        _, _, dofs = self._rows(batch, {"q": q_flat, "qd": flat})
        rotors = 0.5 * (dofs[:, ::3] * self._velocities(flat) ** 2).sum(-1)
        return totals[..., 9] + rotors.expand(batch.numel()).reshape(batch)

    def compute_potential_energy(self, q: Tensor, *, gravity: Gravity | None = None) -> Tensor:
        """Return the potential energy [J] (*batch,), of gravity, zero at the world's origin, and of springs."""
        totals, _ = self._totals(q, self._like.new_zeros(self.nv))
        energy = -(self._gravity(gravity) * (totals[..., 6:9] - self._carried_moment(q))).sum(-1)
        if self.has_springs:
            batch, (flat,) = self._flatten(q=(q, self.nq))
            energy = energy + self._spring_energy(flat).expand(batch.numel()).reshape(batch)
        return energy

    def _carried_weights(self, batch: torch.Size, q: Tensor, terms: tuple[Tensor | None, ...]) -> Tensor:
        """Return the joint forces (B, nv_all) of gravity compensation: inverse dynamics at rest of what is carried."""
        _, field, placements, _, dofs = terms
        masses, still = self._for_batch(self.carried_masses({"q": q}), batch), q.new_zeros(1, self.model.nv_all)
        nothing = None if dofs is None else torch.zeros_like(dofs)
        hold = self._programs.inverse_dynamics()
        return hold(self._coordinates(q), still, still, None, field, placements, masses, nothing)

    def _carried_moment(self, q: Tensor) -> Tensor | float:
        """Return the first moment [kg·m] (*batch, 3) of the mass whose weight is carried."""
        if not self.compensates_gravity:
            return 0.0
        batch, (flat,) = self._flatten(q=(q, self.nq))
        kinematics = self._for_batch(self.kinematics({"q": flat}), batch)
        masses, still = self._for_batch(self.carried_masses({"q": flat}), batch), q.new_zeros(1, self.model.nv_all)
        totals = self._programs.momentum()(self._coordinates(flat), still, kinematics.placements, masses)
        return totals[:, 6:9].reshape(*batch, 3)

    def compute_total_mass(self) -> Tensor:
        """Return the mass [kg] of the links that move; (b,) where masses are given per robot."""
        kinematics = self.kinematics({})
        mass = self.inertias(kinematics, {})[:, ::10].sum(-1)
        return mass[0] if len(mass) == 1 else mass

    def _totals(self, q: Tensor, qd: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ten rows of the momentum kernels (*batch, 10), and the total mass (*batch, 1)."""
        batch, (q, qd) = self._flatten(q=(q, self.nq), qd=(qd, self.nv))
        kinematics, inertias, _ = self._rows(batch, {"q": q, "qd": qd})
        totals = self._programs.momentum()(self._coordinates(q), self._velocities(qd), kinematics.placements, inertias)
        mass = inertias[:, ::10].sum(-1, keepdim=True).expand(len(totals), 1)
        return totals.reshape(*batch, 10), mass.reshape(*batch, 1)

    # -- the border ----------------------------------------------------------------------------------------------

    def _for_batch(self, rows: Rows, batch: torch.Size) -> Rows:
        """Repeat per-robot parameters (b, ...) over leading batch dimensions, time for instance; one set serves all."""
        if not isinstance(rows, Tensor):
            return rows if rows.shared else Kinematics(*(self._for_batch(x, batch) for x in rows))
        size = rows.shape[0]
        if size == 1:
            return rows
        worlds = batch.numel()
        if size == worlds:
            return rows
        if batch[-1:] != (size,):
            raise PullbackError(
                f"parameters are given for {size} robots, the state has batch {tuple(batch)}; its last batch dimension "
                f"must be {size}"
            )
        return rows.expand(worlds // size, *rows.shape).reshape(worlds, *rows.shape[1:])

    def _terms(
        self,
        batch: torch.Size,
        q: Tensor,
        qd: Tensor,
        include_gravity: bool,
        use_damping: bool,
        use_friction: bool,
        gravity: Gravity | None,
        external_forces: Mapping[str, Tensor] | None,
        wrenches: list[Tensor],
    ) -> tuple[Tensor | None, ...]:
        """Return what both dynamics take besides the motion: external forces, gravity and parameters."""
        kinematics, inertias, dofs = self._rows(batch, {"q": q, "qd": qd}, damping=use_damping, friction=use_friction)
        field = self._gravity(gravity if include_gravity else (0.0, 0.0, 0.0))
        if field.ndim > 1:
            try:
                field = field.expand(*batch, 3)
            except RuntimeError as error:
                shapes = f"gravity has shape {tuple(field.shape)}, the state batch {tuple(batch)}"
                raise PullbackError(f"{shapes}; give (3,), or one for each state") from error
        field = field.reshape(-1, 3)
        for name, wrench in zip(external_forces or {}, wrenches):
            refuse_not_finite(f"external_forces[{name!r}]", wrench)
        forces = self._body_forces(q, kinematics, list(external_forces or {}), wrenches) if wrenches else None
        return forces, field, kinematics.placements, inertias, dofs

    @while_tracing
    def _fill_cache(self) -> bool:
        """Compute what is kept."""
        everywhere = torch.Size([1])
        _ = self._gravity(None), self.manifold, self._values(), self.compensates_gravity
        if self.model.coupling is not None:
            self._coupling()
        if self.model.tree.springs:
            self._shares()
        if not self.learned:
            for damping in (False, True):
                for friction in (False, True):
                    self._rows(everywhere, {}, damping=damping, friction=friction)
            self.springs({})
            self.carried_masses({})
        return True

    def _rows(
        self, batch: torch.Size, states: Mapping[str, Tensor | None], *, damping: bool = False, friction: bool = False
    ) -> tuple[Kinematics, Tensor, Tensor]:
        """Return all parameters as kernels read them, for this batch."""
        if not self.learned:
            return self._cached(("rows", damping, friction), lambda: self._make_rows(batch, states, damping, friction))
        return self._make_rows(batch, states, damping, friction)

    def _make_rows(
        self, batch: torch.Size, states: Mapping[str, Tensor | None], damping: bool, friction: bool
    ) -> tuple[Kinematics, Tensor, Tensor]:
        kinematics = self.kinematics(states)
        inertias = self.inertias(kinematics, states)
        dofs = self.dofs(states, damping=damping, friction=friction)
        return self._for_batch(kinematics, batch), self._for_batch(inertias, batch), self._for_batch(dofs, batch)

    def _body_forces(self, q: Tensor, kinematics: Kinematics, names: list[str], wrenches: list[Tensor]) -> Tensor:
        """Bring wrenches on links, in world axes, to the bodies' frames: (B, nbody * 6)."""
        model = self.model
        links = tuple(self.link_number(name) for name in names)
        coordinates = self._coordinates(q)
        poses = self._programs.poses(links)(coordinates, kinematics.placements, kinematics.frames(list(links)))
        worlds = len(torch.broadcast_tensors(poses[:, 0], *(x[:, 0] for x in wrenches))[0])
        total = list(q.new_zeros(len(model.bodies), worlds, 6).unbind(0))
        for k, (link, wrench) in enumerate(zip(links, wrenches)):
            body = model.link_body[link]
            if body < 0:
                continue
            # world axes to link axes, then from the link's place on its body to the body
            quat = conjugate(poses[:, 7 * k + 3 : 7 * k + 7])
            R, p = kinematics.R_BL[:, link], kinematics.p_BL[:, link]
            torque, force = ((R @ rotate(quat, x)[..., None])[..., 0] for x in (wrench[:, :3], wrench[:, 3:]))
            moment = torque + torch.linalg.cross(p.expand_as(force), force)
            total[body] = total[body] + torch.cat([moment, force], -1)
        return torch.cat(total, -1)

    def _gravity(self, gravity: Gravity | None) -> Tensor:
        if gravity is None:
            return self._cached("gravity", lambda: self._like.new_tensor(self.gravity))
        if not isinstance(gravity, Tensor):
            gravity = self._like.new_tensor(gravity)
        if gravity.shape[-1:] != (3,) or gravity.dtype != self.dtype or gravity.device != self.device:
            raise PullbackError(
                f"gravity is {tuple(gravity.shape)} {gravity.dtype} on {gravity.device}; expected (3,) or (*batch, 3) "
                f"{self.dtype} on {self.device}"
            )
        return gravity


def _named(external_forces: Mapping[str, Tensor] | None) -> dict[str, tuple[Tensor, int]]:
    return {f"external_forces[{name!r}]": (wrench, 6) for name, wrench in (external_forces or {}).items()}

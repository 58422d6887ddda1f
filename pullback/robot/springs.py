"""Springs of a robot: in joints, k (rest - q), and those that pull on several joints at once."""

from __future__ import annotations

import numpy as np
import torch

from pullback.description.compile import nv_of
from pullback.robot.joint_space import JointSpace

Tensor = torch.Tensor


class Springs(JointSpace):
    """A robot's springs; their stiffness and where they rest are link parameters of the links below the joints."""

    @property
    def has_springs(self) -> bool:
        """Whether any joint has a spring, in the description or by a module, or several share one."""
        return (
            self._touched(("joint_stiffness",))
            or bool(self.model.tree.springs)
            or any(body.joint.stiffness for body in self.model.bodies)
        )

    def _spring_forces(self, q: Tensor, qd: Tensor, use_damping: bool) -> Tensor:
        """Return the forces of all springs on the dofs of all bodies (B, nv_all), with their dampers if asked."""
        coordinates = self._coordinates(q)
        forces = coordinates.new_zeros(len(coordinates), self.model.nv_all)
        links, at_q, at_v = self._sprung()
        if links:
            stiffness, rest = (x[:, links] for x in self.springs({"q": q, "qd": qd}))
            pull = stiffness * (rest - coordinates[:, at_q])
            forces = forces.expand(max(len(forces), len(pull)), -1).index_add(1, torch.tensor(at_v).to(q.device), pull)
        for spring, (share_q, share_v) in zip(self.model.tree.springs, self._shares()):
            pull = spring.bias - spring.kp * (coordinates @ share_q)
            if use_damping:
                pull = pull - spring.kd * (self._velocities(qd) @ share_v)
            forces = forces + pull[:, None] * share_v
        return forces

    def _spring_energy(self, q: Tensor) -> Tensor:
        """Return the energy [J] (B,) of all springs, zero at rest."""
        coordinates = self._coordinates(q)
        links, at_q, _ = self._sprung()
        stiffness, rest = (x[:, links] for x in self.springs({"q": q}))
        energy = 0.5 * (stiffness * (coordinates[:, at_q] - rest) ** 2).sum(-1)
        for spring, (share_q, _) in zip(self.model.tree.springs, self._shares()):
            if spring.kp:
                energy = energy + 0.5 * spring.kp * (coordinates @ share_q - spring.bias / spring.kp) ** 2
        return energy

    def _sprung(self) -> tuple[list[int], list[int], list[int]]:
        """Return the links below joints that may have a spring, and the coordinates and dofs of these."""
        bodies = [body for body in self.model.bodies if nv_of(body.kind) == 1]
        links = [self.model.link_index[body.joint.child] for body in bodies]
        return links, [body.q_start for body in bodies], [body.v_start for body in bodies]

    def _shares(self) -> list[tuple[Tensor, Tensor]]:
        """Return the shares of each spring on several joints, by coordinates (nq_all,) and by velocities (nv_all,)."""

        def make() -> list[tuple[Tensor, Tensor]]:
            places = {body.joint.name: (body.q_start, body.v_start) for body in self.model.bodies}
            rows = []
            for spring in self.model.tree.springs:
                by_q, by_v = np.zeros(self.model.nq_all), np.zeros(self.model.nv_all)
                for joint, share in spring.joints.items():
                    by_q[places[joint][0]], by_v[places[joint][1]] = share, share
                rows.append((self._like.new_tensor(by_q), self._like.new_tensor(by_v)))
            return rows

        return self._cached("shares", make)

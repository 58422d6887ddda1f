"""The differentiable operators of a robot, and their binding to one robot's topology."""

from __future__ import annotations

from typing import Any

import numpy as np
import warp as wp

from pullback.core.graph import MadeOnce
from pullback.core.program import Operator, Program
from pullback.description.compile import WORLD, Model
from pullback.description.joints import KIND_NUMBER
from pullback.robot import aba_kernels, crba_kernels, kinematics_kernels, momentum_kernels, rnea_kernels
from pullback.robot.topology import Topology

MOTION = ("external_forces", "gravity", "placements", "inertias", "dofs")
POSES = Operator("forward kinematics", ("q", "placements", "frames"), kinematics_kernels.pose_kernels)
JACOBIAN = Operator("the Jacobian", ("q", "placements", "frames"), kinematics_kernels.jacobian_kernels)
VELOCITIES = Operator("link velocities", ("q", "qd", "placements", "frames"), kinematics_kernels.velocity_kernels)
INVERSE_DYNAMICS = Operator("inverse dynamics", ("q", "qd", "qdd_des", *MOTION), rnea_kernels.kernels, shows_q=True)
FORWARD_DYNAMICS = Operator("forward dynamics", ("q", "qd", "f", *MOTION), aba_kernels.kernels, shows_q=True)
MASS_MATRIX = Operator("the mass matrix", ("q", "placements", "inertias", "dofs"), crba_kernels.kernels)
MOMENTUM = Operator("momentum", ("q", "qd", "placements", "inertias"), momentum_kernels.kernels)

WORK_IN_LANES = 1 / 16
"""What counts for threads where worlds go in lanes: a second one pays from some 2,000 worlds on."""


class Programs:
    """The programs of one robot, each bound when it is first asked for."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.poses = MadeOnce(self._poses)
        self.jacobian = MadeOnce(self._jacobian)
        self.inverse_dynamics = MadeOnce(self._inverse_dynamics)
        self.forward_dynamics = MadeOnce(self._forward_dynamics)
        self.mass_matrix = MadeOnce(self._mass_matrix)
        self.momentum = MadeOnce(self._momentum)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle as the robot alone; programs are bound again."""
        return Programs, (self.model,)

    def _poses(self, links: tuple[int, ...]) -> Program:
        rows = len(self.model.bodies) * int(kinematics_kernels.ROWS)
        return self._bind(POSES, 7 * len(links), [rows], [rows], links)

    def _jacobian(self, link: int) -> Program:
        rows = len(self.model.bodies) * int(kinematics_kernels.ROWS)
        return self._bind(JACOBIAN, 6 * self.model.nv_all, [rows], [rows], (link,))

    def _inverse_dynamics(self) -> Program:
        n = len(self.model.bodies)
        scratch, vjp_scratch = [n * int(rnea_kernels.ROWS)], [n * int(rnea_kernels.VJP_ROWS)]
        return self._bind(INVERSE_DYNAMICS, self.model.nv_all, scratch, vjp_scratch)

    def _forward_dynamics(self) -> Program:
        n, nv = len(self.model.bodies), self.model.nv_all
        vjp_rows = n * max(int(aba_kernels.ROWS), int(rnea_kernels.VJP_ROWS))
        return self._bind(FORWARD_DYNAMICS, nv, [n * int(aba_kernels.ROWS)], [vjp_rows, nv, 0])

    def _mass_matrix(self) -> Program:
        n, nv = len(self.model.bodies), self.model.nv_all
        return self._bind(MASS_MATRIX, nv * nv, [n * int(crba_kernels.ROWS)], [n * int(crba_kernels.VJP_ROWS), nv, nv])

    def _momentum(self) -> Program:
        n = len(self.model.bodies)
        scratch, vjp_scratch = [n * int(momentum_kernels.ROWS)], [n * int(momentum_kernels.VJP_ROWS)]
        return self._bind(MOMENTUM, momentum_kernels.OUT_ROWS, scratch, vjp_scratch)

    def _bind(
        self, operator: Operator, rows: int, scratch: list[int], vjp_scratch: list[int], links: tuple[int, ...] = ()
    ) -> Program:
        return Program(
            operator,
            lambda device: make_topology(self.model, links, device),
            rows=rows,
            scratch=scratch,
            vjp_scratch=vjp_scratch,
            work=WORK_IN_LANES,
        )


def make_topology(model: Model, links: tuple[int, ...], device: str) -> Any:
    """Return the constants that kernels read; `links` are the frames that kinematics reports."""

    def integers(values: list[int]) -> Any:
        return wp.array(np.asarray(values, dtype=np.int32), dtype=wp.int32, device=device)

    frame_body = [model.link_body[k] for k in links]
    path: set[int] = set()
    for body in frame_body:
        while body != WORLD:
            path.add(body)
            body = model.bodies[body].parent
    parents = [b.parent for b in model.bodies]
    topology = Topology()
    topology.nbody = len(model.bodies)
    topology.nv = model.nv_all
    topology.parent = integers(parents)
    topology.kind = integers([KIND_NUMBER[b.kind] for b in model.bodies])
    topology.constant = wp.array([b.constant for b in model.bodies], dtype=wp.float64, device=device)
    topology.q_start = integers([b.q_start for b in model.bodies])
    topology.v_start = integers([b.v_start for b in model.bodies])
    topology.is_leaf = integers([int(i not in parents) for i in range(len(parents))])
    topology.reaches_first = integers([int(p not in parents[i + 1 :]) for i, p in enumerate(parents)])
    topology.nframe = len(frame_body)
    topology.frame_body = integers(frame_body)
    topology.npath = len(path)
    topology.path = integers(sorted(path))
    return topology

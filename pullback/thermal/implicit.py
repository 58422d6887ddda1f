"""Implicit steps: Newton's method around conjugate gradients, and one linear solve in the backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch

from pullback.core.errors import PullbackError
from pullback.core.tensors import REAL
from pullback.thermal.backward import Backward
from pullback.thermal.forward import Forward
from pullback.thermal.geometry import PAIRS
from pullback.thermal.implicit_kernels import implicit_kernels
from pullback.thermal.march import Method, ThermalMarch
from pullback.thermal.table_kernels import K

Tensor = torch.Tensor

NEWTON = 60
"""Newton's steps, at most."""

ITERATIONS = 2000
"""Iterations of conjugate gradients, at most, of one solve."""

FORCING = 1e-2
"""How much of the residual a solve inside of Newton's method may leave."""

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
"""What may be missing in the balance of a step, relative to the heat that flows in it."""


@dataclass(frozen=True)
class Implicit(Method):
    """Steps of any length: heat flows as at the end of the step (theta = 1) or at both ends (theta = 0.5).

    tolerance: what may be missing in the balance of a step relative to the heat that flows in it, by default 1e-12 in
    float64 and 1e-5 in float32.
    """

    theta: float = 1.0
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if not 0.5 <= self.theta <= 1.0:
            raise PullbackError(f"Implicit: theta is {self.theta}; expected 0.5 (second order) to 1 (most stable)")
        if self.tolerance is not None and not 0.0 < self.tolerance < 1.0:
            raise PullbackError(f"Implicit: tolerance is {self.tolerance}; expected a small positive number")

    @property
    def explicit_share(self) -> float:
        """Return the weight of the heat that flows at the temperatures before a step."""
        return 1.0 - self.theta

    def forward(self, *arguments: Any, **options: Any) -> Forward:
        """Return a forward pass."""
        return ImplicitForward(self, *arguments, **options)

    def backward(self, *arguments: Any) -> Backward:
        """Return a backward pass."""
        return ImplicitBackward(*arguments)


class ImplicitForward(Forward):
    """A forward pass with implicit steps."""

    def __init__(self, method: Implicit, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        model = self.model
        self.tolerance = method.tolerance or TOLERANCE[model.dtype]
        self.theta = method.theta
        self.T_start, self.u_start = self.new(model.nodes), self.new(model.nodes)
        self.given, self.missing, self.diagonal = (self.new(model.nodes) for _ in range(3))
        # vectors of conjugate gradients
        self.x, self.r, self.z, self.p, self.Sp = (self.new(1, model.nodes) for _ in range(5))
        self.scale = self.new(1)
        self._own: tuple[int, Tensor] | None = None
        kernels = implicit_kernels(REAL[model.dtype])
        theta_dt, rest_dt = model.dt * self.theta, model.dt * (1.0 - self.theta)
        part, T, u, flows = self.part, self.T, self.u, self.flows.view(-1)
        self.drive = self.make_flow(self.p)
        self.explicit_part = self.make(
            kernels.explicit_part, integers=1,
            rest_dt=rest_dt, part=part, flows=flows, T=T, given=self.given, ledger=self.ledger,
        )  # fmt: skip
        self.add_beam = self.make(
            kernels.add_beam, dt=model.dt, node=self.beam.node, power=self.power, given=self.given
        )
        self.residual = self.make(
            kernels.residual, integers=1,
            theta_dt=theta_dt, part=part, flows=flows, given=self.given, T_start=self.T_start, T=T,
            missing=self.missing, diagonal=self.diagonal,
        )  # fmt: skip
        self.update_ledger = None
        if self.ledger is not None:
            self.update_ledger = self.make(
                kernels.update_ledger, integers=1,
                theta_dt=theta_dt, part=part, flows=flows, given=self.given, T=T, ledger=self.ledger,
            )  # fmt: skip
        self.move = self.make(
            kernels.move, part=part, scale=self.scale, u_start=self.u_start, direction=self.x[0], T=T, u=u
        )
        self.apply = self.make(
            kernels.apply, integers=1,
            theta_dt=theta_dt, part=part, diagonal=self.diagonal, x=self.p, flows=flows, y=self.Sp[0],
        )  # fmt: skip

    def step(self, step: int, elements: int, nodes: int) -> None:
        """Change temperatures and potentials by an implicit step: Newton's method in u, eq. (21)."""
        # from the temperatures: a step must not depend on how they were reached
        self.potentials(0, nodes)
        self.flow(0, elements)
        self.explicit_part(0, nodes, 8 * elements)
        self.add_beam(*self.beam.entries(step))
        self.T_start.copy_(self.T)
        self.residual(0, nodes, 8 * elements)
        missing = self.missing[:nodes]
        size = first = self.model.region.norm(missing)
        if not size < float("inf"):
            raise PullbackError(f"step {step} starts from temperatures that are not finite")
        for _ in range(NEWTON):
            if size <= self.tolerance * first or first == 0.0:
                break
            self.solve(missing, FORCING, elements, nodes)
            reached = self._line_search(elements, nodes)
            # rounding of the type is all that is left
            if reached >= size and reached <= max(1e3 * self.tolerance * first, self._rounding(elements, nodes)):
                break
            size = reached
        else:
            raise PullbackError(
                f"step {step} did not converge: {size / first:.1e} of the heat is missing after {NEWTON} Newton steps; "
                f"take a smaller dt"
            )
        if self.update_ledger is not None:
            self.update_ledger(0, nodes, 8 * elements)

    def _rounding(self, elements: int, nodes: int) -> float:
        """Return the residual that rounding of the temperatures leaves: near rest more than the heat that flows."""
        stiffness = self.diagonal[:nodes] + self.model.dt * self.theta * self.own(elements, nodes)
        potential = 8.0 * torch.finfo(self.model.dtype).eps * self.rows[:, K].max() * self.T[:nodes]
        return self.model.region.norm(stiffness * potential)

    def _line_search(self, elements: int, nodes: int) -> float:
        """Move along x, with a shorter step where the residual would change sign; return its size there."""
        self.u_start.copy_(self.u[0])
        missing, direction, region = self.missing[:nodes], self.x[0, :nodes], self.model.region
        slope = region.dot(missing, direction)
        scale = 1.0
        while True:
            self.scale.fill_(scale)
            self.move(0, nodes)
            self.flow(0, elements)
            self.residual(0, nodes, 8 * elements)
            # the residual is the slope of a convex function: it may fall to zero, and a little beyond
            if region.dot(missing, direction) >= -0.5 * slope or scale < 1e-6:
                return region.norm(missing)
            scale *= 0.5

    def solve(self, right: Tensor, relative: float, elements: int, nodes: int) -> float:
        """Solve S x = right by conjugate gradients with the diagonal as preconditioner, eq. (22).

        right: (nodes,). Returns the relative residual, more than `relative` where the iterations were not enough.
        """
        x, r, z, p, Sp = (vector[0, :nodes] for vector in (self.x, self.r, self.z, self.p, self.Sp))
        # the diagonal includes that of conduction, which `diagonal` leaves out
        inverse = 1.0 / (self.diagonal[:nodes] + self.model.dt * self.theta * self.own(elements, nodes))
        x.zero_()
        r.copy_(right)
        torch.mul(r, inverse, out=z)
        p.copy_(z)
        region = self.model.region
        rz = first = region.dot(r, z)
        for _ in range(ITERATIONS):
            if rz <= relative * relative * first or rz == 0.0:
                break
            region.exchange(self.p[0])
            self.drive(0, elements)
            self.apply(0, nodes, 8 * elements)
            step = rz / region.dot(p, Sp)
            x.add_(p, alpha=step)
            r.sub_(Sp, alpha=step)
            torch.mul(r, inverse, out=z)
            old, rz = rz, region.dot(r, z)
            p.mul_(rz / old).add_(z)
        region.exchange(self.x[0])
        return sqrt(rz / first) if first > 0.0 else 0.0

    def own(self, elements: int, nodes: int) -> Tensor:
        """Return the diagonal of the conduction operator (nodes,) [m], kept until the part grows."""
        known = self._own
        if known is None or known[0] != elements:
            t = self.model.tensors
            corners = t["corners"][:elements].long()
            pairs = t["conductances"]
            sums = pairs.new_zeros(len(pairs), 8)
            for corners_of in PAIRS.T:
                sums.index_add_(1, torch.as_tensor(corners_of.copy(), device=pairs.device), pairs)
            sums = sums[t["shape"][:elements].long()]
            total = self.new(self.model.nodes).index_add_(0, corners.reshape(-1), sums.reshape(-1))
            self._own = known = (elements, total)
        return known[1][:nodes]


class ImplicitBackward(Backward):
    """A backward pass through implicit steps."""

    forward: ImplicitForward

    def __init__(self, march: ThermalMarch, *arguments: Any) -> None:
        super().__init__(march, *arguments)
        forward, model = self.forward, self.model
        self.T_next, self.right = forward.new(model.nodes), forward.new(model.nodes)
        kernels = implicit_kernels(REAL[model.dtype])
        theta_dt, part, lam = model.dt * forward.theta, forward.part, self.lam[0]
        self.undo_birth = forward.make(
            kernels.undo_birth, tolerance=torch.finfo(model.dtype).eps,
            part=part, node=model.tensors["event_node"], volume_before=model.tensors["volume_before"], gain=self.gain,
            spare=forward.new(1, model.nodes), T=self.T_next,
        )  # fmt: skip
        self.adjoint_system = forward.make(
            kernels.adjoint_system,
            theta_dt=theta_dt, part=part, T=self.T_next, lam=lam, right=self.right, diagonal=forward.diagonal,
        )  # fmt: skip
        self.parameters_vjp = forward.make(
            kernels.parameters_vjp, integers=1,
            theta_dt=theta_dt, part=part, flows=forward.flows.view(-1), T=self.T_next, lam=lam, mu=forward.x,
            sums=self.sums,
        )  # fmt: skip

    def _observation_vjp(self, state: int) -> None:
        super()._observation_vjp(state)
        self.T_next.copy_(self.forward.T)

    def step_vjp(self, step: int, elements: int, nodes: int) -> None:
        """Pull back through an implicit step: eq. (23), then the explicit part's vjp if it has one."""
        forward = self.forward
        self.undo_birth(*self.model.events(step + 1))
        self.adjoint_system(0, nodes)
        left = forward.solve(self.right[:nodes], 0.1 * forward.tolerance, elements, nodes)
        if left > 1e3 * forward.tolerance:
            raise PullbackError(
                f"the gradient of step {step} did not converge: its relative residual is {left:.1e} after "
                f"{ITERATIONS} iterations; take a smaller dt"
            )
        if self.sums is not None:
            forward.p.copy_(forward.x)
            forward.drive(0, elements)
            self.parameters_vjp(0, nodes, 8 * elements)
        self.lam[0, :nodes].copy_(forward.x[0, :nodes])
        self.add_beam_vjp(*self.beam.entries(step))
        if forward.theta < 1.0:
            self.flow(0, elements)
            self.explicit_step_vjp(0, nodes, 8 * elements)
            self.model.region.exchange(self.lam[0])

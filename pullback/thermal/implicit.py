"""Marching with implicit steps: Newton's method around conjugate gradients, and one linear solve on the way back."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch

from pullback.core.errors import PullbackError
from pullback.core.tensors import REAL, view
from pullback.thermal.conduction_kernels import flow_kernel, vectors
from pullback.thermal.geometry import PAIRS
from pullback.thermal.implicit_kernels import implicit_kernels
from pullback.thermal.march import Method, ThermalMarch
from pullback.thermal.reverse import Reverse
from pullback.thermal.table_kernels import K
from pullback.thermal.walker import Walker

Tensor = torch.Tensor

NEWTON = 60
"""Newton's steps, at most."""

ITERATIONS = 2000
"""Iterations of conjugate gradients, at most, of one solve."""

FORCING = 1e-2
"""How much of the residual a solve inside of Newton's method may leave."""

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5}
"""What may be missing in the balance of a step, relative to the heat that flows in it."""

GATHER = "slots more_starts more held"


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
        """Return the weight of the heat that flows at the beginning of a step."""
        return 1.0 - self.theta

    def walker(self, *arguments: Any, **options: Any) -> Walker:
        """Return what does steps."""
        return ImplicitWalker(self, *arguments, **options)

    def reverse(self, *arguments: Any) -> Reverse:
        """Return a backward pass."""
        return ImplicitReverse(*arguments)


class ImplicitWalker(Walker):
    """A march with implicit steps."""

    def __init__(self, method: Implicit, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        fixed = self.fixed
        self.tolerance = method.tolerance or TOLERANCE[fixed.dtype]
        self.theta = method.theta
        part, rest = fixed.dt * self.theta, fixed.dt * (1.0 - self.theta)
        names = ("given", "T_start", "u_start", "missing", "diagonal", "x", "r", "z", "p", "Sp")
        work = [self.new(1, fixed.nodes) for _ in names]
        self.given, self.T_start, self.u_start, self.missing, self.diagonal, *others = work
        self.x, self.r, self.z, self.p, self.Sp = others
        self.scale = self.new(1)
        self.views |= {name: view(vector[0]) for name, vector in zip(names, work)}
        self.views |= {"p_row": view(self.p), "x_row": view(self.x), "scale": view(self.scale)}
        real = REAL[fixed.dtype]
        kernels, vec8 = implicit_kernels(real), vectors(real)[1]
        self.drive = self.make(
            flow_kernel(real), "corners shape conductances none p_row flows", none=None, flows=view(self.flows, vec8)
        )
        self.start = self.make(kernels.start, f"{GATHER} air area flow T given ledger", scalars=(rest,), integers=1)
        self.shine = self.make(kernels.shine, "beam power given", scalars=(fixed.dt,))
        self.balance = self.make(
            kernels.balance,
            f"{GATHER} rows phases air volume area flow given T_start T hints missing diagonal",
            scalars=(part,),
            integers=1,
        )
        self.book = self.make(kernels.book, f"{GATHER} air area flow given T ledger", scalars=(part,), integers=1)
        self.walk = self.make(kernels.walk, "rows held scale u_start x hints T u")
        self.apply = self.make(kernels.apply, f"{GATHER} diagonal p_row flow Sp", scalars=(part,), integers=1)

    def heat_up(self, step: int, elements: int, nodes: int) -> None:
        """Change temperatures and potentials by a step, implicitly: Newton's method in u, eq. (21)."""
        # from the temperatures, for what a step does must not depend on how they were come by
        self.potentials(0, nodes)
        self.flow(0, elements)
        self.start(0, nodes, 8 * elements)
        lit = self.beam.starts
        self.shine(int(lit[step]), int(lit[step + 1] - lit[step]))
        self.T_start[0].copy_(self.T)
        self.balance(0, nodes, 8 * elements)
        missing = self.missing[0, :nodes]
        size = first = float(torch.linalg.vector_norm(missing))
        if not size < float("inf"):
            raise PullbackError(f"step {step} set out from temperatures that are not finite")
        for _ in range(NEWTON):
            if size <= self.tolerance * first or first == 0.0:
                break
            self.solve(self.missing, FORCING, elements, nodes)
            reached = self._line_search(elements, nodes)
            # at the end of what the type can tell
            if reached >= size and reached <= max(1e3 * self.tolerance * first, self._rounding(elements, nodes)):
                break
            size = reached
        else:
            raise PullbackError(
                f"step {step} did not converge: {size / first:.1e} of the heat is missing after {NEWTON} Newton steps; "
                f"take a smaller dt"
            )
        if self.ledger is not None:
            self.book(0, nodes, 8 * elements)

    def _rounding(self, elements: int, nodes: int) -> float:
        """Return what is missing where temperatures are right but for rounding: near rest more than what flows."""
        stiffness = self.diagonal[0, :nodes] + self.fixed.dt * self.theta * self.own(elements, nodes)
        potential = 8.0 * torch.finfo(self.fixed.dtype).eps * self.rows[:, K].max() * self.T[:nodes]
        return float(torch.linalg.vector_norm(stiffness * potential))

    def _line_search(self, elements: int, nodes: int) -> float:
        """Go along x, less far where the balance would turn over; return the size of what is missing there."""
        self.u_start[0].copy_(self.u[0])
        missing, direction = self.missing[0, :nodes], self.x[0, :nodes]
        slope = float(missing @ direction)
        scale = 1.0
        while True:
            self.scale.fill_(scale)
            self.walk(0, nodes)
            self.flow(0, elements)
            self.balance(0, nodes, 8 * elements)
            # the balance is the slope of a convex function: it may fall to zero, and a little beyond
            if float(missing @ direction) >= -0.5 * slope or scale < 1e-6:
                return float(torch.linalg.vector_norm(missing))
            scale *= 0.5

    def solve(self, right: Tensor, relative: float, elements: int, nodes: int) -> float:
        """Solve S x = right by conjugate gradients with the diagonal as preconditioner, eq. (22).

        Returns how much of the right side is left over; more than `relative` where the iterations did not suffice.
        """
        x, r, z, p, Sp = (vector[0, :nodes] for vector in (self.x, self.r, self.z, self.p, self.Sp))
        # with conduction's own diagonal, which the flows do not show
        inverse = 1.0 / (self.diagonal[0, :nodes] + self.fixed.dt * self.theta * self.own(elements, nodes))
        x.zero_()
        r.copy_(right[0, :nodes])
        torch.mul(r, inverse, out=z)
        p.copy_(z)
        rz = first = float(r @ z)
        for _ in range(ITERATIONS):
            if rz <= relative * relative * first or rz == 0.0:
                break
            self.drive(0, elements)
            self.apply(0, nodes, 8 * elements)
            step = rz / float(p @ Sp)
            x.add_(p, alpha=step)
            r.sub_(Sp, alpha=step)
            torch.mul(r, inverse, out=z)
            old, rz = rz, float(r @ z)
            p.mul_(rz / old).add_(z)
        return sqrt(rz / first) if first > 0.0 else 0.0

    def own(self, elements: int, nodes: int) -> Tensor:
        """Return the diagonal of the conduction operator (nodes,) [m], kept until the part grows."""
        known = getattr(self, "_own", None)
        if known is None or known[0] != elements:
            t = self.fixed.tensors
            corners = t["corners"][:elements].long()
            pairs = t["conductances"]
            sums = pairs.new_zeros(len(pairs), 8)
            for corners_of in PAIRS.T:
                sums.index_add_(1, torch.as_tensor(corners_of.copy(), device=pairs.device), pairs)
            sums = sums[t["shape"][:elements].long()]
            total = self.new(self.fixed.nodes).index_add_(0, corners.reshape(-1), sums.reshape(-1))
            self._own = known = (elements, total)
        return known[1][:nodes]


class ImplicitReverse(Reverse):
    """A backward pass through implicit steps."""

    walker: ImplicitWalker

    def __init__(self, march: ThermalMarch, *arguments: Any) -> None:
        super().__init__(march, *arguments)
        walker, fixed = self.walker, self.fixed
        self.T_next = walker.new(fixed.nodes)
        self.spare = walker.new(1, fixed.nodes)
        self.right = walker.new(1, fixed.nodes)
        t = fixed.tensors
        part = fixed.dt * walker.theta
        kernels = implicit_kernels(REAL[fixed.dtype])
        own = {
            "T_next": view(self.T_next),
            "spare": view(self.spare),
            "right": view(self.right[0]),
            "volume_before": view(t["volume_before"]),
            "gain": view(self.gain),
        }
        self.before_birth = walker.make(
            kernels.before_birth,
            "event_node volume_before gain held rows phases air hints spare T_next",
            scalars=(torch.finfo(fixed.dtype).eps,),
            **own,
        )
        self.prepare_vjp = walker.make(
            kernels.prepare_vjp,
            "held rows phases air volume area T_next lam hints right diagonal",
            scalars=(part,),
            **own,
        )
        self.end_vjp = walker.make(
            kernels.end_vjp,
            f"{GATHER} rows phases air volume area flow T_next lam x_row hints sums",
            scalars=(part,),
            integers=1,
            **own,
        )

    def _observe(self, step: int) -> None:
        super()._observe(step)
        self.T_next.copy_(self.walker.T)

    def cool_down(self, step: int, elements: int, nodes: int) -> None:
        """Pull back through an implicit step: eq. (23), then what an explicit one does with the rest of the weight."""
        walker, growth = self.walker, self.fixed.growth
        first, last = growth.event_starts[step + 1], growth.event_starts[step + 2]
        self.before_birth(int(first), int(last - first))
        self.prepare_vjp(0, nodes)
        left = walker.solve(self.right, 0.1 * walker.tolerance, elements, nodes)
        if left > 1e3 * walker.tolerance:
            raise PullbackError(
                f"the gradient of step {step} did not converge: {left:.1e} of its right side is left after "
                f"{ITERATIONS} iterations; take a smaller dt"
            )
        if self.sums is not None:
            walker.p.copy_(walker.x)
            walker.drive(0, elements)
            self.end_vjp(0, nodes, 8 * elements)
        self.lam[0, :nodes].copy_(walker.x[0, :nodes])
        lit = self.beam.starts
        self.shine_vjp(int(lit[step]), int(lit[step + 1] - lit[step]))
        if walker.theta < 1.0:
            self.flow(0, elements)
            self.pull(0, nodes, 8 * elements)

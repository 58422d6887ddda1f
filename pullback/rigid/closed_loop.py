"""A step in a closed loop, where a policy acts in between: the same launch again with as little Python as can be.

What `Program.outputs` does for any number of inputs is written out here for three, which halves its cost: 15 µs a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from pullback.core.bridge import Program, Repeat
from pullback.core.functions import pull_back, refuse_forward_mode
from pullback.rigid.state import FINE, State, Status

Tensor = torch.Tensor

# looked up here once, not in every step
_in_transform = torch._C._are_functorch_transforms_active
_empty_like: Any = torch.empty_like
_new = object.__new__


class QuickStep:
    """Steps from q, qd and u of the shapes that were stepped before, with the same parameters, on one CPU thread."""

    def __init__(self, program: Program, repeat: Repeat, u: Tensor, parameters: Tensor, substeps: int) -> None:
        self.parameters = parameters
        self.dtype = parameters.dtype
        self.substeps = substeps
        q, qd, _ = repeat.like
        assert q is not None
        assert qd is not None
        self.q_shape, self.qd_shape, self.u_shape = q.shape, qd.shape, u.shape
        (rows,) = repeat.plain
        self.rows, self.status, self.fine = rows, rows.data, np.tile(np.array(FINE, rows.dtype), (len(rows), 1)).data
        self.all_well = Status([FINE] * len(rows), substeps)
        self.mark = object()
        # its scratch stays where the launch will look for it
        self.kept = repeat.kept
        self.step = _differentiable(program, repeat, parameters)

    @staticmethod
    def after(
        program: Program, inputs: tuple[Any, ...], before: Repeat | None, substeps: int
    ) -> tuple[QuickStep | None, Repeat | None]:
        """Return how to do again what this thread did last, once it did so twice, and what it did.

        None if more than q, qd and u is going to change.
        """
        _, _, impulses, u, parameters = inputs
        repeat = program.repeat(inputs)
        if (
            repeat is None
            or repeat is not before
            or impulses is not None
            or parameters.requires_grad
            or _in_transform()
        ):
            return None, repeat
        return QuickStep(program, repeat, u, parameters, substeps), repeat

    def __call__(self, state: State, u: Any, parameters: Tensor) -> State | None:
        """Return the state after the step, or None if these inputs are laid out otherwise, or a world is not finite."""
        if not (
            type(state) is State
            # a state that came from here is laid out as it has to be
            and (state.mark is self.mark or self._fits(state))
            and parameters is self.parameters
            and isinstance(u, Tensor)
            and u.shape == self.u_shape
            and u.dtype is self.dtype
            and u.is_cpu
            and u.is_contiguous()
            and not _in_transform()
            and forward_ad._current_level < 0
        ):
            return None
        q, qd = self.step(state.q, state.qd, u)
        status = self.all_well
        if self.status != self.fine:
            status = Status(self.rows.tolist(), self.substeps)
            if status.shows_not_finite():
                return None
        after = _new(State)
        after.__dict__.update(q=q, qd=qd, impulses=None, status=status, mark=self.mark)
        return after

    def _fits(self, state: State) -> bool:
        q, qd = state.q, state.qd
        return (
            state.impulses is None
            and q.shape == self.q_shape
            and qd.shape == self.qd_shape
            and q.dtype is qd.dtype is self.dtype
            and q.is_cpu
            and qd.is_cpu
            and q.is_contiguous()
            and qd.is_contiguous()
        )


def _differentiable(program: Program, repeat: Repeat, parameters: Tensor) -> Callable[[Tensor, Tensor, Tensor], Any]:
    """Return the step from q, qd and u to the next q and qd; what it needs is in reach of its own variables."""
    launch, addresses = repeat.launch, repeat.addresses
    like_q, like_qd, _ = repeat.like
    q_at, qd_at, _, u_at, parameters_at = repeat.inputs_at
    next_q_at, next_qd_at, _ = repeat.outputs_at
    addresses[parameters_at] = parameters.data_ptr()

    class Step(torch.autograd.function._SingleLevelFunction):
        @staticmethod
        def forward(ctx: Any, q: Tensor, qd: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
            next_q, next_qd = _empty_like(like_q), _empty_like(like_qd)
            addresses[q_at] = q.data_ptr()
            addresses[qd_at] = qd.data_ptr()
            addresses[u_at] = u.data_ptr()
            addresses[next_q_at] = next_q.data_ptr()
            addresses[next_qd_at] = next_qd.data_ptr()
            launch()
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(q, qd, u)
            return next_q, next_qd

        @staticmethod
        def backward(ctx: Any, adj_q: Tensor | None, adj_qd: Tensor | None) -> tuple[Tensor | None, ...]:
            q, qd, u = ctx.saved_tensors
            wants_q, wants_qd, wants_u = ctx.needs_input_grad
            wanted = (wants_q, wants_qd, False, wants_u, False)
            inputs = (q, qd, None, u, parameters)
            adj_q, adj_qd, _, adj_u, _ = pull_back(program, wanted, (adj_q, adj_qd, None, None), (), inputs)
            return adj_q, adj_qd, adj_u

        @staticmethod
        def jvp(ctx: Any, *_: Any) -> Any:
            refuse_forward_mode(program)

    return Step.apply  # pyright: ignore[reportAttributeAccessIssue]

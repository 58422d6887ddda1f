"""A step in a closed loop, where a policy acts in between: the same launch again with as little Python as can be.

What `Program.outputs` does for any number of inputs is written out here for three, which halves its cost: 15 µs a step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from pullback.core.bridge import Program, Repeat
from pullback.core.functions import pull_back, refuse_forward_mode
from pullback.rigid.state import FINE, State, Status

Tensor = torch.Tensor

_in_transform = torch._C._are_functorch_transforms_active


class QuickStep:
    """Steps from q, qd and u of the shapes that were stepped before, with the same parameters, on one CPU thread."""

    def __init__(self, program: Program, repeat: Repeat, u: Tensor, parameters: Tensor, substeps: int) -> None:
        self.program = program
        self.parameters = parameters
        self.dtype = parameters.dtype
        self.repeat = repeat
        self.launch, self.addresses, (self.status,) = repeat.launch, repeat.addresses, repeat.views
        like_q, like_qd, _ = repeat.like
        assert like_q is not None
        assert like_qd is not None
        self.like_q, self.like_qd = like_q, like_qd
        self.q_shape, self.qd_shape, self.u_shape = like_q.shape, like_qd.shape, u.shape
        self.substeps, self.fine_rows = substeps, [FINE] * len(like_q)
        self.all_well = Status(self.fine_rows, substeps)
        self.q_at, self.qd_at, _, self.u_at, parameters_at = repeat.inputs_at
        self.next_q_at, self.next_qd_at, _ = repeat.outputs_at
        self.addresses[parameters_at] = parameters.data_ptr()
        # the function knows its step by its class: an argument and an attribute less in every call
        self.apply: Any = type("Stepped", (_Stepped,), {"step": self}).apply  # pyright: ignore[reportAttributeAccessIssue]

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
        """Return the state after the step, or None if these inputs are not laid out like those before."""
        if type(state) is not State or state.impulses is not None or not isinstance(u, Tensor):
            return None
        q, qd = state.q, state.qd
        if not (
            parameters is self.parameters
            and u.shape == self.u_shape
            and q.shape == self.q_shape
            and qd.shape == self.qd_shape
            and u.dtype is q.dtype is qd.dtype is self.dtype
            and u.is_cpu
            and q.is_cpu
            and qd.is_cpu
            and u.is_contiguous()
            and q.is_contiguous()
            and qd.is_contiguous()
            and not _in_transform()
            and forward_ad._current_level < 0
        ):
            return None
        next_q, next_qd = self.apply(q, qd, u)
        rows: Any = self.status.tolist()
        status = self.all_well if rows == self.fine_rows else Status(rows, self.substeps)
        return State(next_q, next_qd, None, status)


class _Stepped(torch.autograd.function._SingleLevelFunction):
    @staticmethod
    def forward(ctx: Any, q: Tensor, qd: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        step: QuickStep = ctx._forward_cls.step
        next_q, next_qd = torch.empty_like(step.like_q), torch.empty_like(step.like_qd)
        addresses = step.addresses
        addresses[step.q_at] = q.data_ptr()
        addresses[step.qd_at] = qd.data_ptr()
        addresses[step.u_at] = u.data_ptr()
        addresses[step.next_q_at] = next_q.data_ptr()
        addresses[step.next_qd_at] = next_qd.data_ptr()
        step.launch()
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(q, qd, u)
        return next_q, next_qd

    @staticmethod
    def backward(ctx: Any, adj_q: Tensor | None, adj_qd: Tensor | None) -> tuple[Tensor | None, ...]:
        step: QuickStep = ctx._forward_cls.step
        q, qd, u = ctx.saved_tensors
        wants_q, wants_qd, wants_u = ctx.needs_input_grad
        wanted = (wants_q, wants_qd, False, wants_u, False)
        inputs = (q, qd, None, u, step.parameters)
        adj_q, adj_qd, _, adj_u, _ = pull_back(step.program, wanted, (adj_q, adj_qd, None, None), (), inputs)
        return adj_q, adj_qd, adj_u

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        refuse_forward_mode(ctx._forward_cls.step.program)

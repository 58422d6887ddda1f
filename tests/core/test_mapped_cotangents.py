"""Backward passes that torch maps over many cotangents, for computations with a vjp in plain Python."""

from threading import Thread

import torch

from pullback.core.custom_vjp import call
from pullback.core.mapped_cotangents import map_vjp

F64 = torch.float64


class Products:
    """x y and sum x, whose vjp can only take plain tensors."""

    name = "products"

    def forward(self, inputs, keep):
        x, y = inputs
        return (x * y, x.sum()[None]), None

    def backward(self, kept, wanted, adj_outputs, inputs):
        (x, y), (a, b) = inputs, adj_outputs
        for given in (a, b):
            assert given is None or given.data_ptr()
        a = torch.zeros_like(x) if a is None else a
        b = torch.zeros(1, dtype=F64) if b is None else b
        return (a * y + b if wanted[0] else None), (a * x if wanted[1] else None)


def test_cotangents_are_taken_one_by_one():
    x, y = (torch.randn(3, dtype=F64, generator=torch.Generator().manual_seed(k)).requires_grad_() for k in (1, 2))
    assert torch.autograd.gradcheck(lambda x, y: call(Products(), x, y), (x, y), check_batched_grad=True)
    assert torch.autograd.gradcheck(lambda x: call(Products(), x, y.detach()), (x,), check_batched_grad=True)


def test_cotangents_of_several_outputs():
    x = torch.randn(3, dtype=F64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    y = torch.ones(3, dtype=F64)
    product, total = call(Products(), x, y)
    (found,) = torch.autograd.grad((product, total), x, (torch.eye(3, dtype=F64), torch.zeros(3, 1, dtype=F64)),
                                   is_grads_batched=True)  # fmt: skip
    torch.testing.assert_close(found, torch.eye(3, dtype=F64))


class InAnotherThread(torch.autograd.Function):
    """2 x, whose backward pass is one of another thread, as that of a GPU is."""

    @staticmethod
    def forward(ctx, x):
        return 2.0 * x

    @staticmethod
    def backward(ctx, adj):
        found = []

        def work():
            found.extend(map_vjp(lambda size, dims, given: [2.0 * given[0].contiguous()], [adj]))

        thread = Thread(target=work)
        thread.start()
        thread.join()
        return found[0]


def test_a_backward_pass_may_be_one_of_another_thread():
    x = torch.randn(3, dtype=F64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    rows = torch.eye(3, dtype=F64)
    (found,) = torch.autograd.grad(InAnotherThread.apply(x), x, rows, is_grads_batched=True)
    torch.testing.assert_close(found, 2.0 * rows)

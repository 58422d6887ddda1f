"""One step of particles among shapes that move: a torch function with its adjoint, whose buffers are used again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pullback.core.custom_vjp import call
from pullback.core.tensors import view
from pullback.soft.backward import Backward
from pullback.soft.forward import PARTS, Forward, PiecePass, Setup, copy, filled
from pullback.soft.shape_kernels import SHAPE_NUMBERS
from pullback.soft.touch_kernels import TOUCH_NUMBERS, touch_kernels

Tensor = torch.Tensor

PIECES = 32
"""Pieces of the grid, and parts of the sums over it, on a CPU."""


@dataclass(frozen=True, eq=False)
class ShapeKinds:
    """What no step changes of the S shapes of a world: geometry and law (S,), as kernels number them."""

    geometry: Tensor
    law: Tensor

    def __len__(self) -> int:
        return len(self.geometry)


class _Shapes:
    """The shapes of a pass: numbers (B S, 23), and sums over the nodes they touch."""

    def __init__(self, setup: Setup, kinds: ShapeKinds, backward: bool) -> None:
        self.kernels = touch_kernels(setup.variant.plain)
        self.on_cpu = setup.device.type == "cpu"
        parts, count = PIECES if self.on_cpu else 1, setup.worlds * len(kinds)
        self.numbers = setup.new(count, SHAPE_NUMBERS)
        self.sums = setup.new(parts, count, TOUCH_NUMBERS)
        self.adj_touch = setup.new(count, TOUCH_NUMBERS) if backward else None
        self.adj_numbers = setup.new(parts, count, SHAPE_NUMBERS) if backward else None
        self.struct = filled(
            self.kernels.Touch,
            count=len(kinds),
            parts=parts,
            geometry=view(kinds.geometry),
            law=view(kinds.law),
            numbers=view(self.numbers),
            sums=view(self.sums),
            adj_touch=view(self.adj_touch),
            adj_numbers=view(self.adj_numbers),
        )

    def over(self, run: Forward, kernel: Any, sums: Tensor) -> Any:
        """Return a pass over all nodes that adds to `sums`, to be called with the first row and how many there are."""
        launch = run.make(kernel, run.job, run.grid, self.struct, integers=2, fine=False)
        assert isinstance(launch, PiecePass)

        def go(first: int, rows: int) -> None:
            assert first == 0
            sums.zero_()
            pieces = PIECES if self.on_cpu else rows
            launch(0, pieces, rows, pieces)

        return go


class TouchForward(Forward):
    """Steps of particles among shapes; `shapes.sums` is what these got in the last one."""

    def __init__(self, setup: Setup, kinds: ShapeKinds, *arguments: Any) -> None:
        self.shapes = _Shapes(setup, kinds, backward=False)
        super().__init__(setup, *arguments)

    def make_passes(self) -> None:
        """Record the launches of a step."""
        super().make_passes()
        self.move_nodes = self.shapes.over(self, self.shapes.kernels.touch_nodes, self.shapes.sums)


class TouchBackward(Backward):
    """The way back through a step of particles among shapes."""

    def __init__(self, setup: Setup, kinds: ShapeKinds, *arguments: Any, wanted: Sequence[bool]) -> None:
        self.shapes = shapes = _Shapes(setup, kinds, backward=True)
        super().__init__(setup, *arguments, wanted=wanted)
        assert shapes.adj_numbers is not None
        self.move_nodes = shapes.over(self, shapes.kernels.touch_nodes, shapes.sums)
        self.move_nodes_vjp = shapes.over(self, shapes.kernels.touch_nodes_vjp, shapes.adj_numbers)


class TouchSteps:
    """Steps as functions of state (B n width,), numbers, gravity, actuation (N, B a) and shapes (B S, 23).

    All but state and shapes are the same in all steps that one object does.
    """

    name = "the soft simulation"

    def __init__(self, setup: Setup, kinds: ShapeKinds, capacity: int, constants: Sequence[Tensor]) -> None:
        numbers, gravity, actuation = (x.detach().contiguous() for x in constants)
        self.setup, self.kinds, self.constants = setup, kinds, tuple(constants)
        flat_numbers = numbers.reshape(-1, numbers.shape[-1])
        self.arguments = setup, kinds, capacity, flat_numbers, gravity, actuation if actuation.numel() else None
        self.run = TouchForward(*self.arguments)
        self.back: TouchBackward | None = None
        self.step = 0

    def __call__(self, step: int, flat: Tensor, shapes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the state after a step, and what shapes got (B S, 7): torque about their origins, force, mass."""
        return call(_Step(self, step), flat, shapes, *self.constants)  # pyright: ignore[reportReturnType]

    def advance(self, step: int, flat: Tensor, shapes: Tensor) -> tuple[Tensor, Tensor]:
        """Do a step."""
        run = self.run
        copy(run.flat, flat)
        copy(run.shapes.numbers, shapes)
        run.advance(step)
        return run.flat.clone(), run.shapes.sums.sum(0)

    def pull_back(
        self, step: int, flat: Tensor, shapes: Tensor, adj: Sequence[Tensor | None], wanted: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        """Return the cotangents of state, shapes and constants."""
        if self.back is None:
            self.back = TouchBackward(*self.arguments, wanted=wanted[2:])
        back, adj_flat, adj_touch = self.back, *adj
        copy(back.flat, flat)
        copy(back.shapes.numbers, shapes)
        back.adj.zero_() if adj_flat is None else copy(back.adj, adj_flat.contiguous())
        target = back.shapes.adj_touch
        assert target is not None
        assert back.shapes.adj_numbers is not None
        target.zero_() if adj_touch is None else copy(target, adj_touch.contiguous())
        for total in (back.adj_numbers, back.adj_gravity, back.adj_actuation):
            if total is not None:
                total.zero_()
        back.pull_back(step)
        numbers, gravity, actuation = self.constants
        return (
            back.adj.clone() if wanted[0] else None,
            back.shapes.adj_numbers.sum(0) if wanted[1] else None,
            None if back.adj_numbers is None else back.adj_numbers.reshape(numbers.shape).clone(),
            None
            if back.adj_gravity is None
            else back.adj_gravity.view(*gravity.shape[:1], -1, gravity.shape[1]).sum(1),
            None if back.adj_actuation is None else back.adj_actuation.reshape(actuation.shape).clone(),
        )

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Return the parts of a state as (B, n, ...), as views that gradients pass."""
        shape = (self.setup.worlds, self.setup.particles)
        split = self.setup.split(flat)
        return [split[name].reshape(*shape, *split[name].shape[1:]) for name in PARTS]


class _Step:
    """One step, as `core/custom_vjp.py` calls it."""

    name = TouchSteps.name

    def __init__(self, steps: TouchSteps, step: int) -> None:
        self.steps, self.step = steps, step

    def forward(self, inputs: Sequence[Tensor], keep: bool) -> tuple[tuple[Tensor, ...], Any]:
        """Do the step."""
        return self.steps.advance(self.step, inputs[0], inputs[1]), None

    def backward(
        self, kept: Any, wanted: Sequence[bool], adj_outputs: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """Pull back through the step."""
        return self.steps.pull_back(self.step, inputs[0], inputs[1], adj_outputs, wanted)

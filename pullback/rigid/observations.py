"""What a simulation shows of a state: contacts, links and energies, as tensors with gradients or as plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import torch

from pullback.core.errors import PullbackError
from pullback.core.finite import in_transform
from pullback.rigid import observe
from pullback.rigid.compile.compile import SceneArrays
from pullback.rigid.compile.drives import spring_energy
from pullback.rigid.compile.frames import LinkFrames
from pullback.rigid.compile.parameters import Rows, WorldParameters
from pullback.rigid.observe import ContactTensors
from pullback.rigid.outcome import Inputs, refuse_inputs
from pullback.rigid.programs import WorldPrograms
from pullback.rigid.state import Contact, State

Tensor = torch.Tensor

FRAMES = 32
"""Sets of links that are remembered."""


class Observations:
    """The part of a `Sim` that looks at states."""

    arrays: SceneArrays
    parameters: WorldParameters
    _programs: WorldPrograms

    if TYPE_CHECKING:

        def _at_rest(self, batch: int) -> State: ...
        def _check_inputs(self, state: State, u: Tensor | None, steps: int = 1) -> Inputs: ...
        def _check_state(self, state: State) -> int: ...
        def _check_worlds(self, state: int, parameters: int, controls: int = 1) -> None: ...
        def _make_room(self, found: int = 0, *, resize_state: bool = False) -> bool: ...

    @property
    def _sim(self) -> Any:
        return self

    @cached_property
    def _frames(self) -> Callable[[tuple[str, ...]], LinkFrames]:
        return lru_cache(FRAMES)(lambda links: LinkFrames(self._sim, links))

    def contacts(self, state: State, u: Tensor | None = None) -> list[list[Contact]]:
        """Return the contacts of each world, and the forces that a step from this state gives them: plain numbers."""
        if in_transform():
            raise PullbackError("contacts are plain numbers, which torch.func's transforms lack; use contact_tensors")
        return self._found_contacts(state, u)

    def _found_contacts(self, state: State | None, u: Tensor | None) -> list[list[Contact]]:
        """Return the contacts of each world, None: of one at rest, and make room for all of them."""
        report = self._report(state or self._at_rest(1), u)
        found = max(count for count, _ in report) if report else 0
        while found > self.arrays.max_contacts:
            if not self._make_room(found, resize_state=state is None):
                observe.raise_overflow(found, self.arrays.max_contacts)
            report = self._report(state or self._at_rest(1), u)
        return [contacts for _, contacts in report]

    def _report(self, state: State, u: Tensor | None) -> list[tuple[int, list[Contact]]]:
        """Return for each world how many contacts there are, and those there is room for."""
        inputs = self._check_inputs(state, u)
        refuse_inputs(inputs)
        return observe.report(self._sim, state, inputs)

    @property
    def pair_names(self) -> list[tuple[str, str]]:
        """The pairs of shapes that may touch."""
        names, a = self.arrays.shape_names, self.arrays
        return [(names[first], names[second]) for first, second in zip(a.pair_a, a.pair_b)]

    def contact_tensors(self, state: State, u: Tensor | None = None) -> ContactTensors:
        """Return the contacts and their forces in a step from this state; differentiable in state, u and parameters."""
        return observe.contact_tensors(self._sim, self._check_inputs(state, u))

    def contact_wrenches(
        self, state: State, links: Sequence[str], u: Tensor | None = None, *, other: str | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the contact force [N] on each link and its torque [N·m] about the link's origin, (B, n, 3) each.

        In world axes, summed over all contacts of a link `robot/link` or free body, or over those with `other` alone;
        differentiable as `contact_tensors` is.
        """
        origins = self.link_poses(state, links)[0]
        return observe.contact_wrenches(self._sim, self.contact_tensors(state, u), origins, links, other)

    def link_poses(self, state: State, links: Sequence[str], offset: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return positions [m] (B, n, 3) and quaternions xyzw (B, n, 4) of links `robot/link` or free bodies.

        `offset` [m], (3,), (n, 3) or (B, n, 3), moves the points in the links' axes. Differentiable in all of it.
        """
        self._check_state(state)
        return self._frames(tuple(links)).poses(state.q, offset)

    def link_velocities(
        self, state: State, links: Sequence[str], offset: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return linear [m/s] and angular [rad/s] velocities (B, n, 3) in world axes; see `link_poses`."""
        self._check_state(state)
        return self._frames(tuple(links)).velocities(state.q, state.qd, offset)

    def link_jacobian(self, state: State, link: str, offset: Tensor | None = None) -> Tensor:
        """Return (B, 6, nv): how the linear, then the angular velocity of a link changes by qd; see `link_poses`."""
        self._check_state(state)
        return self._frames((link,)).jacobian(state.q, offset)

    def energies(self, state: State) -> tuple[Tensor, Tensor]:
        """Return kinetic and potential energy [J], (B,) each; the potential is zero at the world's origin.

        Springs and gravity compensation count in the potential.
        """
        q, qd = state.q, state.qd
        rows = self.parameters()
        self._check_worlds(self._check_state(state), max(x.shape[0] for x in rows))
        return self._energies(q, qd, rows)

    def _energies(self, q: Tensor, qd: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return kinetic and potential energy of states (n, ...) under parameters of as many rows, or of one."""
        totals = self._programs.momentum()(q, qd, rows.placements, rows.inertias)
        rotors = 0.5 * (rows.dofs[:, ::3] * qd * qd).sum(-1)
        springs = spring_energy(self.arrays.drives, rows.actuators, self.arrays.dof_coordinate, q)
        falling = totals[:, 6:9]
        if self.arrays.drives.compensates:
            carried = torch.nn.functional.pad(rows.compensation.unflatten(1, (-1, 4)), (0, 6)).flatten(1)
            falling = falling - self._programs.momentum()(q, torch.zeros_like(qd), rows.placements, carried)[:, 6:9]
        return totals[:, 9] + rotors, springs - (rows.gravity * falling).sum(-1)

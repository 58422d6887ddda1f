"""Windows of recorded motion, residuals of a simulation started in each, and their derivatives.

A window of K samples starts at a measured state x. Its residuals are r_k = w (x_k(x ⊕ d, z) ⊖ measured_k), k = 0 to K,
functions of the variables z of the unknowns and of the correction d of the initial state, which is noisy. Short windows
stay close to every part of a motion, where one long rollout would drift away (multiple shooting).

Derivatives come from single steps, all in parallel: A = ∂x_{t+1}/∂x_t by `sim.linearize` and F = ∂x_{t+1}/∂z
by central differences; in float32, or where linearize is unavailable, both by reverse mode, one output per pass.
Then S_{t+1} = A S_t + F with S_0 = (1 0) is the derivative of each state by (d, z).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from pullback.control.identify.unknowns import Unknowns
from pullback.core.errors import PullbackError
from pullback.core.ranks import ranks
from pullback.rigid.sim import Sim
from pullback.rigid.state import State, Trajectory

Tensor = torch.Tensor

WORLDS_AT_ONCE = 1 << 15
"""The most worlds in one launch of a derivative, outputs times steps."""
CHANGE = 1e-4
"""Step of central differences in a variable."""
SMALLEST_SPREAD = 0.02
"""Smallest spread of an entry, as a fraction of the largest among positions or velocities."""
SMALLEST_NOISE = 1e-3
"""Smallest noise of an entry, as a fraction of its spread."""
UNEVEN = 1e-6
"""Relative tolerance for a number of steps to count as an integer."""


@dataclass(frozen=True)
class Recording:
    """A measured motion: q (T + 1, nq), qd (T + 1, nv), controls (T, nu), or each with a batch (T, B, n).

    `dt` [s] is the sampling time, an integer multiple of the simulation's. Controls are held between samples, or given
    for each step of the simulation. Without `qd` velocities count as not measured.
    """

    q: Tensor
    qd: Tensor | None
    controls: Tensor | None
    dt: float


@dataclass(frozen=True)
class Windows:
    """W windows of K samples each: measured q (K + 1, W, nq), qd (K + 1, W, nv), and controls (K steps, W, nu)."""

    q: Tensor
    qd: Tensor
    controls: Tensor
    steps: int
    """Steps of the simulation from one sample to the next."""
    weights: Tensor
    """One over the assumed noise (2 nv,), zero for what was not measured."""
    spread: Tensor
    """Standard deviation of each entry in the data (2 nv,), also of velocities that were not measured."""

    @property
    def count(self) -> int:
        """The number of windows."""
        return self.q.shape[1]

    def own(self) -> tuple[Windows, slice]:
        """Return the windows of this rank, and which of all they are."""
        if self.count < ranks().count:
            raise PullbackError(
                f"{self.count} windows cannot be shared by {ranks().count} ranks; cut shorter ones, or use fewer ranks"
            )
        part = ranks().own(self.count)
        return replace(self, q=self.q[:, part], qd=self.qd[:, part], controls=self.controls[:, part]), part

    def start(self, sim: Sim, shift: Tensor | None = None) -> State:
        """Return the measured initial states of the windows, corrected by `shift` (W, 2 nv)."""
        state = State(self.q[0], self.qd[0], _no_impulses(sim, self.count))
        return state if shift is None else sim.retract(state, shift)


# -- from recordings to windows ----------------------------------------------------------------------------------


def cut(
    sim: Sim,
    recordings: Recording | Sequence[Recording],
    window: int | None,
    stride: int | None,
    noise: tuple[Tensor | float, Tensor | float] | None,
) -> Windows:
    """Check recordings against a simulation and cut them into windows that start `stride` samples apart."""
    if isinstance(recordings, Recording):
        recordings = [recordings]
    if not recordings:
        raise PullbackError("there are no recordings; give at least one pb.control.Recording")
    checked = [_check(sim, k, each) for k, each in enumerate(recordings)]
    steps = {each[3] for each in checked}
    if len(steps) > 1:
        raise PullbackError("recordings have different dt; identify from those of one dt at a time")
    measured = [each.qd is not None for each in recordings]
    if any(measured) != all(measured):
        raise PullbackError("some recordings have velocities and some have none; give qd for all or for none")
    shortest = min(len(q) for q, *_ in checked) - 1
    window = shortest if window is None else window
    stride = window if stride is None else stride
    for name, number in (("window", window), ("stride", stride)):
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise PullbackError(f"{name} is {number!r}; give a whole number of samples, 1 or more")
    if window > shortest:
        raise PullbackError(f"window is {window} samples, and a recording has {shortest} after its first")
    k = steps.pop()
    parts: list[list[Tensor]] = [[], [], []]
    for q, qd, u, _ in checked:
        for first in range(0, len(q) - window, stride):
            parts[0].append(q[first : first + window + 1])
            parts[1].append(qd[first : first + window + 1])
            parts[2].append(u[k * first : k * (first + window)])
    spread = _spread(sim, checked)
    levels = _roughness(sim, checked, spread) if noise is None else _noise_levels(sim, noise)
    weights = 1.0 / levels
    if not all(measured):
        weights = torch.cat([weights[: sim.nv], torch.zeros_like(weights[sim.nv :])])
    q, qd, u = (torch.cat(part, 1) for part in parts)
    return Windows(q, qd, u, k, weights, spread)


def _check(sim: Sim, number: int, given: Recording) -> tuple[Tensor, Tensor, Tensor, int]:
    """Return q (T + 1, B, nq), qd (T + 1, B, nv), controls (T steps, B, nu) and the steps per sample of a recording."""
    where = f"recording {number}"
    if not isinstance(given, Recording):
        raise PullbackError(f"{where} is a {type(given).__name__}; give a pb.control.Recording(q, qd, controls, dt)")
    if not given.dt > 0.0:
        raise PullbackError(f"dt of {where} is {given.dt:g}; give the time between two samples in seconds")
    steps = round(given.dt / sim.dt)
    if steps < 1 or abs(given.dt / sim.dt - steps) > UNEVEN * steps:
        raise PullbackError(
            f"dt of {where} is {given.dt:g} s, {given.dt / sim.dt:g} steps of the simulation; compile it with a dt "
            f"that goes into {given.dt:g} a whole number of times"
        )
    q = _shaped(sim, f"q of {where}", given.q, sim.nq)
    # noise on a quaternion changes its length as well
    q = sim.manifold.retract(q, q.new_zeros(sim.nv))
    samples, worlds = q.shape[:2]
    if samples < 2:
        raise PullbackError(f"{where} has {samples} sample; a motion has two or more")
    if given.qd is not None:
        qd = _shaped(sim, f"qd of {where}", given.qd, sim.nv)
    else:
        qd = _velocities(sim, q, given.dt)
    if qd.shape[:2] != q.shape[:2]:
        raise PullbackError(f"{where} has q for {samples} samples of {worlds} worlds and qd for {tuple(qd.shape[:2])}")
    if given.controls is None:
        return q, qd, q.new_zeros((samples - 1) * steps, worlds, sim.nu), steps
    u = _shaped(sim, f"controls of {where}", given.controls, sim.nu)
    if u.shape[0] not in (samples - 1, (samples - 1) * steps) or u.shape[1] not in (1, worlds):
        raise PullbackError(
            f"{where} has {samples} samples of {worlds} worlds and controls {tuple(u.shape)}; expected "
            f"({samples - 1}, {worlds}, {sim.nu}), one between each two samples, or "
            f"({(samples - 1) * steps}, ...), one a step"
        )
    u = u.expand(-1, worlds, -1)
    return q, qd, u if u.shape[0] == (samples - 1) * steps else u.repeat_interleave(steps, 0), steps


def _shaped(sim: Sim, what: str, given: Tensor, rows: int) -> Tensor:
    """Return data as (T, B, rows); raise for wrong shapes and values that are not finite."""
    try:
        x = torch.as_tensor(given).detach().to(sim.device, sim.dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise PullbackError(f"{what} is a {type(given).__name__}; give a tensor of numbers") from error
    if x.ndim not in (2, 3) or x.shape[-1] != rows:
        raise PullbackError(f"{what} has shape {tuple(x.shape)}; expected (T, {rows}) or (T, B, {rows})")
    bad = (~x.isfinite()).nonzero()
    if len(bad):
        raise PullbackError(f"{what} is not finite at sample {int(bad[0, 0])}; leave such samples out")
    return x if x.ndim == 3 else x[:, None]


def _velocities(sim: Sim, q: Tensor, dt: float) -> Tensor:
    """Return velocities by differences of positions: central inside, one-sided at both ends."""
    still = q.new_zeros(*q.shape[:-1], sim.nv)
    between = sim.difference(State(q[:-1], still[1:]), State(q[1:], still[1:]))[..., : sim.nv] / dt
    return torch.cat([between[:1], 0.5 * (between[1:] + between[:-1]), between[-1:]])


def _spread(sim: Sim, checked: Sequence[tuple[Tensor, Tensor, Tensor, int]]) -> Tensor:
    """Return the standard deviation of each entry of the state (2 nv,) in the data."""
    ways = []
    for q, qd, _, _ in checked:
        first = State(q[:1].expand_as(q), torch.zeros_like(qd))
        ways.append(sim.difference(first, State(q, qd)).flatten(0, 1))
    every = torch.cat(ways)
    spread = every.std(0).reshape(2, -1)
    largest = spread.amax(-1, keepdim=True)
    if not bool((largest > 0.0).all()):
        raise PullbackError("nothing moves in the recordings; they determine nothing")
    return spread.clamp(min=SMALLEST_SPREAD * largest).flatten()


def _roughness(sim: Sim, checked: Sequence[tuple[Tensor, Tensor, Tensor, int]], spread: Tensor) -> Tensor:
    """Return the noise (2 nv,) estimated from third differences of the data, at least a fraction of the spread."""
    parts = []
    for q, qd, _, _ in checked:
        if len(q) > 3:
            ways = sim.difference(State(q[:-1], qd[:-1]), State(q[1:], qd[1:]))
            # third differences of independent noise have variance 20; `ways` are first differences already
            parts.append((ways[2:] - 2.0 * ways[1:-1] + ways[:-2]).flatten(0, 1) / 20.0**0.5)
    if not parts:
        return spread
    return torch.cat(parts).square().mean(0).sqrt().maximum(SMALLEST_NOISE * spread)


def _noise_levels(sim: Sim, noise: tuple[Tensor | float, Tensor | float]) -> Tensor:
    """Return the user's noise, positions then velocities, (2 nv,)."""
    levels = torch.cat([torch.as_tensor(x).to(sim.device, sim.dtype).expand(sim.nv) for x in noise])
    if not bool(((levels > 0.0) & levels.isfinite()).all()):
        raise PullbackError(f"noise is {levels.tolist()}; give positive numbers, of positions and of velocities")
    return levels


def _no_impulses(sim: Sim, worlds: int) -> Tensor | None:
    """Return zero warm-start impulses, if the solver uses them."""
    impulses = sim._at_rest(1).impulses
    return None if impulses is None else impulses.expand(worlds, -1).contiguous()


# -- residuals and their derivatives -----------------------------------------------------------------------------


def residuals(sim: Sim, unknowns: Unknowns, windows: Windows, z: Tensor, shift: Tensor | None) -> Tensor:
    """Return residuals (N, K + 1, W, 2 nv) of variables z (N, size); differentiable in both."""
    copies, count = len(z), windows.count
    unknowns.connect(z.repeat_interleave(count, 0))
    start = windows.start(sim, shift)
    state = State(start.q.repeat(copies, 1), start.qd.repeat(copies, 1), _no_impulses(sim, copies * count))
    path = sim.rollout(state, windows.controls.repeat(1, copies, 1))
    q, qd = (x[:: windows.steps].unflatten(1, (copies, count)).transpose(0, 1) for x in (path.q, path.qd))
    measured = State(windows.q.expand_as(q), windows.qd.expand_as(qd))
    return windows.weights * sim.difference(measured, State(q, qd))


@torch.no_grad()
def losses(sim: Sim, unknowns: Unknowns, windows: Windows, z: Tensor, shift: Tensor | None = None) -> Tensor:
    """Return the mean square (N,) of the measured residuals of variables z (N, size); infinite where they diverge."""
    mine, part = windows.own()
    r = residuals(sim, unknowns, mine, z, None if shift is None else shift[part])
    squares = r[..., windows.weights > 0.0].square().flatten(1)
    _, found = ranks().weighted_mean([squares.mean(1)], mine.count)
    return found.nan_to_num(nan=torch.inf, posinf=torch.inf)


def linearized(
    sim: Sim, unknowns: Unknowns, windows: Windows, z: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return residuals r (W, m) of variables z (size,), and their derivatives by shift (W, m, 2 nv) and z (W, m, P)."""
    mine, part = windows.own()
    r, Jx, Jz = (ranks().gather_rows(x, windows.count) for x in _linearized(sim, unknowns, mine, z, shift[part]))
    return r, Jx, Jz


def _linearized(
    sim: Sim, unknowns: Unknowns, windows: Windows, z: Tensor, shift: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the same of the windows of one rank."""
    n, count = 2 * sim.nv, windows.count
    with torch.no_grad():
        unknowns.connect(z[None])
        start = windows.start(sim, shift)
        path = sim.rollout(start, windows.controls)
    steps = len(path) - 1
    quick = z.dtype == torch.float64 and sim.integrator == "semi_implicit" and sim.world.contact.kinks == "computed"
    derivatives = _by_differences if quick else _by_reverse_mode
    A, F = derivatives(sim, unknowns, path, windows.controls, z)
    # derivative of the corrected initial states by shift
    S = torch.cat([_shift_derivative(sim, windows, start, shift), z.new_zeros(count, n, unknowns.size)], -1)
    kept = [S]
    for t in range(steps):
        S = A[t] @ S
        S[..., n:] += F[t]
        if (t + 1) % windows.steps == 0:
            kept.append(S)
    q, qd = path.q[:: windows.steps], path.qd[:: windows.steps]
    r = windows.weights * sim.difference(State(windows.q, windows.qd), State(q, qd))
    J = torch.stack(kept)
    J[..., : sim.nv, :] = sim.manifold.difference_jacobian(windows.q, q) @ J[..., : sim.nv, :]
    J = (windows.weights[:, None] * J).transpose(0, 1).flatten(1, 2)
    r = r.transpose(0, 1).flatten(1)
    seen = (windows.weights > 0.0).repeat(q.shape[0])
    return r[:, seen], J[:, seen, :n], J[:, seen, n:]


def _shift_derivative(sim: Sim, windows: Windows, start: State, shift: Tensor) -> Tensor:
    """Return the derivative of the corrected initial states by shift, (W, 2 nv, 2 nv), in their tangent space."""
    return _rows(lambda d: sim.difference(start, windows.start(sim, d)), shift)[0]


@torch.no_grad()
def _by_differences(
    sim: Sim, unknowns: Unknowns, path: Trajectory, controls: Tensor, z: Tensor
) -> tuple[Tensor, Tensor]:
    """Return A (T, W, 2 nv, 2 nv), exact, and F (T, W, 2 nv, P) by central differences, of all steps of a path."""
    unknowns.connect(z[None])
    A = sim.linearize(path, controls).A
    steps, count = controls.shape[:2]
    state = State(path.q[:-1].flatten(0, 1), path.qd[:-1].flatten(0, 1), _no_impulses(sim, steps * count))
    columns = []
    for k in range(unknowns.size):
        sides = []
        for change in (-CHANGE, CHANGE):
            moved = z.clone()
            moved[k] += change
            unknowns.connect(moved[None])
            sides.append(sim.step(state, controls.flatten(0, 1)))
        columns.append(sim.difference(*sides) / (2.0 * CHANGE))
    return A, torch.stack(columns, -1).unflatten(0, (steps, count))


def _by_reverse_mode(
    sim: Sim, unknowns: Unknowns, path: Trajectory, controls: Tensor, z: Tensor
) -> tuple[Tensor, Tensor]:
    """Return A (T, W, 2 nv, 2 nv) and F (T, W, 2 nv, P) of all steps of a path, both exact."""
    q, qd = path.q, path.qd
    steps, count, n = q.shape[0] - 1, q.shape[1], 2 * sim.nv
    before = [x[:-1].flatten(0, 1) for x in (q, qd)]
    after = [x[1:].flatten(0, 1) for x in (q, qd)]
    u = controls.flatten(0, 1)
    A, F = q.new_empty(steps * count, n, n), q.new_empty(steps * count, n, unknowns.size)
    chunk = max(1, WORLDS_AT_ONCE // n)
    for first in range(0, steps * count, chunk):
        part = slice(first, first + chunk)
        size = len(u[part])
        state = State(before[0][part], before[1][part], _no_impulses(sim, size))
        reached = State(after[0][part], after[1][part])

        def change(dx: Tensor, z: Tensor, state: State = state, part: slice = part, to: State = reached) -> Tensor:
            unknowns.connect(z)
            return sim.difference(to, sim.step(sim.retract(state, dx), u[part]))

        A[part], F[part] = _rows(change, q.new_zeros(size, n), z.detach().repeat(size, 1))
    return A.unflatten(0, (steps, count)), F.unflatten(0, (steps, count))


def _rows(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """Return the derivatives (N, m, n) of outputs (N, m) by each input (N, n), one vjp per output."""
    outputs, pull = torch.func.vjp(function, *inputs)  # pyright: ignore[reportAssignmentType]
    count, m = outputs.shape
    seeds = torch.eye(m, dtype=outputs.dtype, device=outputs.device)[:, None].expand(m, count, m)
    return [x.transpose(0, 1) for x in torch.func.vmap(pull)(seeds)]

"""An environment: many worlds that a policy acts in, differentiable from actions to rewards.

A task author writes a subclass of `Env`, about a page of torch: `build`, `start`, `observe`, `reward` and, where
episodes can fail, `terminated`. What all environments share stands here: stepping, episodes that end and begin again,
parameters that differ from world to world, worlds that are no longer finite, seeds, and saving.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch

from pullback.core.device import find_device
from pullback.core.errors import PullbackError
from pullback.core.ranks import ranks
from pullback.learn.guard import guard
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.values import check_whole
from pullback.rigid.world.world import World
from pullback.robot.learnable import GivenValue
from pullback.robot.model import RobotModel

Tensor = torch.Tensor
Bound = float | Sequence[float]

LARGEST = 1e6
"""Coordinates and velocities beyond this count as not finite: nothing sensible comes back from there."""
MOST_SUBSTEPS = 10_000


class Step(NamedTuple):
    """What `Env.step` returns, in the order of Gymnasium; B worlds."""

    observation: Tensor
    """(B, n); where an episode ended, the first observation of the next one."""
    reward: Tensor
    """(B,)"""
    terminated: Tensor
    """(B,) bool: the episode ended by failure, or because its world was no longer finite."""
    truncated: Tensor
    """(B,) bool: the episode was as long as episodes are."""
    info: dict[str, Tensor]
    """`final_observation` (B, n), the one before any reset; `broken` (B,), worlds that were no longer finite;
    `episode_return` and `episode_length` (B,), so far, complete where the episode ended."""


@dataclass(eq=False)
class _Randomized:
    """A parameter (B, *shape) that is drawn for a world when its episode begins."""

    value: Tensor
    low: Tensor | float
    high: Tensor | float
    simulated: bool
    """Whether the simulation reads it; if not, only the environment does."""


class Env(ABC):
    """`worlds` copies of a world with an observation, a reward, and episodes that begin again by themselves.

    `step` is differentiable from the state before and the actions to observation and reward. Where an episode ends, the
    next one starts from a state that no gradient passes through. Random numbers are drawn for all worlds in every step,
    used or not: what happens in a world depends on the seed and on its own actions only.
    """

    dt: ClassVar[float] = 1 / 60
    """Time [s] between two actions."""
    substeps: int = 4
    """Steps of the simulation in that time."""
    episode: int = 1000
    """Steps after which an episode is truncated."""
    shac: ClassVar[Mapping[str, Any]] = {}
    """Settings of SHAC that suit this environment, where they are not the default."""
    follow: ClassVar[str] = ""
    """A `robot/link` that stays in the middle of a replay, for what runs far; none: the whole way is seen."""

    def __init__(
        self,
        worlds: int = 64,
        *,
        seed: int = 0,
        substeps: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(worlds, int) or isinstance(worlds, bool) or worlds < 1:
            raise PullbackError(f"worlds is {worlds!r}; give the number of worlds, 1 or more")
        if substeps is not None:
            self.substeps = check_whole("substeps", substeps, 1, MOST_SUBSTEPS)
        self.worlds = ranks().share(worlds, "worlds")
        """Worlds that this process simulates: all, unless there are several ranks."""
        self.all_worlds = worlds
        """Worlds of all ranks together."""
        self.dtype = dtype
        self.device = find_device(device) or torch.device("cpu")
        self.lost = torch.zeros(self.worlds, dtype=torch.bool, device=self.device)
        """Worlds (B,) whose gradient was cut off since this was last cleared, because it was not finite; on a GPU."""
        self._bounds: dict[Any, Tensor | float] = {}
        self.action: Tensor
        """The action before the current state (B, nu), zero at a start."""
        self.random = torch.Generator(self.device).manual_seed(seed)
        self._randomized: list[_Randomized] = []
        self._size: int | None = None
        self.world = self.build()
        self.sim = self.compile(self.world)
        if ranks().many:
            ranks().refuse_differences({"the robot or world": (self.name, self.sim.fingerprint())})
        self.broken = torch.zeros((), dtype=torch.long, device=self.device)
        """How many worlds were no longer finite, since the environment was made."""
        self.reset()

    # -- what a task author writes ---------------------------------------------------------------------------------

    @abstractmethod
    def build(self) -> World:
        """Return the world; `self.randomized(low, high)` is a parameter that differs from world to world."""

    @abstractmethod
    def start(self) -> tuple[Tensor, Tensor]:
        """Return q (B, nq) and qd (B, nv) that episodes may start from; `self.uniform(low, high, ...)` is random."""

    @abstractmethod
    def observe(self, state: State, action: Tensor) -> Tensor:
        """Return what the policy sees (B, n) of a state and the action (B, nu) before it, zero at a start."""

    @abstractmethod
    def reward(self, before: State, action: Tensor, after: State) -> Tensor:
        """Return the reward (B,) of a step, differentiable."""

    def terminated(self, state: State) -> Tensor:
        """Return the worlds (B,) whose episode has failed; by default none."""
        return torch.zeros(self.worlds, dtype=torch.bool, device=self.device)

    def control(self, action: Tensor) -> Tensor:
        """Return the controls (B, nu) of the world for an action in [-1, 1]; by default the action itself."""
        return action

    def compile(self, world: World) -> Sim:
        """Return the simulation; replace this to leave out contacts, or for another integrator."""
        return world.compile(dt=self.dt, substeps=self.substeps, dtype=self.dtype, device=self.device)

    def suggested(self) -> Mapping[str, Any]:
        """Return settings of SHAC that suit this environment, those of `shac` unless its options ask for others."""
        return self.shac

    @property
    def options(self) -> dict[str, Any]:
        """What makes this environment differ from others of its class; a checkpoint must agree in it."""
        return {}

    # -- random numbers --------------------------------------------------------------------------------------------

    def uniform(self, low: Bound, high: Bound, *shape: int) -> Tensor:
        """Return random numbers (B, *shape) between two bounds, each a number or one for each of the last dimension."""
        low_, high_ = self._like(low), self._like(high)
        return low_ + (high_ - low_) * self.draw(torch.rand, self.worlds, *shape)

    def draw(self, kind: Callable[..., Tensor], *shape: int) -> Tensor:
        """Return random numbers of `kind`, torch.rand or torch.randn, of shape (B, ...).

        Every rank draws the numbers of all worlds and takes those of its own: they are those of one process.
        """
        return ranks().draw(kind, shape, dtype=self.dtype, device=self.device, generator=self.random)

    def randomized(self, low: Bound, high: Bound, *shape: int) -> Tensor:
        """Return a parameter (B, *shape) that is drawn anew between two bounds when a world's episode begins.

        It goes wherever a world takes a value for each world: gravity, friction, sizes, numbers of actuators, and link
        parameters by `set_link(robot, link, parameter, value)`.
        """
        return self._add_randomized(low, high, shape, simulated=True)

    def drawn(self, low: Bound, high: Bound, *shape: int) -> Tensor:
        """Return numbers (B, *shape) that are drawn anew when a world's episode begins: a command, a goal.

        They are for `observe`, `reward` and `start`; what goes into the world is `randomized`.
        """
        return self._add_randomized(low, high, shape, simulated=False)

    def _add_randomized(self, low: Bound, high: Bound, shape: tuple[int, ...], *, simulated: bool) -> Tensor:
        value = self.uniform(low, high, *shape)
        self._randomized.append(_Randomized(value, self._like(low), self._like(high), simulated))
        return value

    def _like(self, value: Bound) -> Tensor | float:
        """Return a number, or a tensor of several, which is made once: making one lets a GPU wait."""
        if isinstance(value, (int, float)):
            return float(value)
        key = tuple(value)
        if key not in self._bounds:
            self._bounds[key] = self.constant(value)
        return self._bounds[key]

    def constant(self, value: Sequence[float]) -> Tensor:
        """Return numbers as a tensor of the environment's type and device; make it once, in `build` or `__init__`."""
        return torch.as_tensor(value, dtype=self.dtype, device=self.device)

    @torch.no_grad()
    def _draw_parameters(self, begins: Tensor) -> None:
        """Draw the parameters of the worlds (B,) whose episode begins."""
        for parameter in self._randomized:
            value = parameter.value
            drawn = self.draw(torch.rand, *value.shape)
            drawn = parameter.low + (parameter.high - parameter.low) * drawn
            # a tensor that was written to makes the simulation compute its rows again
            if not parameter.simulated or bool(begins.any()):
                value.copy_(torch.where(begins.view(-1, *[1] * (value.ndim - 1)), drawn, value))

    @torch.no_grad()
    def _draw_start(self) -> State:
        """Return a state for each world that an episode may start from."""
        q, qd = self.start()
        shapes = (self.worlds, self.sim.nq), (self.worlds, self.sim.nv)
        if (tuple(q.shape), tuple(qd.shape)) != shapes:
            raise PullbackError(
                f"start of {self.name} returned q {tuple(q.shape)} and qd {tuple(qd.shape)}; expected {shapes[0]} and "
                f"{shapes[1]}, a start for each world"
            )
        impulses = self._rest.impulses
        return State(q.to(self._rest.q), qd.to(self._rest.q), None if impulses is None else torch.zeros_like(impulses))

    # -- running ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the environment's class."""
        return type(self).__name__

    @property
    def action_size(self) -> int:
        """The number of entries of an action."""
        return self.sim.nu

    @property
    def observation_size(self) -> int:
        """The number of entries of an observation."""
        assert self._size is not None
        return self._size

    def reset(self, seed: int | None = None) -> Tensor:
        """Begin an episode in every world, with random numbers from `seed` on if it is given; return observations."""
        if seed is not None:
            self.random.manual_seed(seed)
        everywhere = torch.ones(self.worlds, dtype=torch.bool, device=self.device)
        self._draw_parameters(everywhere)
        self._rest = self.sim.initial_state(self.worlds)
        self.state = self._draw_start()
        self.action = torch.zeros(self.worlds, self.action_size, dtype=self.dtype, device=self.device)
        self.steps = torch.zeros(self.worlds, dtype=torch.long, device=self.device)
        self.returns = torch.zeros(self.worlds, dtype=self.dtype, device=self.device)
        seen = self._observe(self.state, self.action).detach()
        if not bool(seen.isfinite().all()):
            world, entry = (~seen.isfinite()).nonzero()[0].tolist()
            raise PullbackError(
                f"observe of {self.name} is not finite at the start of world {world}, entry {entry}; look for a "
                f"division by zero in observe and start"
            )
        return seen

    def detach(self) -> Tensor:
        """Cut the state off from what led to it, so that gradients stop here, and return its observations."""
        self.state, self.action = self.state.detach(), self.action.detach()
        return self._observe(self.state, self.action).detach()

    def step(self, action: Tensor, advance: Callable[[State, Tensor], State] | None = None) -> Step:
        """Advance all worlds by `dt` under actions (B, nu), which are clamped to [-1, 1].

        `advance(state, control)` takes the place of the simulation's step: one with another gradient, say.
        """
        action = self._check_action(action).clamp(-1.0, 1.0)
        before, after = self.state, (advance or self.advance)(self.state, self.control(action))
        start = self._draw_start()
        # what is not finite is replaced before anything is computed from it
        broken = _is_broken(after)
        after = _choose(broken, start, after)
        reward = self._check("reward", self.reward(before, action, after), (self.worlds,))
        failed = self._check("terminated", self.terminated(after), (self.worlds,), torch.bool)
        self.steps = self.steps + 1
        final = self._observe(after, action)
        seen = final.isfinite()
        broken = broken | ~reward.isfinite() | ~seen.all(1)
        reward, final = torch.where(broken, 0.0, reward), torch.where(seen, final, 0.0)
        terminated = broken | failed
        truncated = ~terminated & (self.steps >= self.episode)
        done = terminated | truncated
        self.returns = self.returns + reward.detach()
        info = {
            "final_observation": final, "broken": broken, "episode_return": self.returns, "episode_length": self.steps,
        }  # fmt: skip
        # episodes that ended begin again, where no gradient comes from
        self._draw_parameters(done)
        self.state = _choose(done, start, after)
        self.action = torch.where(done[:, None], torch.zeros_like(action), action)
        self.steps = torch.where(done, torch.zeros_like(self.steps), self.steps)
        self.returns = torch.where(done, torch.zeros_like(self.returns), self.returns)
        self.broken = self.broken + broken.sum()
        observation = torch.where(done[:, None], self._observe(self.state, self.action), final)
        return Step(observation, reward, terminated, truncated, info)

    def advance(self, state: State, control: Tensor) -> State:
        """Return the state `dt` later; on a GPU the gradient of worlds where it is not finite ends there."""
        if not control.is_cpu and control.requires_grad:
            given = [x for x in (control, state.q, state.qd, state.impulses) if x is not None]
            control, *parts = guard(self.lost, *given)
            state = State(parts[0], parts[1], parts[2] if len(parts) > 2 else None)
        return self.sim.step(state, control)

    # -- checks ----------------------------------------------------------------------------------------------------

    def _check_action(self, action: Tensor) -> Tensor:
        expected = (self.worlds, self.action_size)
        if not isinstance(action, Tensor) or tuple(action.shape) != expected:
            got = tuple(action.shape) if isinstance(action, Tensor) else type(action).__name__
            names = ", ".join(self.world.actuator_names[:6])
            raise PullbackError(f"the action is {got}; expected a tensor {expected}, an entry for each of: {names}")
        if action.dtype != self.dtype or action.device != self.sim.device:
            raise PullbackError(
                f"the action is {action.dtype} on {action.device}, the environment {self.dtype} on {self.sim.device}; "
                f"pass action.to(env.sim.device, env.dtype)"
            )
        return action

    def _observe(self, state: State, action: Tensor) -> Tensor:
        seen = self.observe(state, action)
        if self._size is None:
            if not isinstance(seen, Tensor) or seen.ndim != 2 or seen.shape[0] != self.worlds or not seen.shape[1]:
                got = tuple(seen.shape) if isinstance(seen, Tensor) else type(seen).__name__
                raise PullbackError(
                    f"observe of {self.name} returned {got}; return (B, n), a row for each of the {self.worlds} worlds"
                )
            self._size = seen.shape[1]
        return self._check("observe", seen, (self.worlds, self._size))

    def _check(self, what: str, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """Return what a method of the author's gave, if it has the shape and type that it should."""
        dtype = dtype or self.dtype
        if not isinstance(x, Tensor) or tuple(x.shape) != shape or x.dtype != dtype:
            got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise PullbackError(f"{what} of {self.name} returned {got}; expected {dtype} {shape}: change it there")
        return x

    # -- saving ----------------------------------------------------------------------------------------------------

    @property
    def settings(self) -> dict[str, Any]:
        """What a checkpoint must agree in to be resumed from."""
        sizes = {"worlds": self.all_worlds, "observation": self.observation_size, "action": self.action_size}
        time = {"dt": self.dt, "substeps": self.substeps, "episode": self.episode, "dtype": self.dtype}
        return {"environment": self.name, **sizes, **time, **self.options}

    def save_state(self) -> dict[str, Any]:
        """Return all that later steps depend on, as tensors with the worlds of all ranks."""
        state = self.state.detach()
        whole = {
            "q": state.q, "qd": state.qd, "impulses": state.impulses, "action": self.action.detach(),
            "steps": self.steps, "returns": self.returns,
        }  # fmt: skip
        return {
            **{name: None if x is None else self._gather(x) for name, x in whole.items()},
            "broken": ranks().sum(self.broken.clone()), "random": self.random.get_state(),
            "randomized": [self._gather(parameter.value.clone()) for parameter in self._randomized],
        }  # fmt: skip

    def _gather(self, x: Tensor) -> Tensor:
        return ranks().gather_rows(x, self.all_worlds)

    def load_state(self, saved: Mapping[str, Any]) -> None:
        """Continue from what `save_state` returned."""
        own = ranks().own(self.all_worlds)
        here = {name: x[own].to(self.device) for name, x in saved.items() if isinstance(x, Tensor) and x.ndim}
        self.state, self.action = State(here["q"], here["qd"], here.get("impulses")), here["action"]
        self.steps, self.returns = here["steps"], here["returns"]
        broken = saved["broken"].to(self.device)
        self.broken = broken if ranks().is_first else torch.zeros_like(broken)
        self.random.set_state(saved["random"])
        with torch.no_grad():
            for parameter, value in zip(self._randomized, saved["randomized"], strict=True):
                parameter.value.copy_(value[own])


def set_link(robot: RobotModel, link: str, parameter: str, value: Tensor) -> None:
    """Let a link's parameter be the tensor `value` itself, so that writing to it changes the simulation."""
    if (value.dtype, value.device) != (robot.dtype, robot.device):
        raise PullbackError(
            f"{parameter} of {link!r} is {value.dtype} on {value.device}, the robot {robot.dtype} on {robot.device}; "
            f"load it with pb.load(..., dtype=self.dtype, device=self.device)"
        )
    robot.make_link_param_learnable(link, parameter, GivenValue(value))


def _is_broken(state: State) -> Tensor:
    """Return the worlds (B,) that are not finite, or as good as."""
    worst = torch.maximum(state.q.detach().abs().amax(1), state.qd.detach().abs().amax(1))
    # a comparison with NaN is false
    return ~(worst < LARGEST)


def _choose(where: Tensor, a: State, b: State) -> State:
    """Return state a in the worlds `where` (B,), else state b; no gradient passes to the one that is not taken."""
    column = where[:, None]
    impulses = None
    if a.impulses is not None and b.impulses is not None:
        impulses = torch.where(column, a.impulses, b.impulses)
    return State(torch.where(column, a.q, b.q), torch.where(column, a.qd, b.qd), impulses)

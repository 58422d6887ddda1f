"""Reinforcement learning with the simulator's Jacobian: sample and policy enhancement (Qiao et al., ICML 2021).

One transition s, a -> s', r of a differentiable environment comes with ∂s'/∂a and ∂r/∂a. Sample enhancement makes k
more transitions of it, to first order; policy enhancement takes the actor's gradient one step through the simulation
instead of from the critic alone:

    a_k = a + Δa,    s'_k = s' + ∂s'/∂a Δa,    r_k = r + ∂r/∂a Δa
    ∂Q/∂a = ∂r/∂a + γ (∂s'/∂a)ᵀ ∂V/∂s'
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from pullback.core.errors import GradientError, PullbackError
from pullback.learn.env import Env, Step
from pullback.learn.replay import Rows
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.integrators import SMOOTH

Tensor = torch.Tensor

DERIVATIVES = ("next_by_action", "reward_by_action")
"""The rows of a transition that are derivatives of it."""
LARGEST_SLOPE = 10.0
"""To which the one-row variant clips what it adds up, as released."""


@dataclass(frozen=True)
class Extra:
    """Samples that are added to each true one."""

    count: int = 9
    """Extra samples of a transition."""
    radius: float = 0.01
    """Each entry of Δa is uniform within ± this."""
    rows: Literal["all", "one"] = "all"
    """"all": the whole Jacobian. "one": as released, one random row of ∂s'/∂a times the number of rows, clipped."""

    def __post_init__(self) -> None:
        if self.count < 1 or not self.radius > 0.0 or self.rows not in ("all", "one"):
            raise PullbackError(
                f"Extra(count={self.count}, radius={self.radius}, rows={self.rows!r}): count is at least 1, radius "
                f'above 0, rows "all" or "one"'
            )


@dataclass(frozen=True)
class Jacobian:
    """Derivatives of a step by its action, for B worlds; zero in worlds where there is none."""

    next: Tensor
    """∂s'/∂a (B, n, nu), of the observation before any reset."""
    reward: Tensor
    """∂r/∂a (B, nu)"""
    good: Tensor
    """(B,) bool: worlds whose derivatives are finite."""


def step_with_jacobian(env: Env, action: Tensor) -> tuple[Step, Jacobian]:
    """Advance all worlds under actions (B, nu); return the step, detached, and its Jacobian.

    The simulation's part of it is `sim.linearize`, one launch. An environment that steps otherwise, or a simulation
    that cannot be linearized, is pulled back through: its n + 1 rows are folded into the worlds.
    """
    linear = LinearStep(env.sim) if can_linearize(env) else None
    with torch.enable_grad():
        action = action.detach().requires_grad_()
        env.detach()
        step = env.step(action, linear)
        outputs = torch.cat([step.info["final_observation"], step.reward[:, None]], 1)
        slopes, good = _rows(outputs, action)
    if linear is not None:
        good = good & linear.good
    env.detach()
    info = {name: x.detach() for name, x in step.info.items()}
    step = step._replace(observation=step.observation.detach(), reward=step.reward.detach(), info=info)
    slopes = torch.where(good[:, None, None], slopes, torch.zeros_like(slopes))
    return step, Jacobian(slopes[:, :-1], slopes[:, -1], good)


def can_linearize(env: Env) -> bool:
    """Tell whether an environment's steps are those of a simulation that has `linearize`."""
    sim = env.sim
    steps_itself = type(env).advance is not Env.advance
    return not steps_itself and sim.world.contact.kinks == "computed" and sim.integrator not in SMOOTH


class LinearStep:
    """A step of a simulation whose gradient by the controls is that of `sim.linearize`."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.good: Tensor
        """Worlds (B,) of the last step whose Jacobian is finite."""

    def __call__(self, state: State, control: Tensor) -> State:
        """Return the state after a step."""
        sim = self.sim
        with torch.no_grad():
            after = sim.step(state, control)
            slopes = sim.linearize(state, control[None]).B[0]
            finite = slopes.isfinite()
            self.good = finite.flatten(1).all(1)
            slopes = torch.where(finite, slopes, torch.zeros_like(slopes))
        # zero, with the slope of the step
        change = (slopes @ (control - control.detach())[..., None]).squeeze(-1)
        q = sim.manifold.retract(after.q, change[:, : sim.nv])
        return State(q, after.qd + change[:, sim.nv :], after.impulses)


def _rows(outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Jacobian (B, m, nu) of outputs (B, m), and the worlds (B,) in which it is finite."""
    worlds, count = outputs.shape
    good = torch.ones(worlds, dtype=torch.bool, device=outputs.device)
    unit = torch.eye(count, dtype=outputs.dtype, device=outputs.device)[:, None]
    while True:
        asked = unit * good[:, None].to(outputs)
        try:
            (slopes,) = torch.autograd.grad(outputs, action, asked, retain_graph=True, is_grads_batched=True)
        except GradientError as error:
            # on a CPU the simulation names what is not finite; rows are folded into the worlds
            bad = torch.zeros_like(good)
            bad[[element % worlds for element in error.worlds]] = True
            if not bool((bad & good).any()):
                raise
            good = good & ~bad
        else:
            slopes = slopes.transpose(0, 1)
            return slopes, good & slopes.isfinite().flatten(1).all(1)


def extra_samples(rows: Rows, extra: Extra, random: torch.Generator) -> Rows:
    """Return `extra.count` samples (S, k B, ...) around each of the transitions (S, B, ...), to first order.

    `rows` has observation, action, reward, next, terminated, and the derivatives next_by_action (S, B, n, nu) and
    reward_by_action (S, B, nu). Actions stay within [-1, 1]; Δa is what is left of it.
    """
    around = {name: x.repeat_interleave(extra.count, 1) for name, x in rows.items()}
    action, slopes = around["action"], around["next_by_action"]
    drawn = torch.rand(action.shape, dtype=action.dtype, device=action.device, generator=random)
    moved = (action + extra.radius * (2.0 * drawn - 1.0)).clamp(-1.0, 1.0)
    # a step without a Jacobian is repeated as it was: what another action does there is not known
    known = (slopes != 0.0).any(-1).any(-1) | (around["reward_by_action"] != 0.0).any(-1)
    moved = torch.where(known[..., None], moved, action)
    change = moved - action
    if extra.rows == "one":
        slopes = _one_row(slopes, extra.count, random)
    around["action"] = moved
    around["next"] = around["next"] + (slopes @ change[..., None]).squeeze(-1)
    around["reward"] = around["reward"] + (around["reward_by_action"] * change).sum(-1)
    return around


def with_extra_samples(rows: Rows, extra: Extra, random: torch.Generator) -> Rows:
    """Return transitions (S, B, ...), each followed by the extra samples around it, without derivatives."""
    around = extra_samples(rows, extra, random)
    plain = (name for name in rows if name not in DERIVATIVES)
    return {
        name: torch.cat([rows[name][:, :, None], around[name].unflatten(1, (-1, extra.count))], 2).flatten(1, 2)
        for name in plain
    }


def _one_row(slopes: Tensor, count: int, random: torch.Generator) -> Tensor:
    """Return Jacobians (S, k B, n, nu) of which one random row, the same around a transition, is left, times n."""
    seeds, samples, n, _ = slopes.shape
    row = torch.randint(n, (seeds, samples // count), device=slopes.device, generator=random)
    kept = torch.nn.functional.one_hot(row.repeat_interleave(count, 1), n).to(slopes)
    return (n * slopes).clamp(-LARGEST_SLOPE, LARGEST_SLOPE) * kept[..., None]


def action_slope(batch: Rows, value_by_next: Tensor, discount: float) -> Tensor:
    """Return ∂Q/∂a (S, B, nu), one step through the simulation: ∂r/∂a + γ (∂s'/∂a)ᵀ ∂V/∂s'; nothing after an end."""
    later = (discount * (1.0 - batch["terminated"]))[..., None] * value_by_next
    return batch["reward_by_action"] + (later[..., None, :] @ batch["next_by_action"]).squeeze(-2)


def relevance(action: Tensor, stored: Tensor) -> Tensor:
    """Return the weight (S, B) of Jacobians that were stored at another action, exp(-‖a - a₀‖) (Eq. 16 there)."""
    return (-(action - stored).norm(dim=-1)).exp()

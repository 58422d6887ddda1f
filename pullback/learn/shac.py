"""Short-horizon actor-critic (SHAC): a policy trained by gradients through the simulation.

Xu et al., "Accelerated policy learning with parallel differentiable simulation", ICLR 2022. In each iteration the
policy acts for H steps in B worlds. The return of a world is the sum of its discounted rewards and the value of the
state after them, at the horizon or where an episode was cut short; its gradient passes back through all steps to the
policy. The value is that of a target network, a slow copy of a critic fitted to the TD(λ) returns of the same steps:

    loss = - mean over worlds and steps of  Σ γ^t r_t + γ^T V(s_T)

With `critic=False` there is no value: back-propagation through time, over the horizon.
"""

from __future__ import annotations

from pullback.learn.short_horizon import ShortHorizon


class SHAC(ShortHorizon):
    """A run of SHAC: what `ShortHorizon` does, with one critic, its slow copy, and a horizon that stays."""

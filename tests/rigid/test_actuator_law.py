"""An actuator with a law of its own, as docs/architecture.md says to add one: a class, and a kernels file."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

import pullback as pb
from pullback.rigid.world.actuators import Actuator, Numbers, check_number
from tests.rigid.worlds import F64, load

DT = 1e-3
AGREE = 1e-7
"""Central differences, relative."""


@dataclass(frozen=True, eq=False)
class Saturating(Actuator):
    law: ClassVar[str] = "tests.rigid.saturating_law_kernels"
    is_stiff: ClassVar[bool] = False
    gain: object = 2.0
    kd: object = 0.3

    def numbers(self, what):
        return Numbers(gain=check_number(what, self.gain), kd=check_number(what, self.kd))


def rollout(actuators, u):
    """Return the last state of pendulums that do not touch, one for each actuator."""
    world = pb.World()
    for k, actuator in enumerate(actuators):
        world.add(load("pendulum1"), name=f"arm{k}", actuators=actuator, mask=0)
    sim = world.compile(dt=DT, dtype=F64)
    states = sim.rollout(sim.initial_state(), u)
    return torch.cat([states.q[-1, 0], states.qd[-1, 0]])


def test_one_world_may_have_several_laws():
    """It and a servo side by side move as each would alone."""
    pair = (Saturating(), pb.PositionServo(5.0, 0.1))
    u = torch.tensor([[[3.0, 0.5]]], dtype=F64).expand(100, 1, 2)
    both = rollout(pair, u)
    for k, actuator in enumerate(pair):
        alone = rollout([actuator], u[..., k : k + 1])
        assert both[k::2].tolist() == pytest.approx(alone.tolist(), rel=1e-13)
    assert float(both[2]) != pytest.approx(0.0, abs=1e-3)


def test_gradients_by_numbers_and_control():
    def loss(gain, kd, u):
        end = rollout([Saturating(gain, kd), pb.PositionServo(5.0, 0.1)], u)
        return (end * torch.tensor([1.0, 0.3, -0.7, 0.2], dtype=F64)).sum()

    values = [torch.tensor(2.0, dtype=F64), torch.tensor(0.3, dtype=F64)]
    values.append(torch.tensor([[[0.4, 0.5]]], dtype=F64).expand(40, 1, 2).clone())
    leaves = [x.clone().requires_grad_() for x in values]
    loss(*leaves).backward()
    for k, leaf in enumerate(leaves):
        moved = [[x + sign * 1e-5 * (i == k) for i, x in enumerate(values)] for sign in (1, -1)]
        difference = float(loss(*moved[0]) - loss(*moved[1])) / 2e-5
        assert float(leaf.grad.sum()) == pytest.approx(difference, rel=AGREE)

"""Small environments for tests, most of them wrong in one way."""

import torch

from pullback.learn.env import Env, set_link
from pullback.learn.envs.cart_pole import CartPole
from pullback.rigid.world.actuators import Torque
from pullback.rigid.world.world import World
from pullback.robot.load import load


class Dragged(Env):
    """A limp hopper that collapses onto the ground and is dragged along x: contact, friction and joint limits."""

    substeps = 2
    episode = 50

    def build(self):
        world = World()
        world.add(load("hopper"), name="hopper", q={"rootz": 1.24}, actuators={"rootx": Torque(gain=300.0)})
        world.add_ground(friction=0.5)
        return world

    def start(self):
        return self._rest.q + self.uniform(-0.02, 0.02, 6), self.uniform(-0.1, 0.1, 6)

    def observe(self, state, action):
        return torch.cat([state.q, state.qd, action], 1)

    def reward(self, before, action, after):
        return after.qd[:, 0] - after.q[:, 1].square() - 0.1 * action.square().sum(1)


class Heavy(CartPole):
    """A cart-pole whose pole mass and motor differ from world to world."""

    def build(self):
        world, robot = World(gravity=(0.0, 0.0, -9.81)), load("cart_pole", dtype=self.dtype, device=self.device)
        self.mass, self.gain = self.randomized(0.1, 0.5), self.randomized(10.0, 30.0)
        set_link(robot, "pole", "mass", self.mass)
        world.add(robot, name="cart", actuators={"cart": Torque(gain=self.gain)})
        return world


class Runaway(CartPole):
    """A cart-pole in which a full push in world 1 makes it not finite."""

    def control(self, action):
        huge = torch.zeros_like(action)
        huge[1] = 1e30
        return action + huge * (action > 0.9)


class NoGradient(CartPole):
    """A reward that was computed without torch's graph."""

    def reward(self, before, action, after):
        return super().reward(before, action, after).detach()


class Sparse(CartPole):
    """A reward of comparisons."""

    def reward(self, before, action, after):
        return (after.q[:, 1].cos() > 0.0).to(self.dtype) + 0.0 * after.q[:, 0]

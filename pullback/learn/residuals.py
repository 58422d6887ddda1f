"""Residuals that ship: networks for what descriptions leave out. Each begins as no correction, or nearly none."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from pullback.core.errors import PullbackError
from pullback.learn.hybrid import Correction, Residual
from pullback.rigid.sim import Sim
from pullback.rigid.state import State
from pullback.rigid.world.actuators import Torque
from pullback.spatial.rotations_torch import rotate

Tensor = torch.Tensor


def layers(inputs: int, hidden: Sequence[int], outputs: int, *, seed: int, dtype: torch.dtype) -> nn.Sequential:
    """Return linear layers with tanh between; the last one begins at zero, so that physics alone is the start."""
    random = torch.Generator().manual_seed(seed)
    found: list[nn.Module] = []
    sizes = [inputs, *hidden, outputs]
    for k, (a, b) in enumerate(pairwise(sizes)):
        linear = nn.Linear(a, b, dtype=dtype)
        if k < len(sizes) - 2:
            nn.init.orthogonal_(linear.weight, 1.5, generator=random)
        else:
            nn.init.zeros_(linear.weight)
        nn.init.zeros_(linear.bias)
        found += [linear, nn.Tanh()]
    return nn.Sequential(*found[:-1])


class Scaler(nn.Module):
    """What a network looks at, made of mean 0 and deviation 1 by the data it is fitted to."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size, dtype=dtype))
        self.register_buffer("deviation", torch.ones(size, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled numbers."""
        return (x - self.mean) / self.deviation

    @torch.no_grad()
    def fit(self, x: Tensor) -> None:
        """Learn mean and deviation of numbers (N, n); what hardly changes is left at its size."""
        deviation = x.std(0)
        self.mean.copy_(x.mean(0))
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)))


class ScaledResidual(Residual):
    """A residual whose network looks at numbers through a scaler."""

    scaler: Scaler

    def look(self, state: State, u: Tensor) -> Tensor:
        """Return what the scaler is fitted to (N, n)."""
        raise NotImplementedError

    def fit_scalers(self, state: State, u: Tensor) -> None:
        """Fit the scaler to states and controls of a recording."""
        self.scaler.fit(self.look(state, u))


class Together(Residual):
    """Several residuals, each of which sees the state before the step; what they add is added up."""

    def __init__(self, *parts: Residual) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def begin(self, state: State) -> Tensor:
        """Return the memories side by side."""
        return torch.cat([part.begin(state) for part in self._parts()], 1)

    def fit_scalers(self, state: State, u: Tensor) -> None:
        """Fit what each part looks through to states and controls."""
        for part in self._parts():
            part.fit_scalers(state, u)

    def forward(self, state: State, u: Tensor, memory: Tensor) -> Correction:
        """Return the sum of what the parts say; of controls that are replaced, the last."""
        control, torque, start = None, None, 0
        wrenches: dict[str, Tensor] = {}
        friction: dict[str, Tensor] = {}
        memories = []
        for part in self._parts():
            size = part.begin(state).shape[1]
            mine, start = memory[:, start : start + size], start + size
            found = part(state, u if control is None else control, mine)
            control = control if found.control is None else found.control
            if found.torque is not None:
                torque = found.torque if torque is None else torque + found.torque
            for link, wrench in found.wrenches.items():
                wrenches[link] = wrenches[link] + wrench if link in wrenches else wrench
            friction |= found.friction
            memories.append(mine if found.memory is None else found.memory)
        return Correction(control, torque, wrenches, friction, torch.cat(memories, 1))

    def _parts(self) -> list[Any]:
        return list(self.parts)


class JointTorque(ScaledResidual):
    """Forces at joints as a function of their coordinates and velocities.

    A network sees all joints; with `local` one network each sees its own joint only, and without `positions` velocities
    only, with `odd` so that forces turn round as velocities do: all of it takes less data where what is missing is
    friction or drag. Each velocity v is seen twice, the second time
    as tanh(v / (`creep` times its usual size)), because friction turns within a narrow range about rest. `scale`
    [N·m, N], a number or (nv,), is the size of what is expected. With `motors` forces are added to the controls of
    joints that are all driven by `pb.Torque()`: held over the step as these are, which is more exact.
    """

    scale: Tensor

    def __init__(
        self,
        sim: Sim,
        hidden: Sequence[int] = (32, 32),
        *,
        scale: float | Tensor = 1.0,
        local: bool = False,
        positions: bool = True,
        odd: bool = False,
        motors: bool = False,
        creep: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if local and sim.nq != sim.nv:
            raise PullbackError("local=True is for joints with one coordinate each; leave it out")
        if not creep > 0.0:
            raise PullbackError(f"creep is {creep!r}; give a fraction of the usual velocities, above 0")
        if motors and (sim.nu != sim.nv or any(type(x) is not Torque for x in sim.world.actuators)):
            raise PullbackError("motors=True is for joints that pb.Torque() drives, all of them; leave it out")
        if odd and positions:
            raise PullbackError("odd=True is for forces that depend on velocities alone; give positions=False too")
        self.motors, self.odd = motors, odd
        nq, nv = (sim.nq if positions else 0), sim.nv
        self.positions, self.creep, self.nv = positions, creep, nv
        self.scaler = Scaler(nq + nv, sim.dtype)
        if local:
            inputs = 3 if positions else 2
            networks = [layers(inputs, hidden, 1, seed=seed + k, dtype=sim.dtype) for k in range(nv)]
            self.network: nn.Module = nn.ModuleList(networks)
        else:
            self.network = layers(nq + 2 * nv, hidden, nv, seed=seed, dtype=sim.dtype)
        self.register_buffer("scale", torch.as_tensor(scale, dtype=sim.dtype).expand(nv).clone())
        self.to(sim.device)

    def look(self, state: State, u: Tensor) -> Tensor:
        """Return what the scaler is fitted to (B, n)."""
        return torch.cat([state.q, state.qd], 1) if self.positions else state.qd

    def forward(self, state: State, u: Tensor, memory: Tensor) -> Correction:
        """Return the forces."""
        found = self._answer(state.qd, self.scaler(self.look(state, u)))
        if self.odd:
            found = 0.5 * (found - self._answer(-state.qd, self.scaler(-self.look(state, u))))
        force = self.scale * found
        return Correction(control=u + force) if self.motors else Correction(torque=force)

    def _answer(self, qd: Tensor, x: Tensor) -> Tensor:
        """Return what the network says of velocities, scaled numbers x beside them."""
        # about rest, not about the mean velocity
        x = torch.cat([x, torch.tanh(qd / (self.creep * self.scaler.deviation[-self.nv :]))], 1)
        if not isinstance(self.network, nn.ModuleList):
            return self.network(x)
        columns = x.view(len(x), -1, self.nv)
        return torch.cat([network(columns[:, :, k]) for k, network in enumerate(self.network)], 1)


class LinkWrench(ScaledResidual):
    """A wrench on a link as a function of its place and velocity: drag, a cable, a spring that nobody described."""

    def __init__(
        self, sim: Sim, link: str, hidden: Sequence[int] = (32, 32), *, scale: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__()
        self.link = link
        self._sim = [sim]
        self.scaler = Scaler(13, sim.dtype)
        self.network = layers(13, hidden, 6, seed=seed, dtype=sim.dtype)
        self.size = scale
        self.to(sim.device)

    def look(self, state: State, u: Tensor) -> Tensor:
        """Return position, orientation, linear and angular velocity of the link (B, 13)."""
        sim = self._sim[0]
        position, quat = sim.link_poses(state, [self.link])
        linear, angular = sim.link_velocities(state, [self.link])
        return torch.cat([position, quat, linear, angular], 2)[:, 0]

    def forward(self, state: State, u: Tensor, memory: Tensor) -> Correction:
        """Return the wrench."""
        return Correction(wrenches={self.link: self.size * self.network(self.scaler(self.look(state, u)))})


class LinkForce(ScaledResidual):
    """A force on a point of a link as a function of that point's position and velocity: a cable, a spring, drag.

    Where the point is in the link is learned too, from the link's origin on. With a linear part beside the network
    this takes far less data than `LinkWrench`, which has to find out that orientation does not matter. `scale` [N] is
    the size of what is expected, `reach` [m] how far from the origin the point may be.
    """

    def __init__(
        self, sim: Sim, link: str, hidden: Sequence[int] = (24, 24), *, scale: float = 1.0, reach: float = 0.1,
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.link, self.size, self.reach = link, scale, reach
        self._sim = [sim]
        self.scaler = Scaler(6, sim.dtype)
        self.network = layers(6, hidden, 3, seed=seed, dtype=sim.dtype)
        self.linear = layers(6, (), 3, seed=seed, dtype=sim.dtype)
        self.offset = nn.Parameter(torch.zeros(3, dtype=sim.dtype))
        self.to(sim.device)

    @property
    def point(self) -> Tensor:
        """Where the force acts (3,) [m], in the link's frame."""
        return self.reach * self.offset

    def look(self, state: State, u: Tensor) -> Tensor:
        """Return position and velocity of the point (B, 6)."""
        return self._at_point(state)[0]

    def forward(self, state: State, u: Tensor, memory: Tensor) -> Correction:
        """Return the force, and its torque about the link's origin."""
        seen, arm = self._at_point(state)
        x = self.scaler(seen)
        force = self.size * (self.network(x) + self.linear(x))
        return Correction(wrenches={self.link: torch.cat([torch.linalg.cross(arm, force), force], 1)})

    def _at_point(self, state: State) -> tuple[Tensor, Tensor]:
        """Return position and velocity of the point (B, 6), and the way to it from the link's origin (B, 3)."""
        position, quat = self._sim[0].link_poses(state, [self.link])
        linear, angular = self._sim[0].link_velocities(state, [self.link])
        arm = rotate(quat[:, 0], self.point.expand(len(quat), 3))
        return torch.cat([position[:, 0] + arm, linear[:, 0] + torch.linalg.cross(angular[:, 0], arm)], 1), arm


class ShapeFriction(ScaledResidual):
    """The friction of a shape as a function of a link's velocity: it may fall with speed, or differ by direction."""

    def __init__(
        self, sim: Sim, shape: str, link: str, hidden: Sequence[int] = (16,), *, start: float = 0.5, seed: int = 0
    ) -> None:
        super().__init__()
        self.shape, self.link, self.start = shape, link, start
        self._sim = [sim]
        self.scaler = Scaler(6, sim.dtype)
        self.network = layers(6, hidden, 1, seed=seed, dtype=sim.dtype)
        self.to(sim.device)

    def look(self, state: State, u: Tensor) -> Tensor:
        """Return linear and angular velocity of the link (B, 6)."""
        linear, angular = self._sim[0].link_velocities(state, [self.link])
        return torch.cat([linear, angular], 2)[:, 0]

    def forward(self, state: State, u: Tensor, memory: Tensor) -> Correction:
        """Return the coefficient, `start` times a positive factor."""
        factor = self.network(self.scaler(self.look(state, u)))[:, 0].exp()
        return Correction(friction={self.shape: self.start * factor})


class ActuatorNetwork(ScaledResidual):
    """Controls as motors really act on them: one number each is remembered, the command that has arrived.

    A gate g in (0, 1) lets the command u in, c' = c + g (u - c) + r, where r is what else happens, and the servo
    follows c' - h (c' - c) over the step, between the two. g, r and h are a network's, of (u - c, c - q, qd); one
    network serves all motors. Commands are targets of joints, each driven by one motor.
    """

    coordinate: Tensor
    rate: Tensor

    def __init__(self, sim: Sim, hidden: Sequence[int] = (16,), *, scale: float = 0.005, seed: int = 0) -> None:
        super().__init__()
        places = [_driven(sim, name) for name in sim.world.actuator_names]
        self.register_buffer("coordinate", torch.tensor([q for q, _ in places]))
        self.register_buffer("rate", torch.tensor([v for _, v in places]))
        self.scaler = Scaler(3, sim.dtype)
        self.network = layers(3, hidden, 3, seed=seed, dtype=sim.dtype)
        self.size = scale
        self.to(sim.device)

    def begin(self, state: State) -> Tensor:
        """Return commands that hold the joints where they are."""
        return state.q[:, self.coordinate]

    def look(self, state: State, u: Tensor, memory: Tensor | None = None) -> Tensor:
        """Return how far the command is ahead, how far what has arrived is ahead of the joint, and its rate."""
        q, qd = state.q[:, self.coordinate], state.qd[:, self.rate]
        arrived = u if memory is None else memory
        return torch.stack([u - (q if memory is None else memory), arrived - q, qd], -1).reshape(-1, 3)

    def forward(self, state: State, u: Tensor, memory: Tensor) -> Correction:
        """Return the commands that have arrived, which the physics' own servos follow."""
        gate, rest, between = self.network(self.scaler(self.look(state, u, memory))).view(*u.shape, 3).unbind(-1)
        # half open at the start: a gate that is open already hardly feels whether it should close
        arrived = memory + torch.sigmoid(5.0 * gate) * (u - memory) + self.size * rest
        return Correction(control=arrived - between * (arrived - memory), memory=arrived)


def _driven(sim: Sim, actuator: str) -> tuple[int, int]:
    """Return the coordinate and the velocity that an actuator `robot/joint` drives."""
    q_start = v_start = 0
    for name, robot in sim.world.robots.items():
        joint = actuator.removeprefix(f"{name}/")
        if joint != actuator and joint in robot.model.q_start:
            return q_start + robot.model.q_start[joint], v_start + robot.model.v_start[joint]
        q_start, v_start = q_start + robot.nq, v_start + robot.nv
    raise PullbackError(f"{actuator!r} drives no single joint, which an actuator network needs; write a Residual")

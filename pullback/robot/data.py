"""Motions of a robot as data to learn from: joint positions, velocities, accelerations and forces, and a loss.

A sine motion prescribes the joints and asks inverse dynamics for the forces; a random-torque motion prescribes the
forces and asks forward dynamics for the motion. What was asked for is what a sensor would measure: noise goes there.
"""

from __future__ import annotations

from math import pi
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import torch
from torch import nn
from torch.utils.data import Dataset

from pullback.core.errors import PullbackError
from pullback.description.joints import KINDS
from pullback.robot.model import Gravity, RobotModel
from pullback.spatial.rotations_torch import conjugate, quaternion_from_vector, rotate

if TYPE_CHECKING:
    from typing_extensions import Unpack

Tensor = torch.Tensor

# a motion keeps to this share of a joint's range
SHARE_OF_RANGE = 0.9


class MotionTerms(TypedDict, total=False):
    """What acts on the robot besides its joint forces: the arguments of `compute_inverse_dynamics`."""

    include_gravity: bool
    use_damping: bool
    use_friction: bool
    gravity: Gravity | None


class Sample(NamedTuple):
    """One state of a motion, or many: q (*, nq), and qd, qdd, tau (*, nv)."""

    q: Tensor
    qd: Tensor
    qdd: Tensor
    tau: Tensor


class MotionData(Dataset[Sample]):
    """States of a motion, q (N, *batch, nq) and qd, qdd, tau (N, *batch, nv), as a torch dataset of N samples."""

    def __init__(self, q: Tensor, qd: Tensor, qdd: Tensor, tau: Tensor) -> None:
        if not len(q) == len(qd) == len(qdd) == len(tau):
            raise PullbackError(
                f"q, qd, qdd and tau have {len(q)}, {len(qd)}, {len(qdd)} and {len(tau)} samples; give the same number"
            )
        self.q, self.qd, self.qdd, self.tau = q, qd, qdd, tau

    def __len__(self) -> int:
        return len(self.q)

    def __getitem__(self, index: int | slice | Tensor) -> Sample:
        return Sample(self.q[index], self.qd[index], self.qdd[index], self.tau[index])

    def __repr__(self) -> str:
        return f"MotionData({len(self)} samples, q {tuple(self.q.shape)}, qd {tuple(self.qd.shape)})"

    def split(self, fraction: float, *, generator: torch.Generator | None = None) -> tuple[MotionData, MotionData]:
        """Return a random `fraction` of the samples, and the others."""
        first = round(fraction * len(self))
        if not 0 < first < len(self):
            raise PullbackError(
                f"split({fraction}) of {len(self)} samples leaves {first} and {len(self) - first}; both parts need some"
            )
        order = torch.randperm(len(self), generator=generator).to(self.q.device)
        return MotionData(*self[order[:first]]), MotionData(*self[order[first:]])


class NMSELoss(nn.Module):
    """Mean squared error in units of the data's variance, output by output: 1 is as good as guessing the mean.

    `variance` (n,) is that of the target, `data.tau.var(0)` for instance; a zero in it is an error.
    """

    variance: Tensor

    def __init__(self, variance: Tensor) -> None:
        super().__init__()
        constant = (~(variance.flatten() > 0.0)).nonzero().flatten().tolist()
        if constant:
            raise PullbackError(
                f"the variance of output {', '.join(map(str, constant))} is zero or not a number: the data never "
                f"changes there, or is a single sample; leave those outputs out, or record a motion that changes them"
            )
        self.register_buffer("variance", variance.detach().clone())

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Return the loss, a scalar, of predictions and targets (*batch, n)."""
        return ((prediction - target).square() / self.variance).mean()


@torch.no_grad()
def sine_motion(
    robot: RobotModel,
    *,
    samples: int,
    dt: float = 1 / 250,
    frequency: float = 0.5,
    amplitude: float = 1.0,
    batch: int | None = None,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
    **terms: Unpack[MotionTerms],
) -> MotionData:
    """Move every joint as a sine about the middle of its range, and record the forces of inverse dynamics.

    Each degree of freedom has its own phase, and a frequency between half and three halves of `frequency` [Hz]; it
    swings by `amplitude` [rad or m], or by less where its limits ask for that. A ball turns about an axis that is
    drawn, a floating base also moves along one. With `batch` every robot of a batch has a motion of its own and
    tensors are (samples, batch, n). `noise` is the standard deviation of what is added to tau, in units of tau's own.
    `terms` go to `compute_inverse_dynamics`.
    """
    _check(samples=samples, dt=dt, frequency=frequency, amplitude=amplitude)
    shape = (robot.nv,) if batch is None else (batch, robot.nv)
    rate = 2.0 * pi * frequency * (0.5 + _uniform(robot, shape, generator))
    phase = 2.0 * pi * _uniform(robot, shape, generator)
    time = (dt * torch.arange(samples, dtype=robot.dtype, device=robot.device)).reshape(-1, *[1] * len(shape))
    centre, reach = swing(robot, amplitude)
    angle = rate * time + phase
    derivatives = (reach * angle.sin(), reach * rate * angle.cos(), -reach * rate**2 * angle.sin())
    q, qd, qdd = _on_manifold(robot, centre, derivatives, generator)
    tau = robot.compute_inverse_dynamics(q, qd, qdd, **terms)
    return MotionData(q, qd, qdd, _with_noise(tau, noise, generator))


@torch.no_grad()
def random_torque_motion(
    robot: RobotModel,
    *,
    samples: int,
    dt: float = 1 / 250,
    hold: float = 0.25,
    frequency: float = 1.0,
    amplitude: float = 1.0,
    trajectories: int = 4,
    batch: int | None = None,
    noise: float = 0.0,
    generator: torch.Generator | None = None,
    **terms: Unpack[MotionTerms],
) -> MotionData:
    """Drive the robot with random joint forces, and record the accelerations of forward dynamics.

    The forces are those of a random acceleration, drawn anew every `hold` seconds, and of a critically damped pull of
    `frequency` [Hz] towards the middle of the range. Such a pull answers a bounded push by a bounded displacement, so
    joints stay within `amplitude` [rad or m] of the middle, or closer where their limits ask for that. The push is
    weakened where effort limits ask for that; the pull is not. `trajectories` start from rest at random places and are
    stepped semi-implicitly side by side. With `batch` every robot of a batch has a motion of its own and tensors are
    (samples, batch, n). `noise` is the standard deviation of what is added to qdd, in units of qdd's own. `terms` go
    to both dynamics.
    """
    _check(samples=samples, dt=dt, frequency=frequency, amplitude=amplitude, hold=hold, trajectories=trajectories)
    trajectories = min(trajectories, samples)
    shape = (trajectories, robot.nv) if batch is None else (trajectories, batch, robot.nv)
    centre, reach = swing(robot, amplitude)
    effort = robot.neutral().new_tensor([limit["effort"] for limit in robot.get_joint_limits()])
    stiffness = (2.0 * pi * frequency) ** 2
    # displacement from the middle: at most 0.4 of the reach by the start, and 0.6 by the push
    start = centre + 0.4 * reach * _signed(robot, shape, generator)
    q = robot.integrate(robot.neutral(*shape[:-1]), start)
    qd = push = torch.zeros(shape).to(q)
    states = []
    for step in range(-(-samples // trajectories)):
        if step % max(1, round(hold / dt)) == 0:
            push = 0.6 * stiffness * reach * _signed(robot, shape, generator)
        pull = stiffness * _displacement(robot, q, centre) + 2.0 * stiffness**0.5 * qd
        tau = _within(
            effort,
            robot.compute_inverse_dynamics(q, qd, -pull, **terms),
            robot.compute_inverse_dynamics(q, qd, push - pull, **terms),
        )
        qdd = robot.compute_forward_dynamics(q, qd, tau, **terms)
        states.append((q, qd, qdd, tau))
        qd = qd + dt * qdd
        q = robot.integrate(q, dt * qd)
    q, qd, qdd, tau = (torch.stack(x, 1).flatten(0, 1)[:samples] for x in zip(*states))
    return MotionData(q, qd, _with_noise(qdd, noise, generator), tau)


def swing(robot: RobotModel, amplitude: float) -> tuple[Tensor, Tensor]:
    """Return the middle of each degree of freedom's range and how far it may swing from there, (nv,) each.

    Where there is no limit on one side the middle is zero, or as close to zero as the other limit allows.
    """
    limits = robot.get_joint_limits()
    lower, upper = (torch.tensor([limit[end] for limit in limits], dtype=torch.float64) for end in ("lower", "upper"))
    reach = (0.5 * SHARE_OF_RANGE * (upper - lower)).clamp(max=amplitude)
    middle = torch.zeros_like(reach).clamp(lower + reach, upper - reach)
    both = lower.isfinite() & upper.isfinite()
    middle = torch.where(both, 0.5 * (lower + upper), middle)
    return middle.to(robot.neutral()), reach.to(robot.neutral())


def _on_manifold(
    robot: RobotModel, centre: Tensor, derivatives: tuple[Tensor, Tensor, Tensor], generator: torch.Generator | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn displacements (*, nv) from the middle and their two derivatives into q, qd and qdd.

    A ball's first displacement turns it about one drawn axis, and a floating base moves by its last three in the world:
    with R its rotation and ω its angular velocity, v = Rᵀ ṗ and v̇ = Rᵀ p̈ - ω × v.
    """
    pieces: list[tuple[Tensor, Tensor, Tensor]] = []
    for body in robot.model.independent_bodies():
        start, kind = robot.model.v_start[body.joint.name], KINDS[body.kind]
        s, sd, sdd = (x[..., start : start + kind.nv] for x in derivatives)
        if not kind.turns:
            pieces.append((centre[start : start + kind.nv] + s, sd, sdd))
            continue
        axis = torch.randn(3, dtype=s.dtype, generator=generator).to(s.device)
        axis = axis / torch.linalg.vector_norm(axis)
        quat, omega, alpha = quaternion_from_vector(s[..., :1] * axis), sd[..., :1] * axis, sdd[..., :1] * axis
        if not kind.travels:
            pieces.append((quat, omega, alpha))
            continue
        v = rotate(conjugate(quat), sd[..., 3:])
        v_dot = rotate(conjugate(quat), sdd[..., 3:]) - torch.linalg.cross(omega, v)
        pieces.append((torch.cat([s[..., 3:], quat], -1), torch.cat([omega, v], -1), torch.cat([alpha, v_dot], -1)))
    q, qd, qdd = (torch.cat(x, -1) for x in zip(*pieces))
    return q, qd, qdd


def _displacement(robot: RobotModel, q: Tensor, centre: Tensor) -> Tensor:
    """Return how far q (*, nq) is from the middle, (*, nv): on a floating base in the base's own axes."""
    return robot.manifold.difference(robot.integrate(robot.neutral(), centre), q)


def _within(effort: Tensor, least: Tensor, full: Tensor) -> Tensor:
    """Return the forces on the way from `least` to `full` that are the last within +-effort, `least` if none is."""
    change = full - least
    room = torch.where(change > 0.0, effort - least, effort + least) / change.abs().clamp(min=1e-12)
    return least + room.amin(-1, keepdim=True).clamp(0.0, 1.0) * change


def _uniform(robot: RobotModel, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    return torch.rand(shape, dtype=robot.dtype, generator=generator).to(robot.device)


def _signed(robot: RobotModel, shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    return 2.0 * _uniform(robot, shape, generator) - 1.0


def _with_noise(x: Tensor, noise: float, generator: torch.Generator | None) -> Tensor:
    if noise == 0.0:
        return x
    drawn = torch.randn(x.shape, dtype=x.dtype, generator=generator).to(x.device)
    return x + noise * x.std(0) * drawn


def _check(**numbers: float) -> None:
    for name, value in numbers.items():
        if not value > 0:
            raise PullbackError(f"{name} is {value}; give a number above zero")

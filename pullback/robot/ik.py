"""Inverse kinematics: Levenberg-Marquardt on the analytic Jacobian, for many targets and many restarts at once.

Each try moves q along (JᵀJ + λ) dq = Jᵀ e, e the error of position and orientation, and is kept if the error falls; λ
adapts for each try on its own. Joints are held at their limits, and a joint that would leave is taken out of the step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch

from pullback.core.errors import PullbackError
from pullback.core.finite import refuse_not_finite
from pullback.description.joints import KINDS
from pullback.robot.model import RobotModel
from pullback.spatial.rotations_torch import conjugate, quaternion_product, vector_from_quaternion

Tensor = torch.Tensor


@dataclass
class IKResult:
    """The best try for each target: q (*batch, nq), whether it reached it, and its errors [m], [rad] (*batch,)."""

    q: Tensor
    reached: Tensor
    position_error: Tensor
    rotation_error: Tensor

    def __str__(self) -> str:
        """Say how many targets were reached, and name those that were not."""
        missed = (~self.reached).flatten().nonzero().flatten().tolist()
        text = f"{int(self.reached.sum())} of {self.reached.numel()} targets reached"
        return text if not missed else f"{text}; not reached: {missed[:20]}{' ...' if len(missed) > 20 else ''}"


@torch.no_grad()
def inverse_kinematics(
    robot: RobotModel,
    link: str,
    position: Tensor,
    quaternion: Tensor | None = None,
    *,
    q0: Tensor | None = None,
    restarts: int = 16,
    iterations: int = 60,
    position_tolerance: float = 1e-4,
    rotation_tolerance: float = 1e-3,
    rotation_weight: float = 0.3,
    generator: torch.Generator | None = None,
) -> IKResult:
    """Find q that brings a link's frame to a position [m] (*batch, 3) and, if given, an orientation xyzw (*batch, 4).

    Tries start from `q0` (nq,) or (*batch, nq), by default the middle of the joints' ranges, and from `restarts` - 1
    random poses within the limits. `rotation_weight` [m/rad] weighs orientation against position on the way there;
    the tolerances [m], [rad] say what counts as reached. The result carries no gradient: differentiate forward
    kinematics at the solution instead.
    """
    batch, targets, quats = _targets(robot, position, quaternion)
    lower, upper = _limits(robot)
    q = _starts(robot, targets.shape[0], batch, q0, restarts, lower, upper, generator)
    targets = targets.repeat_interleave(restarts, 0)
    quats = None if quats is None else quats.repeat_interleave(restarts, 0)
    tolerance = torch.tensor([position_tolerance, rotation_tolerance], dtype=robot.dtype, device=robot.device)
    damping = q.new_full((q.shape[0], 1), 1e-2)
    error = _error(robot, link, q, targets, quats)
    for _ in range(iterations):
        if bool(_reached(error, tolerance).view(-1, restarts).any(1).all()):
            break
        dq = _step(robot, link, q, error, damping, lower, upper, rotation_weight)
        tried = _clamp(robot, robot.integrate(q, dq), lower, upper)
        tried_error = _error(robot, link, tried, targets, quats)
        better = _cost(tried_error, rotation_weight) < _cost(error, rotation_weight)
        q = torch.where(better, tried, q)
        error = torch.where(better, tried_error, error)
        damping = torch.where(better, damping * 0.2, damping * 4.0).clamp(1e-9, 1e6)
    return _best(robot, q, error, tolerance, restarts, rotation_weight, batch)


def _targets(
    robot: RobotModel, position: Tensor, quaternion: Tensor | None
) -> tuple[torch.Size, Tensor, Tensor | None]:
    """Check and flatten the targets to (N, 3) and (N, 4)."""
    for name, x, n in (("position", position, 3), ("quaternion", quaternion, 4)):
        if x is not None and not isinstance(x, Tensor):
            raise PullbackError(f"{name} is a {type(x).__name__}; expected a torch tensor of shape (*batch, {n})")
        if x is not None and (x.shape[-1:] != (n,) or x.dtype != robot.dtype or x.device != robot.device):
            raise PullbackError(
                f"{name} is {tuple(x.shape)} {x.dtype} on {x.device}; "
                f"expected (*batch, {n}) {robot.dtype} on {robot.device}"
            )
    refuse_not_finite("position", position.reshape(-1, 3))
    if quaternion is None:
        return position.shape[:-1], position.reshape(-1, 3), quaternion
    refuse_not_finite("quaternion", quaternion.reshape(-1, 4))
    if bool((quaternion == 0.0).all(-1).any()):
        raise PullbackError("quaternion: one of them is zero, which is no orientation; give xyzw of any other length")
    batch = _broadcast(position=position.shape[:-1], quaternion=quaternion.shape[:-1])
    unit: Tensor = quaternion / torch.linalg.vector_norm(quaternion, dim=-1, keepdim=True)
    return batch, position.expand(*batch, 3).reshape(-1, 3), unit.expand(*batch, 4).reshape(-1, 4)


def _broadcast(**shapes: torch.Size) -> torch.Size:
    """Return the common batch, or say which batches do not fit."""
    try:
        return torch.broadcast_shapes(*shapes.values())
    except RuntimeError as error:
        pairs = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise PullbackError(f"batch dimensions do not broadcast: {pairs}") from error


def _limits(robot: RobotModel) -> tuple[Tensor, Tensor]:
    """Return lower and upper limits of each velocity's coordinate, (nv,)."""
    limits = robot.get_joint_limits()
    rows = ([x["lower"] for x in limits], [x["upper"] for x in limits])
    lower, upper = (torch.tensor(row, dtype=robot.dtype, device=robot.device) for row in rows)
    return lower, upper


def _starts(
    robot: RobotModel,
    targets: int,
    batch: torch.Size,
    q0: Tensor | None,
    restarts: int,
    lower: Tensor,
    upper: Tensor,
    generator: torch.Generator | None,
) -> Tensor:
    """Return the first poses of all tries, (targets * restarts, nq)."""
    if restarts < 1:
        raise PullbackError(f"restarts is {restarts}; give at least 1")
    q = robot.random_q(targets, restarts, generator=generator)
    if q0 is None:
        middle = torch.where((lower > -inf) & (upper < inf), 0.5 * (lower + upper), torch.zeros_like(lower))
        q0 = robot.integrate(robot.neutral(), middle)
    if q0.shape[-1:] != (robot.nq,) or q0.dtype != robot.dtype or q0.device != robot.device:
        raise PullbackError(
            f"q0 has shape {tuple(q0.shape)}, {q0.dtype} on {q0.device}; "
            f"expected (*batch, {robot.nq}) {robot.dtype} on {robot.device}"
        )
    if _broadcast(targets=batch, q0=q0.shape[:-1]) != batch:
        raise PullbackError(
            f"q0 has batch {tuple(q0.shape[:-1])}, the targets {tuple(batch)}; give one start or one each"
        )
    q[:, 0] = q0 if q0.ndim == 1 else q0.expand(*batch, robot.nq).reshape(targets, robot.nq)
    return _clamp(robot, q.reshape(-1, robot.nq), lower, upper)


def _error(robot: RobotModel, link: str, q: Tensor, position: Tensor, quaternion: Tensor | None) -> Tensor:
    """Return position error [m] and, for poses, rotation error [rad] in world axes, (N, 3 or 6)."""
    p, quat = robot.compute_forward_kinematics(q, link)
    if quaternion is None:
        return position - p
    return torch.cat([position - p, vector_from_quaternion(quaternion_product(quaternion, conjugate(quat)))], -1)


def _weighted(x: Tensor, rotation_weight: float, dim: int) -> Tensor:
    """Scale the rotation rows, the fourth to sixth along `dim`, where there are any."""
    position, rotation = x.split([3, x.shape[dim] - 3], dim)
    return torch.cat([position, rotation_weight * rotation], dim)


def _cost(error: Tensor, rotation_weight: float) -> Tensor:
    return _weighted(error, rotation_weight, -1).square().sum(-1, keepdim=True)


def _step(
    robot: RobotModel,
    link: str,
    q: Tensor,
    error: Tensor,
    damping: Tensor,
    lower: Tensor,
    upper: Tensor,
    rotation_weight: float,
) -> Tensor:
    """Solve for the displacement (N, nv), twice: the second time without the joints that a limit holds back."""
    linear, angular = robot.compute_endeffector_jacobian(q, link)
    jacobian = linear if error.shape[-1] == 3 else torch.cat([linear, rotation_weight * angular], -2)
    residual = _weighted(error, rotation_weight, -1)
    here = _velocity_coordinates(robot, q)
    free = torch.ones_like(here)
    dq = torch.zeros_like(here)
    for _ in range(2):
        J = jacobian * free[:, None, :]
        gradient = (J.mT @ residual[..., None])[..., 0]
        normal = J.mT @ J
        # damping relative to the size of the problem, so that metres and radians need no tuning
        scale = damping * (normal.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True) + 1e-9)
        normal = normal + torch.diag_embed(scale.expand_as(here) + (1.0 - free))
        dq = torch.linalg.solve(normal, gradient) * free
        held = ((here >= upper) & (dq > 0)) | ((here <= lower) & (dq < 0))
        free = free * ~held
    return dq


def _velocity_coordinates(robot: RobotModel, q: Tensor) -> Tensor:
    """Return the coordinate of each velocity, (N, nv): those of one-dof joints; 0 for balls and free bodies."""
    out = q.new_zeros(q.shape[0], robot.nv)
    model = robot.model
    for body in model.independent_bodies():
        if KINDS[body.kind].nv == 1:
            name = body.joint.name
            out[:, model.v_start[name]] = q[:, model.q_start[name]]
    return out


def _clamp(robot: RobotModel, q: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Hold one-dof joints within their limits."""
    q = q.clone()
    model = robot.model
    for body in model.independent_bodies():
        if KINDS[body.kind].nv == 1:
            k, v = model.q_start[body.joint.name], model.v_start[body.joint.name]
            q[:, k] = q[:, k].clamp(lower[v], upper[v])
    return q


def _norms(error: Tensor) -> Tensor:
    """Return position and rotation errors [m], [rad], (N, 2); rotation is 0 where it was not asked for."""
    position, rotation = error.split([3, error.shape[-1] - 3], -1)
    return torch.stack([torch.linalg.vector_norm(x, dim=-1) for x in (position, rotation)], -1)


def _reached(error: Tensor, tolerance: Tensor) -> Tensor:
    return (_norms(error) <= tolerance).all(-1)


def _best(
    robot: RobotModel,
    q: Tensor,
    error: Tensor,
    tolerance: Tensor,
    restarts: int,
    rotation_weight: float,
    batch: torch.Size,
) -> IKResult:
    """Pick the try with the smallest error for each target, one that reached it before any other."""
    cost = _cost(error, rotation_weight)[:, 0] + torch.where(_reached(error, tolerance), 0.0, 1e6)
    choice = cost.view(-1, restarts).argmin(1)
    rows = torch.arange(choice.shape[0], device=q.device) * restarts + choice
    norms = _norms(error[rows])
    return IKResult(
        q[rows].reshape(*batch, robot.nq),
        _reached(error[rows], tolerance).reshape(batch),
        norms[:, 0].reshape(batch),
        norms[:, 1].reshape(batch),
    )

"""Modules that hold a learnable link parameter and keep it physical by construction.

Each is called without arguments and returns the parameter's value, for one robot or, with a leading dimension, for
each robot of a batch. One built without a value takes over the link's present value when it is put in place.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pullback.core.errors import PullbackError

Tensor = torch.Tensor


class Parametrization(nn.Module):
    """A link parameter as a function of one raw tensor, `self.raw`, that an optimiser may move anywhere.

    `dimensions` is how many the parameter must have: 0 a number, 2 a matrix, None any.
    """

    dimensions: int | None = None

    def __init__(self, value: Any = None) -> None:
        super().__init__()
        self.raw: nn.Parameter | nn.UninitializedParameter = nn.UninitializedParameter()
        if value is not None:
            self.set_value(value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.get_default_dtype()))

    @property
    def has_value(self) -> bool:
        """Whether a value was given yet."""
        return not isinstance(self.raw, nn.UninitializedParameter)

    def set_value(self, value: Tensor) -> None:
        """Set the raw tensor so that calling the module returns `value`."""
        self.raw = nn.Parameter(self.inverse(value.detach().clone()))

    def inverse(self, value: Tensor) -> Tensor:
        """Return the raw tensor that gives `value`."""
        raise NotImplementedError

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        saved = state_dict.get(prefix + "raw")
        if saved is not None and (not self.has_value or self.raw.shape != saved.shape):
            self.raw = nn.Parameter(torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)


class UnconstrainedTensor(Parametrization):
    """Any tensor: a centre of mass, a joint's place."""

    def inverse(self, value: Tensor) -> Tensor:
        """Return the value itself."""
        return value

    def forward(self) -> Tensor:
        """Return the value."""
        return self.raw


class PositiveScalar(Parametrization):
    """A number above `minimum`: a mass, a damping; `minimum` + exp(raw)."""

    dimensions = 0

    def __init__(self, value: Any = None, *, minimum: float = 0.0) -> None:
        self.minimum = minimum
        super().__init__(value)

    def inverse(self, value: Tensor) -> Tensor:
        """Return the logarithm of what lies above the minimum."""
        if bool((value <= self.minimum).any()):
            raise PullbackError(
                f"PositiveScalar starts from a value above {self.minimum}, got {value.min().item():g}; give one, "
                f"for example PositiveScalar(0.1), or use UnconstrainedTensor()"
            )
        return (value - self.minimum).log()

    def forward(self) -> Tensor:
        """Return the value."""
        return self.minimum + self.raw.exp()


class SymmetricPositiveDefinite(Parametrization):
    """A symmetric positive definite matrix through its Cholesky factor, the factor's diagonal through its logarithm."""

    dimensions = 2

    def inverse(self, value: Tensor) -> Tensor:
        """Return the Cholesky factor, its diagonal replaced by logarithms."""
        factor, failed = torch.linalg.cholesky_ex(value)
        if bool(failed.any()):
            eigenvalues = ", ".join(f"{x:.3g}" for x in torch.linalg.eigvalsh(value).flatten().tolist())
            kind = type(self).__name__
            raise PullbackError(f"{kind} starts from a positive definite matrix; eigenvalues: {eigenvalues}")
        diagonal = factor.diagonal(dim1=-2, dim2=-1)
        return factor.tril(-1) + torch.diag_embed(diagonal.log())

    def forward(self) -> Tensor:
        """Return the matrix."""
        factor = self.raw.tril(-1) + torch.diag_embed(self.raw.diagonal(dim1=-2, dim2=-1).exp())
        return factor @ factor.mT


class PhysicalInertia(SymmetricPositiveDefinite):
    """Mass, centre of mass and inertia at once, for the parameter "inertial": log-Cholesky of the 4x4 pseudo-inertia.

    Positive mass, positive principal moments and the triangle inequality among them hold whatever the raw tensor is
    (Rucker and Wensing 2022). It also fits "inertia_mat" alone, as the 3x3 block.
    """

    def inverse(self, value: Tensor) -> Tensor:
        """Return the raw factor for a 4x4 pseudo-inertia or a 3x3 inertia about the centre of mass."""
        return super().inverse(second_moment(value) if value.shape[-1] == 3 else value)

    def forward(self) -> Tensor:
        """Return the pseudo-inertia (4x4), or the inertia about the centre of mass (3x3)."""
        value = super().forward()
        return inertia_from_second_moment(value) if value.shape[-1] == 3 else value


def second_moment(inertia: Tensor) -> Tensor:
    """Return the second moment of mass tr(I)/2 - I of rotational inertias (*, 3, 3)."""
    half_trace = 0.5 * inertia.diagonal(dim1=-2, dim2=-1).sum(-1)
    return half_trace[..., None, None] * torch.eye(3, dtype=inertia.dtype, device=inertia.device) - inertia


def inertia_from_second_moment(moment: Tensor) -> Tensor:
    """Return the rotational inertia tr(P) - P of second moments of mass (*, 3, 3)."""
    trace = moment.diagonal(dim1=-2, dim2=-1).sum(-1)
    return trace[..., None, None] * torch.eye(3, dtype=moment.dtype, device=moment.device) - moment


def pseudo_inertia(mass: Tensor, com: Tensor, inertia: Tensor) -> Tensor:
    """Return the 4x4 pseudo-inertia about the link's origin of mass (*), centre of mass (*, 3), inertia about it."""
    first = mass[..., None] * com
    about_origin = second_moment(inertia) + first[..., :, None] * com[..., None, :]
    top = torch.cat([about_origin, first[..., :, None]], -1)
    return torch.cat([top, torch.cat([first, mass[..., None]], -1)[..., None, :]], -2)


def split_pseudo_inertia(pseudo: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mass (*), centre of mass (*, 3) and inertia about it (*, 3, 3)."""
    mass = pseudo[..., 3, 3]
    com = pseudo[..., :3, 3] / mass[..., None]
    about_com = pseudo[..., :3, :3] - mass[..., None, None] * com[..., :, None] * com[..., None, :]
    return mass, com, inertia_from_second_moment(about_com)

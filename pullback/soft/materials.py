"""What particles are made of: small dataclasses whose numbers may be tensors that want a gradient."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import sqrt
from typing import Any, ClassVar

import torch

from pullback.core.errors import PullbackError
from pullback.soft.material_kernels import DRUCKER_PRAGER, FIXED_COROTATED, FLUID, NEO_HOOKEAN, VON_MISES

Tensor = torch.Tensor

MODELS = {"neo_hookean": NEO_HOOKEAN, "fixed_corotated": FIXED_COROTATED}


@dataclass(frozen=True, eq=False, kw_only=True)
class Material:
    """What all materials have; every number is one for the body, (n,) a particle each, or (B, 1), (B, n) by world.

    density: [kg/m³], of a body a metre thick in the plane; viscosity: [Pa s].
    """

    density: float | Tensor = 1000.0
    viscosity: float | Tensor = 0.0

    kind: ClassVar[int]

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, str):
                continue
            low, high, name = values_of(value, f"{type(self).__name__}.{entry.name}")
            least, most = LIMITS.get(entry.name, (0.0, float("inf")))
            if not (low > least or (least == 0.0 and low == 0.0 and entry.name in MAY_BE_ZERO)) or not high < most:
                between = f"above {least:g}" if most == float("inf") else f"between {least:g} and {most:g}"
                raise PullbackError(f"{name} is {low if not low > least else high:g}; expected a number {between}")

    def numbers(self, dim: int, like: Tensor) -> list[Tensor]:
        """Return the three numbers of the kernels."""
        raise NotImplementedError

    def stiffness(self, dim: int, like: Tensor) -> Tensor:
        """Return the stiffest modulus of small deformations [Pa], for the longest stable step."""
        raise NotImplementedError


LIMITS = {"poisson": (-1.0, 0.5), "friction_angle": (0.0, 1.5707963267948966)}
MAY_BE_ZERO = ("viscosity",)


def values_of(value: Any, name: str) -> tuple[float, float, str]:
    """Return the least and the greatest of a number's values."""
    x = torch.as_tensor(value).detach()
    if not x.is_floating_point() and x.dtype not in (torch.int32, torch.int64):
        raise PullbackError(f"{name} is {value!r}; expected a number or a tensor of numbers")
    if x.numel() == 0 or not bool(torch.isfinite(x).all()):
        raise PullbackError(f"{name} has entries that are not finite, or none")
    return float(x.min()), float(x.max()), name


@dataclass(frozen=True, eq=False, kw_only=True)
class _Stiff(Material):
    """A solid: youngs [Pa] and poisson, from which Lamé's numbers follow; plane strain in the plane."""

    youngs: float | Tensor
    poisson: float | Tensor = 0.3

    def lame(self, like: Tensor) -> tuple[Tensor, Tensor]:
        """Return mu and lambda."""
        E, nu = tensor_like(self.youngs, like), tensor_like(self.poisson, like)
        return E / (2.0 * (1.0 + nu)), E * nu / ((1.0 + nu) * (1.0 - 2.0 * nu))

    def stiffness(self, dim: int, like: Tensor) -> Tensor:
        """Return the stiffest modulus."""
        mu, lam = self.lame(like)
        return 2.0 * mu + dim * lam.clamp(min=0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Elastic(_Stiff):
    """Rubber, jelly, muscle: model "neo_hookean" or "fixed_corotated", which bears inversion."""

    model: str = "neo_hookean"

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise PullbackError(f"Elastic.model is {self.model!r}; choose from: {', '.join(MODELS)}")
        super().__post_init__()

    @property
    def kind(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the kind of the kernels."""
        return MODELS[self.model]

    def numbers(self, dim: int, like: Tensor) -> list[Tensor]:
        """Return the three numbers of the kernels."""
        mu, lam = self.lame(like)
        return [mu, lam, torch.zeros_like(mu)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Plastic(_Stiff):
    """Clay, dough: flows where the stress reaches yield_stress [Pa] (von Mises), without hardening."""

    yield_stress: float | Tensor

    kind: ClassVar[int] = VON_MISES

    def numbers(self, dim: int, like: Tensor) -> list[Tensor]:
        """Return the three numbers of the kernels."""
        mu, lam = self.lame(like)
        return [mu, lam, sqrt(2.0 / 3.0) * tensor_like(self.yield_stress, like) / (2.0 * mu)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Sand(_Stiff):
    """Dry sand: friction_angle [rad] (Drucker–Prager), no cohesion."""

    friction_angle: float | Tensor = 0.6

    kind: ClassVar[int] = DRUCKER_PRAGER

    def numbers(self, dim: int, like: Tensor) -> list[Tensor]:
        """Return the three numbers of the kernels."""
        mu, lam = self.lame(like)
        sine = torch.sin(tensor_like(self.friction_angle, like))
        # the cone through Mohr–Coulomb's corners of compression; in the plane the two agree
        alpha = sine / sqrt(2.0) if dim == 2 else sqrt(2.0 / 3.0) * 2.0 * sine / (3.0 - sine)
        return [mu, lam, alpha * (dim * lam + 2.0 * mu) / (2.0 * mu)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Fluid(Material):
    """Water, oil: weakly compressible, p = bulk/exponent (J^-exponent - 1), J the volume ratio; bulk [Pa]."""

    bulk: float | Tensor
    exponent: float | Tensor = 7.0

    kind: ClassVar[int] = FLUID

    def numbers(self, dim: int, like: Tensor) -> list[Tensor]:
        """Return the three numbers of the kernels."""
        K = tensor_like(self.bulk, like)
        return [K, tensor_like(self.exponent, like), torch.zeros_like(K)]

    def stiffness(self, dim: int, like: Tensor) -> Tensor:
        """Return the stiffest modulus."""
        return dim * tensor_like(self.bulk, like)


def tensor_like(value: Any, like: Tensor) -> Tensor:
    """Return a number or tensor on the device and in the type of another."""
    # a Python number would be rounded to float32 on its way
    given = value if isinstance(value, Tensor) else torch.as_tensor(value, dtype=torch.float64)
    return given.to(like.device, like.dtype)


def particle_numbers(material: Material, volume: Tensor, dim: int, worlds: int) -> Tensor:
    """Return the six numbers (worlds, n, 6) of a body's particles of volume (n,): mass, volume, three, viscosity."""
    shape = (worlds, len(volume))
    rows = [tensor_like(material.density, volume) * volume, volume, *material.numbers(dim, volume)]
    rows.append(tensor_like(material.viscosity, volume))
    for name, x in zip(("density", "", *["its numbers"] * 3, "viscosity"), rows):
        try:
            torch.broadcast_shapes(x.shape, shape)
        except RuntimeError:
            raise PullbackError(
                f"{type(material).__name__}: {name} of shape {tuple(x.shape)} for {shape[0]} worlds of {shape[1]} "
                f"particles; give one number, ({shape[1]},), ({shape[0]}, 1) or {shape}"
            ) from None
    return torch.stack([x.expand(shape) for x in rows], -1)

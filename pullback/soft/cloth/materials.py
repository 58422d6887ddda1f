"""What sheets and ropes are made of; numbers may be tensors that want a gradient."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch

from pullback.core.errors import PullbackError
from pullback.soft.materials import tensor_like, values_of

Tensor = torch.Tensor

MAY_BE_ZERO = ("bending", "damping", "bending_damping")


@dataclass(frozen=True, eq=False, kw_only=True)
class _Thin:
    """What fabrics and cords share; damping [s]: strains resist their rate by so much of their stiffness."""

    density: float | Tensor
    bending: float | Tensor = 0.0
    damping: float | Tensor = 0.0
    bending_damping: float | Tensor = 0.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is None:
                continue
            low, high, name = values_of(value, f"{type(self).__name__}.{entry.name}")
            least, most = (-1.0, 1.0) if entry.name == "poisson" else (0.0, float("inf"))
            zero = low == 0.0 and entry.name in MAY_BE_ZERO
            if not (low > least or zero) or not high < most:
                between = "between -1 and 1" if entry.name == "poisson" else "above 0"
                raise PullbackError(f"{name} is {low if not low > least else high:g}; expected a number {between}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Fabric(_Thin):
    """A thin sheet: St. Venant–Kirchhoff in its plane, hinges between triangles.

    youngs: stiffness in its plane [N/m], Young's modulus times thickness; with `youngs_across` that along the warp, and
    the other one along the weft; poisson: strain across for strain along the warp; shear [N/m], None: that of an
    isotropic sheet. bending: stiffness of a strip by its width [N·m], Young's modulus times thickness³/12; density
    [kg/m²]. A number is one for the sheet, (m,) one for each triangle (of `bending`: each hinge), or (B, 1), (B, m)
    where worlds differ.
    """

    youngs: float | Tensor
    youngs_across: float | Tensor | None = None
    poisson: float | Tensor = 0.3
    shear: float | Tensor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        along, across, nu = self._moduli(torch.zeros((), dtype=torch.float64))
        if bool((nu.detach() ** 2 * across.detach() >= along.detach()).any()):
            raise PullbackError(
                "Fabric: poisson² youngs_across is not less than youngs, and the sheet would gain energy by strain; "
                "give a smaller poisson"
            )

    def _moduli(self, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        along, nu = tensor_like(self.youngs, like), tensor_like(self.poisson, like)
        across = along if self.youngs_across is None else tensor_like(self.youngs_across, like)
        return along, across, nu

    def stretching(self, like: Tensor) -> list[Tensor]:
        """Return C11, C12, C22 and shear [N/m], eq. (5) of docs/derivations/cloth.md, and damping [s]."""
        along, across, nu = self._moduli(like)
        scale = 1.0 / (1.0 - nu**2 * across / along)
        shear = 0.5 * torch.sqrt(along * across) / (1.0 + nu) if self.shear is None else tensor_like(self.shear, like)
        return [scale * along, scale * nu * across, scale * across, shear, tensor_like(self.damping, like)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Cord(_Thin):
    """A rope: stretch [N], Young's modulus times section; bending [N·m²]; density [kg/m].

    A number is one for the rope, one for each segment (of `bending`: each inner vertex), or (B, 1), (B, m).
    """

    stretch: float | Tensor

    def stretching(self, like: Tensor) -> list[Tensor]:
        """Return stretch [N] and damping [s]."""
        return [tensor_like(self.stretch, like), tensor_like(self.damping, like)]


def spread(numbers: list[Tensor], name: str, worlds: int, count: int) -> Tensor:
    """Return numbers (worlds, count, k) of elements, from one, (count,), (B, 1) or (B, count) each."""
    shape = (worlds, count)
    for x in numbers:
        try:
            torch.broadcast_shapes(x.shape, shape)
        except RuntimeError:
            raise PullbackError(
                f"{name} has numbers of shape {tuple(x.shape)} for {worlds} worlds of {count} elements; give one "
                f"number, ({count},), ({worlds}, 1) or {shape}"
            ) from None
    return torch.stack([x.expand(shape) for x in numbers], -1)

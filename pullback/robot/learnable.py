"""A robot whose link parameters can be replaced by modules: learned, frozen, given per robot, saved and printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from pullback.core.errors import PullbackError, unknown_name
from pullback.core.finite import refuse_not_finite
from pullback.description.compile import WORLD, Model, nv_of
from pullback.robot.parameters import (
    DOF,
    INERTIAL,
    KINEMATIC,
    PARTS,
    SHAPES,
    SPRING,
    Kinematics,
    Values,
    body_inertias,
    call_module,
    check_module,
    dof_rows,
    joint_kinematics,
    split_inertial,
    state_arguments,
    substitute,
)
from pullback.robot.parametrizations import Parametrization, pseudo_inertia, split_pseudo_inertia

Tensor = torch.Tensor


class GivenValue(nn.Module):
    """A value that is set and not learned; it moves with the robot and is saved with it."""

    value: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value)

    def forward(self) -> Tensor:
        """Return the value."""
        return self.value


class LearnableLinks(nn.Module):
    """The links of a robot, their parameters, and the modules that stand in for some of them."""

    def __init__(self, model: Model, dtype: torch.dtype | None, device: torch.device | str | None) -> None:
        super().__init__()
        if not any(dtype is each for each in (None, torch.float32, torch.float64)):
            raise PullbackError(f"dtype is {dtype}; a robot computes in torch.float32 or torch.float64")
        self.model = model
        self.learned = nn.ModuleDict()
        self.register_buffer("_reference", torch.zeros(0, dtype=dtype, device=device), persistent=False)
        self._cache: dict[Any, Any] = {}

    @property
    def _like(self) -> Tensor:
        """An empty tensor of the robot's type and device, past torch's slow search for attributes."""
        return self._buffers["_reference"]  # pyright: ignore[reportReturnType]

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of everything this robot takes and returns."""
        return self._like.dtype

    @property
    def device(self) -> torch.device:
        """The device this robot lives on."""
        return self._like.device

    def get_link_names(self) -> list[str]:
        """Return the names of all links, parents first."""
        return [link.name for link in self.model.links]

    def link_number(self, link: str) -> int:
        """Return a link's place in `get_link_names`; an unknown name is an error that lists the close ones."""
        if link not in self.model.link_index:
            raise unknown_name("link", link, self.model.link_index, self.model.tree.name)
        return self.model.link_index[link]

    # -- putting modules in place --------------------------------------------------------------------------------

    def make_link_param_learnable(self, link_name: str, parameter_name: str, parametrization: nn.Module) -> None:
        """Let `parametrization()` be the parameter of a link from now on; its weights join `self.parameters()`.

        The module is converted to the robot's type and device. Any that returns a tensor of the parameter's shape will
        do, or one with a leading batch dimension for a value per robot. A module whose `forward` has arguments named
        `q` or `qd` gets the state, (B, nq) and (B, nv).
        """
        key = self._key(link_name, parameter_name)
        self._check_place(link_name, parameter_name)
        check_module(parametrization, parameter_name)
        if isinstance(parametrization, Parametrization) and not parametrization.has_value:
            parametrization.set_value(self.get_link_param(link_name, parameter_name))
        parametrization.to(device=self.device, dtype=self.dtype)
        if not state_arguments(parametrization):
            call_module(parametrization, parameter_name, {}, self._like)
        self.learned[key] = parametrization

    def set_link_param(self, link_name: str, parameter_name: str, value: Any) -> None:
        """Give a link's parameter a value, or one for each robot of a batch: shape (B, *shape)."""
        shape = SHAPES[self._parameter(parameter_name)]
        self._check_place(link_name, parameter_name)
        tensor = torch.as_tensor(value, dtype=self.dtype, device=self.device).clone()
        if tensor.shape[tensor.ndim - len(shape) :] != shape:
            raise PullbackError(
                f"{parameter_name} of {link_name!r} has shape {tuple(tensor.shape)}; "
                f"expected {shape} or (batch, *{shape})"
            )
        refuse_not_finite(f"{parameter_name} of {link_name!r}", tensor.reshape(1, -1))
        if parameter_name in ("mass", *DOF, "joint_stiffness") and bool((tensor < 0.0).any()):
            raise PullbackError(f"{parameter_name} of {link_name!r} is {tensor.min().item():g}; it cannot be negative")
        self.learned[self._key(link_name, parameter_name)] = GivenValue(tensor)

    def get_link_param(self, link_name: str, parameter_name: str) -> Tensor:
        """Return the present value of a link's parameter; shape as in `pullback.robot.parameters.SHAPES`."""
        key, inertial = self._key(link_name, parameter_name), self._key(link_name, "inertial")
        if key in self.learned:
            value = call_module(self.learned[key], parameter_name, {}, self._like)
        elif parameter_name == "inertial":
            value = pseudo_inertia(*(self.get_link_param(link_name, name) for name in PARTS))
        elif parameter_name in PARTS and inertial in self.learned:
            pseudo = call_module(self.learned[inertial], "inertial", {}, self._like)
            value = split_pseudo_inertia(pseudo)[PARTS.index(parameter_name)]
        else:
            return self._values().base[parameter_name][self.link_number(link_name)].clone()
        shape = SHAPES[parameter_name]
        return value.reshape(shape) if value.shape[: -len(shape) or None].numel() == 1 else value

    def freeze_learnable_link_param(self, link_name: str, parameter_name: str) -> None:
        """Stop the gradient of a learnable parameter; it keeps its value."""
        self._learned(link_name, parameter_name).requires_grad_(False)

    def unfreeze_learnable_link_param(self, link_name: str, parameter_name: str) -> None:
        """Let a frozen parameter learn again."""
        self._learned(link_name, parameter_name).requires_grad_(True)

    def print_learnable_params(self) -> None:
        """Print each parameter that has a module in its place: link, parameter, value, whether it learns."""
        if not self.learned:
            print("no learnable parameters")
        for key, module in self.learned.items():
            link, parameter = self._split_key(key)
            state = "learning" if any(p.requires_grad for p in module.parameters()) else "fixed"
            try:
                value = str(self.get_link_param(link, parameter).detach().cpu().numpy().round(6).tolist())
            except PullbackError:
                value = f"{type(module).__name__}, depends on the state"
            print(f"{link:24s} {parameter:16s} {state:9s} {value}")

    # -- what kernels read ---------------------------------------------------------------------------------------

    def kinematics(self, states: Mapping[str, Tensor | None]) -> Kinematics:
        """Return placements and frames with the present parameters."""
        if not self._touched(KINEMATIC):
            return self._cached("kinematics", lambda: self._kinematics({}))
        return self._kinematics(states)

    def inertias(self, kinematics: Kinematics, states: Mapping[str, Tensor | None]) -> Tensor:
        """Return the bodies' inertias with the present parameters, (b, nbody * 10)."""
        if not self._touched((*INERTIAL, *KINEMATIC)):
            return self._cached("inertias", lambda: self._inertias(kinematics, {}))
        return self._inertias(kinematics, states)

    @property
    def compensates_gravity(self) -> bool:
        """Whether the weight of some link is carried, in part or whole."""
        return self._cached("compensates", lambda: any(link.carried for link in self.model.links))

    def carried_masses(self, states: Mapping[str, Tensor | None]) -> Tensor:
        """Return the inertias of what is carried of the bodies, (b, nbody * 10): masses and first moments count."""
        if not self._touched((*INERTIAL, *KINEMATIC)):
            return self._cached("carried", lambda: self._carried({}))
        return self._carried(states)

    def dofs(self, states: Mapping[str, Tensor | None], *, damping: bool, friction: bool) -> Tensor:
        """Return armature, damping and friction a dof, (b, nv * 3), the last two zero unless asked for."""
        if not self._touched(DOF):
            return self._cached(("dofs", damping, friction), lambda: self._dofs({}, damping, friction))
        return self._dofs(states, damping, friction)

    def springs(self, states: Mapping[str, Tensor | None]) -> tuple[Tensor, Tensor]:
        """Return stiffness and rest of the springs in the joints above the links, (b, L) each."""
        if not self._touched(SPRING):
            return self._cached("springs", lambda: self._springs({}))
        return self._springs(states)

    def _springs(self, states: Mapping[str, Tensor | None]) -> tuple[Tensor, Tensor]:
        base = self._values().base
        stiffness, rest = (substitute(base[name], self._replaced(name, states)) for name in SPRING)
        return stiffness, rest

    def _kinematics(self, states: Mapping[str, Tensor | None]) -> Kinematics:
        values = self._values()
        trans, rot_angles = (substitute(values.base[n], self._replaced(n, states)) for n in KINEMATIC)
        return joint_kinematics(self.model, values, trans, rot_angles)

    def _inertias(self, kinematics: Kinematics, states: Mapping[str, Tensor | None]) -> Tensor:
        values = self._values()
        replaced = split_inertial({name: self._replaced(name, states) for name in INERTIAL})
        mass, com, inertia = (substitute(values.base[name], links) for name, links in replaced.items())
        return body_inertias(self.model, kinematics, mass, com, inertia)

    def _carried(self, states: Mapping[str, Tensor | None]) -> Tensor:
        values, kinematics = self._values(), self.kinematics(states)
        replaced = split_inertial({name: self._replaced(name, states) for name in INERTIAL})
        mass, com, inertia = (substitute(values.base[name], links) for name, links in replaced.items())
        fraction = mass.new_tensor([link.carried for link in self.model.links])
        return body_inertias(self.model, kinematics, fraction * mass, com, torch.zeros_like(inertia))

    def _dofs(self, states: Mapping[str, Tensor | None], damping: bool, friction: bool) -> Tensor:
        base = self._values().base
        nothing = torch.zeros_like(base["joint_damping"])[None]
        rows = [substitute(base["joint_armature"], self._replaced("joint_armature", states)), nothing, nothing]
        if damping:
            rows[1] = substitute(base["joint_damping"], self._replaced("joint_damping", states))
        if friction:
            rows[2] = substitute(base["joint_friction"], self._replaced("joint_friction", states))
        return dof_rows(self.model, *rows)

    def _replaced(self, parameter: str, states: Mapping[str, Tensor | None]) -> dict[int, Tensor]:
        """Return the values of a parameter's modules by link number."""
        found = {}
        for key, module in self.learned.items():
            link, name = self._split_key(key)
            if name == parameter:
                found[self.model.link_index[link]] = call_module(module, parameter, states, self._like)
        return found

    def _touched(self, parameters: tuple[str, ...]) -> bool:
        return bool(self.learned) and any(self._split_key(key)[1] in parameters for key in self.learned)

    def _values(self) -> Values:
        return self._cached("values", lambda: Values(self.model, self.dtype, self.device))

    def _cached(self, name: Any, make: Any) -> Any:
        """Return what `make` gives for the present type and device, made once."""
        like = self._like
        key = (name, like.dtype, like.device)
        if key not in self._cache:
            # a cache filled in inference mode or under a functorch transform must serve every later call
            with torch._C._DisableFuncTorch(), torch.inference_mode(False), torch.no_grad():
                self._cache[key] = make()
        return self._cache[key]

    # -- names ---------------------------------------------------------------------------------------------------

    def _key(self, link: str, parameter: str) -> str:
        self.link_number(link)
        return f"{link}/{self._parameter(parameter)}".replace(".", "\u00b7")

    def _split_key(self, key: str) -> tuple[str, str]:
        link, _, parameter = key.rpartition("/")
        return link.replace("\u00b7", "."), parameter

    def _check_place(self, link: str, parameter: str) -> None:
        """Refuse a parameter that has nothing to act on, or that another one has taken the place of."""
        rivals = PARTS if parameter == "inertial" else ("inertial",) if parameter in PARTS else ()
        for rival in rivals:
            if self._key(link, rival) in self.learned:
                raise PullbackError(
                    f'{parameter} of {link!r}: {rival} was given a value or made learnable before, and "inertial" is '
                    f"mass, com and inertia_mat at once; choose one or the other"
                )
        number = self.link_number(link)
        joint, body = self.model.link_joint[number], self.model.link_body[number]
        if parameter in KINEMATIC and joint is None:
            raise PullbackError(f"{link!r} is the root link: no joint is above it, so it has no {parameter}")
        if parameter in DOF and (joint is None or joint.type == "fixed"):
            above = "no joint" if joint is None else f"the fixed joint {joint.name!r}"
            raise PullbackError(f"{parameter} of {link!r}: {above} is above it; choose a link that moves by a joint")
        if parameter in SPRING and (joint is None or joint.type == "fixed" or nv_of(self.model.bodies[body].kind) > 1):
            raise PullbackError(
                f"{parameter} of {link!r}: only joints with one degree of freedom have springs; choose a link below one"
            )
        floating = joint is not None and joint.type == "floating"
        if parameter == "joint_armature" and floating and self.model.bodies[body].parent != WORLD:
            raise PullbackError(f"{parameter} of {link!r}: a floating joint on a moving link cannot have armature")

    def _parameter(self, name: str) -> str:
        if name not in SHAPES:
            raise unknown_name("link parameter", name, SHAPES)
        return name

    def _learned(self, link: str, parameter: str) -> nn.Module:
        key = self._key(link, parameter)
        if key not in self.learned:
            made = ", ".join(f"{a}.{b}" for a, b in map(self._split_key, self.learned)) or "none"
            raise PullbackError(f"{parameter} of {link!r} was not made learnable; those that were: {made}")
        return self.learned[key]

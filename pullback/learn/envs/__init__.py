"""Environments that ship, one file each, found by name: `make("ant", worlds=64)`.

A file in this folder is an environment: `cart_pole.py` is `cart-pole`, and has one subclass of `Env`.
"""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from pkgutil import iter_modules
from typing import Any

from pullback.core.errors import refuse_unknown_options, unknown_name
from pullback.learn.env import Env


def env_names() -> list[str]:
    """Return the names of the environments that ship, without importing them."""
    return sorted(module.name.replace("_", "-") for module in iter_modules(__path__))


def find_env(name: str) -> type[Env]:
    """Return the class of a shipped environment; an unknown name is an error that lists the choices."""
    if name not in env_names():
        raise unknown_name("environment", name, env_names())
    module = import_module(f"{__name__}.{name.replace('-', '_')}")
    return next(
        x
        for x in vars(module).values()
        if isinstance(x, type) and issubclass(x, Env) and x.__module__ == module.__name__
    )


def make(name: str, worlds: int = 64, **options: Any) -> Env:
    """Return a shipped environment with `worlds` worlds; the others are options of its class, such as `seed`."""
    kind = find_env(name)
    classes = [c for c in kind.__mro__ if issubclass(c, Env)]
    known = {name for c in classes for name in signature(c).parameters} - {"worlds", "options"}
    refuse_unknown_options(f"the environment {name!r}", options, sorted(known))
    return kind(worlds=worlds, **options)

"""The door of a package: its ``__init__`` names what other packages may import, and loads a module when it is needed.

A door is written twice, for type checkers under ``if TYPE_CHECKING``, and as the names given to ``lazily``; the second
is written from the first by ``python -m tools.doors --fix``. Nothing of a package is loaded by importing its door, so
that the command line, Dagster and workers load the libraries that they use and no others.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> None:
    """Let ``package`` give out ``names``: each with the module inside the package that defines it, "" for a module.

    A name is looked up once, and is an attribute of the package after that.
    """
    door = sys.modules[package]

    def load(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        inside = names[name]
        found = importlib.import_module(f"{package}.{inside}")
        value = found if inside.rpartition(".")[2] == name and not hasattr(found, name) else getattr(found, name)
        setattr(door, name, value)
        return value

    vars(door).update(__getattr__=load, __dir__=lambda: sorted({*vars(door), *names}), __all__=list(names))

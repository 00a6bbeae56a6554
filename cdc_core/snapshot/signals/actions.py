"""Signal types of the user's own: ``wal2lake.signal.actions`` names a Python class for each."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from cdc_core.errors import ConfigError
from cdc_core.snapshot.signals.parse import Signal


@runtime_checkable
class SignalAction(Protocol):
    """Acts on the signals of one type. The class is called without arguments, once a run."""

    def arrived(self, signal: Signal) -> None:
        """Act on a signal, in the thread that reads the stream. What it raises is reported, and the stream continues.

        A run that was killed may give the same signal again.
        """


def load_actions(named: Iterable[tuple[str, str]]) -> Mapping[str, SignalAction]:
    """Signal type → its object. Raises ConfigError where a class cannot be made or has no method ``arrived``."""
    found: dict[str, SignalAction] = {}
    for name, path in named:
        module, _, attribute = path.rpartition(".")
        try:
            made = getattr(importlib.import_module(module), attribute)()
        except Exception as error:
            # Whatever the user's module or class raises: its text may hold anything, so only its kind is told.
            raise ConfigError(
                f"The class {path} that wal2lake.signal.actions names for {name} cannot be instantiated "
                f"({type(error).__name__}).",
                "Set it to the import path of a Python class: package.module.Class.",
            ) from error
        if not callable(getattr(made, "arrived", None)):
            raise ConfigError(
                f"The class {path} that wal2lake.signal.actions names for {name} has no method arrived.",
                "Implement the methods of cdc_core.snapshot.signals.actions.SignalAction.",
            )
        found[name] = made
    return found

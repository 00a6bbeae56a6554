"""Signal types defined by the user: ``wal2lake.signal.actions`` names a Python class for each."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Protocol, runtime_checkable

from cdc_core.errors import ConfigError
from cdc_core.snapshot.signals.parse import Signal


@runtime_checkable
class SignalAction(Protocol):
    """Processes the signals of one type. The class is instantiated without arguments, once per run."""

    def arrived(self, signal: Signal) -> None:
        """Process a signal, in the thread that reads the stream. Errors are logged, and the stream continues.

        After a kill the same signal may be delivered again.
        """


def load_actions(named: Iterable[tuple[str, str]]) -> Mapping[str, SignalAction]:
    """Return signal type → object. Raises ConfigError if a class cannot be instantiated or lacks ``arrived``."""
    actions: dict[str, SignalAction] = {}
    for name, path in named:
        module, _, attribute = path.rpartition(".")
        try:
            made = getattr(importlib.import_module(module), attribute)()
        except Exception as error:
            # An error of the user's module or class: its text may contain anything, so only its type is reported.
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
        actions[name] = made
    return actions

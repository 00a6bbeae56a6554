"""The protocol of a snapshot mode, which a class of the user may implement (``snapshot.mode=custom``)."""

from __future__ import annotations

import importlib
from typing import Protocol, runtime_checkable

from cdc_core.errors import ConfigError


@runtime_checkable
class Snapshotter(Protocol):
    """A snapshot mode. A user's class is instantiated without arguments, once at each start.

    ``snapshot.mode.custom.name`` is its dotted path, ``package.module.Class``. The methods are those of Debezium's
    interface of the same name that apply to PostgreSQL, whose connector has no schema history.
    """

    def should_snapshot_data(self, offset_exists: bool, snapshot_in_progress: bool) -> bool:
        """Whether rows are read at this start.

        ``offset_exists``: a position is stored, from an earlier start. ``snapshot_in_progress``: that start ended
        during its snapshot (then ``offset_exists`` is true as well).
        """

    def should_stream(self) -> bool:
        """Whether changes are streamed afterwards; otherwise the run ends with the snapshot."""

    def should_snapshot_on_data_error(self) -> bool:
        """Whether rows are read again if the stored position is lost, with the slot or with its WAL.

        Otherwise the run ends with an error.
        """


_METHODS = ("should_snapshot_data", "should_stream", "should_snapshot_on_data_error")


def load_snapshotter(path: str) -> Snapshotter:
    """Return the object that a dotted path names. Raises ConfigError if there is none or it lacks a method."""
    remedy = "Set snapshot.mode.custom.name to package.module.Class of a Python class that can be imported."
    module, _, name = path.strip().rpartition(".")
    if not module:
        raise ConfigError(f"snapshot.mode.custom.name is {path!r}, which is not the import path of a class.", remedy)
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:
        # An error of the user's module or class: its text may contain anything, so only its type is reported.
        raise ConfigError(
            f"The class {path} of snapshot.mode.custom.name cannot be instantiated ({type(error).__name__}).", remedy
        ) from error
    lacking = [method for method in _METHODS if not callable(getattr(made, method, None))]
    if lacking:
        raise ConfigError(
            f"The class {path} of snapshot.mode.custom.name has no method {', '.join(lacking)}.",
            "Implement the methods of cdc_core.snapshot.snapshotter.Snapshotter.",
        )
    snapshotter: Snapshotter = made
    return snapshotter

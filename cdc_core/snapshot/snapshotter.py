"""What a snapshot mode answers, as a protocol that a class of the user's own may keep (``snapshot.mode=custom``)."""

from __future__ import annotations

import importlib
from typing import Protocol, runtime_checkable

from cdc_core.errors import ConfigError


@runtime_checkable
class Snapshotter(Protocol):
    """The answers of a snapshot mode. A user's class is called without arguments, once at each start.

    ``snapshot.mode.custom.name`` names it by its dotted path, ``package.module.Class``. The methods are those of
    Debezium's interface of the same name, as far as they concern PostgreSQL, whose connector keeps no schema history.
    """

    def should_snapshot_data(self, offset_exists: bool, snapshot_in_progress: bool) -> bool:
        """Whether rows are read at this start.

        ``offset_exists``: a position is stored, from an earlier start. ``snapshot_in_progress``: that start ended in
        the midst of its snapshot (then ``offset_exists`` is true as well).
        """

    def should_stream(self) -> bool:
        """Whether changes are streamed afterwards; else the run ends with the snapshot."""

    def should_snapshot_on_data_error(self) -> bool:
        """Whether rows are re-read where the stored position is lost, with the slot or with its WAL; else the run
        ends with an error.
        """


_METHODS = ("should_snapshot_data", "should_stream", "should_snapshot_on_data_error")


def load_snapshotter(path: str) -> Snapshotter:
    """The object that a dotted path names. Raises ConfigError where there is none or it lacks a method."""
    remedy = "Set snapshot.mode.custom.name to package.module.Class of a Python class that can be imported."
    module, _, name = path.strip().rpartition(".")
    if not module:
        raise ConfigError(f"snapshot.mode.custom.name is {path!r}, which is not the import path of a class.", remedy)
    try:
        made = getattr(importlib.import_module(module), name)()
    except Exception as error:
        # Whatever the user's module or class raises: its text may hold anything, so only its kind is told.
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

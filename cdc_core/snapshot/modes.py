"""A snapshot mode as a set of actions; no other module depends on the mode itself."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.snapshot.options import SnapshotMode, SnapshotOptions
from cdc_core.snapshot.snapshotter import load_snapshotter


@dataclass(frozen=True, slots=True)
class ModeActions:
    """Whether rows are read, and whether changes are streamed afterwards.

    ``first``: rows of tables never read, if no position is stored yet; in the lake, of each table without a snapshot.
    ``interrupted``: rows are read if the last start ended during its snapshot. ``later``: rows of every table are read
    at each further start. ``position_lost``: rows of every table are read, with a new slot, if the slot or its WAL is
    lost; otherwise that is an error. ``stream``: changes are streamed afterwards.
    """

    first: bool
    interrupted: bool
    later: bool
    position_lost: bool
    stream: bool

    @property
    def reads(self) -> bool:
        """Whether rows are read at any start."""
        return self.first or self.interrupted or self.later


# In the order of ModeActions; docs/explanation/snapshots.md contains the same table.
_ANSWERS = {
    SnapshotMode.ALWAYS: ModeActions(True, True, True, False, True),
    SnapshotMode.INITIAL: ModeActions(True, True, False, False, True),
    SnapshotMode.INITIAL_ONLY: ModeActions(True, True, False, False, False),
    SnapshotMode.NO_DATA: ModeActions(False, False, False, False, True),
    SnapshotMode.WHEN_NEEDED: ModeActions(True, True, False, True, True),
}


def mode_actions(options: SnapshotOptions) -> ModeActions:
    """Return the actions of ``snapshot.mode``; raises ConfigError if it is a class that cannot be instantiated."""
    if options.snapshot_mode is SnapshotMode.CONFIGURATION_BASED:
        data = options.snapshot_mode_configuration_based_snapshot_data
        return ModeActions(
            first=data,
            interrupted=data,
            later=data,
            position_lost=options.snapshot_mode_configuration_based_snapshot_on_data_error,
            stream=options.snapshot_mode_configuration_based_start_stream,
        )
    if options.snapshot_mode is SnapshotMode.CUSTOM:
        asked = load_snapshotter(options.snapshot_mode_custom_name, options.properties)
        return ModeActions(
            first=bool(asked.should_snapshot_data(False, False)),
            interrupted=bool(asked.should_snapshot_data(True, True)),
            later=bool(asked.should_snapshot_data(True, False)),
            position_lost=bool(asked.should_snapshot_on_data_error()),
            stream=bool(asked.should_stream()),
        )
    return _ANSWERS[options.snapshot_mode]

"""A snapshot mode is a row of answers; nobody else asks which mode it is."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.snapshot.options import SnapshotMode


@dataclass(frozen=True, slots=True)
class ModeAnswers:
    """``missing``: read tables that were never read. ``all``: read every table at each start. ``slot_lost``: go on
    with a new slot and a new snapshot where the old slot is gone or lost. ``stream``: stream afterwards.
    """

    missing: bool
    all: bool
    slot_lost: bool
    stream: bool


_ANSWERS = {
    SnapshotMode.INITIAL: ModeAnswers(missing=True, all=False, slot_lost=False, stream=True),
    SnapshotMode.ALWAYS: ModeAnswers(missing=True, all=True, slot_lost=False, stream=True),
    SnapshotMode.INITIAL_ONLY: ModeAnswers(missing=True, all=False, slot_lost=False, stream=False),
    SnapshotMode.NO_DATA: ModeAnswers(missing=False, all=False, slot_lost=False, stream=True),
    SnapshotMode.WHEN_NEEDED: ModeAnswers(missing=True, all=False, slot_lost=True, stream=True),
}


def answers(mode: SnapshotMode) -> ModeAnswers:
    """The answers of a mode; KeyError for one that ``config`` refuses to run."""
    return _ANSWERS[mode]

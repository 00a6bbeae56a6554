"""Which tables a start reads: the mode, the proof of the stream, the slot, and what the lake has."""

from typing import Any

import pytest

from cdc_core.engine.reading.continuity import Break, Mismatch
from cdc_core.engine.start.continuity import Continuity
from cdc_core.engine.start.held import Held
from cdc_core.engine.start.read_plan import ReadPlan, what_to_read
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.snapshot.modes import ModeActions, mode_actions
from cdc_core.snapshot.options import SnapshotMode, SnapshotOptions

A, B, C = (TableSchema(TableId("public", name), number, (), ()) for number, name in enumerate("abc"))
EVERY = [A, B, C]


def proof(mismatch: Break | None = None, *, is_new: bool = False, is_empty: bool = False) -> Continuity:
    nothing: Any = None
    held = Held() if is_empty else Held(tables=frozenset({A.id}))
    found = None if mismatch is None else Mismatch(mismatch, "It differs.", "Look.")
    return Continuity(nothing, None, nothing, held, is_new, found)


def plan(mode: SnapshotMode, proved: Continuity, *, has_slot: bool = True, is_lost: bool = False) -> ReadPlan:
    return what_to_read(mode_actions(SnapshotOptions(snapshot_mode=mode)), proved, has_slot=has_slot, is_lost=is_lost)


def read(made: ReadPlan, known: set[TableId], *, asked: set[TableId] | None = None, added: frozenset[TableId]) -> str:
    """The names of the tables that are read."""
    wanted = {table.id for table in EVERY} if asked is None else asked
    return "".join(table.id.table for table in made.tables(EVERY, wanted, known, added) if made.reads)


@pytest.mark.parametrize(
    ("mode", "proved", "slot", "expected"),
    [
        (SnapshotMode.INITIAL, proof(), {}, "bc"),
        (SnapshotMode.INITIAL, proof(is_new=True, is_empty=True), {"has_slot": False}, "abc"),
        (SnapshotMode.INITIAL, proof(Break.SLOT_AHEAD, is_empty=True), {}, "abc"),
        (SnapshotMode.INITIAL, proof(Break.SLOT_NAME), {}, "abc"),
        (SnapshotMode.INITIAL, proof(Break.SLOT_AHEAD), {}, "bc"),
        (SnapshotMode.WHEN_NEEDED, proof(Break.SLOT_AHEAD), {}, "abc"),
        (SnapshotMode.WHEN_NEEDED, proof(), {"has_slot": False, "is_lost": True}, "abc"),
        (SnapshotMode.WHEN_NEEDED, proof(), {}, "bc"),
        (SnapshotMode.ALWAYS, proof(), {}, "abc"),
        (SnapshotMode.ALWAYS, proof(Break.SERVER), {}, "abc"),
        (SnapshotMode.NO_DATA, proof(), {}, ""),
        (SnapshotMode.NO_DATA, proof(is_new=True), {"has_slot": False}, ""),
        (SnapshotMode.NO_DATA, proof(Break.SLOT_AHEAD, is_empty=True), {}, ""),
    ],
)
def test_tables_by_mode_proof_and_slot(
    mode: SnapshotMode, proved: Continuity, slot: dict[str, bool], expected: str
) -> None:
    assert read(plan(mode, proved, **slot), {A.id}, added=frozenset()) == expected


@pytest.mark.parametrize(
    ("mode", "mismatch", "restarts"),
    [
        (SnapshotMode.INITIAL, None, False),
        (SnapshotMode.INITIAL, Break.SLOT_AHEAD, False),
        (SnapshotMode.INITIAL, Break.SLOT_NAME, True),
        (SnapshotMode.WHEN_NEEDED, Break.SLOT_AHEAD, True),
        (SnapshotMode.ALWAYS, Break.SLOT_AHEAD, True),
        (SnapshotMode.ALWAYS, None, False),
        (SnapshotMode.NO_DATA, Break.SLOT_NAME, False),
    ],
)
def test_an_epoch_begins_only_where_all_is_read_because_the_stream_does_not_continue(
    mode: SnapshotMode, mismatch: Break | None, restarts: bool
) -> None:
    assert plan(mode, proof(mismatch)).restarts is restarts


def test_a_table_that_was_published_again_is_read_though_the_lake_has_it_and_nobody_named_it() -> None:
    made = plan(SnapshotMode.INITIAL, proof())
    assert read(made, {A.id, B.id}, asked={C.id}, added=frozenset({B.id})) == "bc"
    assert read(made, {A.id, B.id}, asked={C.id}, added=frozenset()) == "c"
    # A table that the lake does not have is read by who names it.
    assert read(made, {A.id}, asked={C.id}, added=frozenset({B.id})) == "c"


def test_with_a_new_epoch_it_does_not_matter_which_tables_are_named() -> None:
    assert read(plan(SnapshotMode.WHEN_NEEDED, proof(Break.SERVER)), {A.id}, asked={C.id}, added=frozenset()) == "abc"


@pytest.mark.parametrize("has_slot", [True, False])
def test_a_session_is_started_before_anything_is_made(has_slot: bool) -> None:
    everything = {table.id for table in EVERY}
    assert plan(SnapshotMode.INITIAL, proof(), has_slot=has_slot).may_read(EVERY, everything) is not has_slot
    assert plan(SnapshotMode.INITIAL, proof(), has_slot=has_slot).may_read(EVERY, {A.id})
    assert plan(SnapshotMode.ALWAYS, proof()).may_read(EVERY, everything)
    assert plan(SnapshotMode.NO_DATA, proof(is_new=True), has_slot=has_slot).needs_session is not has_slot
    assert plan(SnapshotMode.INITIAL, proof(is_new=True)).needs_session
    assert not plan(SnapshotMode.INITIAL, proof()).needs_session


def test_the_lake_is_not_opened_where_nothing_is_read() -> None:
    assert not plan(SnapshotMode.NO_DATA, proof()).looks
    assert plan(SnapshotMode.NO_DATA, proof(), has_slot=False).looks
    assert plan(SnapshotMode.INITIAL, proof()).looks


def test_a_mode_that_reads_only_what_is_lost_reads_it() -> None:
    mode = ModeActions(first=False, interrupted=False, later=False, position_lost=True, stream=True)
    restarted = what_to_read(mode, proof(Break.HISTORY), has_slot=True, is_lost=False)
    assert read(restarted, {A.id}, added=frozenset()) == "abc"
    without_slot = what_to_read(mode, proof(), has_slot=False, is_lost=True)
    assert read(without_slot, {A.id}, added=frozenset()) == "abc"
    assert read(what_to_read(mode, proof(), has_slot=True, is_lost=False), {A.id}, added=frozenset()) == ""

"""What a table's other names mean for the lake table of its own: a re-read, now or when it can be made."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_core.engine.reading.tables import SeenName
from cdc_core.engine.schema.renames import note_names
from cdc_core.schema.changes import PauseCause
from cdc_core.schema.table import TableId
from tests.unit.engine.test_schema_versions import ID, NOTE, begun, read_again, schema_versions
from tests.unit.schema.versions import ORDERS, table

FIRST = table(ID, NOTE)
AWAY = SeenName(FIRST.oid, TableId("public", "away"), True)


@pytest.mark.parametrize(
    ("seen", "is_reread"),
    [
        (AWAY, True),
        (SeenName(FIRST.oid, TableId("elsewhere", ORDERS.table), False), True),
        (SeenName(FIRST.oid, ORDERS, False), True),
        (SeenName(FIRST.oid, ORDERS, True), False),
        (SeenName(FIRST.oid + 1, TableId("public", "away"), True), False),
        (SeenName(0, TableId("public", "away"), True), False),
    ],
)
def test_changes_under_another_name_are_missing_under_its_own(tmp_path: Path, seen: SeenName, is_reread: bool) -> None:
    known, server = begun(tmp_path, FIRST)
    note_names(known.tables, known.pauses, [seen])
    assert (known.tables.of(ORDERS).reread is not None) is is_reread
    assert (schema_versions(tmp_path, server).versions.open(ORDERS, 1).reread is not None) is is_reread
    assert read_again(tmp_path, FIRST).versions.open(ORDERS, 2).reread is None


def test_a_name_that_nothing_has_is_read_once_it_exists_again(tmp_path: Path) -> None:
    known, server = begun(tmp_path, FIRST)
    server.now = None
    note_names(known.tables, known.pauses, [AWAY])
    state = known.tables.of(ORDERS)
    assert state.reread is None and not state.holds_back and not state.is_on_its_way
    known.catalogue.poll(lambda: 300)
    assert known.tables.of(ORDERS).reread is None
    server.now = FIRST
    known.catalogue.poll(lambda: 300)
    assert state.reread == "it was changed while its name was public.away" and known.pauses.can_be_read(ORDERS)


def test_a_table_that_is_to_be_read_and_does_not_exist_keeps_no_run_from_ending(tmp_path: Path) -> None:
    known, server = begun(tmp_path, FIRST)
    known.pauses.want_reread(ORDERS, "its rows were rewritten")
    server.now = None
    state = known.tables.of(ORDERS)
    assert state.is_on_its_way and not known.pauses.can_be_read(ORDERS)
    assert state.holds_back and not state.is_on_its_way
    server.now = FIRST
    known.catalogue.poll(lambda: 300)
    assert state.is_on_its_way and known.pauses.can_be_read(ORDERS)


def test_a_paused_table_is_read_when_it_is_resumed(tmp_path: Path) -> None:
    known, server = begun(tmp_path, FIRST)
    known.pauses.pause(ORDERS, PauseCause.FOLDER, "Its reason.", "Its remedy.", 200)
    note_names(known.tables, known.pauses, [AWAY])
    assert known.tables.of(ORDERS).reread is None and not known.catalogue.can_go_on(ORDERS)
    later = schema_versions(tmp_path, server)
    assert later.versions.open(ORDERS, 1).reread is None and not later.catalogue.can_go_on(ORDERS)
    later.pauses.resume(ORDERS, 300)
    assert later.tables.of(ORDERS).reread is not None


def test_a_name_that_did_not_exist_when_the_run_began_is_remembered(tmp_path: Path) -> None:
    begun(tmp_path, FIRST)
    _, server = begun(tmp_path / "other", FIRST)
    server.now = None
    run = schema_versions(tmp_path, server)
    for _ in range(2):
        note_names(run.tables, run.pauses, [AWAY])
    assert (
        schema_versions(tmp_path, server).versions.open(ORDERS, 1).reread
        == "it was changed while its name was public.away"
    )

"""A table's schema versions as the engine keeps them: numbers, steps between them, and what a crash must not forget."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.engine.reading.tables import TableRegistry
from cdc_core.engine.schema.catalogue_watch import CatalogueWatch
from cdc_core.engine.schema.decisions import SchemaDecisions
from cdc_core.engine.schema.known_tables import KnownTables
from cdc_core.engine.schema.pauses import Pauses
from cdc_core.engine.schema.versions import SchemaVersions
from cdc_core.lake.delta.log_table import append_rows
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.evolution.steps import SchemaSteps
from cdc_core.lake.names import RESCUED
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.lake.schema.target_schema import TargetSchema
from cdc_core.lake.slice.schema_versions import has_had_keys
from cdc_core.lake.stores import schema_log
from cdc_core.lake.stores.schema_log import SchemaLog, SchemaVersion
from cdc_core.postgres.catalog.tables import ResolvedRelation
from cdc_core.schema.changes import PauseCause, Policy, SchemaChanges
from cdc_core.schema.relation import Relation, ReplicaIdentity
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.unit.schema.versions import INT, ORDERS, column, table

ID, NOTE = column(1, "id", INT), column(2, "note")


class Server:
    """A catalogue that says what it is told to say."""

    def __init__(self, now: TableSchema | None) -> None:
        self.now = now
        self.stamp = ""
        self.stamp_after_look: str | None = None
        self.looks = 0

    def current(self, name: TableId) -> TableSchema | None:
        return self.now

    def storage_stamp(self, oids: set[int]) -> str:
        return f"{self.stamp} of {sorted(oids)}"

    def marks_stamp(self, oids: set[int]) -> str:
        self.looks += 1
        return f"{None if self.now is None else self.now.fingerprint} of {sorted(oids)}"

    def fingerprints(self, oids: object) -> dict[int, object]:
        self.stamp = self.stamp if self.stamp_after_look is None else self.stamp_after_look
        return {} if self.now is None else {self.now.oid: self.now.fingerprint}

    def resolve_relation(self, relation: Relation, xid: int) -> ResolvedRelation:
        assert self.now is not None
        return ResolvedRelation(self.now, self.now)


@dataclasses.dataclass
class Parts:
    """What follows the schemas of a source in one run."""

    tables: KnownTables
    pauses: Pauses
    versions: SchemaVersions
    catalogue: CatalogueWatch

    def target(self, described: TableSchema) -> TargetSchema:
        """The schema version decided last, with how rows of all others are read."""
        return self.versions.target(self.tables.of(ORDERS), described, {}, is_mixed=True)


def schema_versions(
    folder: Path,
    server: Server,
    policy: Policy | None = None,
    lake: pa.Schema | None = None,
    selection: SelectionOptions | None = None,
) -> Parts:
    log = SchemaLog(str(folder / "shapes"), {})
    plan = TypingPlan(TypeOptions(), selection or SelectionOptions())
    lake = lake or pa.schema([("id", pa.int32()), ("note", pa.string())])
    policy = policy or Policy()
    tables, steps = KnownTables(log), SchemaSteps(plan, lambda name: lake)
    pauses, decisions = Pauses(log, tables, server, policy), SchemaDecisions(steps, policy)  # type: ignore[arg-type]
    versions = SchemaVersions(log, tables, pauses, steps, decisions)
    catalogue = CatalogueWatch(server, tables, pauses, decisions, versions)  # type: ignore[arg-type]
    return Parts(tables, pauses, versions, catalogue)


def begun(folder: Path, first: TableSchema) -> tuple[Parts, Server]:
    """A table whose snapshot of LSN 100 is in force as schema version 1."""
    server = Server(first)
    found = schema_versions(folder, server)
    found.versions.open(ORDERS, None)
    assert found.versions.number(first, first, 90, 100) == 1
    return found, server


def read_again(folder: Path, again: TableSchema) -> Parts:
    """The schema versions of a run after one that has read the table again, as schema version 2."""
    SchemaLog(str(folder / "shapes"), {}).add_versions([(ORDERS, SchemaVersion(2, again))], 300)
    return schema_versions(folder, Server(again))


def test_a_column_that_came_back_under_its_name_is_not_the_one_that_went(tmp_path: Path) -> None:
    first = table(ID, NOTE)
    again = table(ID, column(3, "note"), version=2)
    known, _ = begun(tmp_path, first)
    assert known.versions.number(again, again, 200, 100) != 1
    assert known.tables.of(ORDERS).reread is not None


def test_a_step_keeps_a_source_column_that_begins_as_the_lakes_own_do(tmp_path: Path) -> None:
    mine = column(3, "__v", INT)
    first, renamed = table(ID, NOTE, mine), table(ID, column(2, "remark"), mine, touched=(2,), version=2)
    row = pa.struct([("id", pa.int32()), ("note", pa.string()), ("__v", pa.int32()), (RESCUED, pa.string())])
    known = schema_versions(tmp_path, Server(first), lake=lake_schema(row))
    known.versions.open(ORDERS, None)
    assert known.versions.number(first, first, 90, 100) == 1
    known.versions.number(renamed, renamed, 200, 100)
    [step] = known.tables.of(ORDERS).pending
    assert [(each.name, each.source) for each in step.columns] == [("id", "id"), ("remark", "note"), ("__v", "__v")]


@pytest.mark.parametrize("last", [0, 1, 2])
def test_a_run_continues_at_the_version_of_the_last_change_appended(tmp_path: Path, last: int) -> None:
    first = table(ID, NOTE)
    renamed = table(ID, column(2, "remark"), touched=(2,), version=2)
    again = table(ID, column(2, "remarks"), touched=(2,), version=3)
    known, _ = begun(tmp_path, first)
    assert known.versions.number(renamed, renamed, 200, 100) == 2
    later = schema_versions(tmp_path, Server(again))
    state = later.versions.open(ORDERS, 1)
    later.versions.take_up(ORDERS, lambda: last)
    assert [step.number for step in state.pending] == ([2] if last == 2 else [])
    assert later.versions.number(again, again, 300, 100) == 3
    assert state.schema_versions[3].parent == max(last, 1)
    # Changes under the version in between can be read only if it is an ancestor.
    assert (later.target(again).views[2].steps is not None) is (last == 2)


def test_a_version_that_the_lake_table_has_already_is_not_taken_up(tmp_path: Path) -> None:
    first, renamed = table(ID, NOTE), table(ID, column(2, "remark"), touched=(2,), version=2)
    known, _ = begun(tmp_path, first)
    known.versions.number(renamed, renamed, 200, 100)
    later = schema_versions(tmp_path, Server(renamed))
    state = later.versions.open(ORDERS, 2)
    later.versions.take_up(ORDERS, lambda: 1)
    assert state.schema_version is not None and state.schema_version.number == 2 and not state.pending


def test_the_book_distinguishes_the_new_column_from_the_old_one(tmp_path: Path) -> None:
    first, again = table(ID, NOTE), table(ID, column(3, "note"))
    server = Server(first)
    registry = TableRegistry(server, lambda name: True, [first])
    relation = Relation(first.oid, ORDERS.schema, ORDERS.table, ReplicaIdentity.DEFAULT, ())
    assert (described := registry.describe(relation, 1)) is not None and described.version == 1
    server.now = again
    assert (described := registry.describe(relation, 2)) is not None and described.version == 2


def test_rows_of_the_time_before_a_snapshot_change_nothing_about_it(tmp_path: Path) -> None:
    known, _ = begun(tmp_path, table(ID, NOTE))
    older = table(ID, column(2, "text_of"), version=2)
    number = known.versions.number(older, older, 99, 100)
    assert number == 2
    assert known.tables.of(ORDERS).schema_version is known.tables.of(ORDERS).schema_versions[1]
    assert known.tables.of(ORDERS).reread is None
    # Whatever of them the snapshot does not show can be read in no way.
    assert known.target(older).views[2].steps is None


def test_reading_again_outlives_the_run_until_a_later_schema_version_is_in_force(tmp_path: Path) -> None:
    first = table(ID, NOTE)
    known, server = begun(tmp_path, first)
    known.pauses.want_reread(ORDERS, "its rows were rewritten")
    assert schema_versions(tmp_path, server).versions.open(ORDERS, 1).reread == "its rows were rewritten"
    assert schema_versions(tmp_path, server).versions.open(ORDERS, None).reread is not None
    assert known.versions.reserve(ORDERS) == 2
    assert read_again(tmp_path, first).versions.open(ORDERS, 2).reread is None


def test_a_schema_version_of_the_stream_never_takes_the_number_of_one_being_read(tmp_path: Path) -> None:
    first = table(ID, NOTE)
    known, _ = begun(tmp_path, first)
    known.pauses.want_reread(ORDERS, "its rows were rewritten")
    reserved = known.versions.reserve(ORDERS)
    later = table(ID, column(2, "text_of"), version=2)
    assert known.versions.number(later, later, 300, 100) > reserved


def test_a_dropped_column_does_not_come_back_to_older_changes_by_a_new_one(tmp_path: Path) -> None:
    first = table(ID, NOTE)
    known, _ = begun(tmp_path, first)
    without = table(ID, version=2, changes={"attributes": 2})
    again = table(ID, column(3, "note"), version=3)
    assert known.versions.number(without, without, 200, 100) == 2
    assert known.versions.number(again, again, 300, 100) == 3
    steps = known.target(again).views[1].steps
    assert steps is not None and [step.number for step in steps] == [2, 3]
    assert next(each for each in steps[1].columns if each.name == "note").source is None


def test_the_key_goes_by_its_new_name_for_changes_of_before(tmp_path: Path) -> None:
    first = table(ID, NOTE)
    known, _ = begun(tmp_path, first)
    renamed = table(column(1, "nr", INT), NOTE, version=2, primary_key=("nr",), identity_key=("nr",), touched=(1,))
    assert known.versions.number(renamed, renamed, 200, 100) == 2
    assert not has_had_keys(known.target(renamed))


def test_a_refused_table_is_read_again_once_its_remedy_was_done(tmp_path: Path) -> None:
    first = table(ID, NOTE)
    known, server = begun(tmp_path, first)
    assert first.fingerprint is not None and first.fingerprint.publication is not None
    silent = table(ID, NOTE, changes={"publication": replaced_entries(first)})
    server.now = silent
    known.catalogue.poll(lambda: 500)
    assert known.tables.of(ORDERS).paused is not None
    known.catalogue.poll(lambda: 501)
    assert known.tables.of(ORDERS).paused is not None
    server.now = table(ID, NOTE, changes={"publication": replaced_entries(first, oid=9)})
    known.catalogue.poll(lambda: 502)
    assert known.tables.of(ORDERS).paused is None and known.tables.of(ORDERS).reread is not None


@pytest.mark.parametrize(
    ("remedy", "is_reread"), [("Add it again; it is then re-read.", True), ("Then run wal2lake replay with it.", False)]
)
def test_a_pause_recorded_without_its_cause_goes_by_its_remedy(tmp_path: Path, remedy: str, is_reread: bool) -> None:
    begun(tmp_path, table(ID, NOTE))
    log = DeltaTable.open(str(tmp_path / "shapes"))
    assert log is not None
    row = {"schema_name": ORDERS.schema, "table_name": ORDERS.table, "kind": "paused", "lsn": 7, "reason": "R."}
    append_rows(log, [{**row, "remedy": remedy, "recorded_at": datetime.now(UTC)}], log.schema)
    known = schema_versions(tmp_path, Server(table(ID, NOTE)))
    found = known.versions.open(ORDERS, 1)
    assert found.paused is not None and found.paused.cause is None
    known.catalogue.poll(lambda: 500)
    assert (found.paused is None, found.reread is not None) == (is_reread, is_reread)


def test_the_cause_of_a_pause_is_kept(tmp_path: Path) -> None:
    known, _ = begun(tmp_path, table(ID, NOTE))
    known.pauses.pause(ORDERS, PauseCause.FOLDER, "Its reason.", "Its remedy; it is then re-read.", 200)
    again = schema_versions(tmp_path, Server(table(ID, NOTE)))
    again.versions.open(ORDERS, 1)
    again.catalogue.poll(lambda: 500)
    paused = again.tables.of(ORDERS).paused
    assert paused is not None and paused.cause is PauseCause.FOLDER and not paused.ends_by_reread


def test_each_remedy_of_a_cause_is_a_sentence() -> None:
    assert PauseCause.UNLOGGED.remedy("Do it") == "Do it; it is then re-read."
    assert PauseCause.SCHEMA_CHANGE.remedy("Do it") == "Do it."


def test_a_column_without_changes_is_found_again_after_an_earlier_change_came_first(tmp_path: Path) -> None:
    known, server = begun(tmp_path, table(ID, NOTE))
    one, two = column(3, "one", INT), column(4, "two", INT)
    server.now = table(ID, NOTE, one, two)
    known.catalogue.poll(lambda: 500)
    assert known.tables.of(ORDERS).is_on_its_way and not known.catalogue.is_poll_due
    # Rows that were written between the two ALTER TABLE.
    known.versions.number(dataclasses.replace(table(ID, NOTE, one), version=2), server.now, 200, 100)
    assert known.catalogue.is_poll_due
    known.catalogue.poll(lambda: 500)
    assert not known.catalogue.is_poll_due
    assert known.versions.follow_passed(500) == [ORDERS]
    schema_version = known.tables.of(ORDERS).schema_version
    assert schema_version is not None and [each.name for each in schema_version.table.columns] == [
        "id",
        "note",
        "one",
        "two",
    ]


def test_a_change_that_was_found_is_not_found_again_at_a_later_lsn(tmp_path: Path) -> None:
    known, server = begun(tmp_path, table(ID, NOTE))
    server.now = table(ID, NOTE, column(3, "one", INT))
    for lsn in (500, 600):
        known.catalogue.poll(partial(int, lsn))
    assert known.versions.follow_passed(500) == [ORDERS]


def test_a_paused_table_continues_only_if_all_its_changes_can_be_read(tmp_path: Path) -> None:
    known, _ = begun(tmp_path, table(ID, NOTE))
    known.pauses.pause(ORDERS, PauseCause.FOLDER, "Its reason.", "Its remedy.", 200)
    assert known.catalogue.can_go_on(ORDERS)
    meanwhile = table(ID, column(2, "text_of"), version=2)
    known.versions.number(meanwhile, meanwhile, 300, 100)
    assert not known.catalogue.can_go_on(ORDERS)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_partition_that_gets_no_changes_of_its_own_any_more_is_not_read(tmp_path: Path, is_own: bool) -> None:
    first = table(ID, NOTE)
    assert first.fingerprint is not None and first.fingerprint.publication is not None
    mark = dataclasses.replace(first.fingerprint.publication, via_root=True, is_own=is_own)
    now = dataclasses.replace(first, fingerprint=dataclasses.replace(first.fingerprint, publication=mark))
    known = schema_versions(tmp_path, Server(now))
    known.versions.open(ORDERS, None)
    known.versions.number(first, now, 90, None)
    state = known.tables.of(ORDERS)
    assert (state.reread is not None, state.paused is not None) == (is_own, not is_own)


@pytest.mark.parametrize("is_first", [False, True])
def test_the_policy_pauses_what_else_would_be_read_again(tmp_path: Path, is_first: bool) -> None:
    first = table(ID, NOTE)
    known = schema_versions(tmp_path, Server(first), Policy(changes=SchemaChanges.PAUSE))
    known.versions.open(ORDERS, None)
    known.versions.number(first, first, 90, 100)
    known.pauses.want_reread(ORDERS, "it was changed under another name", is_first=is_first)
    assert (known.tables.of(ORDERS).paused is None) is is_first
    assert (known.tables.of(ORDERS).reread is not None) is is_first


def replaced_entries(first: TableSchema, oid: int = 0) -> object:
    assert first.fingerprint is not None and first.fingerprint.publication is not None
    mark = first.fingerprint.publication
    entries = tuple(dataclasses.replace(entry, oid=oid) for entry in mark.entries) if oid else ()
    return dataclasses.replace(mark, entries=entries)


def test_the_catalogue_is_read_before_a_record_only_if_values_may_have_changed(tmp_path: Path) -> None:
    known, server = begun(tmp_path, table(ID, NOTE))
    known.catalogue.poll_if_altered(lambda: 300)
    known.catalogue.poll_if_altered(lambda: 310)
    assert server.looks == 1
    server.stamp = "another"
    known.catalogue.poll_if_altered(lambda: 320)
    assert server.looks == 2


def test_the_first_comparison_is_not_made_twice_unless_a_table_is_altered_meanwhile(tmp_path: Path) -> None:
    known, server = begun(tmp_path, table(ID, NOTE))
    known.catalogue.poll(lambda: 300)
    known.catalogue.poll_if_altered(lambda: 310)
    assert server.looks == 1
    known, server = begun(tmp_path / "altered", table(ID, NOTE))
    server.stamp_after_look = "altered after its fingerprint was read"
    known.catalogue.poll(lambda: 300)
    known.catalogue.poll_if_altered(lambda: 310)
    assert server.looks == 2


NOTES = (r"public\.orders\.note",)
HASHED = SelectionOptions(column_mask_hash_v2=(("SHA-256", "salt", NOTES),))
CUT = SelectionOptions(column_truncate_to_n_chars=(("3", NOTES),))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (SelectionOptions(), HASHED),
        (HASHED, SelectionOptions()),
        (HASHED, SelectionOptions(column_mask_hash_v2=(("SHA-256", "another", NOTES),))),
        (HASHED, SelectionOptions(column_mask_hash=(("SHA-256", "salt", NOTES),))),
        (CUT, SelectionOptions(column_truncate_to_n_chars=(("4", NOTES),))),
        (CUT, SelectionOptions(column_mask_with_n_chars=(("3", NOTES),))),
        (SelectionOptions(column_exclude_list=NOTES), SelectionOptions()),
        (SelectionOptions(column_include_list=(r".*\.id",)), CUT),
    ],
)
def test_columns_that_are_treated_otherwise_are_read_again(
    tmp_path: Path, before: SelectionOptions, now: SelectionOptions
) -> None:
    first = table(ID, NOTE)
    known = schema_versions(tmp_path, Server(first), selection=before)
    known.versions.open(ORDERS, None)
    assert known.versions.number(first, first, 90, 100) == 1
    assert schema_versions(tmp_path, Server(first), selection=before).versions.open(ORDERS, 1).reread is None
    again = schema_versions(tmp_path, Server(first), selection=now).versions.open(ORDERS, 1)
    assert again.reread is not None and "note" in again.reread
    # Recorded before a change of it is merged, whatever becomes of this run; and no salt is in it.
    assert schema_versions(tmp_path, Server(first), selection=now).versions.open(ORDERS, 1).reread is not None
    stored = [entry.treatments for history in SchemaLog(str(tmp_path / "shapes"), {}).read().values()
              for entry in history.versions.values()]  # fmt: skip
    assert all(treatments is not None and "salt" not in str(treatments) for treatments in stored)


def test_a_column_that_was_not_captured_for_some_time_is_read_again(tmp_path: Path) -> None:
    first, without = table(ID, NOTE), SelectionOptions(column_exclude_list=NOTES)
    known = schema_versions(tmp_path, Server(first))
    known.versions.open(ORDERS, None)
    known.versions.number(first, first, 90, 100)
    assert schema_versions(tmp_path, Server(first), selection=without).versions.open(ORDERS, 1).reread is None
    assert schema_versions(tmp_path, Server(first)).versions.open(ORDERS, 1).reread is not None


def test_a_table_whose_changes_were_skipped_for_some_time_is_read_again(tmp_path: Path) -> None:
    first = table(ID, NOTE)

    def reread_with(*skipped: str) -> str | None:
        chosen = SelectionOptions(skipped_operations=skipped)
        return schema_versions(tmp_path, Server(first), selection=chosen).versions.open(ORDERS, 1).reread

    known = schema_versions(tmp_path, Server(first))
    known.versions.open(ORDERS, None)
    known.versions.number(first, first, 90, 100)
    assert reread_with("t") is None and reread_with("t", "d") is None and reread_with("d", "u") is None
    assert "d, u" in (reread_with("t") or "")


def test_a_table_whose_record_is_lost_is_read_again(tmp_path: Path) -> None:
    first = table(ID, NOTE)
    begun(tmp_path / "lost", first)
    found = schema_versions(tmp_path, Server(first))
    assert found.versions.open(ORDERS, 1).reread is not None and found.versions.reserve(ORDERS) == 2
    # Never read, or written by a release that recorded no schema versions.
    assert schema_versions(tmp_path / "new", Server(first)).versions.open(ORDERS, None).reread is None
    assert schema_versions(tmp_path / "lost", Server(first)).versions.open(ORDERS, 1).reread is None


def test_what_an_earlier_release_did_with_columns_is_taken_as_it_is_now(tmp_path: Path) -> None:
    first = table(ID, NOTE)
    SchemaLog(str(tmp_path / "shapes"), {}).add_versions([(ORDERS, SchemaVersion(1, first))], 77)
    assert schema_versions(tmp_path, Server(first), selection=HASHED).versions.open(ORDERS, 1).reread is None
    history = SchemaLog(str(tmp_path / "shapes"), {}).read()[ORDERS]
    assert history.versions[1].treatments is not None and history.lsns == {1: 77}
    assert schema_versions(tmp_path, Server(first)).versions.open(ORDERS, 1).reread is not None


def test_a_column_that_gets_a_masked_name_is_read_again(tmp_path: Path) -> None:
    first, renamed = table(ID, column(2, "remark")), table(ID, NOTE, touched=(2,), version=2)
    lake = pa.schema([("id", pa.int32()), ("remark", pa.string())])
    for folder, selection, is_read in (("plain", None, False), ("masked", HASHED, True)):
        known = schema_versions(tmp_path / folder, Server(first), lake=lake, selection=selection)
        known.versions.open(ORDERS, None)
        known.versions.number(first, first, 90, 100)
        known.versions.number(renamed, renamed, 200, 100)
        assert (known.tables.of(ORDERS).reread is not None) is is_read


def test_a_table_that_was_not_captured_for_some_time_is_read_again(tmp_path: Path) -> None:
    first = table(ID, NOTE)
    begun(tmp_path, first)
    elsewhere = schema_versions(tmp_path, Server(first))
    elsewhere.pauses.leave_out(lambda name: True)
    assert schema_versions(tmp_path, Server(first)).versions.open(ORDERS, 1).reread is None
    for _ in range(2):
        schema_versions(tmp_path, Server(first)).pauses.leave_out(lambda name: False)
    assert schema_versions(tmp_path, Server(first)).versions.open(ORDERS, 1).reread is not None
    assert read_again(tmp_path, first).versions.open(ORDERS, 2).reread is None


def test_a_pause_ends_with_the_entry_after_it_whatever_the_clock_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=1)

    path = str(tmp_path / "shapes")
    with monkeypatch.context() as wrong:
        wrong.setattr(schema_log, "datetime", Ahead)
        paused = SchemaLog(path, {}).pause(ORDERS, PauseCause.DROPPED, "r", "", 7)
    assert SchemaLog(path, {}).read()[ORDERS].paused == paused
    SchemaLog(path, {}).resume(ORDERS, 8)
    assert SchemaLog(path, {}).read()[ORDERS].paused is None

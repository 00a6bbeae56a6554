"""The decision, fact by fact. What real servers do is in tests/postgres/test_schema_changes_forms.py."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cdc_core.lake.names import OWN_NAMES, RESCUED
from cdc_core.schema.changes import (
    AddColumn,
    ChangeKind,
    DeltaFeature,
    DropColumn,
    DroppedColumns,
    LakeFeatures,
    Policy,
    RenameColumn,
    RetireColumn,
    SchemaChanges,
    SetKey,
    Verdict,
    WidenColumn,
    project,
)
from cdc_core.schema.evolution import decide
from cdc_core.schema.fingerprint import KeyMark, PublicationEntry, StorageMark, TypeMark
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.plan import OWN_COLUMNS
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import TableSchema
from tests.unit.schema.versions import (
    FOR_ALL,
    ID,
    INT,
    LISTED,
    NUMERIC,
    PRIMARY_KEY,
    VARCHAR,
    announced,
    column,
    lake_type,
    marks,
    table,
)

A, B = column(2, "a"), column(3, "b")
BASE = table(ID, A, B, version=4)
FULL: dict[str, Any] = {"identity": ReplicaIdentity.FULL, "identity_key": ()}


def decided(base: TableSchema, now: TableSchema | None, told: TableSchema | None = None, **options: Any) -> Any:
    return decide(base, told, now, lake_type=lake_type, **options)


def test_an_unchanged_table_keeps_its_version_and_takes_the_new_marks() -> None:
    now = table(ID, A, B, changes={"comments": "changed since"})
    for told in (None, announced(BASE)):
        decision = decided(BASE, now, told)
        assert (decision.verdict, decision.changes, decision.operations) == (Verdict.FOLLOW, (), ())
        assert decision.table == BASE and decision.table.version == 4
        assert decision.marks == now.fingerprint


def test_an_added_column_fills_older_rows_with_the_missing_value() -> None:
    now = table(ID, A, B, column(4, "c", INT, has_missing=True, missing="7"), column(5, "d"))
    decision = decided(BASE, now, announced(now))
    assert [(op.column.name, op.fill) for op in decision.operations] == [("c", "7"), ("d", None)]
    assert decision.table.version == 5
    assert [c.attnum for c in decision.table.columns] == [1, 2, 3, 4, 5]


def test_a_column_of_the_future_is_left_for_later_and_filled_then() -> None:
    now = table(ID, A, B, column(4, "c", INT, has_missing=True, missing="7"))
    first = decided(BASE, now, announced(BASE))
    assert first.operations == () and [c.name for c in first.table.columns] == ["id", "a", "b"]
    second = decided(first.table, now, announced(now))
    assert second.operations == (AddColumn(now.column("c"), "7"),)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_column_without_a_missing_value_in_a_rewritten_table_is_read_again(ahead: bool) -> None:
    now = table(ID, A, B, column(4, "c", INT), changes={"storage": (StorageMark(100, 201, 300, False),)})
    decision = decided(BASE, now, announced(BASE if ahead else now))
    assert decision.verdict is Verdict.REREAD
    assert decision.changes[0].kind is ChangeKind.VALUES_UNKNOWN
    assert decision.table is None and decision.reason.count(".") >= 1


def test_partitions_that_disagree_on_the_missing_value_are_read_again() -> None:
    now = table(ID, A, B, column(4, "c", INT, has_missing=True, missing=None))
    assert decided(BASE, now).verdict is Verdict.REREAD


def test_pause_takes_the_place_of_reading_again() -> None:
    now = table(ID, A, B, column(4, "c", INT, has_missing=True, missing=None))
    decision = decided(BASE, now, policy=Policy(SchemaChanges.PAUSE))
    assert decision.verdict is Verdict.REFUSE
    assert "wal2lake snapshot" in decision.remedy and "public.orders" in decision.remedy


@pytest.mark.parametrize(("policy", "expected"), [("keep", RetireColumn("a")), ("drop", DropColumn("a"))])
def test_a_dropped_column_stays_or_goes(policy: str, expected: object) -> None:
    now = table(ID, B, changes={"attributes": 3})
    decision = decided(BASE, now, announced(now), policy=Policy(dropped=DroppedColumns(policy)))
    assert decision.operations == (expected,)


def test_a_column_made_again_under_its_name_takes_nothing_from_the_old_one() -> None:
    now = table(ID, B, column(4, "a"), changes={"attributes": 4})
    decision = decided(BASE, now, announced(now))
    assert decision.operations == (DropColumn("a"), AddColumn(now.column("a")))


def test_a_retired_columns_name_is_given_to_a_new_column() -> None:
    decision = decided(table(ID, A), table(ID, A, B), lake_columns=["id", "B", "a"])
    assert decision.operations == (DropColumn("B"), AddColumn(B))


def test_a_ring_of_renames_goes_through_another_name() -> None:
    now = table(ID, column(2, "b"), column(3, "a"), touched=(2, 3))
    decision = decided(BASE, now, announced(now))
    assert all(isinstance(op, RenameColumn) for op in decision.operations) and len(decision.operations) == 3
    assert {p.name: p.source for p in project(["id", "a", "b"], decision.operations)} == {
        "id": "id",
        "b": "a",
        "a": "b",
    }


def test_renames_in_a_row_are_ordered_so_that_no_name_is_taken() -> None:
    now = table(ID, column(2, "b"), column(3, "c"))
    assert decided(BASE, now).operations == (RenameColumn("b", "c"), RenameColumn("a", "b"))


def test_a_change_of_case_is_a_rename() -> None:
    assert decided(BASE, table(ID, column(2, "A"), B)).operations == (RenameColumn("a", "A"),)


@pytest.mark.parametrize("features", LakeFeatures)
def test_features_decide_how_the_lake_changes_not_into_what(features: LakeFeatures) -> None:
    base = table(ID, column(2, "n", NUMERIC, modifier=(8 << 16 | 2) + 4))
    now = table(ID, column(2, "m", NUMERIC, modifier=(14 << 16 | 2) + 4))
    decision = decided(base, now, policy=Policy(features=features))
    assert decision.operations == (RenameColumn("n", "m"), WidenColumn("m", now.column("m")))
    both = {DeltaFeature.COLUMN_MAPPING, DeltaFeature.TYPE_WIDENING}
    widest = features is LakeFeatures.WIDEST
    assert (decision.rewrites_lake, decision.needs) == (widest, set() if widest else both)
    assert project(["id", "n"], decision.operations)[1].column == now.column("m")


def test_a_decimal_that_does_not_fit_the_new_one_is_read_again() -> None:
    base = table(ID, column(2, "n", NUMERIC, modifier=(30 << 16 | 2) + 4))
    decision = decided(base, table(ID, column(2, "n", NUMERIC)))
    assert decision.verdict is Verdict.REREAD and decision.changes[0].kind is ChangeKind.CHANGE_TYPE


def test_a_longer_string_needs_nothing_of_the_lake() -> None:
    base = table(ID, column(2, "v", VARCHAR, modifier=9))
    now = table(ID, column(2, "v", VARCHAR, modifier=24), touched=(2,))
    decision = decided(base, now, announced(now))
    assert decision.operations == () and [c.kind for c in decision.changes] == [ChangeKind.CHANGE_TYPE]
    assert decision.table.column("v").modifier == 24


def altered(attnum: int | tuple[int, ...], now: TableSchema, **storage: int) -> TableSchema:
    """A rewrite that touched the catalogue's rows of some columns."""
    found = now.fingerprint
    assert found is not None
    touched = attnum if isinstance(attnum, tuple) else (attnum,)
    columns = tuple(dataclasses.replace(c, row="95") if c.attnum in touched else c for c in found.columns)
    heap = dataclasses.replace(found.storage[0], **storage)
    return dataclasses.replace(now, fingerprint=dataclasses.replace(found, columns=columns, storage=(heap,)))


def test_a_rewrite_of_a_column_is_read_again_even_where_its_type_stays() -> None:
    now = altered(2, BASE, filenode=201, toast=301)
    decision = decided(BASE, now, announced(BASE))
    assert decision.verdict is Verdict.REREAD and decision.changes[0].column == "a"


def test_vacuum_full_is_recognized_by_its_unchanged_toast_table() -> None:
    assert decided(BASE, altered(2, BASE, filenode=201)).verdict is Verdict.FOLLOW
    narrow = altered(0, BASE, toast=0)
    assert decided(narrow, altered(0, narrow, filenode=201)).verdict is Verdict.FOLLOW
    assert decided(narrow, altered(2, narrow, filenode=201)).verdict is Verdict.REREAD


def test_a_cleared_missing_value_alone_is_no_altered_column() -> None:
    added = table(ID, A, column(3, "b", has_missing=True, missing="x"))
    assert added.fingerprint is not None

    def rows(row: str, default: int, has_missing: bool, heap: StorageMark) -> TableSchema:
        mark = dataclasses.replace(added.fingerprint.columns[2], row=row, default=default, has_missing=has_missing)
        columns = (*added.fingerprint.columns[:2], mark)
        found = dataclasses.replace(added.fingerprint, columns=columns, storage=(heap,))
        return dataclasses.replace(added, fingerprint=found)

    before = rows("90", 500, True, StorageMark(100, 200, 0, False))
    stored_anew = StorageMark(100, 201, 0, False)
    assert decided(before, rows("95", 500, False, stored_anew)).verdict is Verdict.FOLLOW
    assert decided(before, rows("95", 501, False, stored_anew)).verdict is Verdict.REREAD
    undefaulted = rows("90", 0, True, StorageMark(100, 200, 0, False))
    assert decided(undefaulted, rows("95", 0, False, stored_anew)).verdict is Verdict.REREAD


def test_a_row_touched_behind_an_altered_column_names_nobody_and_a_kept_default_proves_that_nothing_changed() -> None:
    """Since November 2026 an ALTER COLUMN TYPE changes the rows of all columns behind its own."""

    def with_default(version: TableSchema, attnum: int, default: int) -> TableSchema:
        assert version.fingerprint is not None
        columns = tuple(
            dataclasses.replace(mark, default=default) if mark.attnum == attnum else mark
            for mark in version.fingerprint.columns
        )
        return dataclasses.replace(version, fingerprint=dataclasses.replace(version.fingerprint, columns=columns))

    rewritten = {"filenode": 201, "toast": 301}
    base = table(ID, A, B)
    for touched, reason in (
        ((2, 3), "by ALTER TABLE, column a altered."),
        ((3,), "by ALTER TABLE, column b altered."),
    ):
        decision = decided(base, altered(touched, base, **rewritten))
        assert decision.verdict is Verdict.REREAD and decision.reason.endswith(reason)
    computed = dataclasses.replace(A, generated="s")
    base = table(ID, computed, B)
    decision = decided(base, altered((2, 3), base, **rewritten))
    assert decision.verdict is Verdict.REREAD
    assert decision.reason.endswith("the catalogue does not show whether this changed column b.")
    base = with_default(base, 3, 500)
    now = altered((2, 3), base, **rewritten)
    assert decided(base, now).verdict is Verdict.FOLLOW
    decision = decided(base, with_default(now, 3, 501))
    assert decision.verdict is Verdict.REREAD and decision.reason.endswith("column b altered.")
    listed = dataclasses.replace(LISTED, entries=(PublicationEntry("t", 8, columns=(1, 3)),))
    base = table(ID, A, B, changes={"publication": listed})
    assert decided(base, altered((2, 3), base, **rewritten)).verdict is Verdict.FOLLOW


def test_a_table_that_no_publication_names_may_have_been_unlogged() -> None:
    base = table(ID, A, changes={"publication": FOR_ALL})
    for storage, expected in (({"filenode": 201, "toast": 301}, Verdict.REREAD), ({"filenode": 201}, Verdict.FOLLOW)):
        assert decided(base, altered(0, base, **storage)).verdict is expected


@pytest.mark.parametrize("name", ["__rescued", "__COMMIT_LSN"])
def test_a_column_named_like_one_of_the_lakes_own_is_refused(name: str) -> None:
    added, renamed = table(ID, A, B, column(4, name)), table(ID, column(2, name), B, touched=(2,))
    for now in (added, renamed):
        decision = decided(BASE, now, announced(now))
        assert decision.verdict is Verdict.REFUSE
        assert name in decision.reason and "rename" in decision.remedy


def test_the_names_of_the_lakes_own_columns_are_known() -> None:
    assert {RESCUED, *OWN_NAMES} == OWN_COLUMNS


@pytest.mark.parametrize(
    ("leaf", "server", "expected"),
    [
        ({}, "1", Verdict.FOLLOW),
        ({"path": "96 "}, "1", Verdict.REREAD),
        ({"filenode": 202}, "1", Verdict.REREAD),
        ({"path": "96 "}, "2", Verdict.FOLLOW),
    ],
    ids=["nothing", "attached again", "truncated", "another server"],
)
def test_a_partition_attached_again_or_truncated_is_read_again(
    leaf: dict[str, Any], server: str, expected: Verdict
) -> None:
    rooted = dataclasses.replace(LISTED, via_root=True)
    mark = StorageMark(101, 201, 301, False, path="95 ")
    facts: dict[str, Any] = {"is_partitioned": True, "publication": rooted}
    base = table(ID, A, changes={**facts, "storage": (mark,)})
    now = table(ID, A, changes={**facts, "storage": (dataclasses.replace(mark, **leaf),), "server": server})
    assert decided(base, now).verdict is expected


def test_an_unlogged_table_waits_for_somebody() -> None:
    now = table(ID, A, B, changes={"storage": (StorageMark(100, 201, 301, True),)})
    decision = decided(BASE, now)
    assert decision.verdict is Verdict.REFUSE and "SET LOGGED" in decision.remedy


def test_a_table_published_again_is_read_again_and_one_not_published_waits() -> None:
    again = dataclasses.replace(LISTED, entries=(PublicationEntry("t", 9),))
    gone = dataclasses.replace(LISTED, entries=())
    assert decided(BASE, table(ID, A, B, changes={"publication": again})).verdict is Verdict.REREAD
    assert decided(BASE, table(ID, A, B, changes={"publication": gone})).verdict is Verdict.REFUSE


def test_an_upgraded_server_is_compared_by_facts_alone() -> None:
    upgraded = dataclasses.replace(LISTED, oid=70, row="3", entries=(PublicationEntry("t", 80),))
    same = table(ID, A, B, changes={"publication": upgraded, "server": "2"})
    assert decided(BASE, altered(2, same)).verdict is Verdict.FOLLOW
    assert decided(BASE, altered(2, same, filenode=999, toast=998)).verdict is Verdict.REREAD
    listed = dataclasses.replace(upgraded, entries=(PublicationEntry("t", 80, columns=(1,)),))
    assert decided(BASE, table(ID, A, B, changes={"publication": listed, "server": "2"})).verdict is Verdict.REREAD


def test_another_oid_is_another_table() -> None:
    now = dataclasses.replace(BASE, oid=101, fingerprint=marks(BASE.columns, oid=101))
    assert decided(BASE, now).changes[0].kind is ChangeKind.RECREATED


def test_a_dropped_table_takes_its_last_events_and_no_unknown_columns() -> None:
    assert decided(BASE, None, announced(BASE)).table == BASE
    decision = decided(BASE, None, announced(table(ID, A)))
    assert decision.verdict is Verdict.REFUSE and decision.remedy


def test_a_column_left_out_is_nobodys_until_its_name_is_captured() -> None:
    now = table(ID, A, column(3, "secret2"))
    base = table(ID, A, column(3, "secret"))

    def captures(name: str) -> bool:
        return not name.startswith("secret")

    assert decided(base, now, captures=captures).operations == ()
    assert decided(base, table(ID, A, column(3, "open")), captures=captures).verdict is Verdict.REREAD
    assert decided(table(ID, A, B), now, captures=captures).operations == (RetireColumn("b"),)


def test_names_that_delta_cannot_tell_apart_wait_for_somebody() -> None:
    decision = decided(BASE, table(ID, A, B, column(4, "B")))
    assert decision.verdict is Verdict.REFUSE and "column.exclude.list" in decision.remedy


def test_a_key_is_followed_where_events_name_it_and_read_again_where_they_do_not() -> None:
    other = KeyMark(501, 500, (1, 2), 502, "95", "p")
    now = table(ID, A, B, primary_key=("id", "a"), identity_key=("id", "a"), changes={"keys": (other,)})
    assert decided(BASE, now, announced(now)).operations == (SetKey(("id", "a")),)
    base, now = dataclasses.replace(BASE, **FULL), dataclasses.replace(now, **FULL)
    both = dataclasses.replace(now, fingerprint=marks(now.columns, keys=(PRIMARY_KEY, other)))
    keyless = table(ID, A, B, primary_key=(), changes={"keys": ()}, **FULL)
    for told, is_current in ((None, False), (now, False), (now, True), (keyless, False)):
        assert decided(base, now, told and announced(told), is_current=is_current).verdict is Verdict.REREAD
    assert decided(base, base, announced(base)).operations == ()
    for told in (None, announced(keyless)):
        assert decided(base, keyless, told).verdict is Verdict.REREAD, "rows had equal keys until it was announced"
    # The earlier key was there all the time, and the present one is from here on.
    assert decided(base, both).operations == (SetKey(("id", "a")),)
    assert decided(base, both, announced(both)).verdict is Verdict.REREAD, "since when the other is there is not known"
    assert decided(keyless, now).operations == (SetKey(("id", "a")),)


ONCE = (PRIMARY_KEY,)
ANEW = (KeyMark(501, 500, (1,), 502, "95", "p"),)
PLAIN = (KeyMark(401, 0, (1,), 402, "90"),)


@pytest.mark.parametrize(
    ("before", "after", "is_kept"),
    [
        (ONCE, ONCE, True),
        (ONCE, (), False),
        (ONCE, ANEW, False),
        (ONCE, (KeyMark(401, 400, (1,), 503, "90", "p"),), True),  # REINDEX
        (ONCE, (KeyMark(501, 400, (1,), 502, "95", "p"),), True),  # REINDEX CONCURRENTLY
        (ONCE, (KeyMark(501, 500, (1,), 402, "95", "p"),), True),  # ALTER COLUMN TYPE without a rewrite
        (PLAIN, ONCE, True),  # ADD PRIMARY KEY USING INDEX
        (PLAIN, (KeyMark(401, 0, (1,), 403, "95", "c"),), True),  # CLUSTER
        (PLAIN, (KeyMark(401, 0, (1,), 403, "95"),), False),  # DROP INDEX CONCURRENTLY half-way, REINDEX
        (PLAIN, (KeyMark(501, 0, (1,), 502, "95"),), False),  # REINDEX CONCURRENTLY, or DROP and CREATE
        ((*PLAIN, *ANEW), ANEW, True),  # the other of two indexes is dropped
        (ONCE, (*ONCE, KeyMark(601, 0, (2,), 602, "95")), True),
        (ONCE, (KeyMark(401, 400, (), 402, "90", "p"),), False),  # no longer over all rows
    ],
)
def test_a_key_is_the_index_that_was_there_all_the_time(before: Any, after: Any, is_kept: bool) -> None:
    base, now = (table(ID, A, changes={"keys": keys}, **FULL) for keys in (before, after))
    for told in (None, announced(now)):
        assert (decided(base, now, told).verdict is Verdict.FOLLOW) is is_kept
    # The server refuses what would find several rows by a key, and each Relation message names it.
    base, now = (table(ID, A, changes={"keys": keys}) for keys in (before, after))
    for told in (None, announced(now)):
        assert decided(base, now, told).verdict is Verdict.FOLLOW
    # On another server only the same index in the same file is the same.
    there = table(ID, A, changes={"keys": after, "server": "2"}, **FULL)
    is_there = not {key.place for key in before}.isdisjoint(key.place for key in after if key.columns)
    assert (decided(table(ID, A, changes={"keys": before}, **FULL), there).verdict is Verdict.FOLLOW) is is_there
    # Partitions may have REPLICA IDENTITY FULL whatever their root has.
    base, now = (table(ID, A, changes={"keys": keys, "is_partitioned": True}) for keys in (before, after))
    assert (decided(base, now).verdict is Verdict.FOLLOW) is is_kept


def test_an_index_that_the_catalogue_shows_ahead_of_the_stream_proves_no_earlier_key() -> None:
    """A key made anew under DEFAULT is followed; changes under FULL of the time in between may still come."""
    now = table(ID, A, column(3, "c"), changes={"keys": ANEW})
    followed = decided(table(ID, A), now, announced(now))
    assert followed.verdict is Verdict.FOLLOW and followed.marks.keys == ()
    full = dataclasses.replace(now, **FULL)
    assert decided(followed.table, full, announced(full)).verdict is Verdict.REREAD
    asked = decided(followed.table, now)
    assert asked.marks.keys == ANEW
    assert decided(asked.table, full, announced(full)).verdict is Verdict.FOLLOW


def test_a_key_with_nulls_is_none() -> None:
    keys = (KeyMark(401, 0, (1,), 402, "90"),)
    base = table(ID, A, primary_key=(), unique_key=("id",), changes={"keys": keys}, **FULL)
    nullable = dataclasses.replace(base, columns=(dataclasses.replace(ID, optional=True), A))
    assert base.row_key == ("id",) and nullable.row_key == ()
    assert decided(base, nullable).verdict is Verdict.REREAD
    assert decided(nullable, base).operations == (SetKey(("id",)),)


def test_a_column_that_no_ddl_named_distinguishes_its_neighbours() -> None:
    now = table(ID, B, column(4, "a"), changes={"attributes": 4})
    touched = table(ID, B, column(4, "a"), changes={"attributes": 4}, touched=(3,))
    assert decided(BASE, now, announced(now)).verdict is Verdict.FOLLOW
    assert decided(BASE, touched, announced(now)).verdict is Verdict.REREAD, "b may have been a for a while"


def test_marks_of_a_later_moment_tell_nothing_of_names_in_between() -> None:
    ahead = table(ID, A, B, column(4, "c"), touched=(3,))
    first = decided(BASE, ahead, announced(BASE))
    assert first.marks == ahead.fingerprint and not first.marks.is_exact
    assert decided(first.table, ahead).marks.is_exact, "asked without a message, the catalogue is the version"
    now = table(ID, B, column(4, "c"), column(5, "a"), touched=(3,))
    assert decided(first.table, now, announced(now)).verdict is Verdict.REREAD
    exact = decided(first.table, ahead).table
    assert decided(exact, now, announced(now)).verdict is Verdict.FOLLOW


def test_a_caller_that_knows_the_catalogue_to_be_current_needs_no_guess() -> None:
    now = table(ID, A, column(4, "b"))
    assert decided(BASE, now, announced(now)).verdict is Verdict.REREAD
    assert decided(BASE, now, announced(now), is_current=True).operations == (
        DropColumn("b"),
        AddColumn(now.column("b")),
    )


def test_a_table_that_was_described_after_its_drop_is_read_again() -> None:
    assert decided(announced(BASE), BASE).verdict is Verdict.REREAD


def test_a_new_columns_type_that_was_altered_since_may_have_had_other_labels() -> None:
    mood = PgType(50, "mood", "public", TypeKind.ENUM)
    base = dataclasses.replace(BASE, fingerprint=marks(BASE.columns, horizon=1000))

    def now(changed: int) -> TableSchema:
        mark = TypeMark(50, "e", ((51, "sad"), (52, "ok")), changed)
        return table(ID, A, B, column(4, "c", mood), changes={"types": (mark,)})

    for changed, expected in ((0, Verdict.FOLLOW), (999, Verdict.FOLLOW), (1000, Verdict.REREAD)):
        assert decided(base, now(changed), announced(now(changed))).verdict is expected
        assert decided(base, now(changed), announced(BASE)).verdict is expected, "the column is announced later"
        assert decided(base, now(changed)).verdict is Verdict.FOLLOW, "no event has other labels"

"""The change data feed of lake tables: what each version changed, as Spark and deltalake read it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc_core.lake.apply.changes import prepare
from cdc_core.lake.delete_columns import as_live, mode_of
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.maintenance.cleaning import clean
from cdc_core.lake.maintenance.compaction import compact
from cdc_core.lake.schema.features import FeaturePolicy
from cdc_core.lake.schema.lake_schema import lake_schema
from cdc_core.schema.changes import DeltaFeature
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.delta.source_model import KEYLESS, ROW, TABLE, SourceTable
from tests.delta.test_kept_rows import Reader
from tests.support.applied_lake import MARKED, REWRITTEN, AppliedLake
from tests.support.one_table import OneTable
from tests.support.sampling import examples
from tests.support.spark import change, change_schema, row_type
from tests.support.spark import lake_schema as bare_schema
from tests.support.truncates import prepared
from tests.support.waits import patient

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("WAL2LAKE_SEED", "20261128"))
_LOST, _NEW = ("delete", "update_preimage"), ("insert", "update_postimage")
_KEY = ("h", "k")


class FedLake:
    """A lake table with a feed that follows a source."""

    def __init__(self, folder: Path, source: SourceTable, mode: DeleteMode, table: TableSchema) -> None:
        self.source, self.source_table = source, table
        self.lake = AppliedLake(folder, lake_schema(ROW, mode), key=table.row_key)
        lake = self.lake.table
        # deltalake does not read the feed of a table with column mapping.
        definition = lake.definition.with_mapping() if table is TABLE else lake.definition
        lake.commit(definition=definition.with_change_feed())
        self.lake.add(as_live(pa.Table.from_pylist(source.snapshot(), schema=bare_schema(ROW)), mode))
        self.first = lake.version

    def follow(self, statements: int, way: str, truncated: bool = False) -> None:
        made = [self.source.next_transaction(statements)] + ([self.source.truncate()] if truncated else [])
        made += [self.source.next_transaction(statements)]
        rows = pa.Table.from_pylist([row for each in made for row in each], schema=change_schema(ROW))
        if truncated and mode_of(self.lake.table.schema.names) is not DeleteMode.HARD:
            self.lake.apply(prepared(rows, self.source_table, self.lake.table.schema), MARKED, rows)
        else:
            self.lake.apply(prepare(rows, self.source_table, self.lake.table.schema), way)

    def check(self, feed: pa.Table) -> None:
        """The feed of each version is the difference to the version before; 0 rows differ."""
        seen = 0
        for version in range(self.first, self.lake.table.version + 1):
            told = [row for row in feed.to_pylist() if row["_commit_version"] == version]
            assert_difference(self.lake.table.path, version, told)
            seen += len(told)
            if self.source_table is TABLE:
                self._check_updates(told)
        assert seen == feed.num_rows > 100

    def _check_updates(self, told: list[dict[str, Any]]) -> None:
        """Each update has both images; what is deleted and inserted are other rows."""
        kinds = {
            kind: Counter(self._identity(row) for row in told if row["_change_type"] == kind)
            for kind in (*_LOST, *_NEW)
        }
        assert kinds["update_preimage"] == kinds["update_postimage"]
        assert not set(kinds["delete"]) & set(kinds["insert"])

    def _identity(self, row: dict[str, Any]) -> tuple[Any, ...]:
        more = ("__commit_lsn", "__tx_index") if "__valid_from_lsn" in row else ()
        return tuple(row[name] for name in (*_KEY, *more))


def content(lake: DeltaTable, names: list[str]) -> Counter[str]:
    return rows_as_texts(names, (row for file in lake.files for row in lake.read(file).to_pylist()))


def rows_as_texts(names: list[str], rows: Iterable[dict[str, Any]]) -> Counter[str]:
    return Counter(repr([_plain(row.get(name)) for name in names]) for row in rows)


def _plain(value: Any) -> Any:
    """Maps are lists of pairs or dictionaries, by the reader, and times have a zone of its own."""
    if isinstance(value, dict):
        return sorted(value.items())
    if isinstance(value, list):
        return sorted(value)
    return value.timestamp() if hasattr(value, "timestamp") else value


def spark_feed(spark: Any, lake: DeltaTable, since: int) -> pa.Table:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", since)
    return pa.table(reader.load(lake.path).toArrow())


@pytest.mark.parametrize("mode", list(DeleteMode))
def test_each_version_of_the_feed_is_the_difference_to_the_one_before(
    spark: Any, tmp_path: Path, mode: DeleteMode
) -> None:
    """By rewritten files, marked rows, truncates and key changes; a move of rows changes nothing."""
    source = SourceTable(SEED, histories=30)
    source.next_transaction(100)
    fed = FedLake(tmp_path, source, mode, TABLE)
    for way in (REWRITTEN, MARKED):
        fed.follow(30, way)
        fed.follow(20, way, truncated=True)
    fed.follow(20, MARKED)
    assert compact(fed.lake.table, 2) > 1
    fed.follow(20, MARKED)
    lake = fed.lake.table
    fed.check(spark_feed(spark, lake, fed.first))
    # A snapshot has no files of changes: its rows are inserted, and those that it replaces are deleted.
    lake.commit([lake.write(lake.read(lake.files[0]).slice(1))], replace=True)
    told, names = spark_feed(spark, lake, lake.version).to_pylist(), lake.schema.names
    lost, new = (rows_as_texts(names, (row for row in told if row["_change_type"] in kinds)) for kinds in (_LOST, _NEW))
    former = DeltaTable.open_version(lake.path, lake.version - 1)
    assert former is not None and lost and new
    assert content(former, names) + new == content(lake, names) + lost


def test_tables_without_a_key_are_fed_too_and_deltalake_reads_the_feed(tmp_path: Path) -> None:
    source = SourceTable(SEED, histories=20, keyless=True)
    source.next_transaction(100)
    fed = FedLake(tmp_path, source, DeleteMode.HARD, KEYLESS)
    for _ in range(4):
        fed.follow(30, REWRITTEN)
    reader = deltalake.DeltaTable(fed.lake.table.path).load_cdf(starting_version=fed.first)
    fed.check(pa.table(reader.read_all()))


@settings(max_examples=examples(12), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    mode=st.sampled_from(list(DeleteMode)),
    keyless=st.booleans(),
    part_bytes=st.sampled_from((1 << 20, 4_000)),
    steps=st.lists(st.tuples(st.integers(1, 25), st.integers(0, 15), st.booleans()), min_size=1, max_size=3),
)
def test_a_reread_feeds_only_what_differs(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    mode: DeleteMode,
    keyless: bool,
    part_bytes: int,
    steps: list[tuple[int, int, bool]],
) -> None:
    """Snapshots after changes that the lake has and others that it missed; one may be of a position before changes."""
    keyless = keyless and mode is DeleteMode.HARD
    source = SourceTable(seed, histories=5, keyless=keyless)
    source.next_transaction(60)
    reader = Reader(str(tmp_path_factory.mktemp("lake")), mode, part_bytes, table=KEYLESS if keyless else TABLE)
    reader.read(source.snapshot(), source.lsn)
    lake = DeltaTable.open(reader.path)
    assert lake is not None
    lake.commit(definition=lake.definition.with_change_feed())
    first = lake.version + 1
    for merged, missed, is_earlier in steps:
        at = source.lsn if is_earlier else 0
        reader.change(source.next_transaction(merged))
        source.next_transaction(missed)
        source.lsn += 1
        reader.read(source.snapshot(), at or source.lsn)
        lake.refresh()
        told = deltalake_feed(reader.path, lake.version)
        if not is_earlier:
            names = [*(name for name in ROW.names), "__deleted", "__current"]
            kinds = {_LOST: Counter[str](), _NEW: Counter[str]()}
            for row in told:
                for kind, texts in kinds.items():
                    if row["_change_type"] in kind:
                        texts.update(rows_as_texts(names, [{name: row.get(name) for name in names}]))
            assert not kinds[_LOST] & kinds[_NEW], "a row that did not change"
    for version in range(first, lake.version + 1):
        assert_difference(reader.path, version, deltalake_feed(reader.path, version))


def deltalake_feed(path: str, version: int) -> list[dict[str, Any]]:
    reader = deltalake.DeltaTable(path).load_cdf(starting_version=version, ending_version=version)
    rows: list[dict[str, Any]] = pa.table(reader.read_all()).to_pylist()
    return rows


def assert_difference(path: str, version: int, told: list[dict[str, Any]], *, is_evolved: bool = False) -> None:
    """The rows of a feed are those by which a version differs from the one before; new columns were null before.

    ``is_evolved``: the version's columns may have had other names.
    """
    lake, former = (DeltaTable.open_version(path, at) for at in (version, version - 1))
    assert lake is not None and former is not None
    names, told = lake.schema.names, list(told)
    old, now = (([row for file in at.files for row in at.read(file).to_pylist()]) for at in (former, lake))
    if former.schema.names != names:
        # Rows are shown under the columns of the version, without texts of columns that it does not have.
        told, old, now = ([_with_texts_of(names, row) for row in rows] for rows in (told, old, now))
    lost, new = (rows_as_texts(names, (row for row in told if row["_change_type"] in kinds)) for kinds in (_LOST, _NEW))
    if not is_evolved or set(former.schema.names) <= set(names):
        before, after = rows_as_texts(names, old), rows_as_texts(names, now)
        assert (lost, new) == (before - after, after - before), version
    else:
        assert lost.total() == new.total() and not lost & new, version


def _with_texts_of(names: list[str], row: dict[str, Any]) -> dict[str, Any]:
    texts = row["__rescued"] or ()
    pairs = texts.items() if isinstance(texts, dict) else texts
    return {**row, "__rescued": [(name, text) for name, text in pairs if name in names] or None}


def test_a_stream_that_was_away_continues_while_its_changes_are_kept(spark: Any, tmp_path: Path) -> None:
    """Replaced data files go after the history, log entries and files of changes after the hours of the feed."""
    columns = (Column("id", PgType(20, "int8"), optional=False), Column("v", PgType(25, "text")))
    table = TableSchema(TableId("public", "t"), 1, columns, primary_key=("id",))
    side = OneTable(tmp_path, table, row_type(id=pa.int64(), v=pa.string()))
    side.snapshot(1, [{"id": key, "v": "read"} for key in range(4)], lsn=1, schema_version=1)
    lake = DeltaTable.open(side.lake)
    assert lake is not None
    FeaturePolicy(fed=("public.t",), feed_hours=2).enable_missing(lake, table)
    assert lake.definition.log_minutes == 120
    first, told, lsn = lake.version + 1, list[dict[str, Any]](), 10

    def change_rows(count: int) -> None:
        nonlocal lsn
        for _ in range(count):
            lsn += 1
            row = {"id": lsn % 4, "v": str(lsn), "__rescued": None}
            new = {"id": lsn, "v": "new", "__rescued": None}
            side.append([change("u", lsn, 0, row, row), change("c", lsn, 1, None, new)], whole=lsn)
            assert side.merge(lsn, token=1).applied is not None

    def read_on() -> set[int]:
        told.clear()
        reader = spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", first)
        stream = reader.load(side.lake).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = stream.foreachBatch(lambda rows, _: told.extend(pa.table(rows.toArrow()).to_pylist()))
        query.trigger(availableNow=True).start().awaitTermination(patient(120))
        return {row["_commit_version"] for row in told}

    def age(minutes: int) -> None:
        lake.refresh()
        lake.raw().create_checkpoint()
        for path in Path(side.lake).rglob("*"):
            os.utime(path, (path.stat().st_mtime - 60 * minutes,) * 2)
        old = dict.fromkeys(lake.removed, 1)
        lake.removed.update(old)
        clean(lake, history_minutes=15)

    change_rows(2)
    assert read_on() == {first, first + 1}
    change_rows(3)
    replaced = [file for version in (first + 1, first + 2) for file in Path(side.lake).glob("*.parquet")]
    age(60)
    assert len(set(replaced)) > len(list(Path(side.lake).glob("*.parquet"))) == len(lake.files)
    assert read_on() == {first + 2, first + 3, first + 4} and len(told) == 3 * 3
    change_rows(1)
    age(180)
    change_rows(1)
    with pytest.raises(Exception, match="DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE"):
        read_on()


def test_merges_feed_the_tables_that_are_configured_so_and_old_files_go(tmp_path: Path) -> None:
    columns = (Column("id", PgType(20, "int8"), optional=False), Column("v", PgType(25, "text")))
    table = TableSchema(TableId("public", "t"), 1, columns, primary_key=("id",))
    side, policy = OneTable(tmp_path, table, row_type(id=pa.int64(), v=pa.string())), FeaturePolicy(fed=("public.t",))
    side.snapshot(1, [{"id": key, "v": "read"} for key in range(4)], lsn=1, schema_version=1)
    lake = DeltaTable.open(side.lake)
    assert lake is not None and policy.missing(lake, table) == {DeltaFeature.CHANGE_FEED}
    policy.enable_missing(lake, table)
    assert policy.missing(lake, table) == frozenset()
    row = {"id": 2, "v": "new", "__rescued": None}
    side.append([change("u", 10, 0, {**row, "v": None}, row), change("d", 11, 0, {**row, "id": 3}, None)], whole=11)
    assert side.merge(11, token=1).applied is not None
    feed = pa.table(deltalake.DeltaTable(side.lake).load_cdf(starting_version=lake.version + 1).read_all())
    assert sorted((each["_change_type"], each["id"], each["v"]) for each in feed.to_pylist()) == [
        ("delete", 3, "read"),
        ("update_postimage", 2, "new"),
        ("update_preimage", 2, "read"),
    ]
    (made,) = (Path(side.lake) / "_change_data").iterdir()
    side.append([change("c", 12, 0, None, {**row, "id": 9})], whole=12)
    assert side.merge(12, token=1).applied is not None
    (of_insert,) = {*(Path(side.lake) / "_change_data").iterdir()} - {made}
    assert deltalake_feed(side.lake, lake.version + 2)[0]["_change_type"] == "insert"
    of_insert.unlink()
    lake.refresh()
    clean(lake, history_minutes=15)
    assert made.exists()
    os.utime(made, (0, 0))
    clean(lake, history_minutes=15)
    assert not made.exists()

"""A batch has a few spool files of each table, each of one relation, in stream order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cdc_core.decode import TABLE_KEY
from cdc_core.decode.pgoutput import StreamState, sort_segment
from cdc_core.decode.segment import Segment
from cdc_core.engine.reading import spool_writer
from cdc_core.engine.reading.batch import Batch
from cdc_core.engine.reading.spool_writer import SpoolWriter
from cdc_core.errors import NotUtf8Error
from cdc_core.lake.rows.run_files import Owner
from cdc_core.lake.rows.shown import ShownByLake
from cdc_core.lake.rows.spool import ReadSpoolFiles, Spool
from cdc_core.schema.relation import Relation, ReplicaIdentity
from cdc_core.schema.table import TableSchema
from tests.support import plain_pgoutput as plain
from tests.unit.engine.streaming import CLIENTS, ORDERS, announce, insert, plan, relation, table_of, transaction

OWNER = Owner("1", "slot", "localhost/shop", "lake/shop")


def raw(found: Relation, *numbers: int) -> pa.RecordBatch:
    payloads = [*announce(found), *transaction(1000, *[insert(number, found) for number in numbers])]
    frames = [plain.frame(payload, 100 + place) for place, payload in enumerate(payloads)]
    [run] = sort_segment(Segment.of(frames), StreamState(), lambda each, lsn: table_of(each)).runs
    return run.raw


class Writing:
    def __init__(self, folder: Path, **selection: object) -> None:
        folder.mkdir()
        self.plan = plan(**selection)
        self.batch = Batch(1)
        self.writer = SpoolWriter(Spool(folder, OWNER), self.plan)

    def add(self, found: Relation, *numbers: int, version: int = 1) -> None:
        rows = raw(found, *numbers)
        self.writer.add(self.batch.files_of(table_of(found, version)), found, rows, rows.nbytes)

    def files(self, found: Relation) -> list[list[int]]:
        out = []
        for version in self.batch.versions[table_of(found).id]:
            for path in version.paths:
                made = ReadSpoolFiles(self.plan, OWNER)((str(path),))
                out.append([row["after"]["id"] if row["after"] else "t" for rows in made for row in rows.to_pylist()])
        return out


@pytest.fixture
def writing(tmp_path: Path) -> Writing:
    return Writing(tmp_path / "spool")


def test_rows_of_a_table_are_gathered_into_one_file(writing: Writing) -> None:
    for number in range(5):
        writing.add(ORDERS, number, 10 + number)
        writing.add(CLIENTS, 100 + number)
    assert writing.batch.paths() == []
    writing.writer.flush()
    assert writing.files(ORDERS) == [[0, 10, 1, 11, 2, 12, 3, 13, 4, 14]]
    assert writing.files(CLIENTS) == [[100, 101, 102, 103, 104]]
    writing.writer.flush()
    assert len(writing.batch.paths()) == 2


def test_another_relation_begins_another_file(writing: Writing) -> None:
    full = replace(ORDERS, identity=ReplicaIdentity.FULL)
    writing.add(ORDERS, 1)
    writing.add(full, 2)
    writing.add(relation(ORDERS.oid, "orders", "note", "more"), 3, version=2)
    writing.writer.flush()
    assert writing.files(ORDERS) == [[1], [2], [3]]


def test_a_file_has_the_version_of_the_table_that_its_rows_have(tmp_path: Path) -> None:
    spool, one = Spool(tmp_path, OWNER), table_of(ORDERS)
    versions = [one, replace(one, comment="another"), one]
    for version in versions:
        with pa.memory_map(str(spool.write_raw(ORDERS, version, raw(ORDERS, 1)))) as source:
            metadata = pa.ipc.open_stream(source).schema.metadata
        assert TableSchema.from_json(metadata[TABLE_KEY].decode()).comment == version.comment


def test_truncates_keep_their_place(writing: Writing) -> None:
    writing.add(ORDERS, 1)
    files = writing.batch.files_of(table_of(ORDERS))
    cut = raw(ORDERS, 0)
    cut = cut.set_column(
        cut.schema.get_field_index("payload"),
        cut.schema.field("payload"),
        pa.array([b""], cut.schema.field("payload").type),
    )
    writing.writer.add_truncates(files, cut)
    writing.add(ORDERS, 2)
    writing.writer.flush()
    assert writing.files(ORDERS) == [[1], ["t"], [2]]


def test_a_file_is_written_when_it_is_large_enough(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "_FILE_BYTES", 3 * raw(ORDERS, 1).nbytes)
    for number in range(7):
        writing.add(ORDERS, number)
        writing.add(CLIENTS, number)
    assert writing.files(ORDERS)[:2] == [[0, 1, 2], [3, 4, 5]]
    writing.writer.flush()
    assert writing.files(ORDERS) == [[0, 1, 2], [3, 4, 5], [6]]


def test_what_is_held_is_bounded_over_all_tables(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_writer, "_HELD_BYTES", 1)
    writing.add(ORDERS, 1)
    writing.add(CLIENTS, 2)
    assert (writing.files(ORDERS), writing.files(CLIENTS)) == ([[1]], [[2]])
    assert writing.writer._bytes == 0


def test_masked_tables_never_have_their_clear_text_written(tmp_path: Path) -> None:
    writing = Writing(tmp_path / "spool", column_mask_with_n_chars=(("4", ("shop.orders.note",)),))
    secret = plain.insert(ORDERS.oid, ["1", "very secret"])
    frames = [plain.frame(each, 1) for each in [*announce(ORDERS), *transaction(1000, secret)]]
    [run] = sort_segment(Segment.of(frames), StreamState(), lambda each, lsn: table_of(each)).runs
    writing.writer.add(writing.batch.files_of(table_of(ORDERS)), ORDERS, run.raw, run.raw.nbytes)
    writing.writer.flush()
    [path] = writing.batch.paths()
    assert b"very secret" not in path.read_bytes() and b"****" in path.read_bytes()


@pytest.mark.parametrize("masked", [False, True])
def test_rows_that_are_not_utf8_are_an_error_unless_the_snapshot_shows_them(tmp_path: Path, masked: bool) -> None:
    selection = {"column_mask_with_n_chars": (("4", ("shop.orders.note",)),)} if masked else {}
    writing = Writing(tmp_path / "spool", **selection)
    texts: list[list[str | bytes]] = [["1", "first"], ["2", b"secret\xff"], ["3", "third"]]
    changes = [
        each
        for place, row in enumerate(texts)
        for each in transaction(1000 + 100 * place, plain.insert(ORDERS.oid, row))
    ]
    frames = [plain.frame(each, 1 + place) for place, each in enumerate([*announce(ORDERS), *changes])]
    [run] = sort_segment(Segment.of(frames), StreamState(), lambda each, lsn: table_of(each)).runs
    writing.writer.add(writing.batch.files_of(table_of(ORDERS)), ORDERS, run.raw, run.raw.nbytes)
    writing.writer.flush()
    paths = tuple(str(path) for path in writing.batch.paths())
    if masked:
        assert not any(b"secret" in Path(path).read_bytes() for path in paths)

    def read(shown: ShownByLake) -> list[int]:
        found = ReadSpoolFiles(writing.plan, OWNER, "shop.orders", shown)(paths)
        return [row["after"]["id"] for rows in found for row in rows.to_pylist()]

    for lacking in (ShownByLake(), ShownByLake(1099), ShownByLake(0, "7:7:")):
        with pytest.raises(NotUtf8Error, match=r"Column note of shop\.orders") as caught:
            read(lacking)
        assert "secret" not in str(caught.value)
    for shown in (ShownByLake(1100), ShownByLake(0, "8:8:")):
        assert read(shown) == [1, 3]

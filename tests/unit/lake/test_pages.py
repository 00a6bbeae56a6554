"""Single rows of Parquet files, read by their pages: the same as a read of the whole file says."""

from __future__ import annotations

import random
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.lake.delete_columns import TO_LSN
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.pages import NOT_READ, Pages, page_places
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.delta.thrift import I32, I64, LIST, STRUCT, ThriftReader, written
from cdc_core.lake.schema.lake_schema import lake_schema
from tests.support.sampling import examples

MAKERS: dict[str, tuple[pa.DataType, Any]] = {
    "small": (pa.int16(), lambda r: r.randrange(5)),
    "big": (pa.int64(), lambda r: r.randrange(-(2**62), 2**62)),
    "real": (pa.float64(), lambda r: r.random()),
    "flag": (pa.bool_(), lambda r: r.random() < 0.5),
    "text": (pa.string(), lambda r: "é" * r.randrange(40)),
    "wide": (pa.string(), lambda r: r.randbytes(r.randrange(3000)).hex()),
    "bytes": (pa.binary(), lambda r: r.randbytes(r.randrange(9))),
    "number": (pa.decimal128(30, 4), lambda r: Decimal(r.randrange(10**9)).scaleb(-4)),
    "day": (pa.date32(), lambda r: date.fromordinal(r.randrange(1, 700_000))),
    "at": (pa.timestamp("us", tz="UTC"), lambda r: r.randrange(10**15)),
    "local": (pa.timestamp("us"), lambda r: r.randrange(10**15)),
    "list": (pa.list_(pa.int32()), lambda r: [r.choice([1, None]) for _ in range(r.randrange(4))]),
    "map": (
        pa.map_(pa.string(), pa.string()),
        lambda r: [(f"k{n}", r.choice(["v", None])) for n in range(r.randrange(3))],
    ),
    "struct": (
        pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))]),
        lambda r: {"x": r.randrange(9), "y": ["a"] * r.randrange(3)},
    ),
}


def made(chance: random.Random, rows: int, nulls: float) -> pa.Table:
    names = chance.sample(list(MAKERS), chance.randint(1, len(MAKERS)))
    columns = {
        name: pa.array(
            [None if chance.random() < nulls else MAKERS[name][1](chance) for _ in range(rows)], MAKERS[name][0]
        )
        for name in names
    }
    return pa.table(columns)


@settings(max_examples=examples(80), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 700),
    nulls=st.sampled_from([0.0, 0.2, 1.0]),
    group=st.sampled_from([50, 333, 10**6]),
    page=st.sampled_from([1, 20, 100]),
    version=st.sampled_from(["1.0", "2.0"]),
    compression=st.sampled_from(["zstd", "snappy", "none"]),
    dictionary=st.booleans(),
)
def test_rows_are_those_of_the_whole_file(
    seed: int, rows: int, nulls: float, group: int, page: int, version: str, compression: str, dictionary: bool
) -> None:
    chance = random.Random(seed)
    table = made(chance, rows, nulls)
    sink = pa.BufferOutputStream()
    pq.write_table(
        *(table, sink),
        row_group_size=group,
        data_page_version=version,
        compression=compression,
        use_dictionary=dictionary,
        store_schema=False,
        write_page_index=True,
        max_rows_per_page=page,
        data_page_size=chance.choice([64, 4096, 1 << 20]),
        write_batch_size=chance.choice([1, 8, 1024]),
    )
    content = sink.getvalue()
    whole = pq.read_table(pa.BufferReader(content), use_threads=False)
    pages = Pages(memoryview(content).cast("B"))
    assert pages.names == table.schema.names
    for _ in range(3):
        places = np.array(sorted(chance.sample(range(rows), chance.randint(1, min(rows, 9)))))
        names = chance.sample(table.schema.names, chance.randint(1, table.num_columns))
        for one in names:
            try:
                found = pages.read([one], places)
            except ValueError:
                # Leaves of a nested column are divided differently, where pages end by their bytes.
                assert pa.types.is_nested(table.schema.field(one).type)
                continue
            found.validate(full=True)
            assert found.equals(whole.select([one]).take(pa.array(places)))
        flat = [name for name in names if not pa.types.is_nested(table.schema.field(name).type)]
        if flat:
            assert pages.read(flat, places).equals(whole.select(flat).take(pa.array(places)))


def test_a_file_without_index_or_of_another_form_is_refused() -> None:
    table = pa.table({"a": range(100)})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    content = sink.getvalue().to_pybytes()
    for data in (content, content[:-1], content[-30:], b"PAR1", b"", content[:50] + content[60:]):
        with pytest.raises(NOT_READ):
            Pages(memoryview(data)).read(["a"], np.array([1]))
    with pytest.raises(NOT_READ):
        Pages(memoryview(content)).read(["b"], np.array([1]))


def test_thrift_is_written_as_it_was_read() -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(made(random.Random(5), 300, 0.1), sink, write_page_index=True, max_rows_per_page=10)
    content = sink.getvalue().to_pybytes()
    size = int.from_bytes(content[-8:-4], "little")
    footer = content[-8 - size : -8]
    assert written(ThriftReader(footer).fields()) == footer


@pytest.mark.parametrize("rows", [999, 20_000])
def test_a_table_reads_few_rows_by_pages(tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = lake_schema(pa.struct([("id", pa.int64()), ("body", pa.string()), ("tags", pa.list_(pa.string()))]))
    table = DeltaTable.create(str(tmp_path / "t"), schema, {})
    values = {
        "id": range(rows),
        "body": [f"{n} " * 30 for n in range(rows)],
        "tags": [["a", str(n)] for n in range(rows)],
    }
    values |= {"__commit_lsn": [1] * rows, "__tx_index": range(rows)}
    (file,) = table.write_stream(
        pa.table(
            {each.name: pa.array(values.get(each.name, [None] * rows), each.type) for each in schema}
        ).to_batches(),
        schema,
        10**6,
    )
    table.commit([file])
    read = list[int]()
    original = Pages.read
    monkeypatch.setattr(Pages, "read", lambda self, names, at: read.append(len(at)) or original(self, names, at))
    for places in ([5], [0, rows - 1], [3, 4, 500], list(range(0, rows, 3))):
        wanted = table.read(file).take(pa.array(places))
        assert table.read_at(file, np.array(places)).equals(wanted)
        assert table.read_at(file, np.array(places), ["body"]).equals(wanted.select(["body"]))
    assert read == ([1, 1, 2, 2, 3, 3] if rows == 20_000 else [])
    # A column that came later, and a file that another program wrote without an index.
    wide = pa.schema([*schema, ("later", pa.int32())])
    table.commit(schema=wide)
    assert table.read_at(file, np.array([7])).column("later").null_count == 1
    pq.write_table(table.read(file), tmp_path / "t" / file.path)
    again = DeltaTable.open(table.path)
    assert again is not None
    assert again.read_at(file, np.array([7]), ["id"]).column("id").to_pylist() == [7]


@settings(max_examples=examples(200), deadline=None)
@given(
    pages=st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 2**31 - 1), st.integers(0, 2**62)), max_size=40),
    sizes=st.lists(st.integers(0, 2**40), max_size=3),
)
def test_the_offset_index_is_read_as_thrift_reads_it(pages: list[tuple[int, int, int]], sizes: list[int]) -> None:
    listed = [{1: (I64, at), 2: (I32, size), 3: (I64, row)} for at, size, row in pages]
    index = written({1: (LIST, (STRUCT, listed)), 2: (LIST, (I64, sizes))} if sizes else {1: (LIST, (STRUCT, listed))})
    assert page_places(index).tolist() == [list(page) for page in pages]
    assert page_places(index).shape == (len(pages), 3)


@pytest.mark.parametrize(
    ("ended", "rows", "codec", "page"),
    [(None, 60_000, "SNAPPY", 200), (7, 60_000, "ZSTD", 2_000), (None, 1_000, "ZSTD", 1_000)],
    ids=["versions that can end", "versions that have ended", "a small file"],
)
def test_a_version_that_can_end_is_in_a_small_page(
    tmp_path: Path, ended: int | None, rows: int, codec: str, page: int
) -> None:
    schema = lake_schema(pa.struct([("id", pa.int64()), ("name", pa.string())]), DeleteMode.HISTORY)
    columns = {"id": pa.array(range(rows)), "name": pa.array([f"name {n}" for n in range(rows)])}
    columns[TO_LSN] = pa.array([ended] * rows, pa.int64())
    held = pa.Table.from_arrays([columns.get(f.name, pa.nulls(rows, f.type)) for f in schema], schema=schema)
    table = DeltaTable.create(str(tmp_path), schema, {})
    for file in (table.write(held), *table.write_stream(held.to_batches(), schema, rows)):
        path = tmp_path / file.path
        column = pq.ParquetFile(path).metadata.row_group(0).column(0)
        assert (column.compression, f".{codec.lower()}." in file.path) == (codec, True)
        pages = Pages(memoryview(path.read_bytes()))
        at = np.array([rows // 2])
        assert pages.read(["id"], at)["id"].to_pylist() == [rows // 2]
        assert np.diff(pages._chunk(0, 0).first, append=column.num_values).max() <= max(page, 64)

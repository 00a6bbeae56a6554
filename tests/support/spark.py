"""One small Spark session for all tests, change rows made from plain values, and a reader that is not Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

# Tests end before the JVM's second compiler earns what it costs.
# (Alone it would get a code cache of 48 MB, which a run of wide tables fills.) The metaspace starts at 21 MB, and each
# time that it grows Java marks the whole heap: a tenth of what the first merges cost. The parallel collectors' threads
# and barriers are a seventh of what later ones cost.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=300m"
# A task costs more than what it does with a few rows: with one where Spark would make two, two files of tests/delta
# took 57 CPU seconds in place of 65. Runs of the command have as many as cores.
_ONE_TASK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
# A merge of a few rows spends a third of its time compiling expressions that it evaluates once or twice, and some on
# planning again after each stage. Runs with ``cold=True``, the demo and the installed package do both.
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
COMMAND_SETTINGS = {
    **_INTERPRETED,
    "spark.master": "local[2]",
    "spark.driver.memory": "1g",
    "spark.app.name": "wal2lake-tests",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
}
SETTINGS = {**COMMAND_SETTINGS, **_ONE_TASK, "spark.driver.memory": "2g"}
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
TEXTS = pa.map_(pa.string(), pa.string())
POSITION = [
    ("__commit_lsn", pa.int64()),
    ("__tx_index", pa.int64()),
    ("__commit_ts", pa.timestamp("us", tz="UTC")),
]


def test_session() -> Any:
    """The session that every Spark test of a run shares."""
    from cdc_core.spark.session import get_session

    return get_session(SETTINGS)


test_session.__test__ = False  # type: ignore[attr-defined]


def row_type(**columns: pa.DataType) -> pa.StructType:
    """The struct of ``before`` and ``after``."""
    return pa.struct([*columns.items(), ("__rescued", TEXTS)])


def change_schema(row: pa.StructType) -> pa.Schema:
    """The changelog's schema."""
    lsn, index, at = POSITION
    return pa.schema(
        [
            ("__op", pa.string()),
            lsn,
            index,
            ("__lsn", pa.int64()),
            ("__xid", pa.int64()),
            at,
            ("__unchanged", pa.list_(pa.string())),
            ("before", row),
            ("after", row),
        ]
    )


def lake_schema(row: pa.StructType) -> pa.Schema:
    """A lake table's schema."""
    return pa.schema([*row, *POSITION])


def change(
    op: str,
    lsn: int,
    index: int,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    unchanged: Sequence[str] = (),
    xid: int = 700,
) -> dict[str, Any]:
    """One changelog row."""
    return {
        "__op": op,
        "__commit_lsn": lsn,
        "__tx_index": index,
        "__lsn": lsn + index,
        "__xid": xid,
        "__commit_ts": AT,
        "__unchanged": list(unchanged),
        "before": before,
        "after": after,
    }


def lake_rows(path: str, where: str = "true", version: int | None = None) -> list[dict[str, Any]]:
    """A Delta table's rows as delta-rs reads them, maps as dictionaries."""
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(path, version=version)
    found = QueryBuilder().register("lake", table).execute(f"select * from lake where {where}").read_all()
    return [
        {name: dict(value) if name == "__rescued" and value is not None else value for name, value in row.items()}
        for row in pa.table(found).to_pylist()
    ]

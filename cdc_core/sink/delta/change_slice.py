"""The changelog between two LSNs: read with file skipping, and looked over once before anything is planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core.errors import LakeError
from cdc_core.sink.delta.keys import KeyColumns, field_of
from cdc_core.sink.delta.target import quoted

POSITION = ("__commit_lsn", "__tx_index")
_XID_RANGE = 2**32


@dataclass(frozen=True, slots=True)
class Survey:
    """What a slice holds. ``ops`` counts rows by operation, ``moved`` updates that changed the key.

    ``partial`` names columns that some update left unchanged and the server did not send. ``truncated_at`` is the
    position of the last truncate. ``without_before`` counts updates and deletes that came without an old tuple.
    """

    ops: dict[str, int]
    moved: int
    partial: frozenset[str]
    truncated_at: tuple[int, int] | None
    without_before: int

    @property
    def rows(self) -> int:
        """All rows of the slice."""
        return sum(self.ops.values())

    @property
    def only_inserts(self) -> bool:
        """Whether nothing but inserts (and snapshot reads) is there."""
        return set(self.ops) <= {"c"}


def read_slice(spark: SparkSession, path: str, from_lsn: int, to_lsn: int, snapshot: str | None = None) -> DataFrame:
    """Changelog rows with ``from_lsn < __commit_lsn <= to_lsn``; with ``snapshot``, only those invisible in it.

    Snapshot reads are left out by their index of -1, of which Delta keeps statistics: their files are not opened.
    """
    lsn, index = F.col("__commit_lsn"), F.col("__tx_index")
    rows = spark.read.format("delta").load(path).filter((lsn > from_lsn) & (lsn <= to_lsn) & (index >= 0))
    return rows if snapshot is None else rows.filter(snapshot_filter(snapshot))


def snapshot_filter(snapshot: str, xid: str = "__xid") -> Column:
    """True for rows whose transaction a ``pg_snapshot`` (its text ``xmin:xmax:xip,xip``) does not show.

    The stream's xid has 32 bits, the snapshot's 64: the xid is taken as the one nearest to xmax, which is right for
    two thousand million transactions to either side. A row without an xid is kept.
    Raises LakeError when the text is no pg_snapshot. Source: PostgreSQL manual §9.27.8.
    """
    try:
        low, high, running = snapshot.strip().split(":")
        xmin, xmax, in_progress = int(low), int(high), [int(part) for part in running.split(",") if part]
    except ValueError:
        raise LakeError("Expected a pg_snapshot such as 10:20:10,14, found another text.") from None
    half = _XID_RANGE // 2
    distance = F.pmod(F.col(xid) - F.lit(xmax % _XID_RANGE) + F.lit(half), F.lit(_XID_RANGE)) - F.lit(half)
    full = distance + F.lit(xmax)
    visible = (full < F.lit(xmin)) | ((full < F.lit(xmax)) & ~full.isin(in_progress))
    return F.coalesce(~visible, F.lit(True))


def survey(rows: DataFrame, key: KeyColumns) -> Survey:
    """Look over a slice in one job; an empty ``key`` is a bag's."""
    op, before = F.col("__op"), F.col("before")
    put_key, old_key = key_of_put(key), key.parts(field_of("before"))
    same = F.lit(True)
    for new, old in zip(put_key, old_key, strict=True):
        same = same & new.eqNullSafe(old)
    facts = rows.agg(
        *[F.count_if(op == kind).alias(kind) for kind in "cudt"],
        F.count_if((op == "u") & before.isNotNull() & ~same).alias("moved"),
        F.array_distinct(F.flatten(F.collect_set("__unchanged"))).alias("partial"),
        F.max(F.when(op == "t", F.struct(*POSITION))).alias("truncated_at"),
        F.count_if(op.isin("u", "d") & before.isNull()).alias("without_before"),
    ).collect()[0]
    at = facts["truncated_at"]
    return Survey(
        {kind: facts[kind] for kind in "cudt" if facts[kind]},
        facts["moved"],
        frozenset(facts["partial"] or ()),
        None if at is None else (at[0], at[1]),
        facts["without_before"],
    )


def after_position(at: tuple[int, int]) -> Column:
    """True for rows that come after a position."""
    lsn, index = F.col("__commit_lsn"), F.col("__tx_index")
    return (lsn > at[0]) | ((lsn == at[0]) & (index > at[1]))


def key_of_put(key: KeyColumns) -> list[Column]:
    """The key of the row that an insert or update leaves.

    An unchanged key that is stored out of line is not sent again in the new tuple, but then the old tuple holds it.
    """
    from_before = [F.array_contains("__unchanged", name) & F.col("before").isNotNull() for name in key.names]
    named = dict(zip(key.names, from_before, strict=True))

    def field(name: str) -> Column:
        after, before = field_of("after")(name), field_of("before")(name)
        return F.when(named[name], before).otherwise(after) if name in named else after

    return key.parts(field)


def whole_keys(rows: DataFrame, key: KeyColumns, partial: frozenset[str]) -> tuple[DataFrame, frozenset[str]]:
    """The slice with unsent key columns of ``after`` filled from ``before``, and the partial columns that remain."""
    unsent = [name for name in key.names if name in partial]
    if not unsent:
        return rows, partial
    after = F.col("after")
    for name in unsent:
        sent = ~F.coalesce(F.array_contains("__unchanged", name), F.lit(False)) | F.col("before").isNull()
        after = with_field(after, name, F.when(sent, field_of("after")(name)).otherwise(field_of("before")(name)))
    rest = F.array_except("__unchanged", F.array(*[F.lit(name) for name in unsent]))
    # In this order: the new after still reads the old __unchanged.
    return rows.withColumn("after", after).withColumn("__unchanged", rest), partial - set(unsent)


def with_field(struct: Column, name: str, value: Column) -> Column:
    """The struct with one field replaced, null where it was null."""
    return F.when(struct.isNotNull(), struct.withField(quoted(name), value))


def row_type(rows: DataFrame) -> T.StructType:
    """The type of ``after``."""
    found = rows.schema["after"].dataType
    assert isinstance(found, T.StructType)
    return found


Narrow = Callable[[DataFrame], DataFrame]
"""What a caller may do to a slice before it is merged: leave rows out (quarantine), never change them."""

"""Change rows → the last state of each key, by the rules that make a replayed lake equal its source.

Every event *touches* keys: an insert or update puts a row at a key, a delete takes it away, and an update that changed
the key does both, to two keys. Between two touches of a key by the same row nothing else can touch it, for the source's
key is unique. So the last touch of each key says what the lake must hold there, wherever the row came from: chains
(a→b→c) and swaps over a third key need no special case.

An update may leave a TOASTed column out because it did not change. Its value is then the last one sent for that *row*:
the same key's earlier touch, or before a key change the old key's (``lineage``), or none in this slice: then the
lake's, read in the MERGE itself, or fetched from the row's first key if the key changed. After an insert every column
is known, so nothing is ever taken from a row's predecessor at the same key.

``__rescued`` is part of each column's value: it follows its column through all of this.

Out: the columns of ``after``, ``__commit_lsn``, ``__tx_index``, ``__commit_ts`` of the last touch, ``__deleted``,
``__keep`` (columns whose value is the lake's; empty for a delete) and the key's parts as ``__key0``….
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as T  # noqa: N812

from cdc_core.sink.delta.change_slice import Survey, row_type, whole_keys
from cdc_core.sink.delta.keys import KeyColumns, field_of
from cdc_core.sink.delta.lineage import with_lineage
from cdc_core.sink.delta.target import RESCUED, quoted

DELETED, KEEP = "__deleted", "__keep"
_META = ("__commit_lsn", "__tx_index", "__commit_ts")
_TEXTS = T.MapType(T.StringType(), T.StringType())


def key_names(key: KeyColumns) -> list[str]:
    """The names of the key's parts in a reduced slice."""
    return [f"__key{number}" for number in range(len(key.null_safe))]


def reduce_slice(rows: DataFrame, key: KeyColumns, facts: Survey, lake: DataFrame | None) -> DataFrame:
    """One row a key (see the head of this file). ``lake`` gives values across key changes; None when it is empty."""
    rows, partial = whole_keys(rows, key, facts.partial)
    columns = sorted(partial & set(row_type(rows).fieldNames()))
    touches = _touches(rows, key, moves=facts.moved > 0)
    if not columns:
        return _without_keeps(_last(touches, key), rows)
    if facts.moved:
        touches = with_lineage(touches, key_names(key))
    else:
        touches = touches.withColumn("__lineage", F.struct(*key_names(key)))
    last = _last(_with_states(touches, columns), key)
    reduced = _with_keeps(last, row_type(rows), columns)
    if facts.moved and lake is not None:
        reduced = _from_first_key(reduced, key, columns, lake)
    return reduced.drop("__lineage", "__first_key", "__first_rescued_key")


def _touches(rows: DataFrame, key: KeyColumns, moves: bool) -> DataFrame:
    """Every touch: key parts, position, ``__deleted``, ``__moved`` (by a key change), ``row``, ``__unchanged``."""
    taken = F.col("__op") == "d"
    old, new = key.parts(field_of("before")), key.parts(field_of("after"))
    names = key_names(key)
    same = F.lit(True)
    for one, other in zip(old, new, strict=True):
        same = same & one.eqNullSafe(other)
    moved = (F.col("__op") == "u") & F.col("before").isNotNull() & ~same if moves else F.lit(False)
    common = [*[F.col(name) for name in _META], F.col("__unchanged"), F.col("__op")]
    parts = [F.when(taken, o).otherwise(n).alias(name) for o, n, name in zip(old, new, names, strict=True)]
    row = F.when(taken, F.col("before")).otherwise(F.col("after")).alias("row")
    puts = rows.filter(F.col("__op") != "t")
    touches = puts.select(*parts, *common, taken.alias(DELETED), moved.alias("__moved"), row)
    if not moves:
        return touches
    left = [o.alias(name) for o, name in zip(old, names, strict=True)]
    gone = puts.filter(moved).select(
        *left, *common, F.lit(True).alias(DELETED), F.lit(True).alias("__moved"), F.col("before").alias("row")
    )
    return touches.unionByName(gone)


def _last(touches: DataFrame, key: KeyColumns) -> DataFrame:
    newest = Window.partitionBy(*key_names(key)).orderBy(F.col("__commit_lsn").desc(), F.col("__tx_index").desc())
    return touches.withColumn("__rank", F.row_number().over(newest)).filter("__rank = 1").drop("__rank")


def _with_states(touches: DataFrame, columns: list[str]) -> DataFrame:
    """Adds ``__state_n``: the n-th partial column's last known (value, rescued text) of the row, null when unknown."""
    # At one position a key change takes the row from its old key before it puts it at the new one.
    order = [F.col("__commit_lsn"), F.col("__tx_index"), F.col(DELETED).desc()]
    so_far = Window.partitionBy("__lineage").orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    states = []
    for number, name in enumerate(columns):
        known = ~F.col(DELETED) & ~F.coalesce(F.array_contains("__unchanged", name), F.lit(False))
        text = F.try_element_at(field_of("row")(RESCUED), F.lit(name))
        state = F.when(known, F.struct(field_of("row")(name).alias("v"), text.alias("t")))
        states.append(F.last(state, ignorenulls=True).over(so_far).alias(f"__state_{number}"))
    first = [F.first(name).over(so_far).alias(f"__first_{name}") for name in touches.columns if name[:5] == "__key"]
    return touches.select("*", *states, F.struct(*first).alias("__first_key"))


def _without_keeps(last: DataFrame, rows: DataFrame) -> DataFrame:
    fields = [field_of("row")(name).alias(name) for name in row_type(rows).fieldNames()]
    none = F.array().cast("array<string>").alias(KEEP)
    return last.select(*fields, *_META, DELETED, none, *[name for name in last.columns if name.startswith("__key")])


def _with_keeps(last: DataFrame, row: T.StructType, columns: list[str]) -> DataFrame:
    numbers = {name: number for number, name in enumerate(columns)}
    fields = []
    for field in row.fields:
        value = field_of("row")(field.name)
        if field.name in numbers:
            known = F.col(f"__state_{numbers[field.name]}.v")
            value = F.when(F.col(DELETED), value).otherwise(known)
        if field.name == RESCUED:
            value = _rescued(value, numbers)
        fields.append(value.alias(field.name))
    lost = [F.when(F.col(f"__state_{number}").isNull(), F.lit(name)) for name, number in numbers.items()]
    keep = F.when(F.col(DELETED), F.array().cast("array<string>")).otherwise(F.array_compact(F.array(*lost)))
    rest = [name for name in last.columns if name.startswith("__key")]
    return last.select(*fields, *_META, DELETED, keep.alias(KEEP), *rest, "__first_key")


def _rescued(last: Column, numbers: dict[str, int]) -> Column:
    """The last touch's texts of whole columns and each partial column's own."""
    texts = [
        F.struct(F.lit(name).alias("key"), F.col(f"__state_{number}.t").alias("value"))
        for name, number in numbers.items()
    ]
    own = F.map_from_entries(F.filter(F.array(*texts), lambda entry: entry["value"].isNotNull()))
    return joined_texts(without_texts(last, list(numbers)), own)


def without_texts(texts: Column, columns: list[str]) -> Column:
    """A ``__rescued`` map without the texts of some columns; empty for null."""
    none = F.create_map().cast(_TEXTS)
    return F.map_filter(F.coalesce(texts, none), lambda name, _: ~name.isin(columns))


def joined_texts(one: Column, other: Column) -> Column:
    """Two ``__rescued`` maps of different columns as one; null when both are empty."""
    joined = F.map_concat(one, other)
    return F.when(F.size(joined) > 0, joined)


def kept_texts(texts: Column, keep: Column) -> Column:
    """The texts of a lake row that belong to kept columns; empty for null."""
    none = F.create_map().cast(_TEXTS)
    return F.map_filter(F.coalesce(texts, none), lambda name, _: F.array_contains(keep, name))


def _from_first_key(reduced: DataFrame, key: KeyColumns, columns: list[str], lake: DataFrame) -> DataFrame:
    """Rows that changed their key take kept columns from the lake row where they began, and keep nothing then."""
    names = key_names(key)
    first = [F.col(f"__first_key.__first_{name}") for name in names]
    stayed = F.lit(True)
    for now, began in zip(names, first, strict=True):
        stayed = stayed & F.col(now).eqNullSafe(began)
    seeks = reduced.withColumn("__seeks", (F.size(KEEP) > 0) & ~stayed)
    parts = [part.alias(f"__at{number}") for number, part in enumerate(key.parts(lambda name: F.col(quoted(name))))]
    values = [F.col(quoted(name)).alias(f"__lake_{number}") for number, name in enumerate(columns)]
    rows = lake.select(*parts, *values, F.col(RESCUED).alias("__lake_rescued"))
    on = F.col("__seeks")
    for number, began in enumerate(first):
        on = on & began.eqNullSafe(F.col(f"__at{number}"))
    joined = seeks.join(rows, on, "left")
    return _filled(joined, reduced, columns)


def _filled(joined: DataFrame, reduced: DataFrame, columns: list[str]) -> DataFrame:
    numbers = {name: number for number, name in enumerate(columns)}
    out: list[Column] = []
    seeks = F.col("__seeks")
    for name in reduced.columns:
        value = F.col(quoted(name))
        if name in numbers:
            value = F.when(seeks & F.array_contains(KEEP, name), F.col(f"__lake_{numbers[name]}")).otherwise(value)
        elif name == RESCUED:
            mine = F.coalesce(value, F.create_map().cast(_TEXTS))
            value = F.when(seeks, joined_texts(mine, kept_texts(F.col("__lake_rescued"), F.col(KEEP)))).otherwise(value)
        elif name == KEEP:
            value = F.when(seeks, F.array().cast("array<string>")).otherwise(value)
        out.append(value.alias(name))
    return joined.select(*out)

"""The input of DuckDB: the parts of a slice that rules read, without copying values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.quality.predicate import IMAGES, Uses
from cdc_core.quality.rules import Reads, Rule

_READ_BY_EVERY_RULE = ("__op", "__commit_lsn", "__tx_index", "__lsn", "__unchanged")
_RESCUED = "__rescued"
_PLAIN_TYPES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date32,
    pa.types.is_time64,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
)
_known_types: dict[pa.DataType, bool] = {}


@dataclass(slots=True)
class Batches:
    """Change rows that are read again for each statement, a batch at a time, and never in memory together.

    ``read`` returns the batches, whose schema is ``schema``. Its error is in ``error``: DuckDB reports only that its
    input failed.
    """

    schema: pa.Schema
    read: Callable[[], Iterator[pa.Table]]
    error: Exception | None = field(default=None)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self.schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for rows in self.read():
                yield from rows.to_batches()
        except Exception as error:
            self.error = error
            raise


class Box:
    """The input of a plan: Arrow rows that can be replaced by others of the same schema."""

    def __init__(self, table: pa.Table | Batches) -> None:
        self.table = table

    @property
    def num_rows(self) -> int:
        """The number of rows that are in memory."""
        return 0 if isinstance(self.table, Batches) else int(self.table.num_rows)

    def __arrow_c_schema__(self) -> object:
        return self.table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, slots=True)
class Pruning:
    """The input columns of a plan: ``columns`` unchanged, and of each image (index, field, only presence).

    ``schema`` is the resulting schema.
    """

    columns: tuple[str, ...]
    images: dict[str, tuple[tuple[int, pa.Field, bool], ...]]
    schema: pa.Schema

    def apply(self, changes: pa.Table | Batches, reads: Callable[[int], None]) -> pa.Table | Batches:
        """Return these parts of ``changes``, without copying values.

        ``reads`` is called with the rows of each batch, before DuckDB gets it.
        """
        if isinstance(changes, Batches):
            return Batches(self.schema, lambda: self._batches(changes, reads))
        return self._parts(changes)

    def _batches(self, changes: Batches, reads: Callable[[int], None]) -> Iterator[pa.Table]:
        for rows in changes.read():
            reads(rows.num_rows)
            yield self._parts(rows)

    def _parts(self, changes: pa.Table) -> pa.Table:
        return pa.Table.from_batches([self._batch(batch) for batch in changes.to_batches()], self.schema)

    def _batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [batch.column(name) for name in self.columns]
        for name, fields in self.images.items():
            image = batch.column(name)
            children = [
                presence_of(image.field(place)) if presence else image.field(place) for place, _, presence in fields
            ]
            mask = pc.is_null(image) if image.null_count else None
            arrays.append(pa.StructArray.from_arrays(children, fields=[made for _, made, _ in fields], mask=mask))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def presence_of(values: pa.Array) -> pa.BooleanArray:
    """Return a column that is null where ``values`` is and not null elsewhere, without copying values."""
    if pa.types.is_null(values.type) or not values.null_count:
        return pa.nulls(len(values), pa.bool_()) if pa.types.is_null(values.type) else pc.is_valid(values)
    valid = values.buffers()[0]
    return pa.Array.from_buffers(pa.bool_(), len(values), [valid, valid], values.null_count, values.offset)


def pruning_of(rules: tuple[Rule, ...], uses: list[Uses], schema: pa.Schema) -> Pruning:
    """Return the parts of a slice that the rules need."""
    columns = [name for name in _READ_BY_EVERY_RULE if name in schema.names]
    read = {name for use in uses for name in use.columns}
    columns += [name for name in schema.names if name.lower() in read and name not in (*columns, *IMAGES)]
    presence = {name for rule in rules if rule.reads is Reads.PRESENCE for name in (rule.column, *rule.columns)}
    values = {name for rule in rules if rule.reads is Reads.VALUE for name in (rule.column, *rule.columns)}
    images = {}
    for image in IMAGES:
        whole = any(image in use.images for use in uses)
        asked = {name for use in uses for where, name in use.fields if where == image}
        fields = []
        for place, part in enumerate(schema.field(image).type):
            by_value = part.name == _RESCUED or whole or part.name.lower() in asked
            by_value = by_value or (part.name in values and image == "after")
            if by_value and is_known(part.type):
                fields.append((place, part, False))
            elif part.name in presence:
                fields.append((place, pa.field(part.name, pa.bool_()), True))
        images[image] = tuple(fields)
    parts = [pa.field(name, pa.struct([made for _, made, _ in fields])) for name, fields in images.items()]
    return Pruning(tuple(columns), images, pa.schema([*(schema.field(name) for name in columns), *parts]))


def is_known(kind: pa.DataType) -> bool:
    """Whether DuckDB supports columns of this type."""
    if kind in _known_types:
        return _known_types[kind]
    if pa.types.is_struct(kind):
        known = all(is_known(part.type) for part in kind)
    elif pa.types.is_list(kind):
        known = is_known(kind.value_type)
    elif pa.types.is_map(kind):
        known = is_known(kind.key_type) and is_known(kind.item_type)
    else:
        known = any(test(kind) for test in _PLAIN_TYPES) or _is_read(kind)
    _known_types[kind] = known
    return known


def _is_read(kind: pa.DataType) -> bool:
    """Whether DuckDB can read an empty column of this type, determined by trying."""
    try:
        with duckdb.connect(":memory:") as scratch:
            scratch.register("probe", Box(pa.schema([("x", kind)]).empty_table()))
            scratch.execute("SELECT x FROM probe").fetchall()
    except duckdb.Error:
        return False
    return True

"""The names under which a changelog stores the columns of each schema version of its table.

A changelog contains the events of every schema version that its table has had. A column whose new type the existing
column cannot represent is stored as an additional column ``name@number``; so is one whose name Delta cannot distinguish
from another, and one whose own name has that form, so that it is never taken for a version of another column. Reading
uses the same rule: a schema version's column is the field with the greatest number that is not greater than the schema
version's, else the plain one. Older versions stored a column ``x@1`` of the source as it is: a field that has the name
of one of the schema version's own columns is no version of another. If ``name@number`` is such a field, it is extended
to the length of a helper column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Ints
from cdc_core.errors import InvariantError
from cdc_core.lake.delta.conform import conform, plain_type
from cdc_core.lake.names import EPOCH, HELPER_LENGTH, META, RESCUED, helper
from cdc_core.lake.rows.images import column, validity
from cdc_core.lake.schema.casts import holds

SCHEMA_VERSION = "__schema_version"
_VERSION = re.compile(r"(?P<name>.+)@(?P<version>0|[1-9][0-9]*)", re.DOTALL | re.ASCII)
_IMAGES = ("before", "after")


# Each slice asks for it, mostly with the same schemas.
@lru_cache(1_000)
def stored_schema(rows: pa.Schema, schema_version: int, changelog: pa.Schema | None, epoch: int = 0) -> pa.Schema:
    """Return the schema for storing change rows of a version, given the changelog's (None: it does not exist yet).

    In epochs after the first (``epochs``) it has the column of the epoch.
    """
    changelog_row = None if changelog is None else changelog.field("after").type
    row = rows.field("after").type
    names = _stored_names(row, schema_version, changelog_row)
    kept = pa.struct([pa.field(name, plain_type(field.type)) for name, field in zip(names, row, strict=True)])
    fields = [pa.field(field.name, kept if field.name in _IMAGES else field.type) for field in rows]
    fields.append(pa.field(SCHEMA_VERSION, pa.int64()))
    return pa.schema([*fields, pa.field(EPOCH, pa.int64())] if epoch else fields)


def stored(rows: pa.Table, schema_version: int, changelog: pa.Schema, epoch: int = 0) -> pa.Table:
    """Convert change rows of a version to the changelog's schema, which has the epoch's column if that is not 0."""
    schema = stored_schema(rows.schema, schema_version, changelog)
    for image in _IMAGES:
        at = rows.schema.get_field_index(image)
        struct = column(rows, image)
        renamed = pa.StructArray.from_arrays(
            [struct.field(number) for number in range(struct.type.num_fields)],
            names=[field.name for field in schema.field(image).type],
            mask=pa.array(~validity(struct)),
        )
        rows = rows.set_column(at, image, renamed)
    rows = rows.append_column(SCHEMA_VERSION, pa.array(np.full(rows.num_rows, schema_version, dtype=np.int64)))
    if epoch:
        rows = rows.append_column(EPOCH, pa.array(np.full(rows.num_rows, epoch, dtype=np.int64)))
    return conform(rows, changelog)


def empty_changes(lake: pa.Schema) -> pa.Table:
    """Return an empty table of change rows, in the columns of a lake table."""
    own = {field.name for field in META}
    image = pa.struct([field for field in lake if field.name not in own])
    fields = [("__op", pa.string()), ("__commit_lsn", pa.int64()), ("__tx_index", pa.int64()), ("__lsn", pa.int64())]
    fields += [("__xid", pa.int64()), ("__commit_ts", pa.timestamp("us", tz="UTC"))]
    fields += [("__unchanged", pa.list_(pa.string())), ("before", image), ("after", image)]
    return pa.schema(fields).empty_table()


def viewed(rows: pa.Table, schema_version: int, columns: Sequence[str]) -> pa.Table:
    """Convert changelog rows of one schema version back to the schema version's own column names, and ``__rescued``."""
    kept = rows.drop_columns([SCHEMA_VERSION]) if SCHEMA_VERSION in rows.schema.names else rows
    for image in _IMAGES:
        struct = column(kept, image)
        names = [field.name for field in struct.type]
        places = [_place(names, name, schema_version, columns) for name in columns] + [names.index(RESCUED)]
        picked = pa.StructArray.from_arrays(
            [struct.field(place) for place in places],
            names=[*columns, RESCUED],
            mask=pa.array(~validity(struct)),
        )
        kept = kept.set_column(kept.schema.get_field_index(image), image, picked)
    return kept


def schema_versions_of(rows: pa.Table) -> Ints:
    """Return each row's schema version; 0 where none was recorded. Shape: table[N] -> int64[N]."""
    if SCHEMA_VERSION not in rows.schema.names:
        return np.zeros(rows.num_rows, dtype=np.int64)
    return np.asarray(column(rows, SCHEMA_VERSION).fill_null(0).to_numpy(zero_copy_only=False))


def _stored_names(row: pa.StructType, schema_version: int, changelog_row: pa.StructType | None) -> list[str]:
    out: list[str] = []
    taken = {RESCUED}
    existing = {} if changelog_row is None else {field.name: field.type for field in changelog_row}
    # The last field is wal2lake's own ``__rescued``; a column of the source may have the same name.
    columns = [field.name for field in list(row)[:-1]]
    own = {name.lower() for name in columns}
    for field in list(row)[:-1]:
        name = _newest(existing, field.name, schema_version, columns)
        is_held = name not in existing or holds(existing[name], plain_type(field.type))
        is_version = name == field.name and name not in existing and _VERSION.fullmatch(name) is not None
        if not is_held or is_version or name.lower() in taken:
            name = f"{field.name}@{schema_version}"
            if name.lower() in taken | own or (name in existing and not holds(existing[name], plain_type(field.type))):
                name = helper(name)
        taken.add(name.lower())
        out.append(name)
    return [*out, row.field(row.num_fields - 1).name]


def _newest(existing: Iterable[str], name: str, schema_version: int, columns: Sequence[str]) -> str:
    """Return the field of column ``name`` of a version with these columns; the plain name if there is no other."""
    best, newest = -1, name
    for stored_name in existing:
        parts = _VERSION.fullmatch(
            stored_name.rstrip("_") if len(stored_name.encode()) >= HELPER_LENGTH else stored_name
        )
        if (
            parts is not None
            and parts["name"] == name
            and best < int(parts["version"]) <= schema_version
            and stored_name not in columns
        ):
            best, newest = int(parts["version"]), stored_name
    return newest


def _place(names: list[str], name: str, schema_version: int, columns: Sequence[str]) -> int:
    newest = _newest(names, name, schema_version, columns)
    if newest in names:
        return names.index(newest)
    lower = [stored_name.lower() for stored_name in names]
    if newest.lower() in lower:
        return lower.index(newest.lower())
    raise InvariantError(f"The changelog has no column {name} of schema version {schema_version}.")

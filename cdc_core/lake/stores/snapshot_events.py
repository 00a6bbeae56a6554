"""The rows of a snapshot as changes (op r), if ``wal2lake.changelog.reads`` is set."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.lake.delete_columns import is_live, mode_of, with_column
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.epochs import epoch_of
from cdc_core.lake.names import META, OWN_NAMES
from cdc_core.lake.positions import chunks_app, lake_position, reads_app, schema_version_app
from cdc_core.lake.schema.change_columns import stored, stored_schema
from cdc_core.lake.schema.lake_schema import changelog_properties, ensure_table
from cdc_core.schema import TableId


def complete_snapshot_events(lake: str, changelog: str, scope: str, table: TableId, history_minutes: int) -> int | None:
    """Append the rows of the snapshot in force as op r, unless they are there; returns the new version, else None.

    The rows are read from the lake table, whose content is the snapshot until the first merge. So the source is read
    once, and rows missing in the changelog because of a crash are added later: this is called after a snapshot's
    commit, and again before anything else may change the lake table (a merge, the next snapshot). The commit contains
    the snapshot's token, and a call that finds it does nothing: the changelog has the rows of a snapshot that came into
    force exactly once, and none of one that did not. A snapshot into which changes were merged while its rows were not
    requested stays without them.

    A read has the schema version of the lake table, ``__commit_lsn`` and ``__lsn`` of the snapshot, ``__tx_index`` -1,
    null ``__xid``, the snapshot's time, nothing unchanged, null ``before``. Positions and merges ignore reads. Raises
    TransientError after repeated conflicts.
    """
    source = DeltaTable.open(lake)
    shown = lake_position(source, scope, table)
    if source is None or shown.token is None or shown.lsn is not None:
        return None
    token, app = shown.token, reads_app(scope, table)
    known = DeltaTable.open(changelog)
    if known is not None and (known.txn(app) or -1) >= token:
        return None
    schema_version = source.txn(schema_version_app(scope, table)) or 0
    epoch = epoch_of(scope)
    schema = stored_schema(_read_schema(source.schema), schema_version, None if known is None else known.schema, epoch)
    target = ensure_table(changelog, schema, table, changelog_properties(history_minutes), known)

    def attempt() -> int | None:
        if (target.txn(app) or -1) >= token:
            return None  # the commit that was made first contains them
        # Nothing was merged into the snapshot yet, so no row of it is marked as deleted.
        parts = (_shown(source.read(file, whole=True), token) for file in source.files)
        files = [target.write(stored(as_reads(rows), schema_version, target.schema, epoch)) for rows in parts]
        return target.commit(files, txns={app: token}, metadata={"slot": scope, "reads": token})

    return on_conflict(attempt, target)


def append_chunk(
    changelog: str,
    rows: pa.Table,
    scope: str,
    table: TableId,
    *,
    schema_version: int,
    lsn: int,
    ordinal: int,
    history_minutes: int,
) -> int | None:
    """Append rows read by an incremental snapshot as op r, unless ``ordinal`` or a later one was appended already.

    Returns the new Delta version, else None. ``rows`` are lake rows; their position becomes (``lsn``, -1). Raises
    TransientError after repeated conflicts.
    """
    app, known = chunks_app(scope, table), DeltaTable.open(changelog)
    if known is not None and (known.txn(app) or 0) >= ordinal:
        return None
    place = rows.schema.get_field_index("__commit_lsn")
    rows = rows.set_column(place, rows.schema.field(place), pa.array(np.full(rows.num_rows, lsn, dtype=np.int64)))
    made = as_reads(rows)
    epoch = epoch_of(scope)
    schema = stored_schema(made.schema, schema_version, None if known is None else known.schema, epoch)
    target = ensure_table(changelog, schema, table, changelog_properties(history_minutes), known)

    def attempt() -> int | None:
        if (target.txn(app) or 0) >= ordinal:
            return None
        file = target.write(stored(made, schema_version, target.schema, epoch))
        return target.commit([file], txns={app: ordinal}, metadata={"slot": scope, "chunk": ordinal})

    return on_conflict(attempt, target)


def _shown(rows: pa.Table, token: int) -> pa.Table:
    """Return the lake rows that the snapshot shows; in history mode unchanged rows get its LSN."""
    mode = mode_of(rows.schema.names)
    if mode is DeleteMode.HARD:
        return rows
    rows = rows.filter(pa.array(is_live(rows)))
    if mode is DeleteMode.HISTORY:
        rows = with_column(rows, "__commit_lsn", pa.array(np.full(rows.num_rows, token, dtype=np.int64)))
        rows = with_column(rows, "__tx_index", pa.array(np.full(rows.num_rows, -1, dtype=np.int64)))
    return rows


def _read_schema(lake: pa.Schema) -> pa.Schema:
    row = pa.struct([field for field in lake if field.name not in OWN_NAMES])
    ints = [pa.field(name, pa.int64()) for name in ("__commit_lsn", "__tx_index", "__lsn", "__xid")]
    return pa.schema(
        [
            pa.field("__op", pa.string()),
            *ints,
            META[-1],
            pa.field("__unchanged", pa.list_(pa.string())),
            pa.field("before", row),
            pa.field("after", row),
        ]
    )


def as_reads(rows: pa.Table) -> pa.Table:
    """Convert lake rows to change rows of op r. Shape: lake rows[N] -> change rows[N]."""
    count = rows.num_rows
    schema = _read_schema(rows.schema)
    row = schema.field("after").type
    columns = [rows.column(field.name).combine_chunks() for field in row]
    arrays = [
        values.chunk(0) if isinstance(values, pa.ChunkedArray) and values.num_chunks else values for values in columns
    ]
    nothing = pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, dtype=np.int32)), pa.array([], pa.string()))
    return pa.Table.from_arrays(
        [
            pa.array(np.full(count, "r", dtype=object), pa.string()),
            rows.column("__commit_lsn"),
            rows.column("__tx_index"),
            rows.column("__commit_lsn"),
            pa.nulls(count, pa.int64()),
            rows.column("__commit_ts"),
            nothing,
            pa.nulls(count, row),
            pa.StructArray.from_arrays(arrays, fields=list(row)),
        ],
        schema=schema,
    )

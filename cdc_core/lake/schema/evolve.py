"""Changes a lake table to the next versions of its source, in one commit: of metadata, or of every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from cdc_core.lake.delta.conform import conform
from cdc_core.lake.delta.data_file import DataFile
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.names import RESCUED
from cdc_core.lake.rows.feed_rows import updates
from cdc_core.lake.rows.images import column, texts_of, validity
from cdc_core.lake.schema.features import Evolution, enabled, moved_names
from cdc_core.lake.schema.project import SchemaStep, own_columns, project_rows, project_schema, traced


def evolve(
    lake: DeltaTable, steps: Sequence[SchemaStep], evolution: Evolution, app: str, metadata: Mapping[str, str]
) -> None:
    """Change the table to the last step's version, in one commit with its number.

    A change of metadata writes no row, unless ``__rescued`` of some row has a text by a name that is removed: then
    every row is written, one file at a time. Raises CommitConflictError if another commit was made first.
    """
    txns, clustered_by = {app: steps[-1].number}, _clustered_by(lake, steps)
    own = own_columns(lake.schema)
    if evolution.enables is not None and not _has_texts(lake, moved_names(lake.schema, steps)):
        names = [name for name in lake.schema.names if name not in {field.name for field in own}]
        columns = [(origin.name, origin.source, origin.type) for origin in traced(names, steps)]
        columns += [(field.name, field.name, field.type) for field in own]
        definition = enabled(lake, evolution.enables).evolved(columns)
        lake.commit(definition=definition, txns=txns, metadata=metadata, clustered_by=clustered_by)
        return
    schema, files, changes = project_schema(lake.schema, steps), list[DataFile](), list[DataFile]()
    for file in lake.files:
        tracked_rows = lake.read(file, lake.tracked_schema.names)
        before = tracked_rows.select(lake.schema.names)
        rows = _projected(before, steps, schema)
        files.append(lake.write_as(_with_row_ids(lake, rows, tracked_rows), schema))
        if lake.definition.feeds_changes:
            unfilled = _projected(before, [step.unfilled() for step in steps], schema)
            changes += lake.write_changes(updates(unfilled, rows).to_batches(), schema)
    feed = changes if lake.definition.feeds_changes else None
    lake.commit(
        files, schema=schema, replace=True, changes=feed, txns=txns, metadata=metadata, clustered_by=clustered_by
    )


def _projected(rows: pa.Table, steps: Sequence[SchemaStep], schema: pa.Schema) -> pa.Table:
    for step in steps:
        rows = project_rows(rows, step)
    return conform(rows, schema)


def _with_row_ids(lake: DeltaTable, rows: pa.Table, tracked_rows: pa.Table) -> pa.Table:
    """Return rows with the row ids of those that they were. Their commit version is that of the change."""
    for row_id in list(lake.tracked_schema)[len(lake.schema) :][:1]:
        rows = rows.append_column(row_id, tracked_rows.column(row_id.name))
    return rows


def _clustered_by(lake: DeltaTable, steps: Sequence[SchemaStep]) -> tuple[str, ...] | None:
    """Return the clustering columns by their names after the steps, none if one of them goes; None for no change."""
    before = lake.clustered_by
    if not before:
        return None
    names = {origin.source: origin.name for origin in traced(before, steps) if origin.source is not None}
    after = tuple(names[column] for column in before) if set(before) <= set(names) else ()
    return None if after == before else after


def _has_texts(lake: DeltaTable, names: frozenset[str]) -> bool:
    """Whether some row's ``__rescued`` has a text of one of these columns; a file without any is not read."""
    if not names or RESCUED not in lake.schema.names:
        return False
    for file in lake.files:
        if not lake.is_all_null(file, RESCUED):
            texts = texts_of(column(lake.read(file, [RESCUED]), RESCUED))
            if any(validity(texts[name]).any() for name in names & set(texts)):
                return True
    return False

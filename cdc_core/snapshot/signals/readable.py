"""Whether a run can read the tables that a signal names."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from cdc_core.errors import TableError
from cdc_core.schema import KeyRule, TableSchema
from cdc_core.selection import key_columns, table_matcher
from cdc_core.snapshot.incremental.chunk import unique_keys
from cdc_core.snapshot.signals.parse import ExecuteSnapshot, SnapshotKind


def require_readable(
    action: ExecuteSnapshot, captured: Sequence[TableSchema], keys: tuple[KeyRule, ...], *, needs_key: bool
) -> None:
    """Raise TableError if a run could not read what the signal names: the run would only log it.

    ``keys`` is ``message.key.columns``. ``needs_key``: a key by which changes find their rows is needed for chunks.
    """

    def has_chunks(table: TableSchema) -> bool:
        if needs_key and not table.row_key:
            return False
        return bool(action.surrogate_key or unique_keys(table) or key_columns(table, keys))

    for pattern in action.collections:
        names = table_matcher(pattern)
        matching = [table for table in captured if names(table.id)]
        if not matching:
            near = get_close_matches(pattern, [str(table.id) for table in captured], n=1)
            raise TableError(
                f"{pattern} of data-collections matches no captured table.",
                f"Did you mean {near[0]}?" if near else "Check the name and the lists in the connector file.",
            )
        if action.kind is SnapshotKind.INCREMENTAL and not any(has_chunks(table) for table in matching):
            raise TableError(
                f"{matching[0].id} has no key, and an incremental snapshot reads a table in the order of its key.",
                'Add a primary key, or ask for a blocking snapshot: "type": "blocking" in the data.',
                str(matching[0].id),
            )

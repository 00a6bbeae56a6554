"""The tables that a user names."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from cdc_core.errors import TableError
from cdc_core.schema import TableId, TableSchema


def chosen_tables(captured: list[TableSchema], names: Sequence[TableId]) -> list[TableSchema]:
    """The captured tables among ``names``. Raises TableError if one is not captured."""
    known = {str(table.id): table.id for table in captured}
    unknown = [str(name) for name in names if str(name) not in known]
    if unknown:
        near = get_close_matches(unknown[0], known, n=1)
        raise TableError(
            f"Not a captured table: {', '.join(unknown)}.",
            f"Did you mean {near[0]}?"
            if near
            else "Check the name and the include and exclude lists in the connector file.",
            unknown[0],
        )
    return [table for table in captured if table.id in names]

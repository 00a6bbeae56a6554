"""The table of the source whose inserted rows are signals."""

from __future__ import annotations

import logging

from cdc_core.postgres import Source
from cdc_core.schema import TableSchema

_log = logging.getLogger(__name__)


def signal_table(source: Source) -> TableSchema | None:
    """The table of signal.data.collection; None, with a log message, if it cannot be used."""
    tables = source.catalog.tables(source.selection.is_signal)
    if not tables:
        return None
    table, published = tables[0], source.published()
    if table.id not in published or len(table.columns) < 3:
        _log.warning(
            "The signal table %s cannot be used: %s.",
            table.id,
            "it has fewer than three columns" if table.id in published else "it is not in the publication",
        )
        return None
    return table

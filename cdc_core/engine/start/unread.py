"""Names the tables that a snapshot was asked for and does not read, with the reason."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.postgres import Source
from cdc_core.schema import TableId

_log = logging.getLogger(__name__)


def say_unread(
    lake: ConnectorLake,
    source: Source,
    asked: Iterable[TableId],
    *,
    read: Collection[TableId],
    known: Collection[TableId],
    published: Collection[TableId],
) -> None:
    """Log each table of ``asked`` that is not in ``read``; ``known`` are those whose snapshot is in the lake.

    Not those that are refused with an error or a pause, which has its own message: they are to be in ``read``.
    """
    for table in asked:
        if table in read:
            continue
        if table in known:
            _log.info("%s is not read: its snapshot is in the lake, and its later changes are streamed.", table)
        elif table not in published:
            _log.warning(
                "%s is not read: the server does not send its changes under this name. Add it to the publication "
                "(ALTER PUBLICATION … ADD TABLE), or name the tables under which a partitioned table is published.",
                table,
            )
        elif not source.selection.includes_in_snapshot(table):
            _log.warning("%s is not read: snapshot.include.collection.list does not contain it.", table)
        else:
            _log.warning("%s is not read: snapshot.mode=%s does not read it.", table, lake.snapshot.snapshot_mode.value)

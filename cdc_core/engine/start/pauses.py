"""Records in the lake that tables are paused, and are to be read before anything is merged into them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cdc_core.engine.connector_lake import ConnectorLake
from cdc_core.lake import TableHistory
from cdc_core.schema import PauseCause, TableId

_log = logging.getLogger(__name__)


def pause_unread(lake: ConnectorLake, reasons: Mapping[TableId, tuple[str, str]], cause: PauseCause, why: str) -> None:
    """Pause tables with their reason and remedy, which are of one cause; ``why`` they are to be read is recorded."""
    log = lake.schema_log
    histories = log.read()
    for table, (reason, remedy) in reasons.items():
        known = histories.get(table, TableHistory({}))
        newest = max(known.versions, default=0)
        if known.reread is None or known.reread[0] < newest:
            log.want_reread(table, why, newest, 0)
        if known.paused is None:
            _log.warning("%s is paused: %s %s", table, reason, remedy)
            log.pause(table, cause, reason, remedy, 0)

"""Operation ``versions``: the Delta versions of all tables that correspond to one LSN of the source."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from cdc_core.assemble.context import RunContext
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId

if TYPE_CHECKING:
    from cdc_core.lake.stores.round_lookup import Cut


def versions(context: RunContext, at: Lsn | datetime | None, tables: Sequence[TableId]) -> Cut:
    """The cut of the newest round at or before ``at``. Raises LakeError if there is none."""
    from cdc_core.lake.stores.round_lookup import find_cut

    context.config.require_lake()
    return find_cut(context.paths, context.scope, context.config.lake.lake_history_minutes, at, tables)

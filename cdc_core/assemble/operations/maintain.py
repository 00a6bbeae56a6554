"""Operation ``maintain``: optimizes and vacuums the lake's tables; it can run concurrently with the stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cdc_core.assemble.context import RunContext
from cdc_core.lake import MaintainReport, maintain_tables
from cdc_core.schema import TableId
from cdc_core.spark import StartSession


def maintain(
    context: RunContext,
    tables: Sequence[TableId] | None,
    spark: StartSession | None,
    on_table: Callable[[MaintainReport], None] | None,
) -> list[MaintainReport]:
    """Maintain the Delta tables of ``tables`` (None: all); see ``maintain_tables``. ``spark``: as in ``Connector``."""
    lake = context.lake
    session = context.session(spark) if spark is not None else context.spark
    return maintain_tables(lake.paths, lake.scope, lake.options, tables, session, on_table)

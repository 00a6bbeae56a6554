"""Metadata of a lake table that a run determines: columns, number of rows, cause of a pause."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import dagster as dg

from cdc_core.errors import CdcError
from cdc_core.observe import DATA_DOCS_FOLDER, pages_folder
from cdc_core.schema import TableId, TableSchema
from wal2lake.pipelines.connector import catalogue
from wal2lake.pipelines.connector.keys import source_key
from wal2lake.pipelines.connector.site import Site
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.reports.columns import column_lineage, lake_columns


class PausedFacts(NamedTuple):
    """Metadata of a paused table, and whether its rules keep its changes waiting; empty for a table that is not."""

    facts: metadata.Metadata = {}  # noqa: RUF012  (never changed)
    by_rules: bool = False


class LakeFacts:
    """Current metadata of lake tables: columns from the cached catalogue, row counts from the Delta log."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._opened: dict[TableId, Sequence[Any]] = {}
        self._defined = {table.id: table.schema for table in site.tables}

    @cached_property
    def _schemas(self) -> dict[TableId, TableSchema | None]:
        """The tables as they are known now: they may have changed since the definitions were loaded."""
        return self._defined | {table.id: table.schema for table in catalogue.read(self._site.state_path)}

    def of(self, table: TableId) -> metadata.Metadata:
        """``dagster/column_schema``, ``dagster/column_lineage`` and ``dagster/row_count``, if known."""
        facts: metadata.Metadata = {}
        schema = self._schemas.get(table)
        fields = self._fields(table)
        if schema is not None and fields:
            facts |= self._columns_of(schema, fields)
        rows = self.rows(table)
        if rows is not None:
            facts["dagster/row_count"] = rows
        return facts

    def expected(self, table: TableId) -> metadata.Metadata:
        """Where the lake table is, and the columns that it is created with, as long as no run has reported it."""
        facts: metadata.Metadata = {}
        if self._site.lake_path:
            facts["path"] = dg.MetadataValue.path(self._site.paths().lake(table))
        schema = self._defined.get(table)
        if schema is None or self._site.lake_fields is None:
            return facts
        try:
            return facts | self._columns_of(schema, self._site.lake_fields(schema))
        except CdcError:  # a column that cannot be captured, which a run and wal2lake check report
            return facts

    def _columns_of(self, schema: TableSchema, fields: Sequence[Any]) -> metadata.Metadata:
        names = [field.name for field in fields]
        return {
            "dagster/column_schema": lake_columns(schema, fields),
            "dagster/column_lineage": column_lineage(schema, source_key(self._site, schema.id), names),
        }

    def paused(self, table: TableId) -> PausedFacts:
        """Since when a table is paused, how many of its changes wait, and the remedy; nothing if it is not paused."""
        if not self._site.lake_path:
            return PausedFacts()
        from cdc_core.engine import paused_now

        pause = paused_now(self._site.paths(), self._site.slot, table)
        if pause is None:
            return PausedFacts()
        since = dg.MetadataValue.timestamp(pause.since)
        command = pause.resuming(self._site.typed_file, table)
        remedy = f"{command.rstrip('.')}, or the job {self._site.safe_name}_replay_job"
        facts: metadata.Metadata = {"paused_since": since, "waiting_changes": pause.waiting, "remedy": remedy}
        return PausedFacts(facts, pause.by_rules)

    def places(self, table: TableId) -> metadata.Metadata:
        """The paths of a table's refused rows and of Great Expectations' pages, if they exist."""
        facts: metadata.Metadata = {}
        if self._site.lake_path:
            facts["quarantine_table"] = dg.MetadataValue.path(self.place(table))
        return facts | self.data_docs()

    def data_docs(self) -> metadata.Metadata:
        """The location of Great Expectations' pages, if they exist."""
        index = pages_folder(self._site.state_path.resolve() / DATA_DOCS_FOLDER) / "index.html"
        return {"data_docs": data_docs_link(self._site, index)} if index.exists() else {}

    def place(self, table: TableId) -> str:
        """The path of a table's quarantine table."""
        return self._site.paths().quarantine(table)

    def _fields(self, table: TableId) -> Sequence[Any]:
        """The lake table's columns when the run first reported it; empty if it does not exist."""
        if table not in self._opened and self._site.lake_path:
            from cdc_core.lake import LakeTable

            try:
                schema = LakeTable(self._site.paths(), "", table).schema()
            except CdcError:
                schema = None
            self._opened[table] = [] if schema is None else list(schema)
        return self._opened.get(table, [])

    def rows(self, table: TableId) -> int | None:
        """The number of rows according to the Delta log; None if unknown."""
        if not self._site.lake_path:
            return None
        from cdc_core.lake import LakeTable

        return LakeTable(self._site.paths(), "", table).row_count()


def data_docs_link(site: Site, index: Path) -> dg.MetadataValue[Any]:
    """The first page of the data docs: its URL if it is served, else its path."""
    return dg.MetadataValue.url(site.data_docs_url) if site.data_docs_url else dg.MetadataValue.path(str(index))

"""Maintenance of all Delta tables of a connector's lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cdc_core.described import names_in_spark
from cdc_core.errors import TableError, UnreadableError
from cdc_core.lake.options import LakeOptions
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.spark.register import register
from cdc_core.lake.stores.round_lookup import renew_newest
from cdc_core.lake.stores.schema_log import SchemaLog
from cdc_core.lake.write.maintain import MaintenanceResult, Retention, maintain
from cdc_core.schema import TableId
from cdc_core.spark import StartSession


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """One Delta table of a captured table.

    ``kind`` is lake, changelog or quarantine, or the name of one of the connector's own tables (then ``table`` is
    None).
    """

    table: TableId | None
    kind: str
    done: MaintenanceResult


def maintain_tables(
    paths: LakePaths,
    scope: str,
    options: LakeOptions,
    tables: Sequence[TableId] | None,
    spark: StartSession,
    on_table: Callable[[MaintainReport], None] | None,
) -> list[MaintainReport]:
    """Optimize and vacuum the Delta tables of ``tables`` (None: of all tables in the lake, and the connector's own).

    Each lake table is registered in ``wal2lake.lake.catalog.database``, in a session of ``spark``.

    Raises TableError if a given table is not in the lake; UnreadableError, once all others are maintained.
    """
    known = sorted(SchemaLog(paths.schema_versions, {}).read())
    unknown = [name for name in tables or () if name not in known]
    if unknown:
        raise TableError(f"{unknown[0]} is not in the lake.", "Check the name.", str(unknown[0]))
    names = names_in_spark(known)
    retention = Retention(options.lake_history_minutes, options.vacuum_hours)
    reports: list[MaintainReport] = []
    unreadable: UnreadableError | None = None
    for table, kind, path in _places(paths, known if tables is None else tables, own=tables is None):
        try:
            done = maintain(path, retention)
        except UnreadableError as error:
            # The maintenance of the other tables does not depend on it.
            unreadable = unreadable or error
            continue
        if done is not None:
            if table is not None and kind == "lake" and options.lake_catalog_database:
                register(spark(), options.lake_catalog_database, names[table], table, path)
            reports.append(MaintainReport(table, kind, done))
            if on_table is not None:
                on_table(reports[-1])
    renew_newest(paths, scope, options.lake_history_minutes)
    if unreadable is not None:
        raise unreadable
    return reports


def _places(paths: LakePaths, tables: Sequence[TableId], *, own: bool) -> Iterator[tuple[TableId | None, str, str]]:
    for table in tables:
        yield table, "lake", paths.lake(table)
        yield table, "changelog", paths.changelog(table)
        yield table, "quarantine", paths.quarantine(table)
    if own:
        yield None, "messages", paths.messages
        yield None, "transactions", paths.transactions
        yield None, "rounds", paths.rounds
        yield None, "stream", paths.stream
        yield None, "snapshots", paths.snapshots
        yield None, "shapes", paths.schema_versions
        yield None, "reconciliations", paths.reconciliations

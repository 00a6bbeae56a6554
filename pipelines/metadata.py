"""Reports of the engine as Dagster metadata: numbers that the UI plots, and tables that it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_core.engine.reports import SnapshotReport, StreamReport
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column, TableSchema
from pipelines.stream_tally import ChangesTotals, CheckTotals, TableTotals

Metadata = dict[str, Any]

_LENGTH_HEADER = 4


def column_schema(table: TableSchema) -> dg.TableSchema:
    """The source's columns, with their PostgreSQL types, as the UI shows a table's columns."""
    key = table.lake_key
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                column.name,
                type=type_text(column),
                description=column.comment,
                constraints=dg.TableColumnConstraints(nullable=column.optional, unique=key == (column.name,)),
            )
            for column in table.columns
        ]
    )


def type_text(column: Column) -> str:
    """The column's type about as psql prints it: ``varchar(20)``, ``numeric(12,2)``, ``int4[]``."""
    return _type_text(column.type, column.modifier)


def changes(totals: ChangesTotals) -> Metadata:
    """The drain of the slot since its last report."""
    return {
        "events": totals.events,
        "batches": totals.batches,
        "rounds": totals.rounds,
        "commit_lsn": str(totals.commit_lsn),
        "lag_bytes": totals.lag_bytes,
        "lag_seconds": round(totals.lag_seconds, 3),
        "lag_seconds_max": round(totals.lag_seconds_max, 3),
        "seconds": round(totals.seconds, 3),
    }


def stream(report: StreamReport) -> Metadata:
    """A whole run of the stream, beside what its last report says."""
    return {
        "commit_lsn": str(report.lsn),
        "run_events": report.events,
        "run_batches": report.batches,
        "run_seconds": round(report.seconds, 3),
        "stopped_by": report.stopped_by,
    }


def table(totals: TableTotals) -> Metadata:
    """One table since its last report: sums of its rounds, and where the last one left it.

    Without a round there are no sums, for a plot would show them as a pause that was none.
    """
    found: Metadata = {
        "lsn": str(totals.lsn),
        "delta_version": totals.lake_version,
        "lag_bytes": totals.lag_bytes,
        "lag_seconds": round(totals.lag_seconds, 3),
    }
    if totals.rounds:
        found |= {
            "events": totals.events,
            "inserted": totals.inserted,
            "updated": totals.updated,
            "deleted": totals.deleted,
            "quarantined": totals.quarantined,
            "rounds": totals.rounds,
            "lag_seconds_max": round(totals.lag_seconds_max, 3),
            "seconds": round(totals.seconds, 3),
        }
    return found


def snapshot(report: SnapshotReport) -> Metadata:
    """One table's snapshot."""
    return {
        "dagster/row_count": report.rows,
        "rows": report.rows,
        "lsn": str(report.lsn),
        "delta_version": report.lake_version,
        "seconds": round(report.seconds, 3),
        "rows_per_second": round(report.rows / report.seconds) if report.seconds > 0 else 0,
        "skipped": report.skipped,
    }


def rules(checks: CheckTotals) -> dg.TableMetadataValue:
    """Every rule with its counts, failing ones first."""
    return records(
        [
            {"rule": name, "column": column, "severity": severity, "checked": checked, "failed": failed}
            for (name, column, severity), (checked, failed) in sorted(
                checks.rules.items(), key=lambda item: -item[1][1]
            )
        ],
        {"rule": "string", "column": "string", "severity": "string", "checked": "int", "failed": "int"},
    )


def records(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> dg.TableMetadataValue:
    """Rows as a table in the UI; ``columns`` gives their types, also where there is no row."""
    return dg.MetadataValue.table(
        [dg.TableRecord(dict(row)) for row in rows],
        dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns.items()]),
    )


def _type_text(kind: PgType, modifier: int) -> str:
    if kind.kind is TypeKind.ARRAY and kind.inner is not None:
        return f"{_type_text(kind.inner, modifier)}[]"
    if modifier >= _LENGTH_HEADER and kind.name in ("varchar", "bpchar"):
        return f"{kind.name}({modifier - _LENGTH_HEADER})"
    if modifier >= _LENGTH_HEADER and kind.name == "numeric":
        packed = modifier - _LENGTH_HEADER
        # The scale is an eleven-bit signed number since PostgreSQL 15.
        return f"numeric({packed >> 16},{((packed & 0x7FF) ^ 1024) - 1024})"
    return kind.name

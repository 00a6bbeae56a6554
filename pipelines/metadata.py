"""Reports of the engine as Dagster metadata: numbers that the UI plots, and tables that it shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_core.engine.reports import BatchReport, CheckReport, MergeReport, RoundReport, SnapshotReport, StreamReport
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column, TableSchema

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


def batch(report: BatchReport) -> Metadata:
    """One micro-batch in the changelog."""
    return {
        "events": sum(report.events.values()),
        "tables": len(report.events),
        "commit_lsn": str(report.commit_lsn),
        "lag_bytes": report.lag_bytes,
        "seconds": round(report.seconds, 3),
    }


def stream(report: StreamReport) -> Metadata:
    """A whole run of the stream."""
    last = report.rounds[-1] if report.rounds else None
    return {
        "events": report.events,
        "batches": report.batches,
        "rounds": len(report.rounds),
        "commit_lsn": str(report.lsn),
        "seconds": round(report.seconds, 3),
        "stopped_by": report.stopped_by,
        "lag_bytes": last.lag_bytes if last else 0,
        "lag_seconds": round(last.lag_seconds, 3) if last else 0.0,
    }


def merge(report: MergeReport, round_report: RoundReport) -> Metadata:
    """One table in one round."""
    return {
        "events": report.events,
        "inserted": report.inserted,
        "updated": report.updated,
        "deleted": report.deleted,
        "quarantined": report.check.quarantined if report.check else 0,
        "lsn": str(report.lsn),
        "delta_version": report.lake_version,
        "lag_bytes": round_report.lag_bytes,
        "lag_seconds": round(round_report.lag_seconds, 3),
        "seconds": round(report.seconds, 3),
    }


def merges(pairs: Sequence[tuple[RoundReport, MergeReport]]) -> Metadata:
    """One table over a run: sums of its rounds, and where the last one left it. ``pairs`` is not empty."""
    last_round, last = pairs[-1]
    total = merge(last, last_round)
    for name in ("events", "inserted", "updated", "deleted"):
        total[name] = sum(getattr(one, name) for _, one in pairs)
    total["quarantined"] = sum(one.check.quarantined for _, one in pairs if one.check)
    total["seconds"] = round(sum(one.seconds for _, one in pairs), 3)
    total["rounds"] = len(pairs)
    return total


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


def rules(checks: Iterable[CheckReport]) -> dg.TableMetadataValue:
    """Every rule with its counts over all checks of a run, failing ones first."""
    counts: dict[tuple[str, str, str], list[int]] = {}
    for check in checks:
        for rule in check.rules:
            held = counts.setdefault((rule.name, rule.column, rule.severity), [0, 0])
            held[0] += rule.checked
            held[1] += rule.failed
    return records(
        [
            {"rule": name, "column": column, "severity": severity, "checked": checked, "failed": failed}
            for (name, column, severity), (checked, failed) in sorted(counts.items(), key=lambda item: -item[1][1])
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

"""Reports of the engine as Dagster metadata: numbers for plots, and tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dagster as dg

from cdc_core.engine import LakeJudgement, StreamReport
from cdc_core.quality import CheckReport, RuleResult
from cdc_core.snapshot import IncrementalProgress, RangeReport, SnapshotProgress, SnapshotReport
from wal2lake.pipelines.reports.stream_tally import ChangesTotals, TableTotals

Metadata = dict[str, Any]

# Dagster's metadata have no descriptions of their own; an asset's description is shown beside them, as Markdown.
_POSITIONS = (
    "* `lag_seconds`, `lag_seconds_max`: from the commits of a round's changes to the lake, on average; the "
    "last round's, and the largest since the last report\n"
    "* `lag_bytes`: WAL between the position and the end of the server's WAL\n"
)
CHANGES_HELP = (
    "\n\n* `events`, `batches`, `rounds`, `seconds`: since the last report; `run_…`: of the whole run\n"
    "* `commit_lsn`: the position up to which changes are durable\n" + _POSITIONS
)
TABLE_HELP = (
    "\n\n* `events`, `inserted`, `updated`, `deleted`: changes since the last report; `quarantined`: those that a rule "
    "refused; `waiting`: all that are in quarantine; `missing_rows`: rows to be changed that the table did not have\n"
    "* `rounds`, `seconds`: how often changes were merged since the last report, and the time that it took\n"
    "* `lsn`: the position that the table has reached; `delta_version`: its version in the Delta log\n" + _POSITIONS
)
SNAPSHOT_HELP = (
    "\n\n* `dagster/row_count`, `seconds`, `rows_per_second`: of the table's read; `rows_kept`: rows of an interrupted "
    "read before it; `rows_in_quarantine`: rows that a rule refused\n"
    "* `lsn`: the position at which the table was read; `delta_version`: the version that has its rows\n"
)
RANGE_HELP = (
    "\n\n* `rows`, `seconds`, `rows_per_second`: of the range's read, or of the table's ranges so far\n"
    "* `ranges_read`, `ranges_in_lake`, `ranges`: ranges that are staged, that are in the lake table, and of this run\n"
    "* `rows_left`, `seconds_left`: what is left by the server's estimate, at this rate\n"
)


def changes(totals: ChangesTotals) -> Metadata:
    """Metadata of the changelog since its last report."""
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
    """Totals of a streaming run."""
    return {
        "commit_lsn": str(report.lsn),
        "run_events": report.events,
        "run_batches": report.batches,
        "run_seconds": round(report.seconds, 3),
        "stopped_by": report.stopped_by,
    }


def table(totals: TableTotals) -> Metadata:
    """Metadata of a table since its last report: sums over its rounds, and its position after the last one.

    Without a round there are no sums, because a plot would show zeros.
    """
    entries: Metadata = {
        "lsn": str(totals.lsn),
        "delta_version": totals.lake_version,
        "lag_bytes": totals.lag_bytes,
        "lag_seconds": round(totals.lag_seconds, 3),
    }
    if totals.rounds:
        entries |= {
            "events": totals.events,
            "inserted": totals.inserted,
            "updated": totals.updated,
            "deleted": totals.deleted,
            "quarantined": totals.quarantined,
            "rounds": totals.rounds,
            "lag_seconds_max": round(totals.lag_seconds_max, 3),
            "seconds": round(totals.seconds, 3),
        }
    if totals.missing:
        entries["missing_rows"] = totals.missing
    return entries


def snapshot(report: SnapshotReport) -> Metadata:
    """Metadata of a table's snapshot; ``rows_kept`` is the number of rows reused from an interrupted attempt."""
    rows = report.rows - report.rows_kept
    entries: Metadata = {
        "dagster/row_count": report.rows,
        "lsn": str(report.lsn),
        "delta_version": report.lake_version,
        "seconds": round(report.seconds, 3),
        "rows_per_second": round(rows / report.seconds) if report.seconds > 0 else 0,
    }
    if report.rows_kept:
        entries["rows_kept"] = report.rows_kept
    if report.refused:
        entries["rows_in_quarantine"] = report.refused
    return entries | {"skipped": True} if report.skipped else entries


def snapshot_progress(progress: SnapshotProgress, seconds: float) -> Metadata:
    """Progress of a table's snapshot after ``seconds``; ``percent`` only if the number of rows was estimated."""
    entries: Metadata = {
        "rows": progress.rows,
        "rows_per_second": round(progress.rows / seconds) if seconds > 0 else 0,
        "seconds": round(seconds, 3),
    }
    if progress.rows_estimated:
        entries["rows_estimated"] = progress.rows_estimated
        # The planner's estimate may be too low, and 100 % is only for a finished table.
        entries["percent"] = min(99, round(100 * progress.rows / progress.rows_estimated))
    if progress.ranges_total > 1:
        entries |= {"ranges_done": progress.ranges_done, "ranges_total": progress.ranges_total}
    return entries


def progress_text(progress: SnapshotProgress, seconds: float) -> str:
    """The progress as text: ``1,200 of about 5,000 rows, 3 of 8 ranges, 400 rows/s``."""
    estimated = f" of about {progress.rows_estimated:,}" if progress.rows_estimated else ""
    words = [f"{progress.rows:,}{estimated} rows"]
    if progress.ranges_total > 1:
        words.append(f"{progress.ranges_done} of {progress.ranges_total} ranges")
    if progress.rows and seconds > 0:
        words.append(f"{round(progress.rows / seconds):,} rows/s")
    return ", ".join(words)


def key_range(report: RangeReport) -> Metadata:
    """Metadata of a range that an incremental snapshot has read, and that is in the lake."""
    rate = round(report.rows / report.seconds) if report.seconds > 0 else 0
    return {"rows": report.rows, "seconds": round(report.seconds, 3), "rows_per_second": rate}


def incremental_progress(progress: IncrementalProgress) -> Metadata:
    """Progress of a table's incremental snapshot; what is left only if the number of rows was estimated."""
    entries: Metadata = {
        "rows": progress.rows,
        "ranges": progress.ranges,
        "ranges_read": progress.ranges_read,
        "ranges_in_lake": progress.ranges_applied,
        "rows_per_second": round(progress.rows_per_second),
        "seconds": round(progress.seconds, 3),
    }
    if progress.rows_left is not None:
        entries["rows_left"] = progress.rows_left
    if progress.seconds_left is not None:
        entries["seconds_left"] = round(progress.seconds_left)
    return entries


def incremental_text(progress: IncrementalProgress) -> str:
    """The progress as text: ``1,200 of about 5,000 rows, 3 of 8 ranges read, 2 in the lake, 400 rows/s, 10 s left``."""
    expected = f" of about {progress.rows_expected:,}" if progress.rows_expected else ""
    words = [
        f"{progress.rows:,}{expected} rows",
        f"{progress.ranges_read} of {progress.ranges} ranges read, {progress.ranges_applied} in the lake",
    ]
    if progress.rows_per_second:
        words.append(f"{round(progress.rows_per_second):,} rows/s")
    if progress.seconds_left is not None:
        words.append(f"about {round(progress.seconds_left):,} s left")
    return ", ".join(words)


def rules(results: Iterable[RuleResult]) -> dg.TableMetadataValue:
    """Every rule with its verdict, failed ones first."""
    return records(
        [
            {
                "rule": rule.name,
                "expectation": rule.kind if rule.kwargs else "condition",
                "severity": rule.severity,
                "passed": rule.success,
                "checked": rule.checked,
                "failed": rule.failed,
                "observed": rule.observed,
                "expected": rule.expected or rule.description,
            }
            for rule in sorted(results, key=lambda rule: (rule.success, -rule.failed))
        ],
        dict.fromkeys(("rule", "expectation", "severity"), "string")
        | {"passed": "bool", "checked": "int", "failed": "int", "observed": "string", "expected": "string"},
    )


def lake_judgement(judged: LakeJudgement, report: CheckReport) -> Metadata:
    """The verdict of the rules on all rows of a lake table."""
    return {
        "judged_by": "Great Expectations, from metrics of DuckDB",
        "rows": report.rows,
        "delta_version": judged.version if judged.version is not None else -1,
        "seconds": round(judged.seconds, 3),
        "rules": rules(report.rules),
    }


def failures(failed_rules: Iterable[tuple[CheckReport, RuleResult]]) -> dg.TableMetadataValue:
    """Expectations that failed, with their tables."""
    return records(
        [
            {
                "table": str(check.table),
                "rule": rule.name,
                "expectation": rule.kind,
                "checked": rule.checked,
                "failed": rule.failed,
                "observed": rule.observed,
                "expected": rule.expected or rule.description,
            }
            for check, rule in failed_rules
        ],
        dict.fromkeys(("table", "rule", "expectation"), "string")
        | {"checked": "int", "failed": "int", "observed": "string", "expected": "string"},
    )


def reasons(counts: Mapping[str, int]) -> dg.TableMetadataValue:
    """The rules that changes in quarantine failed, with the number of changes."""
    rows = [{"rule": name, "waiting": count} for name, count in counts.items()]
    return records(rows, {"rule": "string", "waiting": "int"})


def records(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> dg.TableMetadataValue:
    """Rows as a Dagster table; ``columns`` has the column types, also if there are no rows."""
    return dg.MetadataValue.table(
        [dg.TableRecord(dict(row)) for row in rows],
        dg.TableSchema([dg.TableColumn(name, kind) for name, kind in columns.items()]),
    )

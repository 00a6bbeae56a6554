"""Options for metrics and alerts, and for the connector's schedules and labels in Dagster."""

# option() is dataclasses.field with a declaration, so each call is where ruff expects a field.
# ruff: noqa: RUF009

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from zoneinfo import ZoneInfo

from cdc_core.observe.cron import parse_cron
from cdc_core.option import Named, Secret, at_least, option, parse_list, parse_patterns
from cdc_core.selection import compile_pattern

_OWNER = re.compile(r"[^@\s,]+@[^@\s,]+\.[^@\s,]+|team:[\w .-]+")
_WINDOW = re.compile(r"(\d+)([mhd])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400}
# Dagster's daemon and the sensor check a table once or twice a minute.
_LEAST_WINDOW_SECONDS = 300
_LABEL = re.compile(r"(?!__)[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
OWN_LABELS = ("change", "context", "coordinate", "fault", "le", "name", "plugin", "rule", "severity", "table")
"""Labels of metrics (``metrics``), and that no tag may have."""
_TAG = re.compile(r"[A-Za-z0-9_.-]{1,63}")


class LogFormat(StrEnum):
    """How a command writes its lines to stderr."""

    TEXT = "text"
    JSON = "json"


def parse_time_zone(text: str) -> str:
    """Parse a name of the IANA time zone database."""
    try:
        return ZoneInfo(text.strip()).key
    except (KeyError, ValueError, OSError):
        raise ValueError("a time zone such as UTC or Europe/Berlin") from None


def parse_port(text: str) -> int:
    """Parse a port, or 0."""
    port = int(text) if text.strip().isdecimal() else -1
    if not 0 <= port <= 65_535:
        raise ValueError("a port from 1 to 65535, or 0")
    return port


parse_port.kind = "integer"  # type: ignore[attr-defined]


def parse_owners(text: str) -> tuple[str, ...]:
    """Parse e-mail addresses and ``team:NAME``, separated by commas."""
    owners = parse_list(text)
    if not all(_OWNER.fullmatch(owner) for owner in owners):
        raise ValueError("e-mail addresses or team:name, separated by commas")
    return owners


def parse_tags(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``name=value`` pairs, separated by commas; a value may be omitted."""
    pairs = [tuple(part.strip() for part in entry.partition("=")[::2]) for entry in parse_list(text)]
    if not all(_TAG.fullmatch(name) and (not value or _TAG.fullmatch(value)) for name, value in pairs):
        raise ValueError("name=value pairs of letters, digits, _, - and ., separated by commas")
    return tuple((name, value) for name, value in pairs)


def parse_metric_tags(text: str) -> tuple[tuple[str, str], ...]:
    """Parse ``name=value`` pairs, separated by commas, whose names Prometheus accepts as labels."""
    pairs = [tuple(part.strip() for part in entry.partition("=")[::2]) for entry in parse_list(text)]
    names = [name for name, _ in pairs]
    is_valid = all(_LABEL.fullmatch(name) and name not in OWN_LABELS and value for name, value in pairs)
    if not is_valid or len(set(names)) < len(names):
        raise ValueError(
            "name=value pairs separated by commas; a name has letters, digits and _, occurs once, and is none of "
            f"{', '.join(OWN_LABELS)}"
        )
    return tuple((name, value) for name, value in pairs)


@dataclass(frozen=True, slots=True)
class FreshnessWindow:
    """Freshness of tables whose name matches ``pattern``.

    A warning after ``warn_seconds`` (None: no warning), a failure after ``fail_seconds``.
    """

    pattern: str
    warn_seconds: int | None
    fail_seconds: int


class CheckLevel(StrEnum):
    """What a failed check of a lake table means in Dagster.

    warn: a warning. error: an error. block: an error of a blocking check, for
    which assets that depend on the table can wait.
    """

    WARN = "warn"
    ERROR = "error"
    BLOCK = "block"


TABLE_CHECKS = ("merged", "great_expectations")
"""The checks of a lake table whose level can be set."""


def parse_check_levels(text: str) -> tuple[tuple[str, CheckLevel], ...]:
    """Parse ``check=level`` pairs, separated by commas."""
    pairs = [tuple(part.strip() for part in entry.partition("=")[::2]) for entry in parse_list(text)]
    levels = [each.value for each in CheckLevel]
    if not all(name in TABLE_CHECKS and level in levels for name, level in pairs):
        raise ValueError(f"check=level pairs of {', '.join(TABLE_CHECKS)} and {', '.join(levels)}")
    return tuple((name, CheckLevel(level)) for name, level in pairs)


def parse_freshness(text: str) -> tuple[FreshnessWindow, ...]:
    """Parse ``pattern=FAIL`` or ``pattern=WARN:FAIL``, separated by commas."""
    return tuple(_freshness_window(entry) for entry in parse_patterns(text))


def _freshness_window(entry: str) -> FreshnessWindow:
    pattern, equals, windows = entry.rpartition("=")
    warn, colon, fail = windows.rpartition(":")
    found = FreshnessWindow(pattern.strip(), _window_seconds(warn) if colon else None, _window_seconds(fail))
    if not equals or not found.pattern or (found.warn_seconds or found.fail_seconds) < _LEAST_WINDOW_SECONDS:
        raise ValueError("pattern=FAIL or pattern=WARN:FAIL, from 5m on, such as public\\.orders=15m:1h")
    if found.warn_seconds is not None and found.warn_seconds >= found.fail_seconds:
        raise ValueError("pattern=WARN:FAIL with a warning before the failure, such as public\\.orders=15m:1h")
    compile_pattern(found.pattern)
    return found


def _window_seconds(text: str) -> int:
    match = _WINDOW.fullmatch(text.strip())
    if match is None:
        raise ValueError("times such as 15m, 2h or 1d")
    return int(match[1]) * _SECONDS[match[2]]


parse_freshness.kind = "list"  # type: ignore[attr-defined]
parse_metric_tags.kind = parse_owners.kind = parse_tags.kind = parse_check_levels.kind = "list"  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class ObserveOptions:
    """Options of metrics, and of schedules and labels in Dagster."""

    snapshot_schedule: str = option(
        "wal2lake.snapshot.schedule",
        "",
        "When Dagster takes incremental snapshots: a cron expression, such as 0 3 * * 0. A run reads all ranges of the "
        "tables while the stream continues, except tables that are still being read. If set, the schedule is running "
        "by default; otherwise it is weekly and stopped by default.",
        parse=parse_cron,
    )
    snapshot_schedule_tables: tuple[str, ...] = option(
        "wal2lake.snapshot.schedule.tables",
        (),
        "Captured tables that the scheduled snapshot reads: names (schema.table) or regular expressions that match "
        "them; empty for those of snapshot.include.collection.list.",
        parse=parse_patterns,
        names=Named.CAPTURED,
    )
    snapshot_schedule_timezone: str = option(
        "wal2lake.snapshot.schedule.timezone",
        "UTC",
        "Time zone of wal2lake.snapshot.schedule.",
        parse=parse_time_zone,
    )
    maintenance_schedule: str = option(
        "wal2lake.maintenance.schedule",
        "",
        "When Dagster compacts small files of the lake's tables and removes old files: a cron expression, such "
        "as 17 2 * * *. If set, the schedule is running by default; otherwise it is daily and stopped by "
        "default. Maintenance can run concurrently with the stream.",
        parse=parse_cron,
    )
    reconcile_schedule: str = option(
        "wal2lake.reconcile.schedule",
        "",
        "When Dagster compares the lake tables with their source: a cron expression, such as 41 3 * * 6. If set, the "
        "schedule is running by default; otherwise it is weekly and stopped by default.",
        parse=parse_cron,
    )
    metrics_port: int = option(
        "wal2lake.metrics.port",
        0,
        "Port on which a run serves Debezium's metrics for Prometheus (/metrics) and the data docs (/data-docs/) "
        "while it is running, and the state of its connectors (/health); 0 for none. Processes on the same machine "
        "need different ports.",
        parse=parse_port,
    )
    metrics_required: bool = option(
        "wal2lake.metrics.required",
        False,
        "Whether a run ends if it cannot listen on wal2lake.metrics.port, as when the port is in use; otherwise it "
        "logs a warning, and has no metrics.",
    )
    metrics_host: str = option(
        "wal2lake.metrics.host", "127.0.0.1", "Address on which wal2lake.metrics.port listens; 0.0.0.0 for all."
    )
    custom_metric_tags: tuple[tuple[str, str], ...] = option(
        "custom.metric.tags",
        (),
        "Labels of every metric: env=prod,team=sales. Names of the metrics' own labels are refused.",
        parse=parse_metric_tags,
    )
    alerts_url: Secret = option(
        "wal2lake.alerts.url",
        Secret(),
        "Webhook to which a run posts alerts: a table that is not merged, quarantine and WAL above their limits, a "
        "stream that is down, and the end of each (docs/metrics.md). Empty for none.",
        secret=True,
    )
    alerts_after_seconds: int = option(
        "wal2lake.alerts.after.seconds",
        60,
        "How long a condition lasts before it is posted; the error that ends a run is posted at once.",
        parse=at_least(0),
    )
    alerts_lag_bytes: int = option(
        "wal2lake.alerts.lag.bytes",
        10_000_000_000,
        "Bytes of WAL between the confirmed position and the end of the WAL above which an alert is posted.",
        parse=at_least(0),
    )
    alerts_quarantine_rows: int = option(
        "wal2lake.alerts.quarantine.rows",
        0,
        "Changes of a table in quarantine above which an alert is posted.",
        parse=at_least(0),
    )
    log_format: LogFormat = option(
        "wal2lake.log.format",
        LogFormat.TEXT,
        "How commands write their lines to stderr: text, or json, one object a line. --log-format prevails.",
    )
    dagster_owners: tuple[str, ...] = option(
        "wal2lake.dagster.owners",
        (),
        "Owners of the connector's assets in Dagster: e-mail addresses, or team:name.",
        parse=parse_owners,
    )
    dagster_tags: tuple[tuple[str, str], ...] = option(
        "wal2lake.dagster.tags",
        (),
        "Tags of the connector's assets in Dagster: domain=sales,tier=1.",
        parse=parse_tags,
    )
    dagster_freshness: tuple[FreshnessWindow, ...] = option(
        "wal2lake.dagster.freshness",
        (),
        "Freshness policies of lake tables in Dagster: pattern=FAIL or pattern=WARN:FAIL, such as "
        "public\\\\.orders=15m:1h,.*=1d. The first pattern that matches schema.table is used; a table without a "
        "match has no policy.",
        parse=parse_freshness,
        names=Named.CAPTURED,
    )
    dagster_checks: tuple[tuple[str, CheckLevel], ...] = option(
        "wal2lake.dagster.checks",
        (),
        "What failed checks of lake tables mean in Dagster: check=level, such as great_expectations=warn,merged=block. "
        "Checks: merged, great_expectations. Levels: warn, error (the default), or block (an error of a blocking "
        "check: assets that depend on the table can wait until it passes).",
        parse=parse_check_levels,
    )

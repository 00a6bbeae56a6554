"""``wal2lake status``: the state of the slot, the changelogs and the lake tables."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape

from cdc_core.cli.arguments import ConnectorFile, config_argument
from cdc_core.cli.exits import DONE, stop_requests
from cdc_core.engine import KafkaStatus, OwnTableStatus, Status, StreamStatus, TableStatus, WaitingRun
from cdc_core.lsn import Lsn
from cdc_core.schema import TableId
from cdc_core.snapshot import IncrementalProgress

# pg_replication_slots.wal_status.
_WAL_STATES = {
    "reserved": "the server has its WAL",
    "extended": "the server has its WAL, more than max_wal_size",
    "unreserved": "its WAL may be removed at the next checkpoint: let a run read it now",
    "lost": "its WAL has been removed: run wal2lake check for the remedy",
}


@click.command("status", short_help="Show positions, lag and paused tables.")
@config_argument
@click.option("--rows", is_flag=True, help="Also count the rows of source and lake tables.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--watch", is_flag=True, help="Print it again and again, until Ctrl-C.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: how often.",
)
def command(config: ConnectorFile, rows: bool, as_json: bool, watch: bool, interval: float) -> int:
    """Show the positions of the slot, the changelogs and the lake tables, and paused tables.

    \b
    States of a table:
      ok          the lake table has every change of the changelog
      behind      changes of the changelog are not merged yet
      paused      a fault of this table: changes are kept; the reason is shown
      not read    its first snapshot has not been taken
      unreadable  its Delta tables cannot be read; the reason is shown

    \b
    "up to" is when the source committed the last change that the lake table has; for a table without changes, when it
    was read. __messages and __transactions, where there are some, have a line of their own with their last row.
    "lake to" and "changelog to" are the LSN of the last change that each has, "read at" is that of the
    snapshot; columns that do not fit the terminal are left out (--json has everything).
    """
    connector = config.open(needs_lake=False)
    console = Console(soft_wrap=True)
    if not watch:
        _show(console, connector.status(count_rows=rows), as_json, config)
        return DONE
    with stop_requests() as stop:
        while not stop.is_set():
            status = connector.status(count_rows=rows)
            if console.is_terminal and not as_json:
                console.clear()
            if not as_json:
                console.print(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC", highlight=False)
            _show(console, status, as_json, config)
            stop.wait(interval)
    return DONE


def _show(console: Console, status: Status, as_json: bool, file: ConnectorFile) -> None:
    if as_json:
        click.echo(json.dumps(as_plain(status)))
    else:
        _print(console, status, file)


def as_plain(value: Any) -> Any:
    """For JSON: dataclasses as objects, tables and LSNs as PostgreSQL writes them, None as null."""
    if isinstance(value, Lsn | TableId):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value):
        return {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [as_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _print(console: Console, status: Status, file: ConnectorFile) -> None:
    if status.server_error:
        console.print(f"[red]The server could not be queried:[/] {escape(status.server_error)}", highlight=False)
    if status.lake_error:
        console.print(f"[red]The lake's records could not be read:[/] {escape(status.lake_error)}", highlight=False)
    if status.waiting is not None:
        _print_waiting(console, status.waiting)
    console.print(f"slot {status.slot}: {slot_state(status)}", highlight=False, markup=False)
    if status.lag_bytes is not None:
        lag = "" if status.lag_seconds is None else f"{duration(status.lag_seconds)}, "
        console.print(
            f"{lag}{status.lag_bytes:,} bytes behind: confirmed {status.confirmed_lsn}, server at {status.wal_end_lsn}",
            highlight=False,
        )
    if status.stream is not None:
        _print_stream(console, status.stream)
    if status.kafka is not None:
        _print_kafka(console, status.kafka)
    _print_progress(console, "incremental snapshot", status.incremental)
    _print_progress(console, "re-read", status.rereads)
    _print_tables(console, status.tables)
    for own in status.own_tables:
        _print_own(console, own)
    for row in status.tables:
        if row.error:
            console.print(f"[red]{escape(str(row.table))}[/] cannot be read: {escape(row.error)}", highlight=False)
        if row.paused is not None:
            since = f"{row.paused.since:%Y-%m-%d %H:%M:%S} UTC"
            console.print(
                f"[red]{escape(str(row.table))}[/] has been paused since {since}, {row.paused.waiting:,} changes are "
                f"waiting in its changelog: {escape(row.paused.reason)}",
                highlight=False,
            )
            remedy = row.paused.resuming(file, row.table)
            console.print(f"     → {remedy}", highlight=False, markup=False)
        if row.reread:
            console.print(
                f"[yellow]{escape(str(row.table))}[/] is to be re-read: {escape(row.reread)}", highlight=False
            )
        if row.quarantined:
            _print_quarantine(console, row, file)


def _print_progress(console: Console, what: str, found: Sequence[IncrementalProgress]) -> None:
    for progress in found:
        console.print(progress_line(what, progress), highlight=False, markup=False)


def progress_line(what: str, progress: IncrementalProgress) -> str:
    """Return the progress of an incremental snapshot, or of a re-read, in words."""
    if not progress.ranges:
        return f"{what} of {progress.table}: {'paused' if progress.is_paused else 'not begun'}"
    ranges = f"{progress.ranges_read} of {progress.ranges} ranges read"
    if what != "re-read":  # of which all ranges are in the lake at once
        ranges += f", {progress.ranges_applied} in the lake"
    rows = f"{progress.rows:,} rows"
    if progress.rows_expected is not None:
        rows += f" of about {progress.rows_expected:,}"
    rate = f", {progress.rows_per_second:,.0f} rows/s" if progress.rows and progress.seconds else ""
    if progress.is_paused:
        return f"{what} of {progress.table}: paused, {rows}, {ranges}"
    left = "" if not progress.seconds_left else f", about {duration(progress.seconds_left)} left"
    return f"{what} of {progress.table}: {rows}, {ranges}{rate}{left}"


def slot_state(status: Status) -> str:
    """The slot in words: whether a run reads it, and whether the server still has its WAL."""
    if status.slot_exists is None:
        return "unknown"
    if not status.slot_exists:
        return "missing: a run creates it; if there was one, run wal2lake check for the remedy"
    reader = "in use by a run" if status.slot_active else "waiting: no run reads it, and the server keeps WAL for it"
    kept = _WAL_STATES.get(status.wal_status or "", status.wal_status)
    return f"{reader}; {kept}" if kept else reader


def table_state(row: TableStatus) -> str:
    """One word for a table; ``wal2lake status --help`` explains them."""
    if row.error:
        return "unreadable"
    if row.paused is not None:
        return "paused"
    if row.snapshot_lsn is None and row.lake_lsn is None:
        return "not read"
    if row.changelog_lsn is not None and (row.lake_lsn is None or row.lake_lsn < row.changelog_lsn):
        return "behind"
    return "ok"


def _print_tables(console: Console, rows: Sequence[TableStatus]) -> None:
    """Print one line for each: as many columns as fit, the first three in any case. No name is cut."""
    if not rows:
        return
    counted = any(row.source_rows is not None or row.lake_rows is not None for row in rows)
    names = ["table", "state", "up to (UTC)", *(["source rows", "lake rows"] * counted)]
    names += ["lake to", "changelog to", "read at", "key"]
    now = datetime.now(UTC)
    lines = [tuple(names), *(_cells(row, counted, now) for row in rows)]
    widths = [max(map(cell_len, column)) + 2 for column in zip(*lines, strict=True)]
    shown = max(3, sum(1 for total in itertools.accumulate(widths) if total - 2 <= console.width))
    for line in lines:
        cells = zip(line[:shown], widths, strict=False)
        text = "".join(set_cell_size(cell, width) for cell, width in cells).rstrip()
        console.print(text, highlight=False, markup=False)


def _cells(row: TableStatus, counted: bool, now: datetime) -> tuple[str, ...]:
    positions = (row.lake_lsn, row.changelog_lsn, row.snapshot_lsn)
    counts = (row.source_rows, row.lake_rows) if counted else ()
    return (
        str(row.table),
        table_state(row),
        "-" if row.up_to is None else moment(row.up_to, now),
        *("-" if count is None else f"{count:,}" for count in counts),
        *("-" if lsn is None else str(lsn) for lsn in positions),
        ", ".join(row.key) or "none",
    )


def moment(at: datetime, now: datetime) -> str:
    """A time of day, with its date if that is not today's, and how long ago it is."""
    day = "" if at.date() == now.date() else f"{at:%Y-%m-%d} "
    return f"{day}{at:%H:%M:%S}, {duration(max(0.0, (now - at).total_seconds()))} ago"


def duration(seconds: float) -> str:
    """Seconds in the largest unit that has one whole."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    for unit, size in (("d", 86_400), ("h", 3_600)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 60:.0f} min"


def _print_quarantine(console: Console, row: TableStatus, file: ConnectorFile) -> None:
    text = f"{row.table}: {row.quarantined:,} changes are waiting in quarantine"
    console.print(text, highlight=False, markup=False)
    if row.paused is None:
        remedy = f"Correct the rows or the rule. Then: wal2lake replay {file} {row.table.argument}"
        console.print(f"     → {remedy}", highlight=False, markup=False)


def _print_own(console: Console, own: OwnTableStatus) -> None:
    if own.error:
        console.print(f"[red]{own.table}[/] cannot be read: {escape(own.error)}", highlight=False)
        return
    up_to = "" if own.up_to is None else f"up to {moment(own.up_to, datetime.now(UTC))}: "
    console.print(f"{own.table}: {up_to}{own.lsn}", highlight=False, markup=False)


def _print_kafka(console: Console, kafka: KafkaStatus) -> None:
    if kafka.error:
        console.print(f"[red]Kafka could not be queried:[/] {escape(kafka.error)}", highlight=False)
        return
    reached = "no position yet" if kafka.lsn is None else f"has the stream up to {kafka.lsn}"
    more = "; a snapshot has begun and not ended" if kafka.in_snapshot else ""
    console.print(f"Kafka at {kafka.servers} {reached} (topic {kafka.topic}){more}", highlight=False)
    for one in kafka.topics:
        console.print(f"  {one.table} → {one.topic}", highlight=False)


def _print_waiting(console: Console, waiting: WaitingRun) -> None:
    since = f"{waiting.since:%Y-%m-%d %H:%M:%S} UTC"
    tries = "1 retry" if waiting.retries == 1 else f"{waiting.retries} retries"
    console.print(
        f"[yellow]a run waits[/] since {since}, {tries} so far: {escape(waiting.cause)}",
        highlight=False,
    )
    if waiting.remedy:
        console.print(f"     → {waiting.remedy}", highlight=False, markup=False)


def _print_stream(console: Console, stream: StreamStatus) -> None:
    console.print(
        f"lake holds the stream of slot {stream.slot} in database {stream.database}, server {stream.system_id}, "
        f"timeline {stream.timeline}, confirmed up to {stream.confirmed}, epoch {stream.epoch}",
        highlight=False,
    )
    if stream.mismatch is None:
        console.print(f"[yellow]not compared with the server[/]: {escape(stream.remedy)}", highlight=False)
    elif stream.mismatch:
        console.print(f"[red]does not continue[/]: {escape(stream.mismatch)}", highlight=False)
        console.print(f"     → {stream.remedy}", highlight=False, markup=False)
    if stream.gap:
        console.print(f"[yellow]accepted gap[/]: {escape(stream.gap)}", highlight=False)

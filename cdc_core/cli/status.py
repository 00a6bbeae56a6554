"""``wal2lake status``: the state of the slot, the changelogs and the lake tables."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import config_argument
from cdc_core.cli.exits import DONE
from cdc_core.engine.reports import KafkaStatus, Status, StreamStatus
from cdc_core.engine.run_state import Waiting
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId


@click.command("status")
@config_argument
@click.option("--rows", is_flag=True, help="Also count the rows of source and lake tables.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(config: Path, rows: bool, as_json: bool) -> int:
    """Show the positions of the slot, the changelogs and the lake tables, and paused tables."""
    status = Connector.from_file(config, needs_lake=False).status(count_rows=rows)
    if as_json:
        click.echo(json.dumps(as_plain(status)))
    else:
        _print(Console(soft_wrap=True), status)
    return DONE


def as_plain(value: Any) -> Any:
    """For JSON: dataclasses as objects, tables and LSNs as PostgreSQL writes them, None as null."""
    if isinstance(value, Lsn | TableId):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if dataclasses.is_dataclass(value):
        return {field.name: as_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return [as_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _print(console: Console, status: Status) -> None:
    if status.server_error:
        console.print(f"[red]The server could not be queried:[/] {status.server_error}", highlight=False)
    if status.lake_error:
        console.print(f"[red]The lake's records could not be read:[/] {status.lake_error}", highlight=False)
    if status.waiting is not None:
        _print_waiting(console, status.waiting)
    unknown = status.slot_exists is None
    state = "unknown" if unknown else "in use" if status.slot_active else "waiting" if status.slot_exists else "missing"
    console.print(f"slot {status.slot}: {state}, wal_status {status.wal_status or '-'}", highlight=False)
    if status.lag_bytes is not None:
        console.print(
            f"confirmed {status.confirmed_lsn}, server at {status.wal_end_lsn}, {status.lag_bytes:,} bytes behind",
            highlight=False,
        )
    if status.stream is not None:
        _print_stream(console, status.stream)
    if status.kafka is not None:
        _print_kafka(console, status.kafka)
    if not status.tables and status.kafka is not None:
        return
    table = Table("table", "key", "snapshot at", "changelog to", "lake to", "rows: source", "lake", box=None)
    for row in status.tables:
        cells = (row.snapshot_lsn, row.changelog_lsn, row.lake_lsn, row.source_rows, row.lake_rows)
        table.add_row(
            str(row.table), ", ".join(row.key) or "none", *("-" if cell is None else str(cell) for cell in cells)
        )
    console.print(table)
    for row in status.tables:
        if row.error:
            console.print(f"[red]{row.table}[/] cannot be read: {row.error}", highlight=False)
        if row.paused is not None:
            since = f"{row.paused.since:%Y-%m-%d %H:%M:%S} UTC"
            console.print(
                f"[red]{row.table}[/] has been paused since {since}, {row.paused.waiting:,} changes are waiting "
                f"in its changelog: {row.paused.reason}",
                highlight=False,
            )
            console.print(f"     → {row.paused.remedy} Then: wal2lake replay CONFIG {row.table}", highlight=False)
        if row.quarantined:
            console.print(f"{row.table}: {row.quarantined:,} changes are waiting in quarantine", highlight=False)


def _print_kafka(console: Console, kafka: KafkaStatus) -> None:
    if kafka.error:
        console.print(f"[red]Kafka could not be asked:[/] {kafka.error}", highlight=False)
        return
    reached = "no position yet" if kafka.lsn is None else f"has the stream up to {kafka.lsn}"
    more = "; a snapshot has begun and not ended" if kafka.in_snapshot else ""
    console.print(f"Kafka at {kafka.servers} {reached} (topic {kafka.topic}){more}", highlight=False)
    for one in kafka.topics:
        console.print(f"  {one.table} → {one.topic}", highlight=False)


def _print_waiting(console: Console, waiting: Waiting) -> None:
    since = f"{waiting.since:%Y-%m-%d %H:%M:%S} UTC"
    console.print(
        f"[yellow]a run waits[/], retry {waiting.retries + 1} at or after {since}: {waiting.cause}", highlight=False
    )
    if waiting.remedy:
        console.print(f"     → {waiting.remedy}", highlight=False)


def _print_stream(console: Console, stream: StreamStatus) -> None:
    console.print(
        f"lake holds the stream of slot {stream.slot} in database {stream.database}, server {stream.system_id}, "
        f"timeline {stream.timeline}, confirmed up to {stream.confirmed}, epoch {stream.epoch}",
        highlight=False,
    )
    if stream.mismatch is None:
        console.print(f"[yellow]not compared with the server[/]: {stream.remedy}", highlight=False)
    elif stream.mismatch:
        console.print(f"[red]does not continue[/]: {stream.mismatch}", highlight=False)
        console.print(f"     → {stream.remedy}", highlight=False)
    if stream.gap:
        console.print(f"[yellow]accepted gap[/]: {stream.gap}", highlight=False)

"""``wal2lake run``: takes the snapshot that snapshot.mode requires, then streams."""

from __future__ import annotations

import logging

import click
from rich.console import Console

from cdc_core.assemble import Connector
from cdc_core.cli.arguments import ConnectorFile, configs_argument, max_seconds, until_idle, until_lsn
from cdc_core.cli.exits import DONE, FAILED, stop_requests
from cdc_core.cli.logs import log_options, say, say_failed, say_stopping, set_up
from cdc_core.cli.progress import RoundProgress, say_table, snapshot_progress
from cdc_core.config import ConnectorConfig
from cdc_core.connector_threads import of_connector
from cdc_core.engine import StreamReport, Until, WaitingRun
from cdc_core.lsn import Lsn
from cdc_core.snapshot import SnapshotReport
from cdc_core.supervise import ConnectorGroup, GroupHooks, Service, ServiceHooks


@click.command("run", short_help="Take a snapshot, then stream changes.")
@configs_argument
@until_lsn
@until_idle
@max_seconds
@log_options
def command(
    configs: list[ConnectorFile],
    until_lsn: Lsn | None,
    until_idle: float | None,
    max_seconds: float | None,
    log_format: str | None,
    verbose: bool,
) -> int:
    """Take the snapshot that snapshot.mode requires, then stream changes to wal2lake.sinks until stopped.

    Ctrl-C stops the run after the current step; the next run resumes at the same position. After a transient
    fault, such as a restart of the server, the run waits and continues automatically (errors.max.retries).

    Several files run in one process, with one Spark session and one metrics endpoint. Properties of the process, such
    as wal2lake.metrics.port and wal2lake.spark.NAME, must have the same value in all files. A run that ends with an
    error does not end the others; it starts again, with its file read again, while another one runs.

    Exit codes: 0 if each run ended without an error and each table is merged, 1 otherwise, 2 usage error.
    """
    until = Until(lsn=until_lsn, idle_seconds=until_idle, max_seconds=max_seconds)
    set_up(log_format, verbose=verbose, several=len(configs) > 1)
    if len(configs) == 1:
        return _run(configs[0], until, log_format, verbose)
    if until_lsn is not None:
        raise click.UsageError(
            f"--until-lsn is a position of one server, and there are {len(configs)} connector files. "
            "Use --until-idle, or run each file on its own."
        )
    return _run_together(configs, until, log_format, verbose)


def _run_together(files: list[ConnectorFile], until: Until, log_format: str | None, verbose: bool) -> int:
    by_path = {file.path: file for file in files}
    group = ConnectorGroup(list(by_path), lambda path: by_path[path].open())
    set_up(log_format, group.connectors[0].config.observe.log_format, verbose=verbose, several=True)
    with stop_requests(say_stopping) as stop:

        def hooks_of(connector: Connector) -> ServiceHooks:
            _say_warnings(connector)
            return ServiceHooks(
                on_snapshot=_say_snapshot,
                on_wait=_say_waiting,
                on_resume=_say_going_on,
                on_round=RoundProgress().note,
                on_progress=say_table,
                on_stream=lambda: _say_streaming(connector.config),
                should_stop=stop.is_set,
            )

        def say_end(connector: Connector, report: StreamReport | None) -> None:
            if report is not None:
                _say_end(report, _destination(connector))

        is_good = group.run(until, GroupHooks(hooks_of, say_end, say_failed, stop.is_set))
    return DONE if is_good else FAILED


def _run(file: ConnectorFile, until: Until, log_format: str | None, verbose: bool) -> int:
    connector = file.open()
    set_up(log_format, connector.config.observe.log_format, verbose=verbose)
    rounds = RoundProgress()
    with (
        of_connector(connector.name),
        stop_requests(say_stopping) as stop,
        snapshot_progress(Console(stderr=True, soft_wrap=True)) as bars,
    ):
        _say_warnings(connector)

        def say_snapshot(taken: list[SnapshotReport]) -> None:
            bars.stop()
            _say_snapshot(taken)

        def say_waiting(waiting: WaitingRun) -> None:
            bars.stop()
            _say_waiting(waiting)

        hooks = ServiceHooks(
            on_snapshot=say_snapshot,
            on_wait=say_waiting,
            on_resume=_say_going_on,
            on_round=rounds.note,
            on_progress=bars,
            on_stream=lambda: _say_streaming(connector.config),
            should_stop=stop.is_set,
        )
        report = Service(connector, until, hooks).run()
        return DONE if report is None else _say_end(report, _destination(connector))


def _say_warnings(connector: Connector) -> None:
    for warning in connector.warnings:
        say(f"warning: {warning}", level=logging.WARNING)


def _destination(connector: Connector) -> str:
    return "Kafka" if connector.config.engine.sinks == ("kafka",) else "lake"


def _say_snapshot(taken: list[SnapshotReport]) -> None:
    rows = sum(report.rows for report in taken)
    refused = sum(report.refused for report in taken)
    aside = f"; {refused:,} rows that a rule refuses are in quarantine" if refused else ""
    facts = {"rows": rows, "refused": refused, "tables": len(taken)}
    say(f"snapshot: {rows:,} rows of {len(taken)} tables{aside}", event="snapshot", **facts)


def _say_streaming(config: ConnectorConfig) -> None:
    say("streaming; Ctrl-C stops", event="streaming")
    if "lake" in config.engine.sinks:
        days = config.lake.changelog_retention_days
        kept = f"Changelogs keep merged changes for {days} days" if days else "Changelogs keep every change"
        say(f"{kept} (wal2lake.changelog.retention.days={days}).", event="retention", days=days)


def _say_waiting(waiting: WaitingRun) -> None:
    text = f"Waiting, and trying again: {waiting.cause}"
    say(text, level=logging.WARNING, event="waiting", cause=waiting.cause, remedy=waiting.remedy)


def _say_going_on(seconds: float, attempts: int) -> None:
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    text = f"Running again after {seconds:.1f} s and {times}."
    say(text, event="going on", seconds=round(seconds, 3), attempts=attempts)


def _say_end(report: StreamReport, where: str) -> int:
    say(
        f"{report.events:,} changes in {report.batches} batches, {where} at {report.lsn} ({report.stopped_by})",
        event="end",
        changes=report.events,
        batches=report.batches,
        lsn=str(report.lsn),
        stopped_by=report.stopped_by,
    )
    for table, why in report.failed.items():
        say(f"{table} is not merged: {why}", level=logging.ERROR, event="not merged", table=str(table))
    return FAILED if report.failed else DONE

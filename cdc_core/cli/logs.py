"""The log of a command, on stderr: lines of text, or one JSON object a line for machines.

    {"time": "2026-01-31T12:00:00.000Z", "level": "info", "logger": "wal2lake", "connector": "shop", "message": "…", …}

A line names the connector that its thread works for (``connector_threads``): in JSON always, in text where the process
has several. What Java prints is of no connector.

All of it passes through ``logging``: the command's own lines (``say``), warnings of the packages, and what Spark's Java
process prints. Of errors that have a message, only the message is printed; with ``--verbose`` also stacks, every round,
and everything that Java prints.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from cdc_core.cli.exits import describe
from cdc_core.connector_threads import current_connector
from cdc_core.errors import CdcError
from cdc_core.observe import LogFormat
from cdc_core.spark import RELAYED, VERBOSE_VARIABLE
from cdc_core.storage_faults import storage_fault

Command = TypeVar("Command", bound=Callable[..., Any])

_OWN = logging.getLogger("wal2lake")
_FIELDS = "fields"
_STOPPING = "Stopping after the current step. A second Ctrl-C stops at once."
# Libraries that log an error with its stack before they raise it, or log messages that users cannot act on.
_NOISY = ("py4j", "great_expectations", "urllib3", "botocore", "asyncio")
_LOST = "Exception while sending command."
_SPOKEN = (
    *("wal2lake", "cdc_core.snapshot.signals.processor", "cdc_core.snapshot.notifications"),
    *("cdc_core.snapshot.incremental.queue", "cdc_core.engine.stream.ask"),
)


def log_options(command: Command) -> Command:
    """The options ``--log-format`` and ``--verbose`` of a command: arguments ``log_format`` and ``verbose``."""
    formats = click.Choice([each.value for each in LogFormat])
    add_format = click.option("--log-format", type=formats, help="Lines as text, or as JSON objects.")
    add_verbose = click.option(
        "-v", "--verbose", is_flag=True, help="Also print every round, and everything that Spark prints."
    )
    return add_format(add_verbose(command))


class _MessageFormatter(logging.Formatter):
    """The message, after the connector's name if there are ``several``; with ``verbose`` a stack too."""

    def __init__(self, verbose: bool, several: bool) -> None:
        super().__init__("%(message)s")
        self._verbose, self._several = verbose, several

    def format(self, record: logging.LogRecord) -> str:
        """One line, unless there is a stack."""
        text = record.getMessage()
        if self._several and (name := current_connector()):
            text = f"{name}: {text}"
        if self._verbose and record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        return text


class _Json(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, verbose: bool) -> None:
        super().__init__()
        self._verbose = verbose

    def format(self, record: logging.LogRecord) -> str:
        """The record's time, level, logger, connector, message and fields."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        members = {"time": at, "level": record.levelname.lower(), "logger": record.name}
        if name := current_connector():
            members["connector"] = name
        members |= {"message": record.getMessage()}
        members |= getattr(record, _FIELDS, {})
        if record.exc_info and self._verbose:
            members["stack"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(members, default=str)


class _Stderr(logging.StreamHandler[Any]):
    """Writes to ``sys.stderr`` as it is at the time of each record."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr

    @stream.setter
    def stream(self, value: Any) -> None:
        """Not kept."""


def set_up(
    log_format: str | None = None,
    configured: LogFormat = LogFormat.TEXT,
    *,
    verbose: bool = False,
    several: bool = False,
) -> None:
    """Configure logging for a command; ``log_format`` of the command line prevails over the file's.

    ``several``: the command has several connectors.
    """
    chosen = LogFormat(log_format) if log_format else configured
    handler = _Stderr()
    handler.setFormatter(_Json(verbose) if chosen is LogFormat.JSON else _MessageFormatter(verbose, several))
    if not verbose:
        # By the handler, too: a library sets the level of its loggers when it is used first.
        handler.addFilter(lambda record: not _is_noise(record))
    root = logging.getLogger()
    for former in [known for known in root.handlers if isinstance(known, _Stderr)]:
        root.removeHandler(former)
    root.addHandler(handler)
    if chosen is LogFormat.JSON:
        RELAYED.set()
    if verbose:
        os.environ[VERBOSE_VARIABLE] = "1"
    _set_levels(_SPOKEN, logging.DEBUG if verbose else logging.INFO)
    _set_levels(_NOISY, logging.NOTSET if verbose else logging.CRITICAL)


def _set_levels(names: Sequence[str], level: int) -> None:
    # Each setting goes through all loggers of the process, thousands with Spark's and Great Expectations'.
    for logger in map(logging.getLogger, names):
        if logger.level != level:
            logger.setLevel(level)


def _is_noise(record: logging.LogRecord) -> bool:
    # py4j reports a lost connection by the root logger, which nothing of wal2lake uses; its caller gets the error.
    is_of_root = record.name == logging.root.name and (record.levelno < logging.WARNING or record.msg == _LOST)
    return is_of_root or record.name.partition(".")[0] in _NOISY


def is_json() -> bool:
    """Whether lines are JSON objects."""
    return any(isinstance(each.formatter, _Json) for each in logging.getLogger().handlers)


def say(text: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Print one line; ``fields`` are members of the JSON object. Never a row's value or a secret."""
    _OWN.log(level, "%s", text, extra={_FIELDS: fields})


def say_stopping() -> None:
    """Acknowledge the first Ctrl-C, from its handler: by the descriptor, as it may come in the middle of a write."""
    line = _STOPPING
    if is_json():
        record = logging.LogRecord(_OWN.name, logging.INFO, "", 0, _STOPPING, None, None)
        setattr(record, _FIELDS, {"event": "stopping"})
        line = _Json(verbose=False).format(record)
    # A terminal has just shown ^C.
    with suppress(OSError):
        os.write(2, f"{chr(10) if os.isatty(2) else ''}{line}\n".encode())


def say_failed(error: Exception, seconds: float | None) -> None:
    """Print the error that ended a connector's run in a process of several, and when it starts again, if it does."""
    ours = error if isinstance(error, CdcError) else storage_fault(error)
    if ours is None:
        say_defect(error)
    else:
        say_error(ours)
    if seconds is not None:
        say(f"It starts again in {seconds:g} s.", event="starting again", seconds=seconds)


def say_error(error: CdcError) -> None:
    """Print the error that ended a command: its message and its remedy."""
    if is_json():
        found = {"error": type(error).__name__, "remedy": error.remedy}
        _OWN.error("%s", error.message, extra={_FIELDS: found})
        return
    click.echo(f"{current_connector() or 'wal2lake'}: {describe(error)}", err=True)


def say_defect(error: BaseException) -> None:
    """Print an error that is not a CdcError: its type and place, never its text, which may contain a value."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    text = f"Unexpected error {type(error).__name__}{place}: a defect of wal2lake, or of a library it uses."
    if os.environ.get(VERBOSE_VARIABLE):
        traceback.print_exception(error)
    if is_json():
        _OWN.error("%s", text, extra={_FIELDS: {"error": type(error).__name__}})
    else:
        click.echo(
            f"{current_connector() or 'wal2lake'}: {text}\n  → Run again with --verbose for its stack, and report it.",
            err=True,
        )

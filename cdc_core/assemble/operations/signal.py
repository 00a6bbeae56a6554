"""Operation ``signal``: sends a signal to a running connector from another process."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.errors import ConfigError, SourceError, TransientError
from cdc_core.postgres import ChunkConnection
from cdc_core.snapshot import SignalToSend

_log = logging.getLogger(__name__)


def signal(context: RunContext, kind: str, data: str) -> str:
    """Send a signal through the first enabled channel of ``source`` and ``file``, otherwise ``in-process``.

    ``in-process`` is a file in the state folder that streaming runs read. Returns the channel that was used. ``data``
    is a JSON object as text, empty for none. Raises ConfigError for a signal that is not valid or if no channel is
    enabled, TableError for a snapshot of tables that cannot be read so, SourceError or TransientError from the server.
    """
    asked = SignalToSend.of(kind, data, [name for name, _ in context.config.signals.signal_actions])
    if asked.snapshot is not None:
        _require_readable(context, asked)
    config = context.config
    if "source" in config.signals.signal_enabled_channels and config.selection.signal_data_collection:
        with context.source() as source, closing(ChunkConnection(config.postgres)) as connection:
            tables = source.catalog.tables(source.selection.is_signal)
            if not tables:
                table = config.selection.signal_data_collection
                raise SourceError(
                    f"Database {config.postgres.database_dbname} has no table {table}.",
                    "Create it: id varchar(42) primary key, type varchar(32) not null, data varchar(2048).",
                )
            connection.insert(tables[0].id, asked.signal.id, asked.signal.type, data or "{}")
        return "source"
    if "file" in config.signals.signal_enabled_channels:
        _append(Path(config.signals.signal_file), asked, " of signal.file")
        return "file"
    files = [destination.signal_files[0] for destination in context.destinations if destination.signal_files]
    if not files:
        raise ConfigError(
            "No enabled signal channel accepts signals from another process.",
            "Set signal.data.collection, or add file to signal.enabled.channels.",
        )
    _append(files[0], asked)
    return "in-process"


def _append(file: Path, asked: SignalToSend, owner: str = "") -> None:
    try:
        asked.append(file)
    except OSError as error:
        raise ConfigError(f"The file {file}{owner} cannot be written: {error.strerror}.") from None


def _require_readable(context: RunContext, asked: SignalToSend) -> None:
    """Raise TableError if a run could not read what the signal names: the run would only log it.

    Without the server this is not known, and the signal is sent.
    """
    try:
        with context.source() as source:
            captured = [table for table in source.tables() if not source.selection.is_signal(table.id)]
    except (SourceError, TransientError) as error:
        _log.warning("The signal's tables are not checked, because the server cannot be asked: %s", error.message)
        return
    needs_key = any(destination.requires_keys for destination in context.destinations)
    asked.require_readable(captured, context.config.schema.message_key_columns, needs_key=needs_key)

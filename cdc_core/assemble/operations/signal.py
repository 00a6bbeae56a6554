"""Operation ``signal``: sends a signal to a running connector from another process."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.assemble.signals.own_file import own_signals
from cdc_core.errors import ConfigError, SourceError
from cdc_core.postgres.rows.chunks import ChunkConnection
from cdc_core.snapshot.signals.channels import append_signal
from cdc_core.snapshot.signals.parse import MalformedSignalError, action_of, read_signal


def signal(context: RunContext, kind: str, data: str) -> str:
    """Send a signal through the first enabled channel of ``source`` and ``file``, otherwise ``in-process``.

    ``in-process`` is a file in the state folder that streaming runs read. Returns the channel that was used. ``data``
    is a JSON object as text, empty for none. Raises ConfigError for a signal that is not valid or if no channel is
    enabled, SourceError or TransientError from the server.
    """
    own = {name for name, _ in context.config.signals.signal_actions}
    try:
        asked = read_signal(str(uuid.uuid4()), kind, data)
        if action_of(asked) is None and asked.type not in own:
            raise ConfigError(
                f"Unknown signal type {kind}.",
                "Send execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log, or name a class for it "
                "in wal2lake.signal.actions.",
            )
    except MalformedSignalError as error:
        raise ConfigError(f"The signal {kind} cannot be processed: {error}.", "Correct its data.") from None
    config = context.config
    if "source" in config.signals.signal_enabled_channels and config.selection.signal_data_collection:
        with context.source() as source, closing(ChunkConnection(config.postgres)) as connection:
            found = source.catalog.tables(source.selection.is_signal)
            if not found:
                table = config.selection.signal_data_collection
                raise SourceError(
                    f"Database {config.postgres.database_dbname} has no table {table}.",
                    "Create it: id varchar(42) primary key, type varchar(32) not null, data varchar(2048).",
                )
            connection.insert(found[0].id, asked.id, asked.type, data or "{}")
        return "source"
    if "file" in config.signals.signal_enabled_channels:
        path = Path(config.signals.signal_file)
        line = json.dumps({"id": asked.id, "type": asked.type, "data": dict(asked.data)})
        try:
            append_signal(path, line)
        except OSError as error:
            raise ConfigError(f"The file {path} of signal.file cannot be written: {error.strerror}.") from None
        return "file"
    if (context.has_lake and config.lake.lake_path) or context.has_kafka:
        path = own_signals(context)
        try:
            append_signal(path, json.dumps({"id": asked.id, "type": asked.type, "data": dict(asked.data)}))
        except OSError as error:
            raise ConfigError(f"The file {path} cannot be written: {error.strerror}.") from None
        return "in-process"
    raise ConfigError(
        "No enabled signal channel accepts signals from another process.",
        "Set signal.data.collection, or add file to signal.enabled.channels.",
    )

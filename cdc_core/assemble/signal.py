"""The verb that sends a signal to a running connector, from another process."""

from __future__ import annotations

import json
import uuid
from contextlib import closing
from pathlib import Path

from cdc_core.assemble.context import RunContext
from cdc_core.errors import ConfigError, SourceError
from cdc_core.postgres.chunks import ChunkConnection
from cdc_core.snapshot.signals.channels import append_signal
from cdc_core.snapshot.signals.parse import MalformedSignalError, action_of, read_signal


def signal(context: RunContext, kind: str, data: str) -> str:
    """Send a signal by the first enabled channel of ``source`` and ``file``; which one it was.

    ``data`` is a JSON object's text, empty for none. Raises ConfigError for a signal that nobody could obey or where no
    channel is enabled, SourceError or TransientError from the server.
    """
    own = {name for name, _ in context.config.signals.signal_actions}
    try:
        asked = read_signal(str(uuid.uuid4()), kind, data)
        if action_of(asked) is None and asked.type not in own:
            raise ConfigError(
                f"There is no signal {kind}.",
                "Send execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log, or name a class for it "
                "in wal2lake.signal.actions.",
            )
    except MalformedSignalError as error:
        raise ConfigError(f"The signal {kind} cannot be obeyed: {error}.", "Mend its data.") from None
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
    raise ConfigError(
        "No channel takes signals from another process.",
        "Set signal.data.collection, or add file to signal.enabled.channels.",
    )

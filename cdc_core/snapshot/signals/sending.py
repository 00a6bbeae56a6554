"""A signal to a running connector from another process, checked before it is sent: a run only logs what is wrong."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc_core.errors import ConfigError
from cdc_core.schema import KeyRule, TableSchema
from cdc_core.snapshot.signals.channels import append_signal
from cdc_core.snapshot.signals.parse import (
    REPLAY_TABLE,
    REREAD_TABLE,
    ExecuteSnapshot,
    MalformedSignalError,
    Signal,
    action_of,
    read_signal,
)
from cdc_core.snapshot.signals.readable import require_readable


@dataclass(frozen=True, slots=True)
class SignalToSend:
    """A valid ``signal`` of a type that a run knows; ``snapshot`` is what it asks for, if that is to read tables."""

    signal: Signal
    snapshot: ExecuteSnapshot | None

    @classmethod
    def of(cls, kind: str, data: str, own_types: Collection[str]) -> SignalToSend:
        """Return a new signal; ``data`` is a JSON object as text, empty for none. ``own_types``: the user's own.

        Raises ConfigError for a signal that is not valid.
        """
        try:
            signal = read_signal(str(uuid.uuid4()), kind, data)
            action = action_of(signal)
        except MalformedSignalError as error:
            raise ConfigError(f"The signal {kind} cannot be processed: {error}.", "Correct its data.") from None
        if action is None and signal.type not in {REPLAY_TABLE, REREAD_TABLE, *own_types}:
            raise ConfigError(
                f"Unknown signal type {kind}.",
                "Send execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot or log, or name a class for it "
                "in wal2lake.signal.actions.",
            )
        return cls(signal, action if isinstance(action, ExecuteSnapshot) else None)

    def require_readable(self, captured: Sequence[TableSchema], keys: tuple[KeyRule, ...], *, needs_key: bool) -> None:
        """Raise TableError if a run could not read what the signal names (``readable``)."""
        if self.snapshot is not None:
            require_readable(self.snapshot, captured, keys, needs_key=needs_key)

    def append(self, file: Path) -> None:
        """Append the signal to a file that a run reads. Raises OSError."""
        signal = self.signal
        append_signal(file, json.dumps({"id": signal.id, "type": signal.type, "data": dict(signal.data)}))

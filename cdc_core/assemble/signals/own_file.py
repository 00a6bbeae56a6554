"""The signal file in the state folder, which needs neither a signal table nor an enabled channel.

Its name contains the slot and a digest of the lake's path and ``topic.prefix``: connectors that share a state folder
and a slot name (on two servers) do not receive each other's signals.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from cdc_core.config import ConnectorConfig

# Interval at which the state folder is checked for signals of other processes.
OWN_INTERVAL_MS = 1_000
_DIGITS = 8


def own_signals(config: ConnectorConfig) -> Path:
    """The file through which other processes on this machine send signals to a streaming run."""
    return config.state_path.resolve() / f"signals-{config.postgres.slot_name}-{_lake_digest(config)}.jsonl"


def reconcile_journal(config: ConnectorConfig) -> Path:
    """The file of the results of a comparison that is not over."""
    return config.state_path.resolve() / f"reconcile-{config.postgres.slot_name}-{_lake_digest(config)}.json"


def _lake_digest(config: ConnectorConfig) -> str:
    """The digest of the lake's path and ``topic.prefix``, for the names of files in a state folder that is shared."""
    lake = f"{config.lake.lake_path.rstrip('/')}/{config.schema.topic_prefix}"
    return hashlib.sha256(lake.encode()).hexdigest()[:_DIGITS]

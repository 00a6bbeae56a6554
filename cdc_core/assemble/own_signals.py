"""The signal file in the state folder, which needs neither a signal table nor an enabled channel."""

from __future__ import annotations

from pathlib import Path

from cdc_core.assemble.context import RunContext


def own_signals(context: RunContext) -> Path:
    """The file through which other processes on this machine send signals to a streaming run."""
    return context.config.state_path.resolve() / f"signals-{context.slot}.jsonl"

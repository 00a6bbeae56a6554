"""What Linux tells of processes."""

from __future__ import annotations

from pathlib import Path


def state(pid: int) -> str:
    """The process's state as Linux tells it; empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""

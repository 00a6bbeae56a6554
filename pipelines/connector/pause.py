"""Whether a connector's stream is paused: a file in its state folder, which sensors, runs and definitions can read."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from cdc_core.private_files import private_folder, write_private

FILE = "paused.json"


@dataclass(frozen=True, slots=True)
class StreamPause:
    """A pause that a user requested: at this Unix time, by this run, with this reason (may be empty)."""

    at: float
    run_id: str
    reason: str = ""

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.at))
        return f"paused since {since} UTC by run {self.run_id}" + (f": {self.reason}" if self.reason else "")


def read(state_path: Path) -> StreamPause | None:
    """The pause in force; None if there is none. A file that cannot be understood is a pause, too."""
    try:
        text = (state_path / FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return StreamPause(**json.loads(text))
    except (ValueError, TypeError):
        return StreamPause(0.0, "", f"{state_path / FILE} cannot be read")


def write(state_path: Path, reason: str, run_id: str) -> StreamPause:
    """Pause the stream. The pause that is in force, if there is one, is replaced."""
    made = StreamPause(time.time(), run_id, reason)
    write_private(private_folder(state_path) / FILE, json.dumps(asdict(made)).encode())
    return made


def end(state_path: Path) -> bool:
    """End the pause. Returns False if there was none."""
    try:
        (state_path / FILE).unlink()
    except FileNotFoundError:
        return False
    return True

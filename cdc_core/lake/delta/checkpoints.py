"""Checkpoints of tables in an object store, made on this machine from entries that its workers have written.

delta-rs reads each entry since the last checkpoint from the store, which are 40 requests and more. The workers' copies
of them (``shared_log``) and of the last checkpoint make a log on the local disk, of which delta-rs makes the next one.
What is missing among the copies is read from the store: the log is the same, whoever has written its entries.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path

from cdc_core.lake.delta.folder import Folder
from cdc_core.lake.delta.shared_log import SharedLog, entry_content
from cdc_core.lake.delta.vector_log import LAST_CHECKPOINT, LOG, entry_name


def write_checkpoint(folder: Folder, shared: SharedLog | None, version: int) -> bool:
    """Write a version's checkpoint with two requests; returns False if that takes more than what is known here.

    That is so without copies (``shared`` is None), and if the last checkpoint is of another form, or has been removed
    with entries after it. Raises OSError of the store.
    """
    before = None if shared is None else _last(folder, shared)
    if shared is None or before is None or before[0] >= version:
        return False
    with tempfile.TemporaryDirectory(prefix="wal2lake-log-") as made:
        root = Path(made)
        (root / LOG).mkdir()
        try:
            for number in range(before[0] + 1, version + 1):
                (root / entry_name(number)).write_bytes(entry_content(folder, shared, number))
        except FileNotFoundError:
            return False
        if before[1]:
            (root / _name(before[0])).write_bytes(before[1])
            (root / LAST_CHECKPOINT).write_text(json.dumps({"version": before[0], "size": 0}))
        content = _made(root, version)
    if content is None:
        return False
    folder.replace(_name(version), content[0])
    # Readers that find the former one here read some entries more.
    folder.replace(LAST_CHECKPOINT, content[1])
    shared.put_checkpoint(version, content[0], before[0])
    return True


def _last(folder: Folder, shared: SharedLog) -> tuple[int, bytes] | None:
    """Return the last checkpoint, (-1, nothing) for a log without one; None if it is not one file of Parquet."""
    with suppress(FileNotFoundError):
        return shared.checkpoint()
    try:
        told = json.loads(folder.content(LAST_CHECKPOINT))
    except FileNotFoundError:
        return -1, b""
    if told.get("parts") or told.get("v2Checkpoint"):
        return None
    with suppress(FileNotFoundError):
        return int(told["version"]), folder.content(_name(int(told["version"])))
    return None


def _made(root: Path, version: int) -> tuple[bytes, bytes] | None:
    """Have delta-rs make the checkpoint of a local log; None if it makes one of another form."""
    import deltalake

    table = deltalake.DeltaTable(str(root))
    if table.version() != version:
        return None
    table.create_checkpoint()
    try:
        return (root / _name(version)).read_bytes(), (root / LAST_CHECKPOINT).read_bytes()
    except FileNotFoundError:
        return None


def _name(version: int) -> str:
    return f"{LOG}/{version:020}.checkpoint.parquet"

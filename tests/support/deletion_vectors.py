"""Marks rows of a Delta table as deleted, as Delta on Spark does it, without a JVM: the log entry written by hand."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from pathlib import Path

from deltalake import DeltaTable

_PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["deletionVectors"],
    "writerFeatures": ["deletionVectors", "invariants", "appendOnly"],
}
_BASE85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)


def mark_deleted(path: str, places: Sequence[int]) -> str:
    """Mark the rows at these places (below 65536) of the table's first file as deleted; returns the file's path.

    Delta's protocol, "Deletion Vectors": an inline vector, of one container of the 32-bit Roaring format.
    """
    table = DeltaTable(path)
    version = table.version()
    entries = [json.loads(line) for log in _log(path) for line in log.read_text().splitlines()]
    name = table.file_uris()[0].rpartition("/")[2]
    added = [each["add"] for each in entries if each.get("add", {}).get("path") == name][-1]
    ordered = sorted(places)
    container = struct.pack(f"<IIHHI{len(ordered)}H", 12346, 1, 0, len(ordered) - 1, 16, *ordered)
    vector = struct.pack("<IqI", 1681511377, 1, 0) + container
    padded = vector + bytes(-len(vector) % 4)
    told = {
        "storageType": "i",
        "pathOrInlineDv": base64.b85encode(padded).translate(_BASE85).decode(),
        "sizeInBytes": len(vector),
        "cardinality": len(ordered),
    }
    gone = {"path": name, "deletionTimestamp": added["modificationTime"], "dataChange": True}
    actions = [
        {"commitInfo": {"timestamp": added["modificationTime"], "operation": "DELETE"}},
        {"protocol": _PROTOCOL},
        {"remove": gone},
        {"add": {**added, "deletionVector": told}},
    ]
    entry = Path(path) / "_delta_log" / f"{version + 1:020}.json"
    entry.write_text("".join(json.dumps(each) + "\n" for each in actions))
    return name


def _log(path: str) -> list[Path]:
    return sorted((Path(path) / "_delta_log").glob("*.json"))

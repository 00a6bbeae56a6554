"""Compares lines of transforms and formats with a real run's, as far as two runs can agree.

Unlike ``event_compare`` it knows nothing of envelopes: clocks, positions and transaction ids are set aside wherever a
field has such a name. A schema is compared as it is.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import re
from collections.abc import Iterable
from typing import Any

import fastavro

_VARIES = re.compile(r"(__|iodebezium)?(source_)?(ts_?[mun]s|lsn|tx_?id|xmin|sequence|version)", re.IGNORECASE)
_IN_TEXT = re.compile(
    r"\d{4}-\d\d-\d\dT[0-9:.]+Z|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+:\d+|(?:lsn|txId):\d+|\d{5,}|null"
)
_RUN_HEADERS = {"__debezium.context.taskId", "__debezium.context.runId"}
_RANDOM_COLUMNS = {"fn", "fd", "fu"}


def unlike(expected: Iterable[str], actual: Iterable[str]) -> list[str]:
    """One text for each line that differs. The order counts."""
    sides = [[normal(json.loads(line)) for line in lines if line.strip()] for lines in (expected, actual)]
    found = []
    for number, (one, other) in enumerate(itertools.zip_longest(*sides), 1):
        if one != other:
            found.append(f"line {number}: expected {json.dumps(one)[:700]}\n found {json.dumps(other)[:700]}")
    return found


def decoded(lines: Iterable[str]) -> list[str]:
    """Avro messages as JSON, by the schemas at the end of the same lines, which are kept without their ids."""
    records = [json.loads(line) for line in lines if line.strip()]
    schemas = {one["id"]: fastavro.parse_schema(one["schema"]) for one in records if "subject" in one}

    def plain(text: str | None) -> Any:
        if text is None:
            return None
        raw = base64.b64decode(text)
        return fastavro.schemaless_reader(io.BytesIO(raw[5:]), schemas[int.from_bytes(raw[1:5], "big")])

    out = []
    for one in records:
        if "subject" in one:
            shown = {name: child for name, child in one.items() if name != "id"}
        else:
            shown = {"topic": one["topic"], "key": plain(one["key_avro"]), "value": plain(one["value_avro"])}
        out.append(json.dumps(shown, default=lambda value: value.hex() if isinstance(value, bytes) else str(value)))
    return out


def normal(record: dict[str, Any]) -> dict[str, Any]:
    if "headers" in record:
        record["headers"] = [one for one in record["headers"] if one["key"] not in _RUN_HEADERS]
    random = "t_def" in record.get("topic", "")
    return {name: _masked(child, name, random) for name, child in record.items()}


def _masked(node: Any, name: str, random: bool) -> Any:
    if isinstance(node, dict):
        return {
            key: child if key == "schema" and "payload" in node else _masked(child, key, random)
            for key, child in node.items()
        }
    if isinstance(node, list):
        return [_masked(child, "", random) for child in node]
    if node is not None and (_VARIES.fullmatch(name) or (random and name in _RANDOM_COLUMNS)):
        return f"<{type(node).__name__}>"
    if isinstance(node, str) and name == "data_collection":
        return re.sub("MessageId@.*", "MessageId@", node)  # Debezium prints a Java object's identity
    if isinstance(node, str) and name in ("id", "time") and not node.isdigit():
        return _IN_TEXT.sub("#", node)
    return node

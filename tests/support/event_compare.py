"""Compares two runs' records as far as two runs can agree.

Set aside are versions and clocks (their JSON type must agree), the task and run of the context headers, and the values
of ``t_def`` that come from now() and gen_random_uuid(). LSNs and transaction ids are compared by the pattern in which
they come again. Of heartbeats only the first is compared. Everything else must be equal, the order of records and of
fields included.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Record = dict[str, Any]

_CLOCKS = {"ts_ms", "ts_us", "ts_ns"}
_RUN_HEADERS = {"__debezium.context.taskId", "__debezium.context.runId"}
_RANDOM_TABLES = {"t_def"}
_RANDOM_COLUMNS = {"fn", "fd", "fu"}
_SEQUENCE = re.compile(r'\[(null|"\d+"),"\d+"\]')
_JAVA_OBJECT = re.compile(r"\$LogicalDecodingMessageId@\w+")


def read_recording(path: Path) -> list[Record]:
    """Records of a .jsonl or .jsonl.gz file."""
    octets = path.read_bytes()
    text = (gzip.decompress(octets) if path.suffix == ".gz" else octets).decode()
    return parse_lines(text.split("\n"))


def parse_lines(lines: Iterable[str]) -> list[Record]:
    """Records of JSON lines."""
    return [json.loads(line) for line in lines if line.strip()]


def differences(expected: list[Record], actual: list[Record]) -> list[str]:
    """One text for each record that differs: where, and both sides. Empty when the runs agree."""
    left, right = _comparable(expected), _comparable(actual)
    found = []
    for number, (one, other) in enumerate(itertools.zip_longest(left, right), 1):
        if one is None or other is None:
            present = one or other
            assert present is not None
            side = "not made" if other is None else "not expected"
            found.append(f"record {number} on {present['topic']}: {side}")
            continue
        where = [f"{path}: expected {_short(a)}, found {_short(b)}" for path, a, b in _unequal(one, other, "")]
        if where:
            found.append(f"record {number} on {one['topic']}: " + "; ".join(where[:6]))
    return found


def _comparable(records: list[Record]) -> list[Record]:
    beats = [record for record in records if "heartbeat" in record["topic"]]
    others = [record for record in records if "heartbeat" not in record["topic"]]
    names = _Pattern()
    return [_normal(record, names) for record in beats[:1] + others]


class _Pattern:
    """Replaces each number by how many different ones of its kind came before it."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, Any], int] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, kind: str, value: Any) -> Any:
        if value is None:
            return None
        if (kind, value) not in self._seen:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._seen[kind, value] = self._counts[kind]
        return f"<{kind} {self._seen[kind, value]}>"


def _normal(record: Record, names: _Pattern) -> Record:
    out = json.loads(json.dumps(record))
    out["headers"] = [header for header in out["headers"] if header["key"] not in _RUN_HEADERS]
    payload = (out["value"] or {}).get("payload") or {}
    if "status" in payload:
        identity = names("transaction", payload["id"])
        same = out["key"]["payload"]["id"] == payload["id"]
        payload["id"] = identity
        out["key"]["payload"]["id"] = identity if same else "<another id>"
    if payload.get("transaction"):
        payload["transaction"]["id"] = names("transaction", payload["transaction"]["id"])
    source = payload.get("source") or {}
    if source:
        source["version"] = _kind(source["version"])
        source["sequence"] = _shape_of_sequence(source["sequence"], source["lsn"])
        source["lsn"], source["txId"] = names("lsn", source["lsn"]), names("txId", source["txId"])
        source["xmin"] = _kind(source["xmin"])
    for holder in (payload, source):
        for clock in _CLOCKS & holder.keys():
            holder[clock] = _kind(holder[clock])
    if source.get("table") in _RANDOM_TABLES:
        for row in (payload.get("before"), payload.get("after")):
            for column in _RANDOM_COLUMNS & (row or {}).keys():
                row[column] = _kind(row[column])
    return out


def _shape_of_sequence(text: str | None, lsn: int | None) -> Any:
    """What its two parts are; the second is the record's own LSN where it shows one."""
    if text is None or not _SEQUENCE.fullmatch(text):
        return text
    before, own = json.loads(text)
    return [_kind(before), "<own>" if own == str(lsn) else _kind(own)]


def _kind(value: Any) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return "<number>" if number else f"<{type(value).__name__}>"


def _unequal(one: Any, other: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        if list(one) != list(other):
            yield f"{path} (fields)", list(one), list(other)
        for name in one.keys() & other.keys():
            yield from _unequal(one[name], other[name], f"{path}.{name}")
    elif _are_fields(one) and _are_fields(other) and [f["field"] for f in one] != [f["field"] for f in other]:
        yield f"{path} (field names)", [f["field"] for f in one], [f["field"] for f in other]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, pair in enumerate(zip(one, other, strict=True)):
            yield from _unequal(*pair, f"{path}[{index}]")
    elif isinstance(one, str) and isinstance(other, str) and _JAVA_OBJECT.search(one):
        return  # a Java object's identity, another one at every run
    elif one != other or isinstance(one, bool) != isinstance(other, bool):
        yield path, one, other


def _are_fields(value: Any) -> bool:
    """Whether it is the list of a struct schema's fields."""
    return isinstance(value, list) and all(isinstance(one, dict) and "field" in one for one in value)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 160 else text[:157] + "…"


def only(records: list[Record], wanted: Callable[[Record], bool]) -> list[Record]:
    """The records that satisfy ``wanted``; heartbeats always."""
    return [record for record in records if "heartbeat" in record["topic"] or wanted(record)]

"""The offset that Debezium has after each message of a stream, by the rule that its 3.6.3 follows.

``tests/data/debezium_offsets.json`` holds what a real one stored, message by message; ``tests/unit/offsets`` compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

OPERATIONS = {"I": "INSERT", "U": "UPDATE", "D": "DELETE", "T": "TRUNCATE", "M": "MESSAGE", "B": "BEGIN", "C": "COMMIT"}


@dataclass(frozen=True)
class Received:
    """A message of the stream: its kind, its frame's LSN, its transaction. ``is_last``: of the tables of a truncate."""

    kind: str
    lsn: int
    xid: int | None
    ts_us: int | None = None
    is_last: bool = True


def offsets(received: Iterable[Received], before: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The offset after each message. ``before`` is the one at the start."""
    state = dict(before)
    for each in received:
        is_outside = each.kind == "M" and each.xid is None
        if is_outside or (each.is_last and each.kind not in "BM"):
            state["lsn_proc"] = each.lsn
        if each.kind == "C" or is_outside:
            state["lsn_commit"] = each.lsn
        state |= {"lsn": each.lsn, "messageType": OPERATIONS[each.kind]}
        state |= {} if each.ts_us is None else {"ts_usec": each.ts_us}
        state.pop("txId", None)
        state |= {} if each.xid is None else {"txId": each.xid}
        yield dict(state)

"""The offset of Debezium's connector for PostgreSQL: a JSON object that Connect stores for it.

lsn          LSN of the last message whose event was sent: a change's own, a transaction's end for COMMIT
lsn_proc     the same, once all events of that LSN are sent
lsn_commit   end of the last transaction that was received whole (or a message outside of transactions)
txId         transaction of the last message; ts_usec its commit time, in microseconds since 1970
messageType  what the last message was: INSERT, UPDATE, …, BEGIN, COMMIT, MESSAGE; earlier releases: absent
snapshot     present while a snapshot is taken, and in the offset of its last row
lsn_events_processed                         later releases: how many events of ``lsn`` were sent
transaction_id, transaction_data_collection_order_<table>    with provide.transaction.metadata
incremental_snapshot_*                       an incremental snapshot that has not ended
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdc_core.errors import ConfigError
from cdc_core.lsn import Lsn

_MOST = 2**64
_COUNT_PREFIX = "transaction_data_collection_order_"
_COLLECTIONS = "incremental_snapshot_collections"


@dataclass(frozen=True, slots=True)
class DebeziumOffset:
    """One offset; fields that it does not have are None.

    ``in_snapshot``: the initial or a blocking snapshot has begun and not ended. ``is_of_snapshot``: it is that of a row
    of a snapshot, also of the last. ``events_at_lsn``: the number of sent events of ``lsn``, None if absent.
    ``counts``: with transaction metadata, the events of the open transaction that were sent, by table.
    ``incremental``: the tables of an incremental snapshot that has not ended.
    """

    lsn: Lsn
    lsn_proc: Lsn | None = None
    lsn_commit: Lsn | None = None
    xid: int | None = None
    ts_us: int | None = None
    message_type: str = ""
    is_of_snapshot: bool = False
    in_snapshot: bool = False
    events_at_lsn: int | None = None
    counts: tuple[tuple[str, int], ...] | None = None
    incremental: tuple[str, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> DebeziumOffset:
        """Read an offset's JSON object. Raises ConfigError."""
        lsn = _lsn(raw, "lsn")
        if lsn is None:
            raise _bad("has no lsn: it is not of Debezium's connector for PostgreSQL")
        is_of_snapshot = _truth(raw.get("snapshot"))
        ended = _truth(raw.get("last_snapshot_record")) or _truth(raw.get("snapshot_completed"))
        counts = {name[len(_COUNT_PREFIX) :]: _number(raw, name) or 0 for name in raw if name.startswith(_COUNT_PREFIX)}
        return cls(
            lsn,
            _lsn(raw, "lsn_proc"),
            _lsn(raw, "lsn_commit"),
            _number(raw, "txId"),
            _number(raw, "ts_usec"),
            str(raw.get("messageType") or ""),
            is_of_snapshot,
            is_of_snapshot and not ended,
            _number(raw, "lsn_events_processed"),
            tuple(counts.items()) if raw.get("transaction_id") is not None else None,
            _tables(raw.get(_COLLECTIONS)),
        )

    @property
    def boundary(self) -> Lsn | None:
        """The LSN up to which every transaction that ended was sent: the slot must not be past it.

        None if none has ended since the stream began: then the offset lies inside the first one.
        """
        if self.lsn_commit is not None:
            return self.lsn_commit
        return self.lsn if self.is_of_snapshot or self.xid is None else None


def offset_json(lsn: Lsn, xid: int | None, ts_us: int | None) -> str:
    """Return the offset of a connector that has sent every transaction which ends at or before ``lsn``."""
    raw: dict[str, Any] = {} if ts_us is None else {"ts_usec": ts_us}
    raw |= {} if xid is None else {"txId": xid}
    return json.dumps(raw | {"lsn": int(lsn), "lsn_proc": int(lsn), "lsn_commit": int(lsn), "messageType": "COMMIT"})


def _number(raw: Mapping[str, Any], name: str) -> int | None:
    found = raw.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int) or not -(2**63) <= found < _MOST:
        raise _bad(f"has {name} {found!r}, which is not a whole number")
    return found


def _lsn(raw: Mapping[str, Any], name: str) -> Lsn | None:
    found = _number(raw, name)
    # Java has no unsigned numbers.
    return None if found is None else Lsn(found % _MOST)


def _truth(value: Any) -> bool:
    """``true`` or the name of a kind of snapshot; earlier releases wrote texts."""
    return value not in (None, False, "false", "")


def _tables(value: Any) -> tuple[str, ...]:
    """Return the tables of an incremental snapshot; a form that is not known is one table of that name."""
    if not value:
        return ()
    try:
        found = json.loads(value)
        return tuple(str(one["incremental_snapshot_collections_id"]) for one in found)
    except (ValueError, KeyError, TypeError):
        return (str(value),)


def _bad(what: str) -> ConfigError:
    return ConfigError(
        f"The offset {what}.", "Give the offset that Connect has stored for this connector, as a JSON object."
    )

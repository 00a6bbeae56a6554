"""A source table in plain Python: what it holds, and the change rows that its transactions would send."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from cdc_core.schema.pg_type import PgType
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.spark import change, row_type

# h tells histories apart: many small histories run as one table. big and num can be left unsent by an update.
ROW = row_type(h=pa.int32(), k=pa.string(), v=pa.int32(), big=pa.string(), num=pa.decimal128(20, 4))
_TYPES = {"h": (23, "int4"), "k": (25, "text"), "v": (23, "int4"), "big": (25, "text"), "num": (1700, "numeric")}
TABLE = TableSchema(
    TableId("public", "items"),
    16401,
    tuple(Column(name, PgType(*found), optional=name not in ("h", "k")) for name, found in _TYPES.items()),
    primary_key=("h", "k"),
    identity_key=("h", "k"),
)
KEYLESS = TableSchema(TableId("public", "keyless"), 16402, TABLE.columns, identity=ReplicaIdentity.FULL)
_KEYS = ("a", "b", "c", "")


@dataclass
class SourceTable:
    """Histories of one table. ``rows`` is what the source shows; ``next_transaction`` changes it and says how."""

    seed: int
    histories: int
    keyless: bool = False
    truncates: bool = False
    lsn: int = 100
    truncate_chance: float = 0.01
    rows: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def snapshot(self) -> list[dict[str, Any]]:
        """Every row as a lake row at the present position."""
        return [{**row, "__commit_lsn": self.lsn, "__tx_index": -1, "__commit_ts": None} for row in self.rows]

    def next_transaction(self, statements: int, only_inserts: bool = False) -> list[dict[str, Any]]:
        """Run some statements and commit; their change rows."""
        self.lsn += self.random.randint(1, 9)
        out: list[dict[str, Any]] = []
        for _ in range(statements):
            for made in self._statement(only_inserts):
                out.append(change(made[0], self.lsn, len(out), *made[1:]))
        return out

    def truncate(self) -> list[dict[str, Any]]:
        """A transaction that truncates the table."""
        self.lsn += 1
        self.rows.clear()
        return [change("t", self.lsn, 0)]

    def _statement(self, only_inserts: bool) -> list[tuple[Any, ...]]:
        if self.truncates and not only_inserts and self.random.random() < self.truncate_chance:
            self.rows.clear()
            return [("t",)]
        history = self.random.randrange(self.histories)
        mine = [row for row in self.rows if row["h"] == history]
        kinds = (
            ("insert", "update", "delete")
            if self.keyless
            else ("insert", "update", "update", "rekey", "swap", "delete")
        )
        kind = "insert" if only_inserts or not mine else self.random.choice(kinds)
        if kind == "insert":
            return self._insert(history, mine)
        row = self.random.choice(mine)
        if kind == "update":
            return [self._update(row, row["k"])]
        if kind == "delete":
            self.rows.remove(row)
            return [("d", self._old(row))]
        return self._change_key(row, self.random.choice(mine) if kind == "swap" else row, mine)

    def _change_key(self, row: dict[str, Any], other: dict[str, Any], mine: list[dict[str, Any]]) -> list[Any]:
        """Move a row to a free key, or let two rows swap theirs over a free one."""
        free = [key for key in (*_KEYS, "t1", "t2") if key not in {each["k"] for each in mine}]
        if not free:
            return [self._update(row, row["k"])]
        first, second = row["k"], other["k"]
        moved = [self._update(row, self.random.choice(free))]
        return moved if other is row else [*moved, self._update(other, first), self._update(row, second)]

    def _insert(self, history: int, mine: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        free = [key for key in _KEYS if self.keyless or key not in {row["k"] for row in mine}]
        if not free:
            return []
        row = {"h": history, "k": self.random.choice(free), "__rescued": None}
        for name in ("v", "big", "num"):
            self._set(row, name)
        self.rows.append(row)
        return [("c", None, dict(row))]

    def _update(self, row: dict[str, Any], key: str) -> tuple[Any, ...]:
        full = self.keyless or self.random.random() < 0.3
        old = dict(row) if full else self._old(row) if key != row["k"] else None
        row["k"] = key
        unchanged = []
        self._set(row, "v")
        for name in ("big", "num"):
            if self.random.random() < 0.5:
                self._set(row, name)
            else:
                unchanged.append(name)
        sent = dict(row)
        if self.keyless:
            return ("u", old, sent)  # a FULL old tuple holds every value, and the typed row takes it from there
        texts = dict(sent["__rescued"] or {})
        for name in unchanged:
            sent[name] = None
            texts.pop(name, None)
        sent["__rescued"] = texts or None
        return ("u", old, sent, unchanged)

    def _old(self, row: dict[str, Any]) -> dict[str, Any]:
        if self.keyless:
            return dict(row)
        return {"h": row["h"], "k": row["k"], "__rescued": None}

    def _set(self, row: dict[str, Any], name: str) -> None:
        texts = dict(row.get("__rescued") or {})
        texts.pop(name, None)
        drawn = self.random.randrange(5)
        if name == "v":
            row[name] = self.random.randrange(3) if self.keyless else drawn or None
        elif name == "big":
            row[name] = (None, "", "x", "y" * 50, "é")[drawn]
        else:
            row[name] = (None, Decimal("1.5000"), Decimal(0), Decimal("-7.2500"), None)[drawn]
            if drawn == 4:
                texts[name] = self.random.choice(("NaN", "1e40"))
        row["__rescued"] = texts or None


def plain(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows without their positions, comparable and in one order."""
    names = ("h", "k", "v", "big", "num")
    return sorted(
        ((*[row[name] for name in names], tuple(sorted((row["__rescued"] or {}).items()))) for row in rows), key=repr
    )

"""Decides which change rows are applied if earlier ones were refused: which are held, and which supersede others.

A refused row is not in the lake, so the lake equals the source without it. A later row of the same key can still be
applied if it is complete: a complete image or a delete *supersedes* the waiting rows of its key. A row with unchanged
TOAST columns depends on the previous version of the row, so it is *held* in quarantine too. A row that changes its key
removes a row at one key (take) and writes it at another (put), and waits at both; each of the two effects may be
superseded separately:

    put at b superseded      a later change of b writes the row: the waiting row's removal from a is applied as a delete
    take from a superseded   another row is at a now: the waiting row only writes its row at b

Such a delete is applied at the position of the waiting row, so that it precedes later changes. A waiting row with
unchanged TOAST columns depends on the lake's row at its old key, so no change that would overwrite that row is applied
before it.

Without a key the row's content identifies it: a delete of a row and a waiting insert of the same row cancel out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cdc_core.lake.reduce.latest import ChangedKeys, changed_keys
from cdc_core.lake.reduce.multiset import changed_rows
from cdc_core.lake.rows.survey import in_order, is_op

UPSERT, REMOVAL = 1, 2
"""The two effects of a change row, as bits: it writes (UPSERT) or removes (REMOVAL) a row."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """The result: ``rows`` are to be applied, ``effects`` are the bits of each given change row not yet applied.

    The effects are 0 for a row that is applied or completely superseded. Shape: int8[N]
    """

    rows: pa.Table
    effects: np.ndarray


def defer(rows: pa.Table, refused: np.ndarray, effects: np.ndarray, key: Sequence[str], schema: pa.Schema) -> Deferred:
    """Decide which of the change rows are applied to the lake.

    ``rows`` are in stream order: those in quarantine before and those of a slice. ``refused`` ones are quarantined in
    any case; ``effects`` are the bits of the effects that each still has (UPSERT | REMOVAL for a new row). Shape:
    bool[N], int8[N]. ``key`` is the lake table's merge key, empty for a multiset, ``schema`` its schema.
    """
    at = rows.schema.get_field_index("__op")
    rows = rows.set_column(at, rows.schema.field(at), rows.column(at).fill_null(""))
    changed = changed_keys(rows, key, schema) if key else changed_rows(rows, schema)
    waiting = _Waiting(changed, bool(key))
    concerned = _concerned(changed, refused | (effects != UPSERT | REMOVAL))
    truncates = is_op(rows, "t")
    concerned |= truncates
    left = np.zeros(rows.num_rows, dtype=np.int8)
    takes_only, puts_only = list[int](), list[int]()
    applied = np.ones(rows.num_rows, dtype=bool)
    # row-wise: only rows whose key was touched by one that was refused
    for at in np.flatnonzero(concerned).tolist():
        row = waiting.row(at, int(effects[at]))
        if truncates[at] and not refused[at]:
            waiting.forget()
        elif refused[at] or not waiting.lets_in(row):
            waiting.add(row)
            applied[at] = False
        elif not row.is_whole:
            applied[at] = False
            (puts_only if row.puts else takes_only).extend([at] if row.puts or row.takes else [])
    for row in waiting.rows:
        left[row.at] = (UPSERT if row.puts else 0) | (REMOVAL if row.takes else 0)
    takes_only += waiting.made_up
    parts = [rows.filter(pa.array(applied))]
    parts += [_as(rows, takes_only, "d"), _as(rows, puts_only, "c")]
    return Deferred(in_order(pa.concat_tables(parts)), left)


@dataclass(slots=True, eq=False)
class _Row:
    """One change row: the keys that it writes and removes, -1 for none, and which of the two are not yet applied."""

    at: int
    new: int
    old: int
    incomplete: bool
    puts: bool
    takes: bool

    @property
    def is_whole(self) -> bool:
        return self.puts == (self.new >= 0) and self.takes == (self.old >= 0)

    @property
    def keys(self) -> Iterator[int]:
        if self.puts:
            yield self.new
        if self.takes and (not self.puts or self.old != self.new):
            yield self.old


@dataclass(slots=True)
class _Waiting:
    """The waiting rows by key. ``made_up``: rows whose take is applied as a separate delete."""

    changed: ChangedKeys
    keyed: bool
    rows: list[_Row] = field(default_factory=list)
    made_up: list[int] = field(default_factory=list)
    _by_key: dict[int, list[_Row]] = field(default_factory=dict)

    def row(self, at: int, effects: int) -> _Row:
        new, old = int(self.changed.upserts[at]), int(self.changed.removals[at])
        incomplete = bool(self.changed.incomplete[at])
        return _Row(at, new, old, incomplete, new >= 0 and bool(effects & UPSERT), old >= 0 and bool(effects & REMOVAL))

    def add(self, row: _Row) -> None:
        self.rows.append(row)
        for key in row.keys:
            self._by_key.setdefault(key, []).append(row)

    def forget(self) -> None:
        """Handle a truncate: the source no longer has any of the waiting rows."""
        for row in self.rows:
            row.puts = row.takes = False
        self._by_key.clear()

    def lets_in(self, row: _Row) -> bool:
        """Whether a row that passes the rules may be applied now; if so, the effects it supersedes are cleared."""
        if not self.keyed:
            self._cancel(row)
            return True
        base = row.old if row.takes else row.new
        if row.incomplete and self._live(base):
            return False
        ended = list(self._ended(row))
        if any(take and not put and waiting.incomplete and waiting.puts for waiting, put, take in ended):
            return False
        for waiting, put, take in ended:
            waiting.puts &= not put
            if take:
                waiting.takes = False
                self.made_up.append(waiting.at)
        for key in row.keys:
            self._by_key[key] = self._live(key)
        return True

    def _live(self, key: int) -> list[_Row]:
        return [
            waiting
            for waiting in self._by_key.get(key, ())
            if (waiting.puts and waiting.new == key) or (waiting.takes and waiting.old == key)
        ]

    def _ended(self, row: _Row) -> Iterator[tuple[_Row, bool, bool]]:
        """Yield waiting effects at the row's keys, and at old keys of rows found there: (row, its put, its take)."""
        marks: dict[int, tuple[_Row, bool, bool]] = {}
        todo = [(key, row.at) for key in row.keys]
        while todo:
            key, before = todo.pop()
            for waiting in self._live(key):
                if waiting.at >= before:
                    continue
                _, put, take = marks.get(waiting.at, (waiting, False, False))
                if waiting.puts and waiting.new == key and not put:
                    put = True
                    if waiting.takes and waiting.old != key and not take:
                        take = True
                        todo.append((waiting.old, waiting.at))
                take |= waiting.takes and waiting.old == key
                marks[waiting.at] = (waiting, put, take)
        yield from marks.values()

    def _cancel(self, row: _Row) -> None:
        """Cancel, in a multiset, a row's removal with its waiting insert, and repeat this for that insert's old row."""
        taker, key = row, row.old
        while taker.takes:
            inserts = [waiting for waiting in self._by_key.get(key, ()) if waiting.puts and waiting.new == key]
            if not inserts:
                if taker is not row:
                    taker.takes = False
                    self.made_up.append(taker.at)
                return
            taker.takes = inserts[-1].puts = False
            taker, key = inserts[-1], inserts[-1].old


def _concerned(changed: ChangedKeys, seeds: np.ndarray) -> np.ndarray:
    """Return the rows that touch a key touched by a seed, or by a row found so. Shape: bool[N] -> bool[N]."""
    # The last element represents "no key", which is number -1.
    keys = np.zeros(changed.count + 1, dtype=bool)
    concerned = seeds.copy()
    while True:
        keys[changed.upserts[concerned]] = keys[changed.removals[concerned]] = True
        keys[-1] = False
        more = keys[changed.upserts] | keys[changed.removals]
        if not (more & ~concerned).any():
            return concerned
        concerned |= more


def _as(rows: pa.Table, places: Sequence[int], op: str) -> pa.Table:
    """Convert rows to deletes of their old image, or inserts of their new one. Shape: table[N], int[M] -> table[M]."""
    some = rows.take(pa.array(sorted(places), pa.int64()))
    gone = "after" if op == "d" else "before"
    made = {
        "__op": pa.array([op] * len(places), rows.schema.field("__op").type),
        "__unchanged": pa.array([[]] * len(places), rows.schema.field("__unchanged").type),
        gone: pa.nulls(len(places), rows.schema.field(gone).type),
    }
    for name, values in made.items():
        some = some.set_column(some.schema.get_field_index(name), rows.schema.field(name), values)
    return some

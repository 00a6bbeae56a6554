"""Decides which change rows are applied if earlier ones were refused: which are held, and which supersede others.

A refused row is not in the lake, so the lake equals the source without it. A later row of the same key can still be
applied if it is complete: a complete image or a delete *supersedes* the waiting rows of its key. A row with unchanged
TOAST columns depends on the previous version of the row, so it is *held* in quarantine too.

A change of the key with a complete image is a delete and an insert here (``key_changes``), of which only the insert can
be refused. One that leaves values out stays one: it waits at both keys, and *needs* the lake's row at its old key.

    put at that key       held: it would overwrite the row that is needed
    delete at that key    supersedes what came there since, and leaves the row to the change that needs it
    put at its new key    supersedes it; the row at the old key is deleted, at the position of the superseded change

Without a key the row's content identifies it: a delete of a row and a waiting insert of the same row cancel out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cdc_core.arrays import Bools
from cdc_core.lake.reduce.key_changes import removals_of
from cdc_core.lake.reduce.latest import ChangedKeys, changed_keys
from cdc_core.lake.reduce.multiset import changed_rows
from cdc_core.lake.rows.survey import in_order, is_op


@dataclass(frozen=True, slots=True)
class Deferred:
    """The result: ``rows`` are to be applied; ``waits`` and ``applied`` tell which of the given ones wait, and go in.

    A row of which neither is true is superseded. Shape: bool[N] each
    """

    rows: pa.Table
    waits: np.ndarray
    applied: np.ndarray


def defer(rows: pa.Table, refused: np.ndarray, key: Sequence[str], schema: pa.Schema) -> Deferred:
    """Decide which of the change rows are applied to the lake.

    ``rows`` are in stream order: those in quarantine before and those of a slice, divided as ``key_changes`` says.
    ``refused`` ones are quarantined in any case. Shape: bool[N]. ``key`` is the lake table's merge key, empty for a
    multiset, ``schema`` its schema.
    """
    at = rows.schema.get_field_index("__op")
    rows = rows.set_column(at, rows.schema.field(at), rows.column(at).fill_null(""))
    changed = changed_keys(rows, key, schema) if key else changed_rows(rows, schema)
    waiting = _Waiting(changed) if key else _WaitingOfMultiset(changed)
    truncates = is_op(rows, "t")
    applied = np.ones(rows.num_rows, dtype=bool)
    # row-wise: only rows whose key was touched by one that was refused
    for row in np.flatnonzero(_concerned(changed, refused) | truncates).tolist():
        if truncates[row] and not refused[row]:
            waiting.forget()
        elif refused[row]:
            waiting.add(row)
            applied[row] = False
        else:
            applied[row] = waiting.lets_in(row)
    waits, gone = np.zeros((2, rows.num_rows), dtype=bool)
    waits[waiting.rows], gone[waiting.removed] = True, True
    made = in_order(pa.concat_tables([removals_of(rows, gone), rows.filter(pa.array(applied))]))
    return Deferred(made, waits, applied)


@dataclass(slots=True)
class _Waiting:
    """The waiting rows by key, as indexes in stream order; ``removed`` are superseded ones whose old row is deleted."""

    changed: ChangedKeys
    removed: list[int] = field(default_factory=list)
    _by_key: dict[int, dict[int, None]] = field(default_factory=dict)

    @property
    def rows(self) -> list[int]:
        return [row for rows in self._by_key.values() for row in rows]

    def forget(self) -> None:
        """Handle a truncate: the source no longer has any of the waiting rows."""
        self._by_key.clear()

    def add(self, row: int) -> None:
        for key in self._keys(row):
            self._by_key.setdefault(key, {})[row] = None

    def lets_in(self, row: int) -> bool:
        """Whether a row that passes the rules is applied now; what it supersedes does not wait any more.

        If it is held it waits, too.
        """
        new, old = int(self.changed.upserts[row]), int(self.changed.removals[row])
        base = old if old >= 0 else new
        if (self._is_incomplete(row) and self._by_key.get(base)) or (new >= 0 and self._is_needed(new)):
            self.add(row)
            return False
        is_needed = [self._ends(key, row) for key in self._keys(row)]
        return new >= 0 or not any(is_needed)

    def _keys(self, row: int) -> list[int]:
        return [key for key in (int(self.changed.upserts[row]), int(self.changed.removals[row])) if key >= 0]

    def _is_incomplete(self, row: int) -> bool:
        return bool(self.changed.incomplete[row]) or len(self._keys(row)) > 1

    def _is_needed(self, key: int) -> bool:
        return any(self._needs(row, key) for row in self._by_key.get(key, ()))

    def _needs(self, row: int, key: int) -> bool:
        """Whether a waiting row is a change of the key that takes values from the lake's row at its old ``key``."""
        return len(self._keys(row)) > 1 and int(self.changed.removals[row]) == key

    def _ends(self, key: int, before: int) -> bool:
        """Supersede what waits at a key, earlier than ``before``, and after a row that needs the lake's row there.

        Returns whether there is such a row.
        """
        earlier = [row for row in self._by_key.get(key, ()) if row < before]
        needing = max((row for row in earlier if self._needs(row, key)), default=-1)
        for row in earlier:
            if row > needing and row in self._by_key[key]:
                for its_key in self._keys(row):
                    del self._by_key[its_key][row]
                old = int(self.changed.removals[row])
                if old >= 0 and not (needing >= 0 if old == key else self._ends(old, row)):
                    self.removed.append(row)
        return needing >= 0


class _WaitingOfMultiset(_Waiting):
    """The same without keys: each row is an insert or a delete."""

    def lets_in(self, row: int) -> bool:
        """Cancel a delete with a waiting insert of the same row."""
        equal = self._by_key.get(int(self.changed.removals[row]), {})
        insert = next((other for other in reversed(equal) if self.changed.upserts[other] >= 0), None)
        if insert is not None:
            del equal[insert]
        return insert is None


def _concerned(changed: ChangedKeys, seeds: np.ndarray) -> Bools:
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

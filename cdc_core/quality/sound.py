"""The metrics of generated rules on a slice in which nothing is wrong, without DuckDB.

A statement of DuckDB is planned each time it is executed, which takes most of the time for the few rows of a usual
slice. Here Arrow proves, column by column, that no row is unexpected by any rule, and counts the rows that each judges.
If it cannot prove that, or a rule is not exactly as ``rules`` generates it, DuckDB computes all metrics: it alone finds
unexpected rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.quality import rules as generated
from cdc_core.quality.report import Metrics
from cdc_core.quality.rules import KEY_UNIQUE, LENGTH, MEMBER, Rule

_ROW_RULES = {rule.name: rule for rule in generated.row_rules()}
_PRESENT = ("key_not_null", "not_null")
_KEPT = 16_384


def sound_metrics(changes: pa.Table, rules: Sequence[Rule]) -> list[Metrics] | None:
    """Return the metrics of each rule if no row of ``changes`` is unexpected by any of them; None if one may be."""
    rows = _SoundRows.of(changes) if all(map(_is_as_generated, rules)) else None
    if rows is None:
        return None
    metrics: list[Metrics] = []
    for rule in rules:
        counted = rows.metrics(rule)
        if counted is None:
            return None
        metrics.append(counted)
    return metrics


@dataclass(frozen=True, slots=True)
class _SoundRows:
    """Changes without truncates, whose operations, positions and images are valid, and that omit and rescue no value.

    ``after`` are the columns of the ``writes`` new images, ``before`` of the ``deletes`` old ones of deletes.
    """

    count: int
    writes: int
    deletes: int
    after: dict[str, pa.Array]
    before: dict[str, pa.Array]

    @classmethod
    def of(cls, changes: pa.Table) -> _SoundRows | None:
        """Return None for rows that are not of this kind, or not proved to be."""
        op, unchanged, before, after = (
            _whole(changes.column(name)) for name in ("__op", "__unchanged", "before", "after")
        )
        lsn, index, at = (changes.column(name) for name in ("__commit_lsn", "__tx_index", "__lsn"))
        if op.null_count or lsn.null_count or index.null_count or at.null_count or len(unchanged.flatten()):
            return None
        written = np.asarray(pc.is_in(op, value_set=_WRITE).to_numpy(zero_copy_only=False))
        deleted = np.asarray(pc.equal(op, "d").to_numpy(zero_copy_only=False))
        lsns = lsn.to_numpy()
        if not (written | deleted).all() or (lsns <= 0).any() or (index.to_numpy() < 0).any():
            return None
        if (at.to_numpy() > lsns).any():
            return None
        new = after if written.all() else after.filter(pa.array(written))
        old = before.filter(pa.array(deleted))
        if new.null_count or old.null_count:
            return None
        columns = [{field.name: image.field(n) for n, field in enumerate(image.type)} for image in (new, old)]
        if any(image[_RESCUED].null_count < len(image[_RESCUED]) for image in columns):
            return None
        return cls(changes.num_rows, len(new), len(old), columns[0], columns[1])

    def metrics(self, rule: Rule) -> Metrics | None:
        """Return the metrics of a generated rule; None if a row may be unexpected."""
        kind, _, name = rule.name.partition(":")
        if kind in _ROW_RULES or kind == KEY_UNIQUE:
            return Metrics(self.count)
        values = self.after.get(name)
        if values is None or (kind in _PRESENT and values.null_count):
            return None
        nulls = values.null_count
        if kind == "key_not_null":
            old = self.before.get(name)
            return None if old is None or old.null_count else Metrics(self.writes + self.deletes)
        if kind == "max_length":
            longest = pc.max(pc.utf8_length(values)).as_py()
            if longest is not None and longest > _length(rule):
                return None
        if kind == "enum_member":
            known = pc.sum(pc.is_in(values, value_set=_labels(rule))).as_py() or 0
            if known != len(values) - nulls:
                return None
        return Metrics(self.writes, nulls if kind in ("max_length", "enum_member") else 0)


_WRITE, _RESCUED = pa.array(["c", "u", "r"]), "__rescued"


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@lru_cache(_KEPT)
def _length(rule: Rule) -> int:
    return int(rule.arguments["max_value"])


@lru_cache(_KEPT)
def _labels(rule: Rule) -> pa.Array:
    return pa.array(rule.arguments["value_set"], pa.string())


@lru_cache(_KEPT)
def _is_as_generated(rule: Rule) -> bool:
    """Whether a rule's texts are those of the one that ``rules`` generates under its name."""
    kind, _, name = rule.name.partition(":")
    made: Rule | None = None
    if kind in _ROW_RULES:
        made = _ROW_RULES[kind]
    elif kind == "key_not_null":
        made = generated.key_rule(name)
    elif kind == "not_null":
        made = generated.not_null_rule(name)
    elif kind == "natural_range":
        made = generated.natural_range_rule(name, "")
    elif kind == "max_length" and rule.kind == LENGTH:
        made = generated.length_rule(name, rule.arguments["max_value"])
    elif kind == "enum_member" and rule.kind == MEMBER:
        made = generated.enum_rule(name, rule.arguments["value_set"])
    elif kind == KEY_UNIQUE:
        return rule.predicate == "true" and rule.applies == "true"
    return made is not None and _texts(rule) == _texts(made)


def _texts(rule: Rule) -> tuple[object, ...]:
    return rule.predicate, rule.applies, rule.ignored, rule.measures, rule.kind, rule.kwargs, rule.by, rule.origin

"""Matches the columns of a Relation message to the columns of the table.

The message has names and types in the order of attnums, but no attnums. The other known facts are the columns of the
version before, and those of the catalogue, which may be ahead of the stream. A column is dropped permanently, and a new
one gets a higher attnum than any before it, so

    live before and live now        it was live all the time; with its name and type, if no DDL named it in between
    live now, new                   it was live if any column with a higher attnum was
    live before, dropped now        it may still have been live
    added and dropped in between    it may have been live; only its attnum is known

All interpretations of the message that these rules allow are counted. If there is exactly one, it is correct. If there
are several, they cannot be distinguished.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.table import Column

# Types whose stored values can only be converted to one another by a rewrite.
_FAMILIES = (
    ("int2",), ("int4", "oid", "regclass", "regtype", "regproc"), ("int8",), ("float4",), ("float8",), ("numeric",),
    ("bool",), ("text", "varchar", "bpchar", "name", "citext", "xml"), ("bytea",), ("date",), ("time",), ("timetz",),
    ("timestamp", "timestamptz"), ("interval",), ("uuid",), ("json",), ("jsonb",),
)  # fmt: skip
_FAMILY_OF = {name: number for number, names in enumerate(_FAMILIES) for name in names}
# Types with the same text for the same stored value.
_TEXTS = {"text", "varchar", "citext"}


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """A column that may be among the announced ones. ``versions`` are its known descriptions (none: added and dropped).

    ``is_certain``: it was live all the time. ``is_fixed``: it also had the name and type of its versions.
    """

    attnum: int
    versions: tuple[Column, ...] = ()
    is_certain: bool = False
    is_new: bool = False
    is_fixed: bool = False


def align(
    announced: tuple[Column, ...], places: list[ColumnPlace], *, may_be_rewritten: bool
) -> tuple[int, ...] | None:
    """Return the attnum of each announced column, or None if several interpretations (or none) are possible.

    ``may_be_rewritten``: rows were rewritten in between, so a column may have had any type.
    """
    places = sorted(places, key=lambda place: place.attnum)

    def fits(place: ColumnPlace, column: Column) -> bool:
        if place.is_fixed:
            known = place.versions[0]
            return (known.name, known.type.oid, known.modifier) == (column.name, column.type.oid, column.modifier)
        if place.is_certain or may_be_rewritten or not place.versions:
            return True
        return any(may_share_storage(version.type, column.type) for version in place.versions)

    # (announced columns taken, whether a column was skipped that had no later ones) → (number of ways to get there with
    # the places so far, one of them: the attnums as a linked list, the last one first). A table may have 1,600 columns.
    ways: dict[tuple[int, bool], tuple[int, _Attnums | None]] = {(0, False): (1, None)}
    for position, place in enumerate(places, 1):
        after: dict[tuple[int, bool], tuple[int, _Attnums | None]] = {}
        for (taken, has_skipped), (count, example) in ways.items():
            if taken < len(announced) and not (has_skipped and place.is_new) and fits(place, announced[taken]):
                _add(after, (taken + 1, has_skipped), count, (place.attnum, example))
            # Enough places must remain for the remaining columns.
            if not place.is_certain and len(announced) - taken <= len(places) - position:
                # Before a column was added it had no later columns; a place without versions may have been added and
                # dropped before.
                _add(after, (taken, has_skipped or (place.is_new and bool(place.versions))), count, example)
        ways = after
    ends = [alignment for (taken, _), alignment in ways.items() if taken == len(announced)]
    if sum(count for count, _ in ends) != 1:
        return None
    return _unwound(ends[0][1])


_Attnums = tuple[int, Any]


def _add(
    ways: dict[tuple[int, bool], tuple[int, _Attnums | None]],
    state: tuple[int, bool],
    count: int,
    example: _Attnums | None,
) -> None:
    before, _ = ways.get(state, (0, None))
    ways[state] = before + count, example


def _unwound(found: _Attnums | None) -> tuple[int, ...]:
    attnums: list[int] = []
    while found is not None:
        attnum, found = found
        attnums.append(attnum)
    return tuple(reversed(attnums))


def may_share_storage(one: PgType, other: PgType) -> bool:
    """Whether ALTER COLUMN TYPE may convert one to the other without rewriting the stored rows."""
    first, second = base_type(one), base_type(other)
    if first.oid == second.oid:
        return True
    builtin = first.namespace == second.namespace == "pg_catalog"
    if builtin and first.kind is second.kind is TypeKind.BASE and {first.name, second.name} <= _FAMILY_OF.keys():
        return _FAMILY_OF[first.name] == _FAMILY_OF[second.name]
    return True


def keeps_text(one: PgType, other: PgType) -> bool:
    """Whether a stored value that is valid for both types without a rewrite has the same text in both."""
    first, second = base_type(one), base_type(other)
    if first.kind is second.kind is TypeKind.ARRAY and first.inner is not None and second.inner is not None:
        return keeps_text(first.inner, second.inner)
    return first.oid == second.oid or {first.name, second.name} <= _TEXTS


def base_type(one: PgType) -> PgType:
    """Return the type under a chain of domains."""
    while one.kind is TypeKind.DOMAIN and one.inner is not None:
        one = one.inner
    return one

"""Which announced column is which: one reading is the truth, several are none."""

from __future__ import annotations

import pytest

from cdc_core.schema.alignment import ColumnPlace, align, keeps_text, may_share_storage
from cdc_core.schema.pg_type import PgType, TypeKind
from tests.unit.schema.versions import BIGINT, INT, TEXT, VARCHAR, column

ID, A, B = column(1, "id", INT), column(2, "a"), column(3, "b")


def live(found: object) -> ColumnPlace:
    return ColumnPlace(found.attnum, (found, found), is_certain=True)  # type: ignore[attr-defined]


def dropped(found: object) -> ColumnPlace:
    return ColumnPlace(found.attnum, (found,))  # type: ignore[attr-defined]


def added(found: object) -> ColumnPlace:
    return ColumnPlace(found.attnum, (found,), is_new=True)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("told", "places", "expected"),
    [
        ((ID, A, B), [live(ID), live(A), live(B)], (1, 2, 3)),
        ((ID, B), [live(ID), dropped(A), live(B)], (1, 3)),
        ((ID, A, B), [live(ID), dropped(A), live(B)], (1, 2, 3)),
        ((ID, A), [live(ID), live(A), added(B)], (1, 2)),
        ((ID, A, B), [live(ID), added(A), added(B)], (1, 2, 3)),
        # The first of two new ones was there before the second.
        ((ID, A), [live(ID), added(A), added(B)], (1, 2)),
        # One text column: the dropped one, renamed perhaps, or the new one.
        ((ID, B), [live(ID), dropped(A), added(B)], None),
        # Of two dropped ones one is left, whatever it is called.
        ((ID, B), [live(ID), dropped(A), dropped(B)], None),
        # Nothing is known of 2 but that it came and went.
        ((ID, B), [live(ID), ColumnPlace(2, is_new=True), added(B)], None),
        ((ID,), [live(ID), ColumnPlace(2, is_new=True), added(B)], (1,)),
        ((ID, A, B), [live(ID), live(A)], None),
        ((ID,), [live(ID), live(A)], None),
    ],
)  # fmt: skip
def test_a_reading_is_taken_where_it_is_the_only_one(told, places, expected) -> None:  # type: ignore[no-untyped-def]
    assert align(told, places, may_be_rewritten=False) == expected


def test_a_table_of_the_most_columns_is_read() -> None:
    every = [column(number, f"c{number}") for number in range(1, 1601)]
    gone, new = every[700], every[-1]
    places = [dropped(each) if each is gone else added(each) if each is new else live(each) for each in every]
    whole = tuple(range(1, 1601))
    assert align(tuple(every), places, may_be_rewritten=False) == whole
    assert align(tuple(each for each in every if each not in (gone, new)), places, may_be_rewritten=False) == tuple(
        attnum for attnum in whole if attnum not in (701, 1600)
    )
    # Either of two columns of one type.
    assert align(tuple(each for each in every if each is not gone), places, may_be_rewritten=False) is None


def test_a_type_that_needs_a_rewrite_distinguishes_the_new_column_from_the_old() -> None:
    old, new = column(2, "a", INT), column(3, "a", TEXT)
    places = [live(ID), dropped(old), added(new)]
    assert align((ID, new), places, may_be_rewritten=False) == (1, 3)
    assert align((ID, old), places, may_be_rewritten=False) == (1, 2)
    assert align((ID, new), places, may_be_rewritten=True) is None


def test_storage_is_shared_within_a_family_and_never_said_not_to_be_of_what_is_unknown() -> None:
    mine = PgType(50_000, "mine", "public")
    domain = PgType(50_001, "dom", "public", TypeKind.DOMAIN, INT)
    assert may_share_storage(VARCHAR, TEXT) and may_share_storage(domain, INT) and may_share_storage(mine, INT)
    assert not may_share_storage(INT, BIGINT) and not may_share_storage(domain, TEXT)


def test_text_stays_for_equal_types_and_for_strings_alone() -> None:
    oid, array = PgType(26, "oid"), PgType(1015, "_varchar", kind=TypeKind.ARRAY, inner=VARCHAR)
    texts = PgType(1009, "_text", kind=TypeKind.ARRAY, inner=TEXT)
    assert keeps_text(VARCHAR, TEXT) and keeps_text(array, texts)
    assert not keeps_text(INT, oid)
    assert not keeps_text(PgType(650, "cidr"), PgType(869, "inet"))

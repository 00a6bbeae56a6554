"""Names that are the same again: of tables and of enum labels, by the catalogue's rows that renaming writes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from cdc_core.schema.changes import ChangeKind, Verdict
from cdc_core.schema.evolution import decide
from cdc_core.schema.fingerprint import PublicationEntry, PublicationMark, TypeMark
from cdc_core.schema.unseen import unseen_changes
from tests.unit.schema.versions import ID, LISTED, column, lake_type, table

NOTE = column(2, "note")
BY_SCHEMA = PublicationMark(7, "90", "cudt", False, "n", (PublicationEntry("s", 8),))
LABELS = ((1, "sad"), (2, "ok"))


def kinds(before: dict[str, Any], after: dict[str, Any]) -> list[ChangeKind]:
    one, other = table(ID, NOTE, changes=before), table(ID, NOTE, changes=after)
    return [found.change.kind for found in unseen_changes(one, other)]


@pytest.mark.parametrize(
    ("before", "after", "is_found"),
    [
        ({"naming": "90"}, {"naming": "90"}, False),
        ({"naming": "90"}, {"naming": "95"}, True),
        ({"naming": "90", "owner": 10}, {"naming": "95", "owner": 11}, False),
        ({"naming": "90", "publication": BY_SCHEMA}, {"naming": "95", "owner": 11, "publication": BY_SCHEMA}, True),
        ({}, {"naming": "95"}, False),
        ({"naming": "90", "server": "1", "publication": LISTED}, {"naming": "95", "server": "2"}, False),
    ],
)
def test_a_table_that_had_another_name(before: dict[str, Any], after: dict[str, Any], is_found: bool) -> None:
    assert (ChangeKind.MOVED in kinds(before, after)) is is_found


@pytest.mark.parametrize(
    ("old", "new", "is_found"),
    [
        (TypeMark(5, "e", LABELS, 0, ("80", "80")), TypeMark(5, "e", LABELS, 0, ("80", "80")), False),
        (TypeMark(5, "e", LABELS, 0, ("80", "80")), TypeMark(5, "e", LABELS, 95, ("95", "80")), True),
        (
            TypeMark(5, "e", LABELS, 0, ("80", "80")),
            TypeMark(5, "e", (*LABELS, (3, "new")), 95, ("80", "80", "95")),
            False,
        ),
        (TypeMark(5, "e", LABELS, 0, ("80", "80")), TypeMark(5, "e", ((1, "blue"), (2, "ok")), 95, ("95", "80")), True),
    ],
)
def test_labels_that_had_other_names(old: TypeMark, new: TypeMark, is_found: bool) -> None:
    assert (ChangeKind.TYPE_ALTERED in kinds({"types": (old,), "horizon": 90}, {"types": (new,)})) is is_found


def test_rows_of_another_table_under_the_name_are_never_followed() -> None:
    base = table(ID, NOTE)
    other = dataclasses.replace(base, oid=base.oid + 1)
    for current in (base, None):
        decision = decide(base, other, current, lake_type=lake_type)
        assert decision.verdict is Verdict.REREAD
        assert decision.changes[0].kind is ChangeKind.RECREATED

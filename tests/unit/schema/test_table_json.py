"""A table's JSON form: it carries the marks, and what was written before there were any still loads."""

from __future__ import annotations

import dataclasses

from cdc_core.schema.fingerprint import Fingerprint, PublicationEntry, PublicationMark, TypeMark
from cdc_core.schema.table import TableSchema
from tests.unit.schema.versions import ID, INT, column, table

TABLE = table(
    ID,
    column(3, "n", INT, has_missing=True, missing="7", generated="s"),
    changes={
        "types": (TypeMark(50, "e", ((51, "sad"), (52, "ok"))),),
        "publication": PublicationMark(
            7, "90", "cu", True, "s", (PublicationEntry("t", 8, "91 ", (1, 3), True), PublicationEntry("a", 7))
        ),
    },
)


def test_all_facts_survive() -> None:
    again = TableSchema.from_json(TABLE.to_json())
    assert again == TABLE
    assert again.fingerprint == TABLE.fingerprint
    assert TABLE.fingerprint is not None
    assert Fingerprint.from_json(TABLE.fingerprint.to_json()) == TABLE.fingerprint
    assert [dataclasses.astuple(c) for c in again.columns] == [dataclasses.astuple(c) for c in TABLE.columns]

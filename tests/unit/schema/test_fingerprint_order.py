"""Facts that the server returns in any order do not make two fingerprints different."""

from __future__ import annotations

import dataclasses

from cdc_core.schema.fingerprint import PublicationEntry, PublicationMark

OWN, ABOVE = PublicationEntry("s", 9), PublicationEntry("s", 9, "70 ")
LISTED = PublicationEntry("t", 8, "", (1, 2))


def mark(*entries: PublicationEntry) -> PublicationMark:
    return PublicationMark(7, "90", "cudt", False, "n", entries)


def test_entries_of_one_oid_are_equal_in_any_order() -> None:
    one = mark(LISTED, ABOVE, OWN)
    assert one == mark(OWN, LISTED, ABOVE) == mark(ABOVE, OWN, LISTED)
    assert one != mark(LISTED, OWN)
    again = dataclasses.asdict(one)
    entries = tuple(PublicationEntry(**entry) for entry in reversed(again.pop("entries")))
    assert PublicationMark(**{**again, "entries": entries}) == one

"""A key that did not exist for some time: what is decided, when, and what the next run knows of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from cdc_core.lake.stores.schema_log import SchemaLog, SchemaVersion
from cdc_core.schema.fingerprint import KeyMark
from cdc_core.schema.relation import ReplicaIdentity
from tests.unit.engine.test_schema_versions import ID, NOTE, begun, schema_versions
from tests.unit.schema.versions import ORDERS, table

ANEW = KeyMark(501, 500, (1,), 502, "95", "p")
FULL: dict[str, Any] = {"identity": ReplicaIdentity.FULL, "identity_key": ("id", "note")}


def test_a_key_created_again_without_rows_in_between_is_in_force_once_the_stream_has_passed_it(tmp_path: Path) -> None:
    """Until then changes of before may be announced, and under FULL they do not name their rows by a key."""
    first, anew = table(ID, NOTE), table(ID, NOTE, changes={"keys": (ANEW,)})
    for is_announced in (False, True):
        known, server = begun(tmp_path / str(is_announced), first)
        server.now = anew
        known.catalogue.poll(lambda: 500)
        if is_announced:
            known.versions.number(dataclasses.replace(anew, **FULL, version=2), anew, 400, 100)
            assert known.tables.of(ORDERS).reread is not None
            continue
        assert known.versions.number(first, anew, 400, 100) == 1 and known.tables.of(ORDERS).is_on_its_way
        assert known.versions.follow_passed(499) == [] and known.versions.follow_passed(500) == [ORDERS]
        # Now it identifies rows under FULL, too, in this run and in the next.
        for later in (known, schema_versions(tmp_path / "False", server)):
            state = later.versions.open(ORDERS, 1) if later is not known else later.tables.of(ORDERS)
            later.versions.number(dataclasses.replace(anew, **FULL, version=2), anew, 600, 100)
            assert state.reread is None and not state.is_on_its_way


@pytest.mark.parametrize("keys", [(ANEW,), ()], ids=["made anew", "dropped"])
def test_a_key_that_changes_under_full_do_not_name_is_read_again(tmp_path: Path, keys: tuple[KeyMark, ...]) -> None:
    known, server = begun(tmp_path, table(ID, NOTE, **FULL))
    server.now = table(ID, NOTE, changes={"keys": keys}, **FULL)
    if not keys:
        server.now = dataclasses.replace(server.now, primary_key=())
    known.catalogue.poll(lambda: 500)
    assert known.tables.of(ORDERS).reread is not None
    # The next run, which begins with what an earlier one recorded, finds the same.
    log = SchemaLog(str(tmp_path / "next" / "shapes"), {})
    log.add_versions([(ORDERS, SchemaVersion(1, table(ID, NOTE, **FULL)))], 1)
    known = schema_versions(tmp_path / "next", server)
    known.versions.open(ORDERS, 1)
    known.catalogue.poll(lambda: 500)
    assert known.tables.of(ORDERS).reread is not None


def test_full_that_returns_unannounced_is_not_taken_for_the_earlier_identity(tmp_path: Path) -> None:
    """No row was changed under DEFAULT, so the message of FULL is the same as before, and the table its version."""
    full, default = table(ID, NOTE, changes={"identity": "f"}, **FULL), table(ID, NOTE)
    known, server = begun(tmp_path, full)
    server.now = default
    known.catalogue.poll(lambda: 300)
    assert known.versions.number(full, full, 290, 100) == 1 and known.tables.of(ORDERS).reread is None
    assert known.versions.follow_passed(300) == [ORDERS]
    assert known.versions.number(full, full, 400, 500) == 1 and known.tables.of(ORDERS).reread is None, "in a snapshot"
    known.versions.number(full, full, 400, 100)
    assert known.tables.of(ORDERS).reread is not None


def test_a_table_that_was_read_again_is_compared_before_the_next_record(tmp_path: Path) -> None:
    """The comparisons made meanwhile passed it over."""
    known, server = begun(tmp_path, table(ID, NOTE))
    known.pauses.want_reread(ORDERS, "to see")
    known.catalogue.poll(lambda: 300)
    known.tables.of(ORDERS).reread = None
    server.now = table(ID, NOTE, changes={"keys": (ANEW,)})
    known.catalogue.poll_if_altered(lambda: 310)
    assert known.tables.of(ORDERS).is_on_its_way

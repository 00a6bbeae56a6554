"""The check of a changelog: positions that are there twice, rows that its changes do not lead to. Keys that changed."""

import random
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cdc_core.errors import LakeError
from cdc_core.lake.compare.between import ChangesInSlot, LakeVersion, ShownBySource, between, stored_changes
from cdc_core.lake.compare.changed_keys import keys_since
from cdc_core.lake.compare.changelog import check_changelog
from cdc_core.lake.compare.key_texts import key_texts
from cdc_core.lake.compare.lake_side import LakeSide
from cdc_core.lake.compare.rows import Compared
from cdc_core.lake.compare.target import Target
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.positions import lake_position
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.lsn import Lsn
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.delta.source_model import TABLE
from tests.support.one_table import SLOT, OneTable
from tests.support.spark import change

TYPER = TypingPlan(TypeOptions(), SelectionOptions()).typer(TABLE)


def row(h, k, **values):
    return {**{each.name: None for each in TYPER.row_type}, "h": h, "k": k, **values}


@pytest.fixture
def one(tmp_path):
    one = OneTable(tmp_path, TABLE, TYPER.row_type)
    one.snapshot(50, [row(1, "a", v=1, big="big"), row(2, "b", v=2), row(3, "c", v=3)], lsn=50)
    one.append(
        [
            change("u", 100, 0, None, row(1, "a", v=10), ["big"]),
            change("d", 100, 1, row(2, "b")),
            change("c", 110, 0, None, row(4, "d", v=4)),
            change("u", 120, 0, row(4, "d"), row(5, "e", v=5)),
        ],
        120,
    )
    one.merge(120, token=50)
    return one


def target(one):
    lake = DeltaTable.open(one.lake)
    place = lake_position(lake, SLOT, TABLE.id)
    compared = Compared.of(TYPER.read_schema, lake.schema, TABLE.row_key)
    return Target(TABLE, TYPER, lake, LakeVersion(place, 0), compared, (), DeltaTable.open(one.changelog))


def test_a_whole_changelog(one):
    found = check_changelog(target(one), one.paths, SLOT, 10, 1 << 20)
    assert (found.rows, found.doubled, found.keys.count, found.reason) == (4, 0, 0, "")
    assert found.is_whole


def test_rows_that_no_change_leads_to(one):
    lake = DeltaTable.open(one.lake)
    rows = lake.read(lake.files[0])
    kept = [each for each in rows.to_pylist() if each["k"] != "e"]
    kept = [each | ({"v": 11} if each["k"] == "a" else {}) for each in kept] + [kept[0] | {"h": 2, "k": "b"}]
    lake.commit([lake.write(rows.from_pylist(kept, schema=lake.schema))], lake.files)
    found = check_changelog(target(one), one.paths, SLOT, 10, 1 << 20)
    # A value that only the snapshot sent (big) is not known, so (1, a) is compared by the other tests only.
    assert set(found.keys.keys) == {("2", "b"), ("5", "e")}
    assert not found.is_whole


def test_positions_that_are_there_twice(one):
    changelog = DeltaTable.open(one.changelog)
    again = changelog.read(changelog.files[0]).slice(1, 1)
    changelog.commit([changelog.write(again)])
    found = check_changelog(target(one), one.paths, SLOT, 10, 1 << 20)
    assert (found.rows, found.doubled) == (5, 1)


def test_a_changelog_that_was_removed(one):
    shutil.rmtree(one.changelog)
    with pytest.raises(LakeError, match=r"changelog of public\.items no longer exists"):
        check_changelog(target(one), one.paths, SLOT, 10, 1 << 20)
    one.snapshot(160, [row(1, "a", v=1)], lsn=160)
    assert check_changelog(target(one), one.paths, SLOT, 10, 1 << 20).is_whole


def test_keys_that_changed_since(one):
    def since(moment):
        keys = keys_since(target(one), one.paths, SLOT, moment, ChangesInSlot())
        return None if keys is None else set(key_texts(keys, target(one).compared.key))

    assert since(Lsn(100)) == {("4", "d"), ("5", "e")}
    assert since(Lsn(120)) == set()
    assert since(Lsn(60)) == {("1", "a"), ("2", "b"), ("4", "d"), ("5", "e")}
    assert since(datetime(2020, 1, 1, tzinfo=UTC)) == since(Lsn(60))
    one.append([change("t", 130, 0)], 130)
    assert since(Lsn(100)) is None


def test_what_both_sides_have_is_not_read_from_a_changelog(one, monkeypatch):
    """Beside a transaction that stays open no LSN is known up to which the snapshot shows every commit."""
    one.append([change("c", 130, 0, None, row(6, "f"), xid=705), change("c", 140, 0, None, row(7, "g"), xid=702)], 140)
    one.append([change("c", 150, 0, None, row(8, "h"), xid=703)], 150)
    one.merge(140, token=50)
    mine, opened = target(one), []
    read = DeltaTable.read

    def noted(self, file, columns=None):
        opened.append((file.minimum["__commit_lsn"], columns is None))
        return read(self, file, columns)

    monkeypatch.setattr(DeltaTable, "read", noted)
    shown = ShownBySource("705:710:705", Lsn(200), 0)
    found = between(mine.typer, mine.changelog, one.paths, SLOT, shown, mine.version, ChangesInSlot())
    assert [each["after"]["k"] for each in found.ahead.to_pylist()] == ["f"]
    assert [each["after"]["k"] for each in found.behind.to_pylist()] == ["h"]
    assert {low for low, is_whole in opened if is_whole} == {130, 150}


def test_a_sample_of_the_lake_has_live_rows_only(one):
    side = LakeSide(DeltaTable.open(one.lake), target(one).compared)
    found = {tuple(each.values()) for each in side.sample(20, 2, random.Random(1)).select(["h", "k"]).to_pylist()}
    assert found == {(1, "a"), (3, "c"), (5, "e")}


def test_a_column_that_no_change_had_yet(one):
    """Added or renamed after the last change: the changelog does not have it."""
    added = replace(TABLE, columns=(*TABLE.columns, replace(TABLE.columns[-1], name="added", attnum=99)))
    typer = TypingPlan(TypeOptions(), SelectionOptions()).typer(added)
    changelog = DeltaTable.open(one.changelog)
    none = changelog.read(changelog.files[0]).slice(0, 0)
    assert stored_changes(none, typer, 7).num_rows == 0

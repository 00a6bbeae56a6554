"""Refused rows in the quarantine table: each once, with its reasons, readable by another Delta reader."""

import json

import deltalake
import pyarrow as pa

from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.positions import LakePosition
from cdc_core.lake.stores.quarantine import (
    Settled,
    first_waiting,
    refused_among,
    waiting_rows,
    write_quarantine,
)
from cdc_core.quality.evaluate import check
from tests.unit.quality.people import BAD, RULES, TABLE, frame

LATER = 1 << 40  # than every row


def refused(*rows):
    return check(frame(list(rows)), TABLE.id, RULES).bad


def test_a_refused_row_is_written_to_the_quarantine_table_once(tmp_path):
    path = str(tmp_path / "quarantine")
    too_long, unknown = BAD["max_length:na me"][0], BAD["enum_member:mood"][0]
    assert write_quarantine(refused(too_long), path, LakePosition(0, 0), LATER, follows=True) == 1
    assert write_quarantine(refused(too_long, unknown), path, LakePosition(0, 0), LATER, follows=True) == 1
    assert write_quarantine(refused(too_long, unknown), path, LakePosition(0, 0), LATER, follows=True) == 0
    held = deltalake.DeltaTable(path).to_pyarrow_table().sort_by("__tx_index").to_pylist()
    assert [(row["__tx_index"], row["reasons"]) for row in held] == [
        (25, ["max_length:na me"]),
        (26, ["enum_member:mood"]),
    ]
    assert all(row["__quarantined_at"] is not None for row in held)
    assert [json.loads(row["row"])["after"]["mood"] for row in held] == ["sad", "glad"]


def rows_at(*lsns):
    made = [{"__commit_lsn": lsn, "__tx_index": 0, "reasons": ["r"], "row": "{}", "key": "{}"} for lsn in lsns]
    schema = pa.schema(
        [
            ("__commit_lsn", pa.int64()),
            ("__tx_index", pa.int64()),
            ("reasons", pa.list_(pa.string())),
            ("row", pa.string()),
            ("key", pa.string()),
        ]
    )
    return pa.Table.from_pylist(made, schema=schema)


def waiting(path, token, merged):
    return waiting_rows(DeltaTable.open(path), LakePosition(token, merged)).column("__commit_lsn").to_pylist()


def statuses(path):
    held = deltalake.DeltaTable(path).to_pyarrow_table().sort_by("__commit_lsn").to_pylist()
    return {row["__commit_lsn"]: (row["status"], row["settled_at"] is not None) for row in held}


def test_what_a_round_wrote_counts_once_the_lake_has_come_to_it(tmp_path):
    path = str(tmp_path / "quarantine")
    write_quarantine(rows_at(50, 60), path, LakePosition(7, 0), 100)
    assert (waiting(path, 7, 0), waiting(path, 7, 100), waiting(path, 8, 100)) == ([], [50, 60], [])
    assert first_waiting(path, LakePosition(7, 100)) == 50
    # The lake did not come to it, and the round that is done instead finds others.
    write_quarantine(rows_at(60, 70), path, LakePosition(7, 0), 110)
    assert waiting(path, 7, 110) == [60, 70]
    # Nothing is in the way where it comes to nothing at all.
    write_quarantine(rows_at(), path, LakePosition(7, 0), 120)
    assert waiting(path, 7, 120) == []


def test_what_a_round_settled_waits_on_where_the_lake_did_not_come_to_it(tmp_path):
    path = str(tmp_path / "quarantine")
    write_quarantine(rows_at(50, 60), path, LakePosition(7, 0), 100)
    settled = Settled(rows_at(50), ["replayed"])
    write_quarantine(rows_at(150), path, LakePosition(7, 100), 200, settled)
    assert (waiting(path, 7, 100), waiting(path, 7, 200)) == ([50, 60], [60, 150])
    assert statuses(path) == {50: ("replayed", True), 60: ("waiting", False), 150: ("waiting", False)}
    write_quarantine(rows_at(), path, LakePosition(7, 100), 210)
    assert waiting(path, 7, 210) == [50, 60]
    assert statuses(path) == {50: ("waiting", False), 60: ("waiting", False)}


def test_a_new_snapshot_settles_what_waited(tmp_path):
    path = str(tmp_path / "quarantine")
    write_quarantine(rows_at(50), path, LakePosition(7, 0), 100)
    write_quarantine(rows_at(350), path, LakePosition(300, 0), 400)
    assert waiting(path, 300, 400) == [350]
    assert statuses(path) == {50: ("superseded", True), 350: ("waiting", False)}
    assert refused_among(rows_at(50, 350, 360), DeltaTable.open(path), 300).tolist() == [False, True, False]

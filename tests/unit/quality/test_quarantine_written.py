"""Refused rows in the quarantine table: each once, with its reasons, readable by another Delta reader."""

import json

import deltalake

from cdc_core.quality.evaluate import check
from cdc_core.sink.delta.quarantine import write_quarantine
from tests.unit.quality.people import BAD, RULES, TABLE, frame


def refused(*rows):
    return check(frame(list(rows)), TABLE.id, RULES).bad


def test_a_refused_row_is_written_to_the_quarantine_table_once(tmp_path):
    path = str(tmp_path / "quarantine")
    too_long, unknown = BAD["max_length:na me"][0], BAD["enum_member:mood"][0]
    assert write_quarantine(refused(too_long), path) == 1
    assert write_quarantine(refused(too_long, unknown), path) == 1
    assert write_quarantine(refused(too_long, unknown), path) == 0
    held = deltalake.DeltaTable(path).to_pyarrow_table().sort_by("__tx_index").to_pylist()
    assert [(row["__tx_index"], row["reasons"]) for row in held] == [
        (25, ["max_length:na me"]),
        (26, ["enum_member:mood"]),
    ]
    assert all(row["__quarantined_at"] is not None for row in held)
    assert [json.loads(row["row"])["after"]["mood"] for row in held] == ["sad", "glad"]

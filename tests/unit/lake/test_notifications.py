from datetime import UTC, datetime, timedelta

from deltalake import DeltaTable

from cdc_core.lake.stores.notifications import NotificationLog, NotificationRow
from tests.support.lake import rows

START = datetime(2026, 1, 1, tzinfo=UTC)


def row(number):
    at = START + timedelta(seconds=number)
    return NotificationRow(f"id-{number}", "Initial Snapshot", "IN_PROGRESS", {"connector_name": "shop"}, at)


def test_any_delta_reader_sees_the_fields_of_debezium(tmp_path):
    log = NotificationLog(str(tmp_path / "n"), 15)
    log.add([row(2), row(3)])
    log.add([row(1)])
    found, *others = sorted(rows(tmp_path / "n"), key=lambda each: each["timestamp"])
    assert [each["id"] for each in others] == ["id-2", "id-3"]
    assert found["type"] == "IN_PROGRESS"
    assert dict(found["additional_data"]) == {"connector_name": "shop"}
    assert found["timestamp"] == START + timedelta(seconds=1)


def test_many_small_commits_leave_few_files(tmp_path):
    log = NotificationLog(str(tmp_path / "n"), 15)
    for number in range(60):
        log.add([row(number)])
    assert len(DeltaTable(str(tmp_path / "n")).file_uris()) < 30
    assert len(rows(tmp_path / "n")) == 60

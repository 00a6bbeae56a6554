from datetime import UTC, datetime, timedelta

from deltalake import DeltaTable

from cdc_core.lake.stores.notifications import NotificationLog, NotificationRow, read_notifications
from tests.support.lake import rows

START = datetime(2026, 1, 1, tzinfo=UTC)


def row(number):
    at = START + timedelta(seconds=number)
    return NotificationRow(f"id-{number}", "Initial Snapshot", "IN_PROGRESS", {"connector_name": "shop"}, at)


def test_notifications_are_appended_and_read_newest_first(tmp_path):
    path = str(tmp_path / "notifications")
    assert read_notifications(path) == []
    log = NotificationLog(path, 15)
    log.add([row(1), row(2)])
    log.add([row(3)])
    assert [one.id for one in read_notifications(path)] == ["id-3", "id-2", "id-1"]
    assert read_notifications(path, limit=1) == [row(3)]


def test_any_delta_reader_sees_the_fields_of_debezium(tmp_path):
    NotificationLog(str(tmp_path / "n"), 15).add([row(1)])
    (found,) = rows(tmp_path / "n")
    assert found["type"] == "IN_PROGRESS"
    assert dict(found["additional_data"]) == {"connector_name": "shop"}
    assert found["timestamp"] == START + timedelta(seconds=1)


def test_many_small_commits_leave_few_files(tmp_path):
    log = NotificationLog(str(tmp_path / "n"), 15)
    for number in range(60):
        log.add([row(number)])
    assert len(DeltaTable(str(tmp_path / "n")).file_uris()) < 30
    assert len(read_notifications(str(tmp_path / "n"))) == 60

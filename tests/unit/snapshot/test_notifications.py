import logging

import pytest

from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.snapshot.notification_table import NotificationTable
from cdc_core.snapshot.notifications import INITIAL, Notification, Notifier, SnapshotStatus, notify_of_snapshot
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport
from tests.support.lake import rows

ORDERS, PEOPLE = TableId("public", "orders"), TableId("public", "people")


def take(told, on_progress=None, error=None):
    with notify_of_snapshot(Notifier("shop", (), told.append), [ORDERS, PEOPLE], on_progress) as listen:
        for table, rows in ((ORDERS, 7), (PEOPLE, 0)):
            listen(SnapshotProgress(table, 0, None, False))
            listen(SnapshotProgress(table, rows, None, False))
            listen(SnapshotProgress(table, rows, None, True, report=SnapshotReport(table, rows, Lsn(1), 0.1, 0)))
            if error:
                raise error


def test_a_snapshot_notifies_of_its_start_each_table_and_its_end():
    told, seen = [], []
    take(told, seen.append)
    assert [one.type for one in told] == [
        SnapshotStatus.STARTED,
        SnapshotStatus.IN_PROGRESS,
        SnapshotStatus.TABLE_SCAN_COMPLETED,
        SnapshotStatus.IN_PROGRESS,
        SnapshotStatus.TABLE_SCAN_COMPLETED,
        SnapshotStatus.COMPLETED,
    ]
    assert {one.aggregate_type for one in told} == {INITIAL}
    assert told[0].additional_data == {"connector_name": "shop", "data_collections": "public.orders,public.people"}
    scanned = [dict(one.additional_data) for one in told if one.type is SnapshotStatus.TABLE_SCAN_COMPLETED]
    assert [(one["scanned_collection"], one["total_rows_scanned"], one["status"]) for one in scanned] == [
        ("public.orders", "7", "SUCCEEDED"),
        ("public.people", "0", "EMPTY"),
    ]
    assert told[-1].additional_data["total_rows_scanned"] == "7"
    assert len(seen) == 6


def test_a_failed_snapshot_notifies_that_it_was_aborted():
    told = []
    with pytest.raises(RuntimeError, match="cut"):
        take(told, error=RuntimeError("cut"))
    assert [one.type for one in told][-2:] == [SnapshotStatus.TABLE_SCAN_COMPLETED, SnapshotStatus.ABORTED]


def test_notifications_are_in_the_table_once_it_is_closed(tmp_path):
    table = NotificationTable(str(tmp_path / "n"), 15)
    take_into(table)
    table.close()
    kept = rows(tmp_path / "n")
    assert len(kept) == 6
    assert {one["type"] for one in kept} == {"STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"}
    assert len({one["id"] for one in kept}) == 6


def take_into(table):
    told = []
    take(told)
    for one in told:
        table.add(one)


def test_a_lake_that_cannot_be_written_to_is_logged_and_ends_nothing(tmp_path, caplog):
    (tmp_path / "n").write_text("no folder")
    table = NotificationTable(str(tmp_path / "n" / "below"), 15)
    with caplog.at_level(logging.WARNING):
        table.add(Notification(INITIAL, SnapshotStatus.STARTED, {}))
        table.close()
    assert "1 notifications could not be written" in caplog.text

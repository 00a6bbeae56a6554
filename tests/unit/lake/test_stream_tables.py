"""The tables of the stream's own: rows once, the columns as declared, and expiry as of changelogs."""

from datetime import UTC, datetime

import pyarrow as pa

from cdc_core.lake.maintenance.retention import DAY_US, expire_changes
from cdc_core.lake.paths import LakePaths
from cdc_core.lake.stores.stream_table import StreamTable
from cdc_core.lake.stores.stream_tables import StreamTables
from tests.support.lake import rows

MESSAGES = StreamTable.MESSAGES


def messages(*places):
    """Messages at (commit LSN, LSN, day)."""
    made = [
        {
            "prefix": "p",
            "content": bytes([lsn]),
            "__lsn": lsn,
            "__commit_lsn": at,
            "__tx_index": lsn,
            "__commit_ts": day * DAY_US,
        }
        for at, lsn, day in places
    ]
    return {MESSAGES: [pa.Table.from_pylist(made, schema=MESSAGES.schema)]}


def lsns(paths):
    return [one["__lsn"] for one in rows(paths.messages, 'select "__lsn" from t order by "__lsn"')]


def test_rows_are_appended_once_in_any_division_and_expire_like_changes(tmp_path):
    paths = LakePaths(str(tmp_path), "shop")
    StreamTables(paths, "slot", 15).append(messages((9, 5, 1), (20, 11, 1)), 20)
    # The slot sends all again to the next run, with the rest of the open transaction.
    again = StreamTables(paths, "slot", 15)
    again.append(messages((9, 5, 1), (20, 11, 1), (20, 12, 1), (30, 30, 4)), None)
    again.append(messages((30, 30, 4)), None)
    assert lsns(paths) == [5, 11, 12, 30]
    # Another epoch has positions of its own.
    StreamTables(paths, "slot@1", 15).append(messages((2, 2, 4)), None)
    assert lsns(paths) == [2, 5, 11, 12, 30]
    assert expire_changes(MESSAGES.path(paths), "slot@1", MESSAGES.id, 2**62, 4 * DAY_US, 2) is not None
    assert lsns(paths) == [2, 30]


def test_rows_expire_by_their_age_and_the_last_one_is_known(tmp_path):
    paths = LakePaths(str(tmp_path), "shop")
    tables = StreamTables(paths, "slot", 15)
    assert tables.last_row(MESSAGES) is None
    tables.append(messages((9, 5, 1), (30, 30, 4)), None)
    assert tables.last_row(MESSAGES) == (30, datetime(1970, 1, 5, tzinfo=UTC))
    tables.expire(MESSAGES, 4 * DAY_US, 2)
    tables.expire(MESSAGES, 4 * DAY_US, 2)
    assert lsns(paths) == [30]

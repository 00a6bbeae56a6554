"""Which changes of the stream a lake table has from its snapshot."""

import pyarrow as pa
import pytest

from cdc_core.lake.rows.shown import ShownByLake


def rows(*positions: tuple[int, int]) -> pa.RecordBatch:
    columns = {"commit_lsn": pa.array([lsn for lsn, _ in positions]), "xid": pa.array([xid for _, xid in positions])}
    return pa.RecordBatch.from_pydict(columns)


@pytest.mark.parametrize(
    ("shown", "found", "expected"),
    [
        (ShownByLake(floor=100), rows((90, 7), (100, 8)), True),
        (ShownByLake(floor=100), rows((100, 7), (101, 8)), False),
        (ShownByLake(floor=100, visible="10:20:12"), rows((100, 12), (101, 9)), True),
        (ShownByLake(floor=100, visible="10:20:12"), rows((101, 12)), False),
        (ShownByLake(floor=100, visible="10:20:12"), rows((101, 20)), False),
        (ShownByLake(visible="10:20:12"), rows((1, 11), (2, 19)), True),
        (ShownByLake(), rows((1, 7)), False),
    ],
    ids=["up to the floor", "after it", "shown after it", "running", "later", "no floor", "no snapshot"],
)
def test_changes_up_to_the_floor_or_of_shown_transactions_are_in_the_lake(shown, found, expected):
    assert shown.has_all(found) is expected

"""A range of a locked table waits once in a task's process, and not for the table of another server."""

from types import SimpleNamespace

import pyarrow as pa
import pytest

from cdc_core.errors import LockedError
from cdc_core.lake import NewFiles, TypingPlan
from cdc_core.schema.table import TableId, TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.snapshot.copy import task
from cdc_core.snapshot.copy.task import CopyRanges, RangeOrder
from cdc_core.types import TypeOptions

TABLE = TableSchema(TableId("public", "t"), 1, ())


@pytest.fixture
def waits(monkeypatch):
    """The servers on which a table was waited for."""
    asked = []

    def copied(self, reader, order):
        asked.append(self.connection)
        raise LockedError(str(order.table.id), 10)

    monkeypatch.setattr(task, "_locked", {})
    monkeypatch.setattr(task, "SnapshotReader", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(CopyRanges, "_copied", copied)
    return asked


def test_two_servers_may_give_their_snapshots_one_name(waits):
    orders = [RangeOrder(TABLE, number, "select", NewFiles("/lake/t", pa.schema([]))) for number in range(2)]
    for server, taken_us in (("one", 1_000), ("two", 1_001)):
        ranges = CopyRanges(TypingPlan(TypeOptions(), SelectionOptions()), server, "00000003-00000002-1", 5, taken_us)
        assert [type(result.error) for result in ranges(orders)] == [LockedError, LockedError]
    assert waits == ["one", "two"]

"""Transactions in progress that exceed their limit: the stream begins anew without them, within the same limits."""

import pytest

from cdc_core.assemble.at_commit import at_commit_if_too_large
from cdc_core.assemble.context import RunContext
from cdc_core.config.connector import from_entries
from cdc_core.engine.reports import BatchReport, StreamReport, Until
from cdc_core.engine.stream.run import Hooks
from cdc_core.errors import InProgressLimitError, UnreachableError
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId

TABLE = TableId("public", "t")


@pytest.fixture
def context(tmp_path):
    entries = {
        "database.hostname": "h",
        "database.user": "u",
        "database.dbname": "d",
        "topic.prefix": "shop",
        "plugin.name": "pgoutput",
        "wal2lake.lake.path": str(tmp_path / "lake"),
        "wal2lake.streaming.transactions": "on",
    }
    return RunContext(from_entries(entries.items()))


class Streams:
    """Two batches of three rows in each attempt; the first ones end with ``errors``."""

    def __init__(self, *errors):
        self.errors, self.calls = list(errors), []

    def __call__(self, context, until, hooks):
        postgres = context.config.postgres
        self.calls.append((postgres.sends_in_progress, until))
        for number in (1, 2):
            hooks.on_batch(BatchReport(number, {TABLE: 3}, Lsn(number), 0, None))
        if self.errors:
            raise self.errors.pop(0)
        return StreamReport(2, 6, Lsn(9), (), 0.1, "lsn")


def test_the_stream_begins_again_and_reads_after_the_commit(context, caplog):
    seen, streams = [], Streams(InProgressLimitError(1000))
    until = Until(lsn=Lsn(9), max_seconds=60.0, max_rows=10)
    report = at_commit_if_too_large(streams, context, until, Hooks(on_batch=seen.append))
    (first, _), (second, left) = streams.calls
    assert (first, second) == (True, False)
    assert (left.lsn, left.max_rows) == (Lsn(9), 4) and 59 < left.max_seconds < 60
    assert (report.batches, report.events, report.stopped_by, len(seen)) == (4, 12, "lsn", 4)
    assert "exceed wal2lake.streaming.transactions.max.bytes (1,000 bytes). Until this run ends" in caplog.text


def test_nothing_changes_without_the_error(context):
    streams = Streams()
    assert at_commit_if_too_large(streams, context, Until(), Hooks()).events == 6
    assert streams.calls == [(True, Until())]


def test_other_errors_are_the_callers(context):
    with pytest.raises(UnreachableError):
        at_commit_if_too_large(Streams(UnreachableError("cut")), context, Until(), Hooks())

"""Rows of the signal table in the stream."""

from cdc_core.decode.pgoutput import StreamState, sort_segment
from cdc_core.decode.segment import Segment
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from cdc_core.schema.table import TableId
from cdc_core.snapshot.signals.rows import signal_rows
from tests.support import plain_pgoutput as plain
from tests.unit.engine.streaming import announce, table_of, transaction

COLUMNS = tuple(RelationColumn(name, 25, -1, name == "id") for name in ("id", "type", "data"))
SIGNALS = Relation(16_500, "shop", "signals", ReplicaIdentity.DEFAULT, COLUMNS)


def test_a_signal_that_is_not_utf8_is_ignored_and_the_others_are_read(caplog):
    rows = [["1", "log", "é"], ["2", "log", b"secret\xff"], ["3", "log", "{}"]]
    changes = transaction(1000, *[plain.insert(SIGNALS.oid, row) for row in rows])
    frames = [plain.frame(each, 100 + place) for place, each in enumerate([*announce(SIGNALS), *changes])]
    found = sort_segment(Segment.of(frames), StreamState(), lambda each, lsn: table_of(each))
    read = signal_rows(found.runs, TableId("shop", "signals"))
    assert [(row.id, row.data, row.lsn) for row in read] == [("1", "é", 102), ("3", "{}", 104)]
    assert "not UTF-8" in caplog.text and "secret" not in caplog.text

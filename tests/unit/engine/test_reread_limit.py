"""A table whose re-reads do not help for long is paused instead of being read for ever."""

from __future__ import annotations

from cdc_core.engine.schema.reread_limit import RereadLimit
from cdc_core.schema.table import TableId

ONE, OTHER = TableId("public", "one"), TableId("public", "other")


def test_an_hour_allows_five_rereads_of_each_table() -> None:
    now = [0.0]
    limit = RereadLimit(lambda: now[0])
    assert [limit.allows(ONE) for _ in range(7)] == [True] * 5 + [False] * 2
    assert limit.allows(OTHER)
    now[0] = 3600.0
    assert limit.allows(ONE)

"""A table whose source repeats a key: the repeated insert waits in quarantine until it is accepted or superseded."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from cdc_core.lake.reduce.multiset import arrivals
from cdc_core.lake.rows.shown import Reached
from cdc_core.lake.slice.order import Replay, WrittenFiles
from cdc_core.lake.slice.reports import QuarantineReport
from cdc_core.quality.options import QualityOptions
from cdc_core.quality.rules import KEY_UNIQUE
from cdc_core.schema.fingerprint import Fingerprint
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import Column, TableId, TableSchema
from tests.support.one_table import SLOT, OneTable, quarantined
from tests.support.spark import change, lake_rows, row_type

KEYED = TableSchema(
    TableId("shop", "item"),
    7,
    (Column("id", PgType(23, "int4"), optional=False), Column("n", PgType(23, "int4"))),
    primary_key=("id",),
    fingerprint=Fingerprint("s", 7, 1, "item", 2, "d", False, (), ()),
)
ROW = row_type(id=pa.int32(), n=pa.int32())


@pytest.fixture
def one(tmp_path):
    made = OneTable(tmp_path, KEYED, ROW)
    made.quality = QualityOptions()
    made.snapshot(1, [])
    return made


def image(key, n):
    return {"id": key, "n": n}


def content(one):
    return sorted((row["id"], row["n"]) for row in one.rows)


def waiting(one):
    rows = lake_rows(one.paths.quarantine(KEYED.id))
    return [row["reasons"] for row in rows if row["status"] == "waiting"]


def test_the_first_of_two_inserts_is_merged_and_the_second_waits_until_it_is_accepted(one):
    one.append([change("c", 8 + n, 0, after=image(key, n)) for n, key in enumerate((1, 2, 1))], whole=10)
    outcome = one.merge(10, token=1)
    assert (content(one), waiting(one)) == ([(1, 0), (2, 1)], [[KEY_UNIQUE]])
    assert [(rule.name, rule.failed) for rule in outcome.done.check.rules if not rule.success] == [(KEY_UNIQUE, 1)]
    # The batch is no longer together, so a replay alone is no reason to let it in.
    assert quarantined(one.merge(11, token=1, replay=Replay())).replayed == 0
    assert waiting(one) == [[KEY_UNIQUE]]
    assert quarantined(one.merge(12, token=1, replay=Replay(accept=(KEY_UNIQUE,)))).replayed == 1
    assert (content(one), waiting(one)) == ([(1, 0), (1, 2), (2, 1)], [])  # as the source has it


def test_a_later_change_supersedes_it(one):
    one.append([change("c", 9 + n, 0, after=image(1, n)) for n in range(2)], whole=10)
    one.merge(10, token=1)
    one.append([change("u", 20, 0, after=image(1, 5))], whole=20)
    one.merge(20, token=1)
    assert (content(one), waiting(one)) == ([(1, 5)], [])


@pytest.mark.parametrize("keys", [((1, 2), (3,)), ((1, 2), (3, 1))])
def test_files_that_tasks_wrote_apart_are_looked_at_together(one, keys):
    changelog = one.open_changelog()
    written, arrived, index = [], [], 0
    order = one.order(10, 1)
    lake = one.tables.prepare(one.run, one.lake, order.schema, one.task.plan, SLOT).lake
    for part in keys:
        rows = one.changes([change("c", 5 + index + n, 0, after=image(key, index + n)) for n, key in enumerate(part)])
        index += len(part)
        written.append(changelog.write(rows))
        arrived.append(lake.write(arrivals(rows, lake.schema)))
    files = WrittenFiles(tuple(written), tuple(arrived), Reached(10, None))
    outcome = one.task(replace(order, append=files, merge=replace(order.merge, has_backlog=False)))
    assert outcome.error is None
    assert content(one) == [(1, 0), (2, 1), (3, 2)]
    assert outcome.done.quarantined == (QuarantineReport(1) if keys[1] == (3, 1) else None)

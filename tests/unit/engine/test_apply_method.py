"""How a slice is applied: the tables in ``engine/slice/apply_method``, row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cdc_core.engine.slice import apply_method
from cdc_core.engine.slice.apply_method import ApplyMethod, Limits, method_for, method_for_parts
from cdc_core.lake.apply.strategy import MergeStrategy
from cdc_core.lake.delete_modes import DeleteMode
from cdc_core.lake.options import MergeEngine
from cdc_core.lake.rows.survey import Survey
from cdc_core.lake.schema.lake_schema import lake_schema
from tests.support.spark import row_type

MOST = 1_000
EITHER, ONLY_ARROW = True, False
AUTO, ARROW, SPARK, VECTORS = MergeEngine.AUTO, MergeEngine.ARROW, MergeEngine.SPARK, MergeEngine.VECTORS


class Changes:
    """Prepared changes of which nothing but the strategy is asked."""

    def __init__(self, strategy: MergeStrategy) -> None:
        self.strategy = strategy


class Lake:
    """A table of which nothing but the schema is asked."""

    def __init__(self, mode: DeleteMode = DeleteMode.HARD) -> None:
        self.schema = lake_schema(row_type(k=pa.string()), mode)


def written_by(monkeypatch: pytest.MonkeyPatch, writer: bool, octets: int = 0) -> None:
    monkeypatch.setattr(apply_method, "can_be_written_by_spark", lambda lake: writer)
    monkeypatch.setattr(apply_method, "bytes_to_scan", lambda lake, changes: octets)


@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("engine", list(MergeEngine))
@pytest.mark.parametrize("writer", [EITHER, ONLY_ARROW])
def test_inserts_are_added(monkeypatch: pytest.MonkeyPatch, writer: bool, engine: MergeEngine, marks: bool) -> None:
    written_by(monkeypatch, writer, 10 * MOST)
    lake: Any = Lake()
    changes: Any = Changes(MergeStrategy.APPEND)
    assert method_for(lake, changes, Limits(engine, MOST, marks)) is ApplyMethod.ADD


@pytest.mark.parametrize(
    ("writer", "engine", "marks", "octets", "expected"),
    [
        (EITHER, AUTO, False, MOST, ApplyMethod.FILES),
        (EITHER, AUTO, False, MOST + 1, ApplyMethod.SPARK),
        (EITHER, AUTO, True, MOST + 1, ApplyMethod.FILES),
        (EITHER, ARROW, False, MOST + 1, ApplyMethod.FILES),
        (EITHER, VECTORS, False, MOST + 1, ApplyMethod.FILES),
        (EITHER, SPARK, True, 0, ApplyMethod.SPARK),
        (ONLY_ARROW, SPARK, False, MOST + 1, ApplyMethod.FILES),
        (ONLY_ARROW, AUTO, False, MOST + 1, ApplyMethod.FILES),
    ],
)
@pytest.mark.parametrize("strategy", [each for each in MergeStrategy if each is not MergeStrategy.APPEND])
def test_other_changes(
    monkeypatch: pytest.MonkeyPatch,
    strategy: MergeStrategy,
    writer: bool,
    engine: MergeEngine,
    marks: bool,
    octets: int,
    expected: ApplyMethod,
) -> None:
    written_by(monkeypatch, writer, octets)
    lake: Any = Lake()
    changes: Any = Changes(strategy)
    assert method_for(lake, changes, Limits(engine, MOST, marks)) is expected


INSERTS = Survey({"c": 5}, None, 0, 0)
MIXED = Survey({"c": 4, "u": 1}, None, 0, 0)
TRUNCATED = Survey({"c": 4, "t": 1}, (9, 0), 0, 0)


@pytest.mark.parametrize(
    ("whole", "mode", "overlaps", "engine", "marks", "row_bytes", "expected"),
    [
        (INSERTS, DeleteMode.HARD, False, SPARK, False, 10, ApplyMethod.ADD),
        (INSERTS, DeleteMode.HISTORY, False, SPARK, False, 10, ApplyMethod.ADD),
        (INSERTS, DeleteMode.SOFT, False, SPARK, False, 10, ApplyMethod.SPARK),
        (INSERTS, DeleteMode.HARD, True, SPARK, False, 10, ApplyMethod.SPARK),
        (TRUNCATED, DeleteMode.HARD, True, SPARK, False, 10, ApplyMethod.ADD),
        (TRUNCATED, DeleteMode.SOFT, False, SPARK, False, 10, ApplyMethod.SPARK),
        (MIXED, DeleteMode.HARD, False, AUTO, False, 10, ApplyMethod.SPARK),
        (MIXED, DeleteMode.HARD, False, AUTO, True, 10, ApplyMethod.FILES),
        (MIXED, DeleteMode.HARD, False, ARROW, False, 10, ApplyMethod.FILES),
        (MIXED, DeleteMode.HARD, False, VECTORS, False, 10, ApplyMethod.FILES),
        (MIXED, DeleteMode.HARD, False, SPARK, True, 10, ApplyMethod.SPARK),
        (MIXED, DeleteMode.HARD, False, SPARK, False, apply_method.WIDE_ROW_BYTES, ApplyMethod.FILES),
    ],
)
def test_parts(
    monkeypatch: pytest.MonkeyPatch,
    whole: Survey,
    mode: DeleteMode,
    overlaps: bool,
    engine: MergeEngine,
    marks: bool,
    row_bytes: int,
    expected: ApplyMethod,
) -> None:
    lake: Any = Lake(mode)
    limits = Limits(engine, MOST, marks)
    written_by(monkeypatch, EITHER)
    found = method_for_parts(lake, whole, limits, has_key=True, overlaps=overlaps, row_bytes=row_bytes)
    assert found is expected

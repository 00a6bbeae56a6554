"""Which engine writes a lake table, by its features and the names of its columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from cdc_core.lake.schema.features import Writer, writer_of

PLAIN = pa.schema([("id", pa.int64())])


@dataclass
class Lake:
    features: frozenset[str] = frozenset()
    schema: pa.Schema = field(default_factory=lambda: PLAIN)

    @property
    def has_deletion_vectors(self) -> bool:
        return "deletionVectors" in self.features


@pytest.mark.parametrize(
    ("features", "name", "expected"),
    [
        ((), "id", Writer(True, True, True, True)),
        (("timestampNtz", "appendOnly"), "id", Writer(True, True, True, True)),
        (("columnMapping",), "id", Writer(False, False, False, True)),
        (("clustering", "domainMetadata"), "a b", Writer(False, False, False, True)),
        (("deletionVectors",), "id", Writer(True, True, True, True)),
        (("deletionVectors", "rowTracking"), "id", Writer(True, False, False, True)),
        (("changeDataFeed",), "id", Writer(True, True, False, True)),
        (("changeDataFeed",), "a b", Writer(True, True, False, True)),
        ((), "a b", Writer(True, True, True, False)),
    ],
)
def test_who_writes_a_table(features: tuple[str, ...], name: str, expected: Writer) -> None:
    lake = Lake(frozenset(features), pa.schema([(name, pa.int64())]))
    assert writer_of(lake) == expected  # type: ignore[arg-type]


def test_the_columns_to_be_written_decide() -> None:
    assert not writer_of(Lake(), pa.schema([("a;b", pa.int64())])).spark_rewrites  # type: ignore[arg-type]

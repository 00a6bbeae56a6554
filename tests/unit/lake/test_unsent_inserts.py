"""An insert that omits values is an UPDATE that made a row pass a row filter: it is not merged as a row with nulls."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cdc_core.errors import RereadNeededError
from cdc_core.lake.rows.survey import check_inserts
from cdc_core.schema.table import TableId

TABLE = TableId("public", "orders")


def changes(*rows: tuple[str, list[str] | None]) -> pa.Table:
    ops, unsent = zip(*rows, strict=True)
    return pa.table({"__op": pa.array(ops), "__unchanged": pa.array(unsent, pa.list_(pa.string()))})


def test_an_insert_that_omits_values_needs_a_reread() -> None:
    check_inserts(changes(("c", []), ("u", ["note"]), ("d", None), ("c", None)), TABLE)
    with pytest.raises(RereadNeededError, match="row filter") as raised:
        check_inserts(changes(("c", []), ("u", ["note"]), ("c", ["other", "note"])), TABLE)
    assert "REPLICA IDENTITY FULL" in raised.value.remedy and raised.value.table == str(TABLE)

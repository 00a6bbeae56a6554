"""Text that no server writes, on the lake's road: named without its value, and never lost unless it stops the run."""

from __future__ import annotations

import logging
import pickle

import pyarrow as pa
import pytest

from cdc_core.decode.pgoutput import StreamState, decode_rows, sort_segment
from cdc_core.decode.raw_columns import RawColumns
from cdc_core.decode.segment import Segment
from cdc_core.errors import ConversionError
from cdc_core.lake.rows.change_rows import RESCUED, RowTyper
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.schema.pg_type import PgType, TypeKind
from cdc_core.schema.relation import Relation, RelationColumn, ReplicaIdentity
from cdc_core.schema.table import Column, TableId, TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import FailureHandlingMode, TypeOptions
from tests.support import plain_pgoutput as plain

_TYPES = {
    "id": PgType(23, "int4"),
    "born": PgType(1082, "date"),
    "paid": PgType(1700, "numeric"),
    "seen": PgType(1184, "timestamptz"),
    "at": PgType(1114, "timestamp"),
    "days": PgType(1182, "_date", kind=TypeKind.ARRAY, inner=PgType(1082, "date")),
}
TABLE = TableSchema(
    TableId("shop", "people"), 16_400, tuple(Column(name, found) for name, found in _TYPES.items()), ("id",)
)
RELATION = Relation(
    16_400,
    "shop",
    "people",
    ReplicaIdentity.DEFAULT,
    tuple(RelationColumn(name, found.oid, -1, name == "id") for name, found in _TYPES.items()),
)
GOOD = ["1", "2020-01-02", "1.5", "2020-01-02 03:04:05+00", "2020-01-02 03:04:05", "{2020-01-02}"]
# True values that a lake's types have no room for.
MISFITS = ["2", "infinity", "NaN", "0044-03-15 12:00:00+00 BC", "294276-12-31 23:59:59.999999", "{-infinity,NULL}"]
LSN = 0x1_0000_0200


def typer(mode: FailureHandlingMode) -> RowTyper:
    return TypingPlan(TypeOptions(), SelectionOptions(), mode).typer(TABLE)


def changes(mode: FailureHandlingMode, *rows: list[str]) -> pa.RecordBatch:
    """The change rows of crafted messages: one insert a row, at LSN, LSN + 1 and so on."""
    inserts = [plain.frame(plain.insert(16_400, list(row)), LSN + place) for place, row in enumerate(rows)]
    frames = [
        plain.frame(plain.begin(LSN + 9, 0, 7), LSN),
        plain.frame(plain.relation_message(RELATION)),
        *inserts,
        plain.frame(plain.commit(LSN + 9, LSN + 10, 0), LSN + 9),
    ]
    (run,) = sort_segment(Segment.of(frames), StreamState(), lambda relation, xid: TABLE).runs
    return typer(mode).changes(run.raw, decode_rows(run.raw, run.relation))


def with_value(name: str, text: str) -> list[str]:
    return [text if column == name else value for column, value in zip(_TYPES, GOOD, strict=True)]


@pytest.mark.parametrize("mode", FailureHandlingMode)
def test_true_values_without_room_are_rescued_in_every_mode(
    mode: FailureHandlingMode, caplog: pytest.LogCaptureFixture
) -> None:
    after = changes(mode, GOOD, MISFITS).column("after").to_pylist()
    assert after[0][RESCUED] is None and all(after[0][name] is not None for name in _TYPES)
    texts = dict(zip(_TYPES, MISFITS, strict=True))
    assert dict(after[1][RESCUED]) == {name: text for name, text in texts.items() if name != "id"}
    assert all(after[1][name] is None for name in _TYPES if name != "id")
    assert not caplog.records


UNREADABLE = [
    ("id", "seven"),
    ("id", "99999999999"),
    ("born", "2020-13-40"),
    ("paid", "1,5"),
    ("seen", "2020-01-02 03:04:05+zz"),
    ("at", "yesterday"),
    ("days", "{2020-01-02,never}"),
    ("days", "2020-01-02"),
]


@pytest.mark.parametrize(("name", "text"), UNREADABLE)
def test_fail_names_table_column_place_and_form_but_no_value(name: str, text: str) -> None:
    with pytest.raises(ConversionError) as caught:
        changes(FailureHandlingMode.FAIL, GOOD, MISFITS, with_value(name, text))
    assert str(caught.value).startswith(
        f"Column {name} of shop.people holds 1 value(s) at LSN 1/202 that cannot be read:"
        f" expected text of type {_TYPES[name].name}."
    )
    assert text not in str(caught.value)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(("name", "text"), UNREADABLE)
@pytest.mark.parametrize(
    ("mode", "lines"), [(FailureHandlingMode.WARN, 1), (FailureHandlingMode.SKIP, 0)], ids=["warn", "skip"]
)
def test_warn_and_skip_continue_and_keep_the_text(
    mode: FailureHandlingMode, lines: int, name: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        after = changes(mode, with_value(name, text), GOOD).column("after").to_pylist()
    assert after[0][name] is None and after[0][RESCUED] == [(name, text)]
    assert after[1][RESCUED] is None
    assert len(caplog.records) == lines and text not in caplog.text
    assert all(f"Column {name} of shop.people" in record.getMessage() for record in caplog.records)


def test_rows_of_a_snapshot_are_judged_too() -> None:
    text = tuple(pa.array([value], pa.string()) for value in with_value("born", "never"))
    columns = RawColumns(tuple(_TYPES), text, (None,) * len(text))
    with pytest.raises(ConversionError, match=r"Column born of shop\.people holds 1 value\(s\) that cannot be read"):
        typer(FailureHandlingMode.FAIL).reads(columns, LSN, 0)
    assert typer(FailureHandlingMode.WARN).reads(columns, LSN, 0).column(RESCUED).to_pylist() == [[("born", "never")]]

"""Which tables are captured, and in which order."""

import pytest

from cdc_core.schema.table import TableId
from cdc_core.selection.options import SelectionOptions
from cdc_core.selection.tables import TableSelection


def includes(name, **options):
    return TableSelection(SelectionOptions(**options)).includes(TableId(*name.split(".", 1)))


@pytest.mark.parametrize(
    ("name", "options", "captured"),
    [
        ("public.orders", {}, True),
        ("public.orders", {"schema_include_list": ("inventory",)}, False),
        ("Inventory.orders", {"schema_include_list": ("inventory",)}, True),
        ("inventory2.orders", {"schema_include_list": ("inventory",)}, False),
        ("inventory.orders", {"schema_exclude_list": ("inv.*",)}, False),
        ("public.orders", {"schema_exclude_list": ("inv.*",)}, True),
        ("inventory.orders", {"table_include_list": ("inventory.orders",)}, True),
        ("inventory.ORDERS", {"table_include_list": ("inventory.orders",)}, True),
        ("inventory.orders2", {"table_include_list": ("inventory.orders",)}, False),
        ("public.orders", {"table_include_list": ("orders",)}, False),
        ("public.orders", {"table_include_list": (".*\\.orders",)}, True),
        ("inventory.orders", {"table_exclude_list": ("inventory.orders",)}, False),
        ("inventory.orders", {"schema_include_list": ("inventory",), "table_include_list": ("public.*",)}, False),
        ("public.orders", {"schema_include_list": ("inventory",), "table_include_list": ("public.*",)}, False),
        ("a.b", {"table_include_list": ("a.b",), "table_exclude_list": ("a.b",)}, True),
        ("We ird-Näme.Tä ble", {"table_include_list": ("We ird-Näme.Tä ble",)}, True),
    ],
)
def test_lists_decide_by_whole_names(name, options, captured):
    assert includes(name, **options) is captured


@pytest.mark.parametrize(
    "name",
    ["pg_catalog.pg_class", "information_schema.tables", "pg_temp_3.t", "pg_toast.t", "public.spatial_ref_sys"],
)
def test_the_systems_own_tables_are_left_out_whatever_the_lists_say(name):
    assert not includes(name, table_include_list=(".*",))
    assert includes(name, table_include_list=(".*",), table_ignore_builtin=False)


def test_the_signal_table_is_captured_whatever_the_lists_say():
    options = {"schema_include_list": ("inventory",), "signal_data_collection": "public.Signals"}
    assert includes("public.signals", **options)
    assert not includes("public.other", **options)


def test_snapshots_go_by_the_include_lists_order_then_by_name():
    tables = [TableId("s", name) for name in ("signal", "c", "b2", "b1", "a")]
    selection = TableSelection(
        SelectionOptions(table_include_list=("s.c", "s.b.*", "s.*a"), signal_data_collection="s.signal")
    )
    ordered = [table.table for table in sorted(tables, key=selection.position)]
    assert ordered == ["c", "b1", "b2", "a", "signal"]


def test_without_an_include_list_snapshots_go_by_name():
    selection = TableSelection(SelectionOptions(signal_data_collection="s.b"))
    tables = [TableId("t", "a"), TableId("s", "c"), TableId("s", "b"), TableId("s", "B")]
    assert [str(table) for table in sorted(tables, key=selection.position)] == ["s.B", "s.b", "s.c", "t.a"]


def test_a_snapshot_can_be_narrowed():
    selection = TableSelection(SelectionOptions(table_exclude_list=("s.x",)), ("s.a", "s.x"))
    tables = [TableId("s", name) for name in ("a", "b", "x")]
    assert [selection.includes_in_snapshot(table) for table in tables] == [True, False, False]
    assert [selection.includes(table) for table in tables] == [True, True, False]

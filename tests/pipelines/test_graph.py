import zlib
from dataclasses import replace

import dagster as dg
import pyarrow as pa

from cdc_core.described import type_text
from cdc_core.lake.names import META
from cdc_core.lsn import Lsn
from cdc_core.observe.options import CheckLevel
from cdc_core.schema.table import TableId
from cdc_core.snapshot.incremental.reports import IncrementalProgress, KeyRange, RangeReport
from cdc_core.snapshot.reports import SnapshotReport
from tests.pipelines.fake import ORDERS, PEOPLE, WEIRD, FakeEngine, site, table
from wal2lake.pipelines.connector.files import BrokenConnector
from wal2lake.pipelines.connector.key_parts import part, table_parts
from wal2lake.pipelines.connector.keys import (
    changes_key,
    incremental_key,
    lake_key,
    maintenance_key,
    snapshot_key,
    source_key,
)
from wal2lake.pipelines.connector.site import KnownTable
from wal2lake.pipelines.factory import definitions_of
from wal2lake.pipelines.reports import metadata
from wal2lake.pipelines.reports.columns import column_lineage, lake_columns
from wal2lake.pipelines.reports.stream_tally import ChangesTotals, TableTotals

SITE = site(FakeEngine())
TABLES = (ORDERS, PEOPLE, WEIRD)


def graph():
    return definitions_of([SITE]).resolve_asset_graph()


def test_each_table_has_its_source_and_its_lake_table_and_the_way_between_is_drawn():
    nodes = graph()
    for one in TABLES:
        assert nodes.get(source_key(SITE, one)).is_external
        parents = {source_key(SITE, one), changes_key(SITE), snapshot_key(SITE)}
        assert nodes.get(lake_key(SITE, one)).parent_keys == parents
        # No other source is upstream of it.
        assert nodes.get_ancestor_asset_keys(lake_key(SITE, one)) == parents


def test_every_job_has_a_name_that_says_what_it_is():
    names = definitions_of([SITE]).get_repository_def().job_names
    # Dagster's own job of whatever is pressed on an asset's page; anonymous ones are those of unnamed selections.
    assert {name for name in names if not name.startswith("shop_")} == {"__ASSET_JOB"}


def test_a_snapshot_is_one_partition_a_table_and_a_backfill_one_run():
    node = graph().get(snapshot_key(SITE))
    assert isinstance(node.partitions_def, dg.DynamicPartitionsDefinition)
    assert node.backfill_policy == dg.BackfillPolicy.single_run()


def test_snapshot_and_stream_share_the_pool_of_the_slot():
    nodes = graph()
    assert nodes.get(snapshot_key(SITE)).pools == {SITE.pool}
    assert nodes.get(changes_key(SITE)).pools == {SITE.pool}


def test_the_checks_of_a_lake_table_hold_back_what_depends_on_it_if_they_are_set_to():
    strict = replace(SITE, check_levels={"merged": CheckLevel.BLOCK, "great_expectations": CheckLevel.WARN})
    nodes = definitions_of([strict]).resolve_asset_graph()
    checks = [nodes.get(key) for key in nodes.asset_check_keys if key.asset_key == lake_key(SITE, ORDERS)]
    names = {"merged", "great_expectations", "equal_to_source"}
    assert {check.key.name for check in checks} == names
    assert {check.key.name for check in checks if check.blocking} == {"merged"}


def test_every_check_can_be_executed_alone_and_takes_neither_slot_nor_spark():
    repository = definitions_of([SITE])
    nodes = repository.resolve_asset_graph()
    for key in nodes.asset_check_keys:
        assert nodes.get_execution_set_asset_and_check_keys(key) == {key}, key
    job = repository.resolve_implicit_global_asset_job_def()
    for name in ("shop_checks", "shop_reconcile", "shop_slot"):
        op = job.graph.node_named(name).definition
        assert not op.pools
        assert not op.required_resource_keys


def test_a_stream_evaluates_no_check_in_a_step_of_its_own():
    job = definitions_of([SITE]).resolve_job_def("shop_stream_job")
    assert {node.name for node in job.nodes} == {"shop_stream"}


def test_columns_of_source_and_lake_and_kinds_are_shown():
    fields = [pa.field("id", pa.int64()), pa.field("name", pa.string()), *META, pa.field("gone", pa.list_(pa.date32()))]
    here = replace(SITE, lake_fields=lambda schema: fields, lake_path="lake")
    nodes = definitions_of([here]).resolve_asset_graph()
    source = nodes.get(source_key(here, ORDERS)).metadata["dagster/column_schema"].columns
    assert [(column.name, column.type, column.constraints.nullable) for column in source] == [
        ("id", "int8", False),
        ("name", "varchar(20)", True),
    ]
    lake = nodes.get(lake_key(here, ORDERS))
    told = {column.name: (column.type, column.description) for column in lake.metadata["dagster/column_schema"].columns}
    assert list(told) == ["id", "name", "__commit_lsn", "__tx_index", "__commit_ts", "gone"]
    assert told["id"] == ("bigint", "int8 in PostgreSQL")
    assert told["name"] == ("string", "varchar(20) in PostgreSQL")
    assert told["__commit_ts"] == ("timestamp", "Time of that commit.")
    assert told["gone"][0] == "array<date>"
    assert lake.metadata["table"] == "public.orders"
    assert lake.metadata["path"].value.endswith("lake/shop/public/orders")
    assert lake.kinds == {"delta", "spark"}


def test_a_lake_column_has_its_source_and_comment_also_if_its_case_differs():
    from cdc_core.schema.pg_type import PgType
    from cdc_core.schema.table import Column, TableSchema

    numeric = Column("Total", PgType(1700, "numeric"), modifier=(12 << 16 | 2) + 4, comment="in euros")
    (found,) = lake_columns(TableSchema(ORDERS, 1, (numeric,)), [pa.field("total", pa.decimal128(12, 2))]).columns
    told = (found.name, found.type, found.description)
    assert told == ("total", "decimal(12,2)", "numeric(12,2) in PostgreSQL, Total. in euros")


def test_the_type_of_a_numeric_column_has_precision_and_scale():
    from cdc_core.schema.pg_type import PgType, TypeKind
    from cdc_core.schema.table import Column

    numeric = PgType(1700, "numeric")
    assert type_text(Column("n", numeric, modifier=(12 << 16 | 2) + 4)) == "numeric(12,2)"
    assert type_text(Column("n", numeric)) == "numeric"
    assert type_text(Column("n", PgType(1, "_numeric", kind=TypeKind.ARRAY, inner=numeric))) == "numeric[]"


def test_two_connectors_stand_side_by_side():
    both = definitions_of([SITE, site(FakeEngine(), name="other.one")])
    assert both.resolve_asset_graph().has(changes_key(site(FakeEngine(), name="other.one")))
    assert {"shop_stream_job", "other_one_stream_job"} <= {job.name for job in both.resolve_all_job_defs()}


def test_a_broken_file_is_shown_beside_the_others(tmp_path):
    broken = BrokenConnector(tmp_path / "bad-one.properties", "slot.nme is unknown")
    spec = definitions_of([SITE], [broken]).resolve_asset_graph().get(dg.AssetKey([part("bad-one"), "cannot_be_read"]))
    assert "slot.nme is unknown" in spec.description


def test_every_asset_has_its_owners_tags_group_and_a_description():
    owned = site(FakeEngine(), owners=("team:data", "ann@example.org"), tags={"domain": "sales"})
    nodes = definitions_of([owned]).resolve_asset_graph()
    for key in nodes.get_all_asset_keys():
        node = nodes.get(key)
        assert set(node.owners) == {"team:data", "ann@example.org"}, key
        assert node.tags["domain"] == "sales", key
        kind = key.path[1] if key.path[1] in ("source", "lake", "maintenance") else ""
        assert node.group_name == (f"shop_{kind}" if kind else "shop")
        assert node.description
        assert node.kinds


def test_the_metadata_of_reports_are_described_with_their_asset():
    """Dagster's metadata have no descriptions of their own."""
    nodes = graph()
    ranged = KeyRange(ORDERS, 1, 1)
    progress = IncrementalProgress(ORDERS, 10, 1, 0, 2, 1.0, 20)
    told = {
        changes_key(SITE): metadata.changes(ChangesTotals()),
        lake_key(SITE, ORDERS): metadata.table(TableTotals(rounds=1)),
        snapshot_key(SITE): metadata.snapshot(SnapshotReport(ORDERS, 10, Lsn(1), 0.5, 1)),
        incremental_key(SITE): metadata.key_range(RangeReport(ranged, 10, is_applied=True))
        | metadata.incremental_progress(progress),
    }
    for key, entries in told.items():
        missing = [name for name in entries if f"`{name}`" not in nodes.get(key).description]
        assert not missing, key


def test_no_two_assets_look_alike_in_a_list():
    names = [key.path[-1] for key in graph().get_all_asset_keys()]
    assert len(set(names)) == len(names)


def test_each_lake_column_has_its_source_column(tmp_path):
    schema = table(ORDERS)
    lineage = column_lineage(schema, source_key(SITE, ORDERS), ["ID", "__commit_lsn"])
    assert lineage.deps_by_column == {
        "ID": [dg.TableColumnDep(asset_key=source_key(SITE, ORDERS), column_name="id")],
    }


def test_a_sources_comment_is_its_description():
    commented = KnownTable(ORDERS, replace(table(ORDERS), comment="What customers bought."))
    here = replace(SITE, tables=(commented,))
    node = definitions_of([here]).resolve_asset_graph().get(source_key(here, ORDERS))
    assert node.description.startswith("What customers bought.\n\nTable public.orders of the PostgreSQL")


def test_names_that_dagster_refuses_are_escaped_without_meeting():
    assert part("orders_1") == "orders_1"
    assert part("täb-le.x") == f"tab_le_x_{zlib.crc32('täb-le.x'.encode()) & 0xFFFF:04x}"
    assert source_key(SITE, TableId("public", "é")).path[-1] == f"{part('é')}_source"
    assert len({part("a-b"), part("a_b"), part("a b"), part("a.b")}) == 4


def test_every_table_has_a_key_of_its_own():
    apart = [TableId("public", f"t_{n}") for n in range(40)]
    by_chance = [TableId("public", "库存库存"), TableId("public", "付款积分")]
    of_a_number = [TableId("public", "a-b"), TableId("public", part("a-b")), TableId("public", part("库存库存"))]
    joined = [TableId("a", "b__c"), TableId("a__b", "c"), TableId("a_", "_b__c"), TableId("a", "b__c_1")]
    # Of some hundred names with the same readable part, two have the same short number.
    many = [TableId("public", chr(0x4E00 + n)) for n in range(400)]
    short = [TableId("public", f"x{mark}") for n in range(1, 400) for mark in ("-" * (n % 40) + "." * (n // 40) + "-",)]
    tables = [*apart, *by_chance, *of_a_number, *joined]
    here = replace(SITE, tables=tuple(KnownTable(one, table(one)) for one in tables))
    nodes = definitions_of([here]).resolve_asset_graph()
    for key_of in (lake_key, source_key, maintenance_key):
        keys = {key_of(here, one) for one in tables}
        assert len(keys) == len(tables) and all(nodes.has(key) for key in keys)
    parts = table_parts([*tables, *many, *short])
    assert len({"__".join(each) for each in parts.values()}) == len(parts) == len({*tables, *many, *short})
    assert parts == table_parts(reversed([*tables, *many, *short]))
    assert all(parts[one] == tuple(one) for one in [*apart, joined[0], of_a_number[1]])

"""What the tests of every catalog share: an entry, and what a catalog promises of it."""

from __future__ import annotations

import dataclasses

import pytest

from cdc_core.catalogs.entry import CatalogClient, CatalogEntry, EntryName, TakenError
from cdc_core.described import DescribedColumn, DescribedTable
from cdc_core.schema.table import TableId

LAKE = "s3a://bucket/lake/shop"
COLUMNS = (
    DescribedColumn("id", "int", "", "id"),
    DescribedColumn("amount", "decimal(12,2)", "in euros", "amount"),
    DescribedColumn("tags", "array<string>", "", "tags"),
    DescribedColumn("address", "struct<street:string,at:map<string,decimal(4,1)>>", "", "address"),
    DescribedColumn("at", "timestamp_ntz", "", "at"),
    DescribedColumn("__rescued", "map<string,string>", "Values that do not fit."),
)


def entry(name: str = "public_orders", lake: str = LAKE, owner: str = "Data Team") -> CatalogEntry:
    """An entry in the database shop."""
    table = DescribedTable(TableId("public", name.partition("_")[2]), "Orders", (), COLUMNS, f"{lake}/{name}")
    return CatalogEntry(EntryName("shop", name), table, lake, owner)


def changed(before: CatalogEntry) -> CatalogEntry:
    """The same table with another column and another comment."""
    columns = (*before.table.lake, DescribedColumn("extra", "string", "added", "extra"))
    return dataclasses.replace(before, table=dataclasses.replace(before.table, lake=columns, comment="All orders"))


def keeps_its_promises(catalog: CatalogClient) -> None:
    """Entries are made, changed, listed and removed; each of it may be repeated; what is not ours stays."""
    orders = entry()
    catalog.check()
    assert list(catalog.own("shop")) == []
    for _ in range(2):
        catalog.put(orders)
        assert list(catalog.own("shop")) == [orders.name]
    for name in ("public_a", "public_b", "public_c"):
        catalog.put(entry(name))
    assert sorted(name.table for name in catalog.own("shop")) == ["public_a", "public_b", "public_c", "public_orders"]
    elsewhere = entry(lake="s3a://other/lake")
    with pytest.raises(TakenError, match=r"shop\.public_orders is a table at .*public\.orders is not registered"):
        catalog.put(elsewhere)
    for _ in range(2):
        catalog.remove(EntryName("shop", "public_a"))
    assert sorted(name.table for name in catalog.own("shop")) == ["public_b", "public_c", "public_orders"]


def leaves_others_alone(ours: CatalogClient, theirs: CatalogClient) -> None:
    """Neither removes, nor lists as its own, what the other has registered."""
    theirs.put(entry("public_people", lake="s3a://other/lake"))
    assert EntryName("shop", "public_people") not in list(ours.own("shop"))
    ours.remove(EntryName("shop", "public_people"))
    assert EntryName("shop", "public_people") in list(theirs.own("shop"))

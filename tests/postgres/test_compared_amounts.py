"""A comparison reads money in a form of its own: as numeric, not by its text."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from cdc_core.lake.compare.amounts import ComparedAmounts
from cdc_core.lake.compare.source_side import typed
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.postgres.catalog.tables import Catalog
from cdc_core.postgres.connection import connect
from cdc_core.schema.pg_type import PgType
from cdc_core.schema.table import TableSchema
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.codec import NaturalConverter
from cdc_core.types.options import TypeOptions
from tests.support.cluster import Cluster
from tests.support.postgres_options import options_for

pytestmark = pytest.mark.postgres

SCHEMA = """
create domain price as money;
create table t (id int, "m""x" money, p price, n numeric(5, 2), t text, hidden money);
insert into t values (1, '1234.56', '-0.01', 1.5, 'a,b', '1'),
    (2, null, '-92233720368547758.08', null, e'\\t', '2'), (3, '92233720368547758.07', '0', 0, '', '3');
"""
OPTIONS = SelectionOptions(column_exclude_list=("public.t.hidden",))


def with_scale(table: TableSchema, scale: int) -> TableSchema:
    """The table in a database whose money has so many decimals."""

    def scaled(kind: PgType) -> PgType:
        inner = None if kind.inner is None else scaled(kind.inner)
        return dataclasses.replace(kind, inner=inner, scale=scale if kind.name == "money" else None)

    columns = tuple(dataclasses.replace(column, type=scaled(column.type)) for column in table.columns)
    return dataclasses.replace(table, columns=columns)


def test_amounts_do_not_depend_on_how_text_is_read(pg: Cluster) -> None:
    database = pg.database("amounts")
    pg.execute(database, SCHEMA)
    units = {"m": [123456, None, 2**63 - 1], "p": [-1, -(2**63), 0]}
    with connect(options_for(pg, database)) as connection:
        [table] = Catalog(connection).tables(lambda name: name.table == "t")
        for scale in (0, 2, 3, 10):
            typer = TypingPlan(TypeOptions(), OPTIONS).typer(with_scale(table, scale))
            # Whatever reads money's text.
            codecs = tuple(
                dataclasses.replace(codec, natural=NaturalConverter(codec.natural.arrow_type, refuse))
                if column.name in ('m"x', "p")
                else codec
                for column, codec in zip(typer.table.columns, typer.codecs, strict=True)
            )
            form = ComparedAmounts.of(dataclasses.replace(typer, codecs=codecs))
            names = ", ".join('"{}"'.format(name.replace('"', '""')) for name in typer.read_columns)
            with connection.cursor().copy(
                f"COPY ({form.select(f'SELECT {names} FROM public.t')}) TO STDOUT".encode()
            ) as copy:
                lines = b"".join(bytes(part) for part in copy)
            rows = typed(form.typer, lines, 1, 1)
            assert rows.schema == typer.read_schema
            for name, numbers in (('m"x', units["m"]), ("p", units["p"])):
                wanted = [None if number is None else Decimal(number).scaleb(-scale) for number in numbers]
                assert rows.column(name).to_pylist() == wanted
            assert rows.column("t").to_pylist() == ["a,b", "\t", ""]
            assert not any(rows.column("__rescued").to_pylist())
    pg.drop_database(database)


def test_rows_without_money_are_selected_as_they_are(pg: Cluster) -> None:
    database = pg.database("amounts")
    pg.execute(database, "create table t (id int, ms money[])")
    with connect(options_for(pg, database)) as connection:
        [table] = Catalog(connection).tables(lambda name: name.table == "t")
    typer = TypingPlan(TypeOptions(), SelectionOptions()).typer(table)
    assert ComparedAmounts.of(typer) == ComparedAmounts(typer)
    assert ComparedAmounts.of(typer).select("SELECT 1") == "SELECT 1"
    pg.drop_database(database)


def refuse(text: pa.Array) -> Any:
    raise AssertionError("money's text is read")

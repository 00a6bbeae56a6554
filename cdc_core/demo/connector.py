"""The demo's connector file."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cdc_core.demo.server import DATABASE
from cdc_core.postgres import PostgresOptions
from cdc_core.schema import TableId

_CONNECTOR = """\
# What a Debezium user would write, and below it what wal2lake adds.
name=shop
connector.class=io.debezium.connector.postgresql.PostgresConnector
plugin.name=pgoutput
database.hostname={host}
database.port={port}
database.user=postgres
database.dbname={database}
topic.prefix=shop
schema.include.list=shop
table.include.list={tables}
slot.name=wal2lake_demo
publication.name=wal2lake_demo
publication.autocreate.mode=filtered
skipped.operations=none

wal2lake.lake.path={folder}/lake
wal2lake.state.path={folder}/state
wal2lake.spark.spark.driver.memory=2g
"""


def connector_text(options: PostgresOptions, folder: Path, tables: Iterable[TableId]) -> str:
    """The text of a connector file that captures these tables into a lake in ``folder``."""
    return _CONNECTOR.format(
        host=options.database_hostname,
        port=options.database_port,
        database=DATABASE,
        folder=folder,
        tables=",".join(f"{table.schema}\\\\.{table.table}" for table in tables),
    )

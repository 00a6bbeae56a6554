"""Finds and reads the connector files for Dagster's definitions, without a server and without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cdc_core.config import ConnectorConfig, load
from cdc_core.errors import CdcError
from cdc_core.lake import Storage, StreamTable
from cdc_core.observe import data_docs_url
from cdc_core.postgres import OutputPlugin
from cdc_core.schema import TableSchema
from wal2lake.pipelines.connector.discovery import fill_catalogues, known_tables
from wal2lake.pipelines.connector.site import Engine, Site, SnapshotPlan

VARIABLE = "WAL2LAKE_CONNECTORS"
_SUFFIXES = (".properties", ".json")


@dataclass(frozen=True, slots=True)
class BrokenConnector:
    """A connector file that cannot be read; it is shown in the UI, and other connectors are not affected."""

    file: Path
    error: str


def connector_files() -> list[Path]:
    """The files of ``WAL2LAKE_CONNECTORS`` (folders or files, separated by the path separator or commas).

    If unset: the folder ``connectors`` in DAGSTER_HOME, otherwise the one next to this package.
    """
    setting = os.environ.get(VARIABLE, "").strip()
    if setting:
        places = [Path(part.strip()) for part in setting.replace(os.pathsep, ",").split(",") if part.strip()]
    else:
        roots = [Path(os.environ["DAGSTER_HOME"])] if os.environ.get("DAGSTER_HOME") else []
        folders = [root / "connectors" for root in [*roots, Path(__file__).parents[2]]]
        places = [folder for folder in folders if folder.is_dir()][:1]
    return [file for place in places for file in _files_of(place)]


def load_sites(files: Iterable[Path]) -> tuple[list[Site], list[BrokenConnector]]:
    """Read each file; a file with an error, or with a name that is already used, is returned with its error."""
    sites: dict[str, Site] = {}
    configs: dict[Path, ConnectorConfig] = {}
    broken = []
    for file in files:
        try:
            configs[file] = load(file)
        except (CdcError, OSError) as error:
            broken.append(BrokenConnector(file, str(error)))
    fill_catalogues([(config, partial(_tables, file)) for file, config in configs.items()])
    for file, config in configs.items():
        site = site_of(config, file, partial(_open, file))
        if site.safe_name in sites:
            other = sites[site.safe_name].file
            broken.append(BrokenConnector(file, f"Its topic.prefix {site.name} is also used by {other}."))
            continue
        sites[site.safe_name] = site
    return list(sites.values()), broken


def site_of(config: ConnectorConfig, file: Path | None, open_engine: Callable[[], Engine]) -> Site:
    """The site of a connector's configuration, with the tables that are known without asking its server."""
    return Site(
        name=config.schema.topic_prefix,
        slot=config.postgres.slot_name,
        state_path=config.state_path,
        tables=known_tables(config),
        open=open_engine,
        sinks=config.engine.sinks,
        lake_path=config.lake.lake_path,
        spark_settings={**Storage.spark_settings(config.lake.lake_path), **dict(config.engine.spark)},
        file=file,
        snapshot_plan=SnapshotPlan(
            config.observe.snapshot_schedule,
            config.observe.snapshot_schedule_timezone,
            config.observe.snapshot_schedule_tables,
        ),
        reads=config.snapshot.selection(config.selection).includes_in_snapshot,
        owners=config.observe.dagster_owners,
        tags=dict(config.observe.dagster_tags),
        storage=Storage.of(config.lake),
        maintenance_cron=config.observe.maintenance_schedule,
        reconcile_cron=config.observe.reconcile_schedule,
        freshness=config.observe.dagster_freshness if "lake" in config.engine.sinks else (),
        check_levels=dict(config.observe.dagster_checks),
        lake_fields=partial(_lake_fields, config),
        own_tables=_own_tables(config),
        data_docs_url=config.quality.quality_docs_url
        or data_docs_url(config.observe.metrics_host, config.observe.metrics_port),
    )


def _lake_fields(config: ConnectorConfig, table: TableSchema) -> Sequence[Any]:
    """The columns that the lake table of a source table is created with. Takes a quarter of a millisecond."""
    from cdc_core.lake import TypingPlan, lake_schema

    failure = config.envelope.event_converting_failure_handling_mode
    row = TypingPlan(config.types, config.selection, failure).typer(table).row_type
    return list(lake_schema(row, config.lake.delete_modes.of(table.id)))


def _own_tables(config: ConnectorConfig) -> tuple[StreamTable, ...]:
    sends_messages = config.postgres.plugin_name is not OutputPlugin.DECODERBUFS
    return (
        *([StreamTable.MESSAGES] if sends_messages else []),
        *([StreamTable.TRANSACTIONS] if config.envelope.provide_transaction_metadata else []),
    )


def _open(file: Path) -> Engine:
    """Read the file again, so that the next run uses its changes; the engine is imported only now."""
    from cdc_core.assemble import Connector

    return Connector.of_runs(load(file))


def _tables(file: Path) -> list[TableSchema]:
    return _open(file).tables()


def _files_of(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    return [place]

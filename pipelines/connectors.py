"""Finds the connector files and reads each as far as Dagster needs it, without a server and without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cdc_core.config.connector import load
from cdc_core.errors import CdcError
from pipelines import catalogue
from pipelines.site import Engine, Site

VARIABLE = "WAL2LAKE_CONNECTORS"
_SUFFIXES = (".properties", ".json")


@dataclass(frozen=True, slots=True)
class BrokenConnector:
    """A connector file that cannot be read; shown in the UI instead of taking the others down with it."""

    file: Path
    error: str


def connector_files() -> list[Path]:
    """The files that ``WAL2LAKE_CONNECTORS`` names (folders or files, separated by the path separator or commas).

    Unset: the folder ``connectors`` in DAGSTER_HOME, else the one beside this package.
    """
    given = os.environ.get(VARIABLE, "").strip()
    if given:
        places = [Path(part.strip()) for part in given.replace(os.pathsep, ",").split(",") if part.strip()]
    else:
        roots = [Path(os.environ["DAGSTER_HOME"])] if os.environ.get("DAGSTER_HOME") else []
        folders = [root / "connectors" for root in [*roots, Path(__file__).parents[1]]]
        places = [folder for folder in folders if folder.is_dir()][:1]
    return [file for place in places for file in _files_of(place)]


def load_sites(files: Iterable[Path]) -> tuple[list[Site], list[BrokenConnector]]:
    """Read each file; a broken one, or a second one of the same name, is set apart with its error."""
    sites: dict[str, Site] = {}
    broken = []
    for file in files:
        try:
            site = _load(file)
        except (CdcError, OSError) as error:
            broken.append(BrokenConnector(file, str(error)))
            continue
        if site.safe_name in sites:
            other = sites[site.safe_name].file
            broken.append(BrokenConnector(file, f"Its topic.prefix {site.name} is the one of {other} too."))
            continue
        sites[site.safe_name] = site
    return list(sites.values()), broken


def _load(file: Path) -> Site:
    config = load(file)
    tables = catalogue.read(config.state_path) or catalogue.from_include_list(config.selection.table_include_list)
    return Site(
        name=config.schema.topic_prefix,
        slot=config.postgres.slot_name,
        state_path=config.state_path,
        tables=tables,
        open=lambda: _open(file),
        lake_path=config.sink.lake_path,
        spark_settings=dict(config.engine.spark),
        file=file,
    )


def _open(file: Path) -> Engine:
    """Read the file anew, so that what changed in it is obeyed by the next run; the engine is imported only now."""
    from cdc_core.assemble import Connector

    return Connector.from_file(file)


def _files_of(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    return [place]

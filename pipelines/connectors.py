"""Finds the connector files and reads each as far as Dagster needs it, without a server and without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cdc_core.errors import CdcError
from pipelines import catalogue
from pipelines.site import Site

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
    from cdc_core.assemble import Connector

    connector = Connector.from_file(file)
    tables = catalogue.read(connector.state_path) or catalogue.from_include_list(connector.table_include_list)
    return Site(
        name=connector.name,
        slot=connector.slot,
        state_path=connector.state_path,
        tables=tables,
        # Read anew at each use, so that a changed secret or file is obeyed by the next run.
        open=lambda: Connector.from_file(file),
        spark_settings=connector.spark_settings,
        file=file,
    )


def _files_of(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    return [place]

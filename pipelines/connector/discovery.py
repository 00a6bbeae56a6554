"""The captured tables when definitions load: from the cached catalogue, at first from the server, else by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from cdc_core.config.connector import ConnectorConfig
from cdc_core.errors import CdcError
from cdc_core.schema.table import TableSchema
from pipelines.connector import catalogue
from pipelines.connector.site import KnownTable

# Definitions load without a server: one that has not answered by then is asked by the sensor.
SERVER_SECONDS = 2.5


def known_tables(config: ConnectorConfig) -> tuple[KnownTable, ...]:
    """The tables of the cached catalogue; without one, those that the include list names."""
    return catalogue.read(config.state_path) or catalogue.from_include_list(config.selection.table_include_list)


def fill_catalogues(missing: Mapping[Path, Callable[[], Sequence[TableSchema]]]) -> None:
    """Ask the servers of connectors that have no catalogue yet, all at once, for SERVER_SECONDS at most.

    ``missing`` maps state folders to what reads the tables. So the first start shows every table, if it can. An error
    is no reason to fail: the sensor asks again, and its tick says what is wrong.
    """
    threads = [
        threading.Thread(target=_fill, args=one, name="wal2lake-tables", daemon=True)
        for one in missing.items()
        if not (one[0] / catalogue.FILE).exists()
    ]
    if threads:
        import cdc_core.assemble  # noqa: F401  (takes longer than a server; its time is not the server's)
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + SERVER_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))


def _fill(state_path: Path, tables: Callable[[], Sequence[TableSchema]]) -> None:
    with suppress(CdcError, OSError):
        catalogue.write(state_path, tables())

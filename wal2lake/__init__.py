"""wal2lake from Python: a connector and its operations, and the tables of a lake at one position of the source.

    import wal2lake

    tables = wal2lake.read("shop.properties", "public.orders", "public.lines")
    tables["public.orders"].arrow()
    tables.duckdb().sql("select count(*) from public.orders")

Names in ``__all__`` are the public interface; what they return is part of it. They are imported when they are first
used, so importing this package loads neither Arrow nor Spark nor Dagster. Dagster's component is in
``wal2lake.dagster``.
"""

from __future__ import annotations

import importlib
import os
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cdc_core.errors import CdcError
from cdc_core.lsn import Lsn
from cdc_core.version import __version__

if TYPE_CHECKING:
    from cdc_core.assemble import Connector
    from cdc_core.engine import Until
    from cdc_core.lake import ConsistentTables, OpenedLake, TableAtVersion, TableChanges
    from cdc_core.schema import TableId
    from cdc_core.snapshot import Signal, SignalAction, Snapshotter

__all__ = [
    "CdcError",
    "Connector",
    "ConsistentTables",
    "Lsn",
    "OpenedLake",
    "Signal",
    "SignalAction",
    "Snapshotter",
    "TableAtVersion",
    "TableChanges",
    "TableId",
    "Until",
    "__version__",
    "open",
    "read",
    "register",
]

_MODULES = {
    "Connector": "cdc_core.assemble",
    "ConsistentTables": "cdc_core.lake",
    "OpenedLake": "cdc_core.lake",
    "Signal": "cdc_core.snapshot",
    "SignalAction": "cdc_core.snapshot",
    "Snapshotter": "cdc_core.snapshot",
    "TableAtVersion": "cdc_core.lake",
    "TableChanges": "cdc_core.lake",
    "TableId": "cdc_core.schema",
    "Until": "cdc_core.engine",
}


def read(
    connector: str | os.PathLike[str],
    *tables: str,
    at: Lsn | datetime | str | None = None,
    all_rows: bool = False,
) -> ConsistentTables:
    """Return lake tables that show the source at one LSN; ``connector`` is the connector's file.

    ``tables`` are names (``schema.table``), none for all. ``at``: the newest round at or before this LSN or commit time
    (None: the newest of all). Rows that the source has not any more (deleted ones in delete mode soft, earlier versions
    in delete mode history) are left out unless ``all_rows``. Needs neither the server nor Java.

    Raises ConfigError for the file, and LakeError if no round was recorded, ``at`` is not between the oldest and the
    newest round, or a named table cannot be read there.
    """
    from cdc_core.assemble import Connector

    return Connector.from_file(os.fspath(connector)).lake().read(*tables, at=at, all_rows=all_rows)


def open(path: str | os.PathLike[str], **storage: str | bool) -> OpenedLake:
    """Open the lake at ``<wal2lake.lake.path>/<topic.prefix>``, a folder or URI, without a connector file.

    ``storage`` are the properties ``wal2lake.storage.*``: ``s3_endpoint`` is ``wal2lake.storage.s3.endpoint``. Without
    them the environment's credentials are used. ``read`` of the result has the arguments of ``wal2lake.read`` but for
    the file. Raises LakeError if the path has no lake, and ConfigError for a setting that is none.
    """
    from cdc_core.lake import Storage, open_lake

    settings = {name.replace("_", "."): str(value) for name, value in storage.items()}
    return open_lake(path, Storage.named(settings))


def register(session: Any) -> None:
    """Add the format ``wal2lake`` to a Spark session, for ``spark.read`` and ``spark.readStream``.

    Its options are in docs/python.md. Spark's executors need this package installed.
    """
    from cdc_core.lake import LakeDataSource

    session.dataSource.register(LakeDataSource)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module wal2lake has no attribute {name}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)

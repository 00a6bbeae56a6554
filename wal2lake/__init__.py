"""wal2lake in a Dagster project: the component ``wal2lake.Connector`` of a ``defs.yaml``."""

from pipelines.component import Connector

__all__ = ["Connector"]

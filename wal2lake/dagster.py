"""wal2lake in a Dagster project: the component ``wal2lake.dagster.ConnectorComponent`` of a ``defs.yaml``."""

from wal2lake.pipelines.component import ConnectorComponent

__all__ = ["ConnectorComponent"]

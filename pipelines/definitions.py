"""The code location: assets, checks, sensors and jobs of all connector files. Loads without a JVM or a server."""

from wal2lake.pipelines.factory import build_definitions

defs = build_definitions()

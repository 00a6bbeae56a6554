"""The code location: the assets, checks, sensors and jobs of every connector file. Needs neither JVM nor server."""

from pipelines.factory import build_definitions

defs = build_definitions()

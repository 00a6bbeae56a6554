"""Facets of OpenLineage events, and the event around them."""

from __future__ import annotations

from typing import Any

from cdc_core.version import __version__

PRODUCER = f"urn:wal2lake:{__version__}"
_SPEC = "https://openlineage.io/spec"
EVENT_SCHEMA = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
DEBEZIUM_CONFIG = (
    "https://github.com/debezium/debezium/tree/main/debezium-openlineage/src/main/java/io/debezium/openlineage/facets"
    "/spec/DebeziumRunFacet.json"
)
# The version of each facet's schema that the events conform to.
_VERSIONS = {
    "ColumnLineageDatasetFacet": "1-2-0",
    "DatasetTypeDatasetFacet": "1-0-0",
    "DatasetVersionDatasetFacet": "1-0-1",
    "DocumentationJobFacet": "1-0-1",
    "ErrorMessageRunFacet": "1-0-1",
    "JobTypeJobFacet": "2-0-3",
    "OutputStatisticsOutputDatasetFacet": "1-0-2",
    "OwnershipJobFacet": "1-0-1",
    "ProcessingEngineRunFacet": "1-1-1",
    "SchemaDatasetFacet": "1-1-1",
    "StorageDatasetFacet": "1-0-1",
    "TagsJobFacet": "1-0-0",
}

Facet = dict[str, Any]


def facet(kind: str, **values: Any) -> Facet:
    """Return a facet of OpenLineage's, with the address of its schema."""
    return own_facet(f"{_SPEC}/facets/{_VERSIONS[kind]}/{kind}.json#/$defs/{kind}", **values)


def own_facet(schema: str, **values: Any) -> Facet:
    """Return a facet whose schema is not OpenLineage's."""
    return {"_producer": PRODUCER, "_schemaURL": schema, **values}

"""Datasets of OpenLineage: a source table, the lake table that has its rows, and the topic that has its events."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cdc_core.described import DescribedColumn, DescribedTable, DescribedTopic
from cdc_core.lineage.facets import facet
from cdc_core.schema import ConnectSchema

Dataset = dict[str, Any]
# Connect's names of types where they differ from those of its JSON.
_NAMES_OF_CONNECT = {"float": "FLOAT32", "double": "FLOAT64"}


@dataclass(frozen=True, slots=True)
class SourceDatabase:
    """The database whose tables are inputs: host and port as the connector file has them."""

    host: str
    port: int | str
    name: str

    @property
    def namespace(self) -> str:
        """``postgres://host:port``."""
        return f"postgres://{self.host}:{self.port}"


def source_dataset(database: SourceDatabase, table: DescribedTable) -> Dataset:
    """The input: ``postgres://host:port``, ``database.schema.table``, with the columns of the source."""
    return {
        "namespace": database.namespace,
        "name": _source_name(database, table),
        "facets": {"schema": _schema(table.source), "datasetType": _type("TABLE")},
    }


def lake_dataset(database: SourceDatabase, table: DescribedTable, written: Written | None = None) -> Dataset:
    """The output: the location of the lake table, with its columns and the source's columns that they are from.

    ``written`` adds the version of the lake table and the rows written since the event before.
    """
    namespace, name = location(table.location)
    facets: dict[str, Any] = {
        "schema": _schema(table.lake),
        "datasetType": _type("TABLE"),
        "storage": facet("StorageDatasetFacet", storageLayer="delta", fileFormat="parquet"),
        "columnLineage": facet("ColumnLineageDatasetFacet", fields=_column_lineage(database, table)),
    }
    dataset: Dataset = {"namespace": namespace, "name": name, "facets": facets}
    if written is not None:
        facets["version"] = facet("DatasetVersionDatasetFacet", datasetVersion=str(written.version))
        statistics = facet("OutputStatisticsOutputDatasetFacet", rowCount=written.rows)
        dataset["outputFacets"] = {"outputStatistics": statistics}
    return dataset


def topic_dataset(topic: DescribedTopic) -> Dataset:
    """The output: ``kafka://host:port`` and the topic, with the fields of its records, as by Debezium's transform."""
    fields = [_record_field(name, schema) for name, schema in topic.value.fields]
    return {
        "namespace": f"kafka://{topic.brokers}",
        "name": topic.name,
        "facets": {"schema": facet("SchemaDatasetFacet", fields=fields), "datasetType": _type("STREAM")},
    }


@dataclass(frozen=True, slots=True)
class Written:
    """Rows written to a lake table (inserted, updated or deleted), and its Delta version after that."""

    rows: int
    version: int

    def and_then(self, later: Written) -> Written:
        """Return both as one."""
        return Written(self.rows + later.rows, later.version)


def location(path: str) -> tuple[str, str]:
    """Return namespace and name of the dataset at a path or URI, as OpenLineage's naming rules have them.

    ``file`` and the absolute path; of an object store the bucket as URI, and the key. S3 is ``s3``, whatever the
    client that reads it.
    """
    if "://" not in path or path.startswith("file:"):
        return "file", re.sub(r"^file:/+", "/", path)
    parts = urlsplit(path)
    scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
    return f"{scheme}://{parts.netloc}", parts.path.strip("/")


def _source_name(database: SourceDatabase, table: DescribedTable) -> str:
    return f"{database.name}.{table.id}"


def _type(kind: str) -> dict[str, Any]:
    return facet("DatasetTypeDatasetFacet", datasetType=kind, subType="")


def _schema(columns: tuple[DescribedColumn, ...]) -> dict[str, Any]:
    return facet("SchemaDatasetFacet", fields=[_field(column) for column in columns])


def _field(column: DescribedColumn) -> dict[str, Any]:
    described = {"description": column.comment} if column.comment else {}
    return {"name": column.name, "type": column.type, **described}


def _record_field(name: str, schema: ConnectSchema) -> dict[str, Any]:
    """Return a field with its type in Connect, and the fields of a struct."""
    described = {"description": schema.doc} if schema.doc else {}
    nested = {"fields": [_record_field(*field) for field in schema.fields]} if schema.fields else {}
    return {"name": name, "type": _NAMES_OF_CONNECT.get(schema.type, schema.type.upper()), **described, **nested}


def _column_lineage(database: SourceDatabase, table: DescribedTable) -> Mapping[str, Any]:
    """Each lake column of the source's, by its name: the column that it is from, and whether its values are changed."""
    namespace, name = database.namespace, _source_name(database, table)
    return {
        column.name: {
            "inputFields": [
                {
                    "namespace": namespace,
                    "name": name,
                    "field": column.source,
                    "transformations": [_transformation(column.treatment)],
                }
            ]
        }
        for column in table.lake
        if column.source
    }


def _transformation(treatment: str) -> dict[str, Any]:
    if not treatment:
        return {"type": "DIRECT", "subtype": "IDENTITY", "description": "", "masking": False}
    # The text of a hash has a digest of its salt.
    kind = treatment.partition(" ")[0]
    return {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": kind, "masking": kind != "truncated"}

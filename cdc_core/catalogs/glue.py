"""AWS Glue's data catalog (only importer of boto3).

Region, credentials and endpoint are those of AWS's own settings: ``AWS_REGION``, ``AWS_PROFILE``, roles,
``AWS_ENDPOINT_URL_GLUE``. A table is an external one in the form in which Athena and Spark read Delta tables natively:
both take the columns from the Delta log, those of the entry are for people and searches.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cdc_core.catalogs.entry import MARK, CatalogEntry, EntryName, TakenError
from cdc_core.outbox import DeliveryError

_CONFIG = Config(connect_timeout=5, read_timeout=10, retries={"max_attempts": 2, "mode": "standard"})
# Longer texts are refused.
_MOST_COMMENT, _MOST_DESCRIPTION, _MOST_OWNER = 255, 2048, 255
_DELTA = {"EXTERNAL": "TRUE", "table_type": "DELTA", "spark.sql.sources.provider": "delta"}


class GlueCatalog:
    """Glue's catalog, with the entries of the lake in the folder ``lake``. Raises DeliveryError without a region."""

    def __init__(self, lake: str) -> None:
        self._lake = lake
        with _answers():
            self._client = boto3.client("glue", config=_CONFIG)

    @property
    def place(self) -> str:
        """The catalog and its region."""
        return f"Glue in {self._client.meta.region_name}"

    def put(self, entry: CatalogEntry) -> None:
        """Make the table, and its database, or update the table if it differs."""
        asked = _table_input(entry)
        with _answers():
            present = self._table(entry.name)
            if present is None:
                self._make_database(entry.name.database)
                self._client.create_table(DatabaseName=entry.name.database, TableInput=asked)
                return
            location = present.get("StorageDescriptor", {}).get("Location", "")
            if location.rstrip("/") != _location(entry):
                raise TakenError(
                    f"{entry.name} is a table at {location or 'no location'}, so {entry.table.id} is not registered. "
                    "Remove that table, or change wal2lake.catalogs.database or wal2lake.catalogs.table."
                )
            if any(_given(present.get(name), value) != value for name, value in asked.items()):
                kept = present.get("Parameters", {})
                merged = {**asked, "Parameters": {**kept, **asked["Parameters"]}}
                self._client.update_table(DatabaseName=entry.name.database, TableInput=merged)

    def remove(self, name: EntryName) -> None:
        """Delete the table if it is this connector's."""
        with _answers():
            present = self._table(name)
            if present is not None and present.get("Parameters", {}).get(MARK) == self._lake:
                self._client.delete_table(DatabaseName=name.database, Name=name.table)

    def own(self, database: str) -> Iterator[EntryName]:
        """Yield the tables of this connector in a database."""
        with _answers():
            try:
                for page in self._client.get_paginator("get_tables").paginate(DatabaseName=database):
                    for table in page["TableList"]:
                        if table.get("Parameters", {}).get(MARK) == self._lake:
                            yield EntryName(database, table["Name"])
            except self._client.exceptions.EntityNotFoundException:
                return

    def check(self) -> None:
        """Ask for a database."""
        with _answers():
            self._client.get_databases(MaxResults=1)

    def _table(self, name: EntryName) -> dict[str, Any] | None:
        try:
            table: dict[str, Any] = self._client.get_table(DatabaseName=name.database, Name=name.table)["Table"]
        except self._client.exceptions.EntityNotFoundException:
            return None
        return table

    def _make_database(self, name: str) -> None:
        try:
            self._client.get_database(Name=name)
        except self._client.exceptions.EntityNotFoundException:
            try:
                self._client.create_database(DatabaseInput={"Name": name})
            except self._client.exceptions.AlreadyExistsException:
                return  # another connector made it meanwhile


def _table_input(entry: CatalogEntry) -> dict[str, Any]:
    table, location = entry.table, _location(entry)
    columns = [
        {"Name": column.name, "Type": _hive_type(column.type), "Comment": column.comment[:_MOST_COMMENT]}
        for column in table.lake
    ]
    return {
        "Name": entry.name.table,
        "Description": table.comment[:_MOST_DESCRIPTION],
        "Owner": entry.owner[:_MOST_OWNER],
        "TableType": "EXTERNAL_TABLE",
        "Parameters": {**_DELTA, **entry.parameters},
        "StorageDescriptor": {
            "Columns": columns,
            "Location": location,
            "InputFormat": "org.apache.hadoop.mapred.SequenceFileInputFormat",
            "OutputFormat": "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
            "SerdeInfo": {
                "SerializationLibrary": "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe",
                "Parameters": {"serialization.format": "1", "path": location},
            },
        },
    }


def _location(entry: CatalogEntry) -> str:
    """The location by the scheme that Glue's other users read."""
    return re.sub(r"^s3[an]:", "s3:", entry.table.location)


def _hive_type(text: str) -> str:
    """A type by the name that Hive has for it."""
    return text.replace("timestamp_ntz", "timestamp")


def _given(present: Any, asked: Any) -> Any:
    """The part of what Glue has that is asked for: it adds defaults of its own."""
    if isinstance(asked, dict) and isinstance(present, dict):
        return {name: _given(present.get(name), value) for name, value in asked.items()}
    if isinstance(asked, list) and isinstance(present, list) and len(asked) == len(present):
        return [_given(one, other) for one, other in zip(present, asked, strict=True)]
    return "" if present is None and asked == "" else present


@contextmanager
def _answers() -> Iterator[None]:
    """Raise DeliveryError for errors of AWS's client, without what its messages may show."""
    try:
        yield
    except ClientError as error:
        facts = error.response.get("Error", {})
        raise DeliveryError(f"{error.operation_name} was refused ({facts.get('Code', 'unknown')})") from None
    except BotoCoreError as error:
        raise DeliveryError(f"Glue cannot be reached ({type(error).__name__})") from None

"""Unity Catalog by its REST API, as its open-source server has it.

The API cannot change a table, so an entry whose columns or comments differ is deleted and made again; the table's files
are outside of the catalog (EXTERNAL) and stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

from cdc_core.catalogs.entry import MARK, CatalogEntry, EntryName, TakenError
from cdc_core.described import DescribedColumn
from cdc_core.option import Secret
from cdc_core.outbox import DeliveryError, address, exchange

_API = "/api/2.1/unity-catalog"
_TIMEOUT_SECONDS = 10.0
_NOT_FOUND = 404
_NAMES = {
    "boolean": ("BOOLEAN", "boolean"),
    "tinyint": ("BYTE", "byte"),
    "smallint": ("SHORT", "short"),
    "int": ("INT", "integer"),
    "bigint": ("LONG", "long"),
    "float": ("FLOAT", "float"),
    "double": ("DOUBLE", "double"),
    "string": ("STRING", "string"),
    "binary": ("BINARY", "binary"),
    "date": ("DATE", "date"),
    "timestamp": ("TIMESTAMP", "timestamp"),
    "timestamp_ntz": ("TIMESTAMP_NTZ", "timestamp_ntz"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


class UnityCatalog:
    """The catalog ``catalog`` of the server at ``url``, with the entries of the lake in the folder ``lake``."""

    def __init__(self, url: str, token: Secret, catalog: str, lake: str) -> None:
        self._url, self._token, self._catalog, self._lake = url.rstrip("/"), token, catalog, lake

    @property
    def place(self) -> str:
        """The catalog and its server."""
        return f"Unity Catalog {self._catalog} at {address(self._url)}"

    def put(self, entry: CatalogEntry) -> None:
        """Make the table, and its schema; one that differs is deleted before."""
        table_info = self._table_info(entry)
        present = self._ask("GET", f"/tables/{self._full_name(entry.name)}")
        if present is not None:
            location = str(present.get("storage_location", ""))
            if _plain(location) != _plain(table_info["storage_location"]):
                raise TakenError(
                    f"{entry.name} is a table at {location or 'no location'}, so {entry.table.id} is not registered. "
                    "Remove that table, or change wal2lake.catalogs.database or wal2lake.catalogs.table."
                )
            if _same(present, table_info):
                return
            self._ask("DELETE", f"/tables/{self._full_name(entry.name)}")
        if self._ask("GET", f"/schemas/{quote(f'{self._catalog}.{entry.name.database}')}") is None:
            self._ask("POST", "/schemas", {"name": entry.name.database, "catalog_name": self._catalog})
        self._ask("POST", "/tables", table_info)

    def remove(self, name: EntryName) -> None:
        """Delete the table if it is this connector's."""
        present = self._ask("GET", f"/tables/{self._full_name(name)}")
        if present is not None and (present.get("properties") or {}).get(MARK) == self._lake:
            self._ask("DELETE", f"/tables/{self._full_name(name)}")

    def own(self, database: str) -> Iterator[EntryName]:
        """Yield the tables of this connector in a schema."""
        token = ""
        while True:
            asked = {"catalog_name": self._catalog, "schema_name": database, **({"page_token": token} if token else {})}
            page = self._ask("GET", f"/tables?{urlencode(asked)}") or {}
            for table in page.get("tables") or ():
                if (table.get("properties") or {}).get(MARK) == self._lake:
                    yield EntryName(database, str(table["name"]))
            token = str(page.get("next_page_token") or "")
            if not token:
                return

    def check(self) -> None:
        """Ask for the catalog."""
        if self._ask("GET", f"/catalogs/{quote(self._catalog)}") is None:
            raise DeliveryError(f"{address(self._url)} has no catalog {self._catalog}")

    def _full_name(self, name: EntryName) -> str:
        return quote(f"{self._catalog}.{name}")

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """Return the answer; None if the server does not have what was asked for."""
        headers = {"Authorization": f"Bearer {self._token.reveal()}"} if self._token else {}
        content = None if body is None else json.dumps(body).encode()
        try:
            answer = exchange(method, f"{self._url}{_API}{path}", content, headers, _TIMEOUT_SECONDS)
        except DeliveryError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        try:
            decoded: dict[str, Any] = json.loads(answer or b"{}")
        except ValueError:
            raise DeliveryError(f"{address(self._url)} did not answer in JSON") from None
        return decoded

    def _table_info(self, entry: CatalogEntry) -> dict[str, Any]:
        table = entry.table
        owner = {"owner": entry.owner} if entry.owner else {}
        return {
            "name": entry.name.table,
            "catalog_name": self._catalog,
            "schema_name": entry.name.database,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": [_column(position, column) for position, column in enumerate(table.lake)],
            "storage_location": _uri(table.location),
            "comment": table.comment,
            "properties": {**entry.parameters, **owner},
        }


def _uri(location: str) -> str:
    """A location as a URI; S3 by the scheme that Unity Catalog's credentials are for."""
    if "://" not in location:
        return f"file://{quote(location)}"
    return re.sub(r"^s3[an]:", "s3:", location)


def _plain(location: str) -> str:
    """A location to be compared: servers write those of files with one or three slashes."""
    return re.sub(r"^file:/+", "/", location).rstrip("/")


def _same(present: dict[str, Any], table_info: dict[str, Any]) -> bool:
    columns = [
        tuple(each.get(name) or "" for name in ("name", "type_text", "comment")) for each in table_info["columns"]
    ]
    theirs = sorted(present.get("columns") or (), key=lambda each: each.get("position", 0))
    shown = [tuple(each.get(name) or "" for name in ("name", "type_text", "comment")) for each in theirs]
    properties = present.get("properties") or {}
    is_marked = all(properties.get(name) == value for name, value in table_info["properties"].items())
    return shown == columns and (present.get("comment") or "") == table_info["comment"] and is_marked


def _column(position: int, column: DescribedColumn) -> dict[str, Any]:
    kind, plain = _type(column.type)
    described = {"comment": column.comment} if column.comment else {}
    precision = _DECIMAL.fullmatch(column.type)
    numbers = {} if precision is None else {"type_precision": int(precision[1]), "type_scale": int(precision[2])}
    field = {"name": column.name, "type": plain, "nullable": True, "metadata": described}
    return {
        "name": column.name,
        "type_text": column.type,
        "type_json": json.dumps(field),
        "type_name": kind,
        "position": position,
        "nullable": True,
        **described,
        **numbers,
    }


def _type(text: str) -> tuple[str, Any]:
    """A type's name in Unity Catalog, and its form in the JSON of Spark's schemas."""
    if text in _NAMES:
        return _NAMES[text]
    if text.startswith("decimal("):
        return "DECIMAL", text
    if text.startswith("array<"):
        return "ARRAY", {"type": "array", "elementType": _type(text[6:-1])[1], "containsNull": True}
    if text.startswith("map<"):
        key, value = _parts(text[4:-1])
        kinds = {"keyType": _type(key)[1], "valueType": _type(value)[1]}
        return "MAP", {"type": "map", **kinds, "valueContainsNull": True}
    if text.startswith("struct<"):
        named = [part.partition(":") for part in _parts(text[7:-1])]
        fields = [{"name": name, "type": _type(kind)[1], "nullable": True, "metadata": {}} for name, _, kind in named]
        return "STRUCT", {"type": "struct", "fields": fields}
    return "STRING", "string"


def _parts(text: str) -> list[str]:
    """The parts of a list of types, which are separated by commas outside of brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts

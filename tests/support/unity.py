"""A server of Unity Catalog's contract: the requests that its OpenAPI document (version 2.1) describes, in memory.

It is no Unity Catalog. It refuses what the document does not allow: unknown or missing fields, types that are no
``ColumnTypeName``, schemas and tables that exist already or whose parent does not.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_API = "/api/2.1/unity-catalog"
_TABLE = {"name", "catalog_name", "schema_name", "table_type", "data_source_format", "columns", "storage_location"}
_MORE = {"comment", "properties", "view_definition", "view_dependencies"}
_COLUMN = {
    *("name", "type_text", "type_json", "type_name", "type_precision", "type_scale", "type_interval_type"),
    *("position", "comment", "nullable", "partition_index"),
}
_KINDS = {
    *("BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "STRING"),
    *("BINARY", "DECIMAL", "INTERVAL", "ARRAY", "STRUCT", "MAP", "VARIANT", "CHAR", "NULL", "USER_DEFINED_TYPE"),
    "TABLE_TYPE",
}


@dataclass
class Unity:
    """``tables`` by full name, ``asked`` the requests as method and path; ``status`` is answered to all if not 0."""

    url: str
    token: str
    schemas: dict[str, dict[str, Any]] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    status: int = 0

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Return status and content for a request below the API's path."""
        parts = urlsplit(path)
        where, _, name = unquote(parts.path).strip("/").partition("/")
        kept = {"catalogs": {"unity": {"name": "unity"}}, "schemas": self.schemas, "tables": self.tables}[where]
        if method == "POST" and not name:
            is_table = where == "tables"
            return self._table(body) if is_table else self._made(kept, f"{body['catalog_name']}.{body['name']}", body)
        if method == "GET" and not name:
            return self._listed(parse_qs(parts.query))
        if name not in kept:
            return 404, {"error_code": "NOT_FOUND"}
        return 200, kept.pop(name) if method == "DELETE" else kept[name]

    def _table(self, body: dict[str, Any]) -> tuple[int, Any]:
        is_right = _TABLE <= set(body) <= _TABLE | _MORE
        is_right &= body["table_type"] == "EXTERNAL" and body["data_source_format"] == "DELTA"
        is_right &= "://" in body["storage_location"]
        is_right &= all(isinstance(value, str) for value in body.get("properties", {}).values())
        for position, column in enumerate(body["columns"]):
            is_right &= set(column) <= _COLUMN and column["type_name"] in _KINDS and column["position"] == position
            is_right &= json.loads(column["type_json"])["name"] == column["name"]
            is_right &= column["type_name"] != "DECIMAL" or {"type_precision", "type_scale"} <= set(column)
        schema = f"{body['catalog_name']}.{body['schema_name']}"
        if not is_right or schema not in self.schemas:
            return 400, {"error_code": "INVALID_ARGUMENT"}
        return self._made(self.tables, f"{schema}.{body['name']}", body)

    def _made(self, kept: dict[str, Any], name: str, body: dict[str, Any]) -> tuple[int, Any]:
        if name in kept:
            return 400, {"error_code": "ALREADY_EXISTS"}
        kept[name] = body
        return 200, body

    def _listed(self, asked: dict[str, list[str]]) -> tuple[int, Any]:
        """Two tables a page."""
        schema = f"{asked['catalog_name'][0]}.{asked['schema_name'][0]}"
        if schema not in self.schemas:
            return 404, {"error_code": "SCHEMA_NOT_FOUND"}
        start = int(asked.get("page_token", ["0"])[0])
        names = sorted(name for name in self.tables if name.startswith(f"{schema}."))
        more = {"next_page_token": str(start + 2)} if len(names) > start + 2 else {}
        return 200, {"tables": [self.tables[name] for name in names[start : start + 2]], **more}


@contextmanager
def unity_server(token: str = "t0ken") -> Iterator[Unity]:
    """The server, on a free port of the loopback, until the end of the context."""

    class Handler(BaseHTTPRequestHandler):
        def handle_request(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            server.asked.append(f"{self.command} {self.path.removeprefix(_API)}")
            if server.status:
                status, content = server.status, {}
            elif self.headers.get("Authorization") != f"Bearer {token}":
                status, content = 401, {}
            elif not self.path.startswith(_API):
                status, content = 404, {}
            else:
                status, content = server.answer(self.command, self.path.removeprefix(_API), body)
            payload = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_POST = do_DELETE = handle_request  # noqa: N815

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        server = Unity(f"http://127.0.0.1:{listening.server_port}", token)
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            listening.shutdown()

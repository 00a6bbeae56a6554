"""A schema registry for tests: a real HTTP server on the loopback with the part of Confluent's API that clients use.

It numbers schemas as the registry does: one id for one schema, versions by subject. Compatibility is not checked unless
``incompatible`` names a subject.
"""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.waits import patient


class TestRegistry:
    """``requests`` are (method, path) so far, but the first look at whether it answers.

    ``user`` is required as Basic authorization if it is not empty.
    """

    __test__ = False

    def __init__(self, *, user: str = "") -> None:
        self.subjects: dict[str, list[int]] = {}
        self.schemas: list[str] = []
        self.requests: list[tuple[str, str]] = []
        self.incompatible: set[str] = set()
        self.user = user
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                self._answer(json.loads(self.rfile.read(length)))

            def _answer(self, body: Any) -> None:
                code, found = registry.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
                raw = json.dumps(found).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> TestRegistry:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(patient(10))

    def answer(self, method: str, path: str, authorization: str, body: Any) -> tuple[int, dict[str, Any]]:
        place = urlsplit(path).path
        if place != "/config":
            self.requests.append((method, place))
        if self.user and authorization != "Basic " + base64.b64encode(self.user.encode()).decode():
            return 401, {"error_code": 401, "message": "Unauthorized"}
        if place == "/config":
            return 200, {"compatibilityLevel": "BACKWARD"}
        parts = [unquote(part) for part in place.strip("/").split("/")]
        if parts[:2] == ["schemas", "ids"]:
            number = int(parts[2])
            return (200, {"schema": self.schemas[number - 1]}) if 0 < number <= len(self.schemas) else _missing()
        subject = parts[1]
        if parts[2:] == ["versions", "latest"]:
            return self._shown(subject, len(self.subjects.get(subject, [])))
        number = self._number(body["schema"])
        if parts[2:]:
            return self._register(subject, number, body["schema"])
        versions = self.subjects.get(subject, [])
        return self._shown(subject, versions.index(number) + 1 if number in versions else 0)

    def _number(self, schema: str) -> int:
        """The id of a schema, 0 if it is unknown."""
        known = [json.loads(one) for one in self.schemas]
        found = json.loads(schema)
        return known.index(found) + 1 if found in known else 0

    def _register(self, subject: str, number: int, schema: str) -> tuple[int, dict[str, Any]]:
        versions = self.subjects.setdefault(subject, [])
        if subject in self.incompatible and versions and number not in versions:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        if not number:
            self.schemas.append(schema)
            number = len(self.schemas)
        if number not in versions:
            versions.append(number)
        return 200, {"id": number}

    def _shown(self, subject: str, version: int) -> tuple[int, dict[str, Any]]:
        if not version:
            return _missing()
        number = self.subjects[subject][version - 1]
        return 200, {"subject": subject, "id": number, "version": version, "schema": self.schemas[number - 1]}


def _missing() -> tuple[int, dict[str, Any]]:
    return 404, {"error_code": 40403, "message": "Schema not found"}

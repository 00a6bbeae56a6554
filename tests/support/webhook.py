"""A web server of a test's own that takes what is posted: alerts, events of lineage, telemetry."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Webhook:
    """``alerts`` are the JSON objects that came in while ``status``, the server's answer, was 200.

    ``posted`` are path, headers and body of every request, in their order.
    """

    url: str
    alerts: list = field(default_factory=list)
    status: int = 200
    posted: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    def at(self, path: str) -> list[Any]:
        """The JSON objects that were posted to a path."""
        return [_content(headers, body) for where, headers, body in list(self.posted) if where == path]


@contextmanager
def webhook() -> Iterator[Webhook]:
    """The server, on a free port of the loopback, until the end of the context."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            held.posted.append((self.path, dict(self.headers), body))
            if held.status == 200 and "json" in self.headers["Content-Type"]:
                held.alerts.append(_content(dict(self.headers), body))
            self.send_response(held.status)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        held = Webhook(f"http://127.0.0.1:{server.server_port}/secret")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield held
        finally:
            server.shutdown()


def _content(headers: dict[str, str], body: bytes) -> Any:
    return json.loads(gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body)

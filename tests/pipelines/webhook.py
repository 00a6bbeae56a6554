"""A web server of a test's own that takes alerts."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer


@dataclass
class Webhook:
    """``alerts`` are what came in while ``status``, the server's answer, was 200."""

    url: str
    alerts: list = field(default_factory=list)
    status: int = 200


@contextmanager
def webhook() -> Iterator[Webhook]:
    """The server, on a free port of the loopback, until the end of the context."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if held.status == 200:
                held.alerts.append(json.loads(body))
            self.send_response(held.status)
            self.end_headers()

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        held = Webhook(f"http://127.0.0.1:{server.server_port}/secret")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield held
        finally:
            server.shutdown()

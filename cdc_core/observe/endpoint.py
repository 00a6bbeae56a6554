"""The Prometheus endpoint of a process: one server per address, until the process ends.

It serves ``/metrics``, ``/health``, and under ``/data-docs/`` the pages of Great Expectations built by an earlier run.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from cdc_core.errors import ConfigError
from cdc_core.observe.health import HEALTH_PATH, health_page
from cdc_core.observe.metrics import ConnectorMetrics
from cdc_core.observe.static_pages import DATA_DOCS_PATH, Page, static_page

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_log = logging.getLogger(__name__)
_REMEDY = "Use a different wal2lake.metrics.port for each process."
_lock = threading.Lock()
_served: set[tuple[str, int]] = set()
_metrics: dict[tuple[str, int, str], ConnectorMetrics] = {}
_docs: dict[tuple[str, int], dict[str, tuple[Path, ...]]] = {}


def metrics_of(
    name: str,
    host: str,
    port: int,
    docs: Sequence[Path] = (),
    tags: Sequence[tuple[str, str]] = (),
    *,
    is_required: bool = False,
) -> ConnectorMetrics:
    """Return the metrics of the connector ``name``, served at ``http://host:port/metrics`` unless ``port`` is 0.

    The first folder of ``docs`` that exists when it is requested is served at ``/data-docs/<name>/``, and at
    ``/data-docs/`` for the first connector of the address. The result is the same object for the same connector and
    address (with the ``tags`` of the first call), so that counts continue from the snapshot to the stream. If the
    address is in use, the run has no endpoint, and a message is logged; if it ``is_required``, ConfigError is raised.
    """
    if not port:
        return ConnectorMetrics(name, tags=tags)
    with _lock:
        if docs:
            _docs.setdefault((host, port), {})[name] = tuple(docs)
        known = _metrics.get((host, port, name))
        if known is not None:
            return known
        made = ConnectorMetrics(name, tags=tags)
        try:
            if (host, port) not in _served:
                _serve(host, port)
            _metrics[host, port, name] = made
        except OSError as error:
            message = (
                f"Metrics are not served: cannot listen on {host}:{port} ({error.strerror or type(error).__name__})."
            )
            if is_required:
                raise ConfigError(message, f"{_REMEDY} Or set wal2lake.metrics.required=false.") from None
            _log.warning("%s %s", message, _REMEDY)
        return made


def forget_metrics(name: str, host: str, port: int) -> None:
    """End to serve what was counted under a name that no connector has any more."""
    with _lock:
        _metrics.pop((host, port, name), None)


class _AllMetrics:
    """The metrics of all connectors of an address, each family once."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def connectors(self) -> list[ConnectorMetrics]:
        """The connectors in the order in which they were added."""
        with _lock:
            return [made for key, made in _metrics.items() if key[:2] == self._address]

    def collect(self) -> Iterator[Metric]:
        """Yield the current values."""
        families: dict[str, Metric] = {}
        for connector in self.connectors():
            for family in connector.collect():
                joined = families.setdefault(family.name, family)
                if joined is not family:
                    joined.samples.extend(family.samples)
        yield from families.values()


def _serve(host: str, port: int) -> None:
    from prometheus_client import CollectorRegistry, make_wsgi_app

    connectors, registry = _AllMetrics(host, port), CollectorRegistry()
    registry.register(connectors)
    application = _application((host, port), connectors, make_wsgi_app(registry))
    server = make_server(host, port, application, _server_class(host, port), _Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    _served.add((host, port))
    _log.info("Metrics are served at http://%s:%d/metrics.", host, port)


def _application(
    address: tuple[str, int], connectors: _AllMetrics, metrics: Callable[..., Iterable[bytes]]
) -> Callable[..., Iterable[bytes]]:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = str(environ.get("PATH_INFO", ""))
        if path == HEALTH_PATH:
            page = health_page(connector.health() for connector in connectors.connectors())
        elif path.startswith(DATA_DOCS_PATH.rstrip("/")):
            page = _docs_page(_docs.get(address, {}), path)
        else:
            return metrics(environ, start_response)
        start_response(page.status, page.headers)
        return [b""] if environ.get("REQUEST_METHOD") == "HEAD" else [page.body]

    return answer


def _docs_page(by_name: Mapping[str, tuple[Path, ...]], path: str) -> Page:
    name, slash, rest = path.removeprefix(DATA_DOCS_PATH).partition("/")
    if slash and name in by_name:
        return static_page(by_name[name], DATA_DOCS_PATH + rest)
    return static_page(next(iter(by_name.values()), ()), path)


class _Server(ThreadingMixIn, WSGIServer):
    """One thread per request; none of them keeps the process alive."""

    daemon_threads = True


def _server_class(host: str, port: int) -> type[_Server]:
    """Return the server class for IPv4 or IPv6, depending on the host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return type("_Server", (_Server,), {"address_family": found[0][0]})


class _Handler(WSGIRequestHandler):
    """Does not log requests to stderr."""

    # A client that sends nothing does not keep its thread forever.
    timeout = 30

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

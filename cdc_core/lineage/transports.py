"""Where events go: an HTTP endpoint, a file, the log; several of them."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cdc_core.option import Secret
from cdc_core.outbox import DeliveryError, address, post

_log = logging.getLogger(__name__)


class Transport(Protocol):
    """Sends events to one place, for one thread. ``place`` names it in messages, without secrets."""

    @property
    def place(self) -> str:
        """Where events go."""

    def send(self, event: Mapping[str, Any]) -> None:
        """Send one event. Raises DeliveryError."""


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """Posts each event to ``url``; ``key`` is sent as a bearer token."""

    url: str
    key: Secret = field(default_factory=Secret)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = 5.0
    is_compressed: bool = False

    @property
    def place(self) -> str:
        """Scheme, host and port."""
        return address(self.url)

    def send(self, event: Mapping[str, Any]) -> None:
        """Post the event."""
        body, headers = json.dumps(event).encode(), dict(self.headers)
        if self.key:
            headers["Authorization"] = f"Bearer {self.key.reveal()}"
        if self.is_compressed:
            body, headers["Content-Encoding"] = gzip.compress(body), "gzip"
        post(self.url, body, headers, self.timeout_seconds)


@dataclass(frozen=True, slots=True)
class FileTransport:
    """Appends each event to a file, one line each."""

    path: Path

    @property
    def place(self) -> str:
        """The file."""
        return str(self.path)

    def send(self, event: Mapping[str, Any]) -> None:
        """Append the event."""
        try:
            with self.path.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(event) + "\n")
        except OSError as error:
            raise DeliveryError(f"{self.path} cannot be written ({error.strerror or type(error).__name__})") from None


@dataclass(frozen=True, slots=True)
class ConsoleTransport:
    """Logs each event."""

    place: str = "the log"

    def send(self, event: Mapping[str, Any]) -> None:
        """Log the event."""
        _log.info("%s", json.dumps(event))


@dataclass(frozen=True, slots=True)
class CompositeTransport:
    """Sends each event to several places, in their order. ``continues``: also if one of them fails."""

    transports: tuple[Transport, ...]
    continues: bool = True

    @property
    def place(self) -> str:
        """All of them."""
        return ", ".join(each.place for each in self.transports)

    def send(self, event: Mapping[str, Any]) -> None:
        """Send the event to each; the first error is raised."""
        first: DeliveryError | None = None
        for transport in self.transports:
            try:
                transport.send(event)
            except DeliveryError as error:
                if not self.continues:
                    raise
                first = first or error
        if first is not None:
            raise first

"""Messages to a service that a run informs, delivered in order by a thread of their own, and posted over HTTP.

Whoever puts a message neither waits nor gets an error: a service that is away, or slow, costs messages and nothing
else. At most ``most`` messages wait; what does not fit is dropped and counted.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from cdc_core.connector_threads import ConnectorThread

_log = logging.getLogger(__name__)

Message = TypeVar("Message")
_MOST_BYTES = 64 << 20


class DeliveryError(Exception):
    """A message was not delivered. Its text names the service and what happened; it has no secret and no row value.

    ``status`` is that of an HTTP answer; 0 without one. ``fault`` is then the kind of what prevented it.
    """

    def __init__(self, text: str, status: int = 0, fault: str = "") -> None:
        super().__init__(text)
        self.status, self.fault = status, fault


def address(url: str) -> str:
    """Return scheme, host and port of a URL: the rest of it may have a token."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")


def post(url: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float) -> None:
    """Post JSON. Raises DeliveryError without the path of the URL."""
    exchange("POST", url, body, headers, timeout_seconds)


def exchange(method: str, url: str, body: bytes | None, headers: Mapping[str, str], timeout_seconds: float) -> bytes:
    """Send a request, with JSON if there is a body, and return the answer. Raises DeliveryError as ``post``."""
    content = {} if body is None else {"Content-Type": "application/json"}
    request = urllib.request.Request(url, body, {**content, **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds) as answer:
            return bytes(answer.read(_MOST_BYTES))
    except urllib.error.HTTPError as error:
        raise DeliveryError(f"{address(url)} answered {error.code}", error.code) from None
    except (OSError, http.client.HTTPException) as error:
        fault = type(error).__name__
        raise DeliveryError(f"{address(url)} cannot be reached ({fault})", fault=fault) from None


class Outbox(Generic[Message]):
    """Delivers messages by ``deliver``, one at a time, in a daemon thread that starts with the first message.

    ``name`` begins the lines of the log. ``deliver`` raises DeliveryError; such a message is delivered again after each
    of ``retry_seconds``, and then dropped. One line of the log reports the first message of a series that is dropped,
    one the end of the series.
    """

    def __init__(
        self,
        name: str,
        deliver: Callable[[Message], None],
        *,
        most: int = 1_000,
        retry_seconds: tuple[float, ...] = (0.5, 2.0),
    ) -> None:
        self._name, self._deliver, self._retry_seconds = name, deliver, retry_seconds
        self._waiting: queue.Queue[Message | None] = queue.Queue(most)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self._dropped = 0

    def put(self, message: Message) -> None:
        """Deliver the message soon; it is dropped if too many wait, or after ``close``."""
        with self._lock:
            if self._closing.is_set():
                return
            if self._thread is None:
                self._thread = ConnectorThread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        try:
            self._waiting.put_nowait(message)
        except queue.Full:
            self._note_dropped("messages wait for an answer already")

    def close(self, seconds: float) -> None:
        """Wait until all messages are delivered or dropped, at most ``seconds``."""
        with self._lock:
            self._closing.set()
            thread = self._thread
        if thread is None:
            return
        end = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            _log.warning("%s: %d messages were not delivered before the end.", self._name, self._waiting.qsize())

    def _run(self) -> None:
        while (message := self._waiting.get()) is not None:
            self._try(message)

    def _try(self, message: Message) -> None:
        for seconds in (*self._retry_seconds, None):
            try:
                self._deliver(message)
            except DeliveryError as error:
                # A service that is away would delay the end of the run by each wait.
                if seconds is None or self._closing.wait(seconds):
                    self._note_dropped(str(error))
                    return
            except Exception as error:  # a defect must not end the thread, nor show values
                self._note_dropped(type(error).__name__)
                return
            else:
                self._note_delivered()
                return

    def _note_dropped(self, why: str) -> None:
        with self._lock:
            self._dropped += 1
            is_first = self._dropped == 1
        if is_first:
            _log.warning("%s: messages are dropped: %s. The run continues.", self._name, why)

    def _note_delivered(self) -> None:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        if dropped:
            _log.info("%s: messages are delivered again; %d were dropped.", self._name, dropped)

"""An object store as far away as a real one: a relay before its server that delays, counts and fails requests.

with StoreProxy(host, port, seconds=0.03) as store:
    endpoint = store.url
    store.counts()                                # requests by kind and area
    store.fail(LOSE, "PUT .*_delta_log/", times=3)  # the next three requests whose kind and key match

Unlike the relay of bytes (``proxy.py``) it reads HTTP, so that it can tell requests from each other and lose the answer
of one that the server has carried out. It is a process of its own: delta-rs keeps Python's lock while it waits for an
answer, so that a thread of the same process could not relay it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.waits import patient

CONNECTIONS = 256
AZURE_ACCOUNT = "devstoreaccount1"
_REQUESTS = 500_000
_HEAD_BYTES = 64 << 10
_ERROR = b"<Error><Code>%s</Code><Message>A fault of the test.</Message></Error>"
_CONTROL = "/-control-"
_CONDITIONS = (b"if-none-match", b"x-goog-if-generation-match")

REFUSE = "refuse"
"""503 SlowDown, not carried out."""
CUT = "cut"
"""The connection ends before the request reaches the server."""
LOSE = "lose"
"""Carried out; the connection ends without an answer."""
LOSE_500 = "lose, 500"
"""Carried out; the answer is 500 InternalError."""
SLOW = "slow"
"""Carried out after ten times the delay, and a second at least."""

UNCONDITIONAL = "unconditional"
"""Carried out without its condition, as by a store that knows none."""

_STORE = re.compile(r"/__(\w+?)/")
_AREAS = (("/_delta_log", "log"), ("/deletion_vector_", "vectors"), ("/_change_data/", "changes"))


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it was answered. ``key``: of the object, or the prefix that is listed. ``at``: seconds since 1970.

    ``status`` is 0 if the client got no answer; ``body`` is kept for log entries only. ``query``: as it was sent.
    """

    kind: str
    key: str
    status: int = 0
    at: float = 0.0
    sent: int = 0
    body: bytes = b""
    query: str = ""

    @property
    def area(self) -> str:
        """What the key is part of: log, vectors, changes or data of the lake, changelog or another store."""
        store = _STORE.search(f"/{self.key}")
        place = store[1] if store else "lake"
        part = next((name for part, name in _AREAS if part in f"/{self.key}"), "data")
        return f"{place} {part}"

    @property
    def table(self) -> str:
        """The folder of its table."""
        return re.split(r"/(?:_delta_log|_change_data)|/[^/]*$", self.key, maxsplit=1)[0]


@dataclass(slots=True)
class _Fault:
    kind: str
    pattern: re.Pattern[str]
    left: int


@dataclass(slots=True)
class Message:
    first: bytes
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""

    @property
    def stays(self) -> bool:
        """Whether the connection can be used again after it."""
        told = self.headers.get(b"connection", b"").lower()
        return told == b"keep-alive" or (b"HTTP/1.1" in self.first and told != b"close")


class StoreProxy:
    """Relays HTTP on 127.0.0.1:``port`` to a server; each request takes ``seconds`` longer.

    ``module``: another one whose process relays.
    """

    def __init__(self, host: str, port: int, seconds: float = 0.0, module: str = __name__) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, host, str(port), str(seconds)],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self._seen = 0

    def __enter__(self) -> StoreProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The relay's process."""
        return self._process.pid

    @property
    def url(self) -> str:
        """The endpoint for clients."""
        return f"http://127.0.0.1:{self.port}"

    def requests(self, first: int = 0) -> list[Request]:
        """The requests in the order of their answers, without the ``first`` ones; those since ``forget`` without it."""
        told = json.loads(self._control("requests", first or self._seen))
        return [Request(**{**each, "body": each["body"].encode()}) for each in told]

    def forget(self) -> None:
        """Count from here on."""
        self._seen = int(self._control("count"))

    def counts(self) -> Counter[tuple[str, str]]:
        """The number of requests by kind (GET, HEAD, LIST, PUT, POST, DELETE) and area."""
        return Counter((each.kind, each.area) for each in self.requests())

    def delay(self, seconds: float) -> None:
        """Let each request take so much longer from now on."""
        self._control("delay", seconds)

    def fail(self, kind: str, pattern: str = "", times: int = 1) -> None:
        """Fail the next ``times`` requests in whose ``KIND key?query`` the regular expression is found."""
        self._control("fail", [kind, pattern, times])

    def heal(self) -> int:
        """End all faults; returns how often they would have occurred again."""
        return int(self._control("heal"))

    def left(self) -> int:
        """How often faults are still to occur."""
        return int(self._control("left"))

    def close(self) -> None:
        """End the relay and all its connections."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(patient(10))

    def _control(self, name: str, value: object = None) -> bytes:
        request = urllib.request.Request(f"{self.url}{_CONTROL}/{name}", json.dumps(value).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=patient(20)) as answer:
            return bytes(answer.read())


class Relay:
    """The relay's side. At most CONNECTIONS clients at a time."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self._target = (host, port)
        self._seconds = seconds
        self._done: list[Request] = []
        self._faults: list[_Fault] = []
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._serving: set[Any] = set()  # the loop alone would forget a task whose client has gone

    async def run(self) -> None:
        """Serve until standard input ends: then the process that started this one has ended."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_HEAD_BYTES)
        print(server.sockets[0].getsockname()[1], flush=True)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), lambda: os.read(0, 1) or ended.set())
        await ended.wait()
        os._exit(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._serving.add(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.LimitOverrunError):
            async with self._free:
                while await self._exchange(reader, writer):
                    pass
        # After what was written: to abort would lose an answer that is still in the buffer.
        writer.close()
        self._serving.discard(task)

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Relay one request; whether the connection can take another one."""
        asked = await _read_head(reader)
        if asked.headers.get(b"expect", b"").lower() == b"100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        asked.body = await _read_body(reader, asked)
        path = asked.first.split()[1].decode("latin-1")
        if path.startswith(_CONTROL):
            value = json.loads(asked.body)
            return await _answer(writer, b"200 OK", self._controlled(path.rpartition("/")[2], value), asked.stays)
        request = _request_of(asked)
        fault = self._fault_of(request)
        await asyncio.sleep(max(1.0, 10 * self._seconds) if fault == SLOW else self._seconds)
        if fault == CUT:
            self._note(request, 0)
            return False
        if fault == REFUSE:
            self._note(request, 503)
            return await _answer(writer, b"503 Slow Down", _ERROR % b"SlowDown", asked.stays)
        if fault == UNCONDITIONAL:
            asked.headers = {name: value for name, value in asked.headers.items() if name not in _CONDITIONS}
        answer = await self._ask(asked)
        if fault == LOSE:
            self._note(request, 0)
            return False
        if fault == LOSE_500:
            self._note(request, 500)
            return await _answer(writer, b"500 Internal Server Error", _ERROR % b"InternalError", asked.stays)
        self._note(request, int(answer.first.split()[1]))
        writer.write(_relayed(answer, asked.first.startswith(b"HEAD")) + answer.body)
        await writer.drain()
        return asked.stays

    async def _ask(self, asked: Message) -> Message:
        """Carry a request out; once more if the server has closed a connection that was idle."""
        while True:
            is_fresh = not self._idle
            reader, writer = (
                await asyncio.open_connection(*self._target, limit=_HEAD_BYTES) if is_fresh else self._idle.pop()
            )
            try:
                writer.write(_forwarded(asked) + asked.body)
                answer = await _read_head(reader)
                while answer.first.split()[1] == b"100":
                    answer = await _read_head(reader)
                has_body = not asked.first.startswith(b"HEAD") and answer.first.split()[1] not in (b"204", b"304")
                answer.body = await _read_body(reader, answer, is_answer=True) if has_body else b""
            except (asyncio.IncompleteReadError, ConnectionError):
                writer.close()
                if is_fresh:
                    raise ConnectionResetError from None
                continue
            if answer.stays and (b"content-length" in answer.headers or b"transfer-encoding" in answer.headers):
                self._idle.append((reader, writer))
            else:
                writer.close()
            return answer

    def _controlled(self, name: str, value: Any) -> bytes:
        if name == "requests":
            found = ({**asdict(each), "body": each.body.decode("latin-1")} for each in self._done[value:])
            return json.dumps(list(found)).encode()
        if name == "delay":
            self._seconds = float(value)
        if name == "fail":
            self._faults.append(_Fault(value[0], re.compile(value[1]), int(value[2])))
        if name in ("left", "heal"):
            left = sum(each.left for each in self._faults)
            if name == "heal":
                self._faults.clear()
            return b"%d" % left
        return b"%d" % len(self._done)

    def _fault_of(self, request: Request) -> str:
        for fault in self._faults:
            if fault.left and fault.pattern.search(f"{request.kind} {request.key}?{request.query}"):
                fault.left -= 1
                return fault.kind
        return ""

    def _note(self, request: Request, status: int) -> None:
        if len(self._done) >= _REQUESTS:
            raise SystemExit("too many requests for one relay")
        self._done.append(replace(request, status=status, at=time.time()))


async def _read_head(reader: asyncio.StreamReader) -> Message:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head[:-4].split(b"\r\n")
    pairs = (line.partition(b":") for line in lines)
    return Message(first, {name.strip().lower(): value.strip() for name, _, value in pairs})


async def _read_body(reader: asyncio.StreamReader, message: Message, *, is_answer: bool = False) -> bytes:
    """Return a body without its transfer encoding."""
    if message.headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"".join(parts)
    if b"content-length" in message.headers:
        return await reader.readexactly(int(message.headers[b"content-length"]))
    return await reader.read() if is_answer else b""


def _forwarded(asked: Message) -> bytes:
    kept = [
        name + b": " + value
        for name, value in asked.headers.items()
        if name not in (b"connection", b"expect", b"content-length", b"transfer-encoding")
    ]
    kept += [b"Connection: keep-alive", b"Content-Length: %d" % len(asked.body)]
    return b"\r\n".join([asked.first, *kept, b"", b""])


def _relayed(answer: Message, is_head: bool) -> bytes:
    _, _, rest = answer.first.partition(b" ")
    kept = [
        name + b": " + value
        for name, value in answer.headers.items()
        if name not in (b"connection", b"transfer-encoding") and (is_head or name != b"content-length")
    ]
    size = [] if is_head else [b"content-length: %d" % len(answer.body)]
    return b"\r\n".join([b"HTTP/1.1 " + rest, *kept, *size, b"", b""])


async def _answer(writer: asyncio.StreamWriter, status: bytes, body: bytes, stays: bool) -> bool:
    told = b"HTTP/1.1 %s\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
    writer.write(told + body)
    await writer.drain()
    return stays


def _request_of(asked: Message) -> Request:
    method, target, _ = asked.first.decode("latin-1").split(" ", 2)
    told = urlsplit(target)
    query = parse_qs(told.query, keep_blank_values=True)
    # Azure's emulator has the account before the container.
    key = unquote(told.path).removeprefix(f"/{AZURE_ACCOUNT}").lstrip("/").partition("/")[2]
    kind = method
    if method == "GET" and not key:
        kind, key = "LIST", query.get("prefix", [""])[0]
    is_entry = method == "PUT" and "/_delta_log/" in key and key.endswith(".json")
    return Request(kind, key, sent=len(asked.body), body=asked.body if is_entry else b"", query=told.query)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    asyncio.run(Relay(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])).run())

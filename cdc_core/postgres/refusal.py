"""Why a server refused a connection: the SQLSTATE of its error and the function that raised it.

The text of the error is in the language of the server's ``lc_messages``, and libpq gives no more than the text. Its
trace of the protocol's messages has all fields, so a connection that the server has refused is tried once more, traced.
The trace has the messages of the authentication, too: it is kept in memory, and nothing but those fields is read.
"""

from __future__ import annotations

import os
import re
import select
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.pq import PGconn, Ping, PollingStatus

# libpq puts the severity of a server's error before its text, with two blanks, in every language.
_FROM_SERVER = re.compile(r"failed: [^:\n]{1,40}:  ")
_ERROR = re.compile(r'\tErrorResponse\t S ".*?" (?:V "\w+" )?C "(?P<state>\w{5})" .*?(?: R "(?P<function>\w*)")? \\x00')
_TLS = re.compile(r"\tSSLResponse\t S\b")
_MAX_BYTES = 1 << 20
_POLL_MS = 100
_BY_PING = {Ping.OK: "28000", Ping.REJECT: "57P03"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """``state`` is the SQLSTATE, ``function`` the one of the server's source, both empty if unknown.

    ``tried_tls``: whether an attempt was encrypted.
    """

    state: str = ""
    function: str = ""
    tried_tls: bool = False


def refusal(error: psycopg.Error, parameters: dict[str, Any]) -> Refusal | None:
    """Return how the server answered to the attempt that failed with ``error``; None if it did not answer."""
    if _FROM_SERVER.search(str(error)) is None:
        return None
    seconds = float(parameters.get("connect_timeout") or 0) or 60.0
    failed = error.pgconn
    if failed is not None:  # of several addresses the one that this error is of
        address = {"host": failed.host, "hostaddr": failed.hostaddr, "port": failed.port}
        parameters = {**parameters, **{name: value.decode() for name, value in address.items() if value}}
    conninfo = make_conninfo(**parameters).encode()
    traced = _trace(conninfo, seconds)
    errors = list(_ERROR.finditer(traced))
    if not errors:  # libpq before version 17 does not trace the start, and other systems than Linux nothing
        return Refusal(_BY_PING.get(Ping(PGconn.ping(conninfo)), ""))
    return Refusal(errors[-1]["state"], errors[-1]["function"] or "", _TLS.search(traced) is not None)


def _trace(conninfo: bytes, seconds: float) -> str:
    """Connect, and return the messages of both sides; empty where libpq cannot trace."""
    if not hasattr(os, "memfd_create"):
        return ""
    attempt, file = PGconn.connect_start(conninfo), os.memfd_create("trace")
    try:
        attempt.trace(file)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            status = attempt.connect_poll()
            if status in (PollingStatus.OK, PollingStatus.FAILED):
                break
            poll = select.poll()
            poll.register(attempt.socket, select.POLLIN if status == PollingStatus.READING else select.POLLOUT)
            poll.poll(_POLL_MS)
        attempt.untrace()
        return os.pread(file, _MAX_BYTES, 0).decode("utf-8", "replace")
    finally:
        attempt.finish()
        os.close(file)

"""PgBouncer, the pooler of most installations, in front of a test's server.

with Pooler(cluster) as pooler:
    connect(port=pooler.port)
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

from cdc_core.demo.processes import free_port
from tests.support.cluster import Cluster, _account, _as_account
from tests.support.waits import patient

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


class Pooler:
    """One PgBouncer. ``roles`` may log in, by their passwords; ``settings`` are added to its own file."""

    def __init__(self, cluster: Cluster, roles: dict[str, str], **settings: str | int) -> None:
        assert PROGRAM is not None
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="w2l-pooler-"))
        users = self._folder / "users.txt"
        quoted = {name: password.replace('"', '""') for name, password in roles.items()}
        users.write_text("".join(f'"{name}" "{password}"\n' for name, password in quoted.items()))
        lines = {
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "scram-sha-256",
            "auth_file": users,
            "pool_mode": "session",
            "ignore_startup_parameters": "options",  # the usual advice for clients that send them
            "logfile": self._folder / "log",
            **settings,
        }
        text = "".join(f"{name} = {value}\n" for name, value in lines.items())
        file = self._folder / "pgbouncer.ini"
        file.write_text(f"[databases]\n* = host={cluster.host} port={cluster.port}\n[pgbouncer]\n{text}")
        account = _account()
        if account is not None:
            for path in (self._folder, users, file):
                os.chown(path, account.pw_uid, account.pw_gid)
        with (self._folder / "said").open("wb") as said:
            self._process = subprocess.Popen(
                [*_as_account(account, ends_with_parent=True), PROGRAM, str(file)], stdout=said, stderr=said, cwd="/"
            )

    def __enter__(self) -> Pooler:
        end = time.monotonic() + patient(20)
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
                return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    said = (self._folder / "said").read_text()
                    self.__exit__(None, None, None)
                    raise RuntimeError(f"PgBouncer did not start: {said[-2000:]}") from None
                time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(patient(10))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(patient(10))
        shutil.rmtree(self._folder, ignore_errors=True)


class NewerPooler:
    """A relay that leads replication connections to the server and all others to the pooler.

    PgBouncer does so itself from version 1.23 on, which Debian 12 does not have.
    """

    def __init__(self, cluster: Cluster, pooler: Pooler) -> None:
        self._server, self._pooler = (cluster.host, cluster.port), ("127.0.0.1", pooler.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> NewerPooler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._lead, args=(near,), daemon=True).start()

    def _lead(self, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            packet = _packet(near)
            while packet[4:8] == _ASKS_FOR_TLS:
                near.sendall(b"N")
                packet = _packet(near)
            is_replication = b"\0replication\0" in packet
            far = socket.create_connection(self._server if is_replication else self._pooler, timeout=10)
            far.settimeout(None)
            far.sendall(packet)
            threading.Thread(target=_pump, args=(far, near), daemon=True).start()
            _pump(near, far)


_ASKS_FOR_TLS = struct.pack("!i", 80877103)


def _packet(source: socket.socket) -> bytes:
    """Read a startup packet, which begins with its length."""
    data = source.recv(4, socket.MSG_WAITALL)
    if len(data) < 4:
        raise OSError("closed")
    return data + source.recv(struct.unpack("!i", data)[0] - 4, socket.MSG_WAITALL)


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)

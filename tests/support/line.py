"""A line that can be unplugged: a network namespace at the end of a pair of virtual links. Needs root and ``ip``.

with Line() as line, Proxy(cluster.host, cluster.port, line.listener()) as proxy:
    connect(host=line.address, port=proxy.port)
    line.unplug()  # packets are dropped in both directions, and nobody is told
    line.plug()
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
from types import TracebackType

from tests.support.waits import patient

_CLONE_NEWNET = 0x40000000


class Line:
    """``address`` is that of its far end."""

    def __init__(self) -> None:
        number = os.getpid() % 250 + 1
        self._space, self._near, self._far = f"w2l{os.getpid()}", f"w2ln{number}", f"w2lf{number}"
        self.address, self._here = f"10.213.{number}.2", f"10.213.{number}.1"

    def __enter__(self) -> Line:
        try:
            _ip("netns", "add", self._space)
            _ip("link", "add", self._near, "type", "veth", "peer", "name", self._far)
            _ip("link", "set", self._far, "netns", self._space)
            _ip("addr", "add", f"{self._here}/24", "dev", self._near)
            _ip("-n", self._space, "addr", "add", f"{self.address}/24", "dev", self._far)
            _ip("-n", self._space, "link", "set", self._far, "up")
            self.plug()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def listener(self) -> socket.socket:
        """A listening socket at the far end: a socket stays in the namespace in which it was made."""
        made: list[socket.socket] = []

        def make() -> None:  # in a thread of its own, whose namespace alone changes
            with open(f"/var/run/netns/{self._space}", "rb") as space:
                if ctypes.CDLL(None, use_errno=True).setns(space.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), "the namespace cannot be entered")
            made.append(socket.create_server((self.address, 0)))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        return made[0]

    def unplug(self) -> None:
        """Let nothing pass."""
        _ip("link", "set", self._near, "down")

    def plug(self) -> None:
        """Let everything pass again."""
        _ip("link", "set", self._near, "up")

    def close(self) -> None:
        """Remove it."""
        for order in (("link", "del", self._near), ("netns", "del", self._space)):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip(*order)


def _ip(*order: str) -> None:
    subprocess.run(["ip", *order], check=True, capture_output=True, timeout=patient(20))

"""A TCP relay whose line can be cut or stalled: the network faults that a test needs.

with Proxy(cluster.host, cluster.port) as proxy:
    connect(port=proxy.port)
    proxy.cut()      # every open connection is reset
    proxy.stall()    # nothing passes, nobody is told
    proxy.resume()
    proxy.abandon()  # the open connections are stalled for good, new ones are not
    proxy.lead_to(other.host, other.port)  # new connections go there
    proxy.answer(b"HTTP/1.1 503 Slow Down\\r\\n…")  # the relay itself answers
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from types import TracebackType

_CHUNK = 65536


class Proxy:
    """Relays 127.0.0.1:``port`` (or ``listener``) to ``host``:``target_port``.

    ``connections`` counts those accepted so far.
    """

    def __init__(self, host: str, target_port: int, listener: socket.socket | None = None) -> None:
        self._target = (host, target_port)
        self._listener = listener or socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._flowing = threading.Event()
        self._flowing.set()
        self._refusing = False
        self._answer = b""
        self._closed = False
        self._forsaken: set[int] = set()
        self._kept: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self) -> None:
        """Reset every connection that is open now; new ones are accepted again."""
        with self._lock:
            doomed, self._open = self._open, []
        for end in doomed:
            with contextlib.suppress(OSError):
                # Linger zero: the peer sees a reset, as after a router's restart, not a polite end.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def refuse(self) -> None:
        """Cut what is open, and close every new connection at once, until ``resume``."""
        self._refusing = True
        self.cut()

    def answer(self, text: bytes) -> None:
        """Cut what is open, and answer whatever comes with the same until ``resume``: a server that is overloaded."""
        self._answer = text
        self.refuse()

    def stall(self) -> None:
        """Let nothing pass in either direction, without closing anything, until ``resume``."""
        self._flowing.clear()

    def abandon(self) -> None:
        """Let nothing pass any more on the connections that are open now, and tell nobody: the peers keep them open."""
        with self._lock:
            self._forsaken |= {id(end) for end in self._open}
            self._kept += self._open
            self._open = []

    def lead_to(self, host: str, port: int) -> None:
        """Relay new connections to another server."""
        self._target = (host, port)

    def resume(self) -> None:
        """End a stall or a refusal."""
        self._refusing = False
        self._answer = b""
        self._flowing.set()

    def close(self) -> None:
        """End the relay and all its connections."""
        self._closed = True
        self._listener.close()
        with self._lock:
            self._open += self._kept
        self.cut()
        self._flowing.set()

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self._refusing:
                with contextlib.suppress(OSError), near:
                    near.settimeout(2)
                    if self._answer and near.recv(_CHUNK):
                        near.sendall(self._answer)
                        near.shutdown(socket.SHUT_WR)
                continue
            try:
                far = socket.create_connection(self._target, timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                self._flowing.wait()
                if id(source) in self._forsaken:
                    return
                sink.sendall(data)
            if id(source) in self._forsaken:
                return
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

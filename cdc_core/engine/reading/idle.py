"""When a run is idle: no change for a time, and the server has sent everything up to the end of its WAL.

Silence alone does not mean that everything has been received: before the server sends the first change of a large
transaction it decodes for seconds or minutes, and a walsender can be stopped or starved. So when nothing has come for
the time, the end of the server's WAL at that moment becomes a target; the run is idle once the stream has passed it.
The target is fixed: WAL that is written later, of other databases or of tables that are not captured, does not delay
the end of the run.
"""

from __future__ import annotations

from collections.abc import Callable


class IdleEnd:
    """Decides whether a run is idle. For one thread.

    ``wal_end`` returns the LSN up to which the server can send changes at the time of the call.
    """

    def __init__(self, wal_end: Callable[[], int]) -> None:
        self._wal_end = wal_end
        self._target: int | None = None

    def is_reached(self, seconds: float | None, silent_seconds: float, passed: int) -> bool:
        """Whether the run is idle. ``seconds``: how long nothing may come, None for a run that does not end by itself.

        ``silent_seconds``: how long no captured change has come; ``passed``: the LSN up to which everything the server
        had to send has been received and processed. Queries the server once per time of silence.
        """
        if seconds is None or silent_seconds < seconds:
            self._target = None
            return False
        if self._target is None:
            self._target = self._wal_end()
        return passed >= self._target

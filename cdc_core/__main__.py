"""The program ``wal2lake``: it answers Ctrl-C from its first moment, also while the commands are being imported."""

from __future__ import annotations

import os
import signal


def main() -> None:
    """Import the commands, which takes a second or two, and run the one that is asked for."""
    heard = signal.getsignal(signal.SIGINT)
    if heard is signal.default_int_handler:  # else it is ignored, as under nohup
        signal.signal(signal.SIGINT, _stopped)
    from cdc_core.cli import main as command

    signal.signal(signal.SIGINT, heard)
    command()


def _stopped(number: int, frame: object) -> None:
    """End at once: nothing has been started yet, and an exception could come out of any library's import."""
    os.write(2, b"\nStopped.\n" if os.isatty(2) else b"Stopped.\n")
    os._exit(1)


if __name__ == "__main__":
    main()

"""The ``wal2lake`` command. Exit codes: 0 success, 1 failure, 2 usage error."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code. A Ctrl-C during the second in which it is loaded is no defect."""
    try:
        from cdc_core.cli.program import main as program
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        sys.exit(1)
    program()

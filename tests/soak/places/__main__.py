"""The command of ``tests.soak.places``: tries the pairs that are asked for; a line for each, and a count at the end."""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from pathlib import Path

import tests.soak.places
from tests.soak.places.faults import FAULTS
from tests.soak.places.ground import ground, usual_server
from tests.soak.places.phases import PHASES
from tests.soak.places.tried import Tried
from tests.support.cluster import Cluster
from tests.support.program import Program
from tests.support.proxy import Proxy


def main() -> int:
    """Try them."""
    asked = argparse.ArgumentParser(description=(tests.soak.places.__doc__ or "").partition("\n")[0])
    asked.add_argument("--phase", action="append", choices=PHASES)
    asked.add_argument("--fault", action="append", choices=FAULTS)
    asked.add_argument("--seconds", type=float, default=3600)
    asked.add_argument("--said", action="store_true", help="show what each process has printed")
    given = asked.parse_args()
    end, failed, tried = time.monotonic() + given.seconds, 0, 0
    program, server = Program(), usual_server()
    try:
        for name in given.phase or PHASES:
            for what in given.fault or FAULTS:
                if time.monotonic() > end:
                    break
                begun = time.monotonic()
                wrong, said = one(server, program, name, what)
                failed, tried = failed + bool(wrong), tried + 1
                print(f"{name}: {what}: {wrong or 'equal'} ({time.monotonic() - begun:.0f} s)", flush=True)
                if given.said:
                    print(said, flush=True)
    finally:
        server.stop()
        program.close()
    print(f"{tried - failed} of {tried} equal")
    return int(failed > 0)


def one(server: Cluster, program: Program, phase: str, what: str) -> tuple[list[str], str]:
    """One pair, with a lake of its own; returns what is wrong, and what the process has printed."""
    fault = FAULTS[what]
    with contextlib.ExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="w2l-places-")))
        try:
            here = closing.enter_context(ground(program, server, fault.needs, folder))
            proxy = closing.enter_context(Proxy(here.server.host, here.server.port, here.line and here.line.listener()))
            tried = Tried(here, folder, proxy, PHASES[phase], fault)
            return tried(), tried.said
        except (AssertionError, SystemExit) as error:
            return [str(error)], ""


if __name__ == "__main__":
    sys.exit(main())

"""How far the lake is behind its source: the figures F1 to F8, measured from outside.

    python -m benchmarks.macro.freshness --only F1,F2 --json freshness.json

Each scenario makes a database on a server of its own, runs ``wal2lake run`` as a user does, commits changes from
another process (benchmarks/freshness/load.py says how their LSNs are known) and watches the lake tables' Delta logs
(log_tail.py). A change is visible from the moment of the first Delta commit of its lake table whose merged LSN is at
or above the change's commit LSN. At the end every table is compared with its source; figures of a lake that differs, or
never caught up, are printed with that problem, and the exit code is 1. A goal that is missed does not change it.

    F1  seven tables under a steady mix of changes       F4  a million inserts, beside pg_recvlogical
    F2  many tables changed in one transaction           F5  whether rounds stay flat over thousands
    F3  one large table under random updates             F6  from a start to the first change visible; status
    F7  WAL held by the slot, and F8 memory: both under F1

With a Kafka broker on the same machine, read by a consumer here; only if they are asked for:

    K1  F1 into the lake and into Kafka      K2  F1's load into Kafka alone

A lake in an object store that answers after 30 ms (``--delay``): moto (the extra ``stores``); only if asked for:

    S1  F1's load: freshness, requests for each table and round, CPU

Many tables; only if it is asked for:

    T1  2,000 tables of which 20 change, against 20 tables that all change

F1 with change data feeds; only if it is asked for:

    C1  F1 without and with feeds of its tables, in turn (``--turns``), with REPLICA IDENTITY FULL and DEFAULT

Large tables under random updates, and what reading them costs afterwards; only if they are asked for:

    L1  10 M rows, 1,000 updates/s           L5  20 tables of 2 M rows, 1,000 updates/s together
    L2  50 M rows                            L6  as L1, delete mode soft
    L3  as L1, 10,000 updates/s              L7  as L1, delete mode history
    L4  1 M rows with a column of 4 kB that is stored out of line and does not change, 500 updates/s
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.freshness import large_tables, report
from benchmarks.freshness.bench import QUICK, Bench, Plan, say
from benchmarks.freshness.far_store import s1
from benchmarks.freshness.long_run import f5
from benchmarks.freshness.many_tables import t1
from benchmarks.freshness.reread import r1
from benchmarks.freshness.start import f4, f6
from benchmarks.freshness.under_load import f1, f2, f3
from benchmarks.freshness.with_feed import c1
from benchmarks.freshness.with_kafka import k1, k2
from benchmarks.server import bench_server

SCENARIOS: dict[str, Callable[[Bench], Any]] = {"F1": f1, "F2": f2, "F3": f3, "F4": f4, "F5": f5, "F6": f6, "R1": r1}
KAFKA: dict[str, Callable[[Bench], Any]] = {"K1": k1, "K2": k2}
STORE: dict[str, Callable[[Bench], Any]] = {"S1": s1}
MANY: dict[str, Callable[[Bench], Any]] = {"T1": t1}
LARGE = {name: large_tables.scenario(name) for name in large_tables.NAMES}
FEED: dict[str, Callable[[Bench], Any]] = {"C1": c1}
ALL = SCENARIOS | FEED | KAFKA | STORE | MANY | LARGE


def main() -> int:
    """Measure, print a table, write the figures as JSON."""
    arguments = _arguments()
    signal.signal(signal.SIGTERM, _end)  # as Ctrl-C: what was started is ended
    plan = _plan(arguments)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in ALL if name in arguments.only]
    figures: dict[str, Any] = {"machine": report.machine(), "quick": arguments.quick, "properties": arguments.set}
    with bench_server(autovacuum_naptime="1min") as (cluster, folder):
        figures["server"] = cluster.execute("postgres", "show server_version")[0][0]
        bench = Bench(cluster, folder, plan, dict(arguments.set))
        for name in wanted:
            figures[name] = _measured(name, bench)
            if arguments.json:  # what is there is kept, should a later one fail
                arguments.json.write_text(json.dumps(_plain(figures), indent=1))
    print(report.as_text(figures))
    return 1 if report.problems(figures) else 0


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _measured(name: str, bench: Bench) -> Any:
    say(f"--- {name}")
    began = time.monotonic()
    try:
        return ALL[name](bench)
    except Exception as error:
        # The others can still be measured.
        return {"problem": f"{type(error).__name__}: {error}"}
    finally:
        say(f"--- {name}: {time.monotonic() - began:.0f} s")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=_names, default=list(SCENARIOS), help="comma-separated: F1,L1 (default all F and R)"
    )
    parser.add_argument("--quick", action="store_true", help="small and short: proves that it runs, measures nothing")
    parser.add_argument("--seconds", type=float, help="of measured load of F1, F3, C1, K1, K2, T1 and L1 to L7")
    parser.add_argument("--warm-up", type=float, help="seconds before, not counted")
    parser.add_argument("--rows", type=int, help="of F3's and L1's table, and of R1's large one")
    parser.add_argument("--tables", type=_numbers, help="of F2, comma-separated: 100,500; of T1, the first")
    parser.add_argument("--rounds", type=int, help="of F5")
    parser.add_argument("--turns", type=int, help="of F4 and C1, and runs of F6")
    parser.add_argument(
        "--set", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="connector property"
    )
    parser.add_argument("--rate", type=float, help="changes/s of S1")
    parser.add_argument("--delay", type=float, help="milliseconds of each request of S1")
    parser.add_argument("--json", type=Path, help="file for the figures")
    return parser.parse_args()


def _plan(arguments: argparse.Namespace) -> Plan:
    given = {
        "f1_seconds": arguments.seconds,
        "f3_seconds": arguments.seconds,
        "warm_up_seconds": arguments.warm_up,
        "l_seconds": arguments.seconds,
        "f3_rows": arguments.rows,
        "l_rows": arguments.rows,
        "r1_rows": arguments.rows,
        "s1_rate": arguments.rate,
        "s1_milliseconds": arguments.delay,
        "f2_tables": arguments.tables,
        "t1_tables": None if arguments.tables is None else arguments.tables[0],
        "t1_seconds": arguments.seconds,
        "f5_rounds": arguments.rounds,
        "f4_turns": arguments.turns,
        "f6_runs": arguments.turns,
        "c1_turns": arguments.turns,
    }
    return replace(QUICK if arguments.quick else Plan(), **{k: v for k, v in given.items() if v is not None})


def _names(text: str) -> list[str]:
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    names = ["F1" if name in ("F7", "F8") else name for name in names]
    if not names or any(name not in ALL for name in names):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(ALL)}, found {text!r}")
    return names


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE, found {text!r}")
    return name, value


def _plain(value: Any) -> Any:
    """What JSON can hold: numbers that are none, or have no bound, become null."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(main())

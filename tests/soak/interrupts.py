"""Ctrl-C at random moments of a start, twice: each is answered at once, and nothing of the run is left.

    python -m tests.soak.interrupts --times 20 [--seed N]

Each try starts `wal2lake run` in a session of its own, as a terminal does, on a table whose snapshot has not been
taken, and sends SIGINT to all its processes after 0 to 10 seconds, and again within 3. Exit code 1 if an answer takes
longer than two seconds, an exit longer than fifteen, a stack is printed, or a process is left.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.lake import lake_settings, write_properties

_ROWS = 3_000_000
_TABLE = (
    "create table t (id int primary key, v text); insert into t select g, repeat('x', 50) from generate_series(1, {}) g"
)
_FIRST_SECONDS, _SECOND_SECONDS = 10.0, 3.0
_ANSWER_SECONDS, _END_SECONDS = 2.0, 15.0
# The interpreter's own start, before the program has a line of its own.
_INTERPRETER_SECONDS = 0.15
_ANSWERS = ("Stopping after the current step", "Stopped.")


def session_of(pid: int) -> int:
    """The session that a process belongs to; 0 if it has ended."""
    try:
        state, _, _, session, *_ = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if state == "Z" else int(session)


def left_of(session: int) -> list[str]:
    """The command lines of the processes of a session."""
    pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    found = []
    for pid in pids:
        if session_of(pid) == session:
            found.append(f"{pid} {(Path('/proc') / str(pid) / 'cmdline').read_bytes()[:80]!r}")
    return found


def waited(condition: Callable[[], bool], seconds: float) -> float | None:
    """Seconds until the condition holds; None if it does not."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        if condition():
            return time.monotonic() - started
        time.sleep(0.02)
    return None


def attempt(file: Path, first: float, second: float) -> tuple[str, list[str]]:
    """One try: what it printed last, and what was wrong."""
    wrong = []
    with tempfile.TemporaryFile("w+") as output:
        run = subprocess.Popen(
            [sys.executable, "-m", "cdc_core", "run", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

        def said() -> str:
            return os.pread(output.fileno(), 100_000, 0).decode()

        time.sleep(first)
        os.killpg(run.pid, signal.SIGINT)
        answer = waited(lambda: any(text in said() for text in _ANSWERS), _ANSWER_SECONDS)
        if answer is None:
            wrong.append(f"no answer within {_ANSWER_SECONDS} s")
        if waited(lambda: run.poll() is not None, second) is None:
            os.killpg(run.pid, signal.SIGINT)
        ended = waited(lambda: run.poll() is not None, _END_SECONDS)
        if ended is None:
            wrong.append(f"not ended within {_END_SECONDS} s")
        if waited(lambda: not left_of(run.pid), 5.0) is None:
            wrong.append(f"left: {left_of(run.pid)}")
            os.killpg(run.pid, signal.SIGKILL)
        if "Traceback" in said():
            wrong.append(said()[-2000:])
        last = said().strip().splitlines()[-1:]
        return f"answer {answer or 9:.2f} s, end {ended or 99:.1f} s, exit {run.poll()}, {last}", wrong


def main() -> int:
    """Run the tries."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    asked.add_argument("--times", type=int, default=20)
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = asked.parse_args()
    dice = random.Random(given.seed)
    server = Cluster.start("debian15")
    failed = 0
    try:
        with tempfile.TemporaryDirectory(prefix="w2l-interrupts-") as made:
            for number in range(given.times):
                database = server.database(f"interrupts{number}")
                rows = (
                    f"insert into t select g, repeat('x', 50) from generate_series(1, {_ROWS if number % 2 else 10}) g"
                )
                server.execute(database, f"create table t (id int primary key, v text); {rows}")
                folder = Path(made) / str(number)
                folder.mkdir()
                settings = server.properties(database, **{"table.include.list": "public.t"}, **lake_settings(folder))
                file = write_properties(folder / "t.properties", settings)
                first, second = dice.uniform(_INTERPRETER_SECONDS, _FIRST_SECONDS), dice.uniform(0.0, _SECOND_SECONDS)
                result, wrong = attempt(file, first, second)
                failed += bool(wrong)
                print(f"{first:5.2f} s, {second:4.2f} s later: {result} {wrong or 'ok'}", flush=True)
                server.execute("postgres", "select pg_drop_replication_slot(slot_name) from pg_replication_slots")
    finally:
        server.stop()
    print(f"seed {given.seed}: {given.times - failed} of {given.times} as they should be")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())

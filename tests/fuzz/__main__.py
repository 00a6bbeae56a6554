"""Reads mutated input until the wanted number, or until one is read wrongly: exit code 1, and the input is kept."""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import FrameType

from tests.fuzz import corpus, streams
from tests.fuzz.corpus import Input
from tests.fuzz.mutate import mutated, rearranged
from tests.unit.types.samples import SAMPLES

SECONDS_EACH = 10
MEMORY_BEYOND = 2 << 30
_TYPES = [(kind, name) for name in SAMPLES for kind in ("natural", "event") if corpus.converter(kind, name)]


class SlowError(Exception):
    """An input took longer than its bound."""


def main() -> int:
    """Run; prints the seed first, so that any run can be repeated."""
    arguments = _arguments()
    print(f"seed {arguments.seed}, {arguments.inputs} inputs", flush=True)
    _bound_memory()
    signal.signal(signal.SIGALRM, _too_slow)
    outcomes: Counter[str] = Counter()
    began = time.monotonic()
    for number, found in enumerate(inputs(Random(arguments.seed))):
        if number == arguments.inputs:
            break
        try:
            signal.setitimer(signal.ITIMER_REAL, SECONDS_EACH)
            read = found.judged()
            signal.setitimer(signal.ITIMER_REAL, 0)
        except Exception:
            signal.setitimer(signal.ITIMER_REAL, 0)
            traceback.print_exc()
            print(f"input {number} ({found.kind} {found.of}) is kept in {corpus.keep(found, arguments.corpus)}")
            return 1
        outcomes[f"{found.kind} {'read' if read else 'refused'}"] += 1
    counts = ", ".join(f"{name} {count}" for name, count in sorted(outcomes.items()))
    print(f"{sum(outcomes.values())} inputs in {time.monotonic() - began:.0f} s, none read wrongly: {counts}")
    return 0


def inputs(random: Random) -> Iterator[Input]:
    """Return mutated inputs without end: half streams, a quarter each COPY lines and texts of values."""
    while True:
        kind = random.randrange(4)
        if kind < 2:
            yield _stream(random)
        elif kind == 2:
            width, data = streams.copy_lines(random)
            yield Input.of_bytes("copy", str(width), [mutated(random, data)])
        else:
            yield _texts(random)


def _stream(random: Random) -> Input:
    frames = streams.frames(random)
    if random.random() < 0.1:
        return Input.of_bytes("stream", "", rearranged(random, frames))
    at = random.randrange(len(frames))
    # The header's LSNs have no wrong form, so that the change is made behind them.
    frames[at] = frames[at][:25] + mutated(random, frames[at][25:])
    return Input.of_bytes("stream", "", frames)


def _texts(random: Random) -> Input:
    kind, name = random.choice(_TYPES)
    sample = SAMPLES[name]
    valid = [random.choice(sample.common + sample.rare) for _ in range(random.randint(1, 4))]
    at = random.randrange(len(valid))
    changed = mutated(random, valid[at].encode()).decode(errors="ignore").replace("\0", "")
    valid[at] = changed
    return Input.of_bytes(kind, name, [text.encode() for text in valid])


def _bound_memory() -> None:
    """Let an allocation of more than the bound fail: a length of the input is then no way to end the process."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BEYOND,) * 2)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise SlowError(f"more than {SECONDS_EACH} s for one input")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--corpus", type=Path, default=corpus.FOLDER, help="folder for an input that was read wrongly")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

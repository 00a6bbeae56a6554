"""How fast each type's faces are on one core: rows a second, best of several rounds, and rows that went the slow way.

    python benchmarks/micro/bench_types.py [rows] [rounds] [--check]

Columns of common values, a tenth of them null, in chunks of 10,000 rows as the decoder hands them over. The event face
is timed in every handling mode that changes it, and the slowest is shown beside the default. ``--check`` fails where a
scalar type is below 300,000 rows a second.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa

from cdc_core.schema.table import Column
from cdc_core.types._slow_path import reset_slow_rows, slow_rows
from cdc_core.types.codec import Convert
from cdc_core.types.options import (
    BinaryHandlingMode,
    DecimalHandlingMode,
    HstoreHandlingMode,
    IntervalHandlingMode,
    TimePrecisionMode,
    TypeOptions,
)
from cdc_core.types.registry import resolve
from tests.unit.types.samples import SAMPLES

BOUND = 300_000
CHUNK = 10_000
DEFAULT = TypeOptions(include_unknown_datatypes=True)
MODES: dict[str, TypeOptions] = {
    **{str(mode): TypeOptions(time_precision_mode=mode) for mode in TimePrecisionMode},
    **{str(mode): TypeOptions(decimal_handling_mode=mode) for mode in DecimalHandlingMode},
    **{
        str(mode): TypeOptions(binary_handling_mode=mode, include_unknown_datatypes=True) for mode in BinaryHandlingMode
    },
    "interval string": TypeOptions(interval_handling_mode=IntervalHandlingMode.STRING),
    "hstore map": TypeOptions(hstore_handling_mode=HstoreHandlingMode.MAP),
}
_MODES_OF = {
    "date": tuple(map(str, TimePrecisionMode)),
    "numeric": tuple(map(str, DecimalHandlingMode)),
    "bytea": tuple(map(str, BinaryHandlingMode)),
    "interval": ("interval string",),
    "hstore": ("hstore map",),
}
for _name in ("time", "timestamp"):
    _MODES_OF[_name] = _MODES_OF["date"]
_MODES_OF["money"] = _MODES_OF["domain"] = _MODES_OF["numeric"]


def _clock(n: int) -> str:
    return f"{n % 24:02d}:{n % 60:02d}:{n * 7 % 60:02d}"


def _cycle(name: str) -> Callable[[int], str]:
    common = SAMPLES[name].common
    return lambda n: common[n % len(common)]


# Type → the text of row n. Types whose cost hangs on their values have values of many kinds.
ENTRIES: dict[str, Callable[[int], str]] = {name: _cycle(name) for name in SAMPLES} | {
    "int2": lambda n: str(n % 65_536 - 32_768),
    "int4": lambda n: str(n * 7919 - 1_000_000),
    "int8": lambda n: str(n * 1_000_003 - 10**12),
    "oid": str,
    "float4": lambda n: f"{n % 1000}.{n % 97}",
    "float8": lambda n: repr(n * 1.1e-3),
    "numeric": lambda n: f"{n - 50_000}.{n % 9973:04d}",
    "numeric(10,2)": lambda n: f"{n - 50_000}.{n % 100:02d}",
    "numeric(38,4)": lambda n: f"{n}{n:020d}.{n % 10_000:04d}",
    "money": lambda n: f"{'-' if n % 5 == 0 else ''}${n % 900 + 1},{n % 1000:03d}.{n % 100:02d}",
    "text": lambda n: f"note of order {n} for the customer",
    "varchar": lambda n: f"name {n}",
    "bytea": lambda n: f"\\x{n:032x}",
    "bit(12)": lambda n: f"{n % 4096:012b}",
    "varbit": lambda n: f"{n:b}",
    "uuid": lambda n: f"{n:08x}-9c0b-4ef8-bb6d-{n:012x}",
    "date": lambda n: f"{1970 + n % 80}-{n % 12 + 1:02d}-{n % 28 + 1:02d}",
    "time": lambda n: f"{_clock(n)}.{n % 1_000_000:06d}",
    "time(3)": lambda n: f"{_clock(n)}.{n % 1000:03d}",
    "timetz": lambda n: f"{_clock(n)}.{n % 1_000_000:06d}+{n % 14:02d}",
    "timestamp": lambda n: f"20{n % 90 + 10}-{n % 12 + 1:02d}-{n % 28 + 1:02d} {_clock(n)}.{n % 1_000_000:06d}",
    "timestamp(3)": lambda n: f"20{n % 90 + 10}-{n % 12 + 1:02d}-{n % 28 + 1:02d} {_clock(n)}.{n % 1000:03d}",
    "timestamptz": lambda n: f"20{n % 90 + 10}-{n % 12 + 1:02d}-{n % 28 + 1:02d} {_clock(n)}.{n % 1_000_000:06d}+00",
    "timestamptz(0)": lambda n: f"20{n % 90 + 10}-{n % 12 + 1:02d}-{n % 28 + 1:02d} {_clock(n)}+00",
    "interval": lambda n: f"{n % 9} years {n % 12} mons {n % 30} days {_clock(n)}.{n % 1_000_000:06d}",
}


def column_of(name: str, rows: int) -> pa.Array:
    """Texts of a type, every tenth null."""
    text = ENTRIES[name]
    return pa.array([None if n % 10 == 9 else text(n) for n in range(rows)], pa.string())


def rate(convert: Convert, text: pa.Array, rounds: int) -> float:
    """Rows a second, best of the rounds."""
    chunks = [text.slice(start, CHUNK) for start in range(0, len(text), CHUNK)]
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        for chunk in chunks:
            convert(chunk)
        best = min(best, time.perf_counter() - start)
    return len(text) / best


def measure(name: str, rows: int, rounds: int) -> Iterator[tuple[str, float]]:
    """(face or mode, rows a second) of a type: natural, then the event face by default and in its other modes."""
    sample, text = SAMPLES[name], column_of(name, rows)
    column = Column("c", sample.type, sample.modifier)
    codec = resolve(column, DEFAULT)
    yield "natural", rate(codec.natural.convert, text, rounds)
    if codec.event is None:
        return
    yield "event", rate(codec.event.convert, text, rounds)
    for mode in _MODES_OF.get(name.partition("(")[0], ()):
        event = resolve(column, MODES[mode]).event
        if event is not None:
            yield mode, rate(event.convert, text, rounds)
            if event.snapshot_convert is not None:
                yield f"{mode}, queried", rate(event.snapshot_convert, text, rounds)


def _shown(rows_a_second: float) -> str:
    return "as it is" if rows_a_second > 1e9 else f"{rows_a_second:,.0f}"  # no conversion: the same array comes back


def main(arguments: list[str]) -> int:
    """Print the table; with ``--check`` 1 where a scalar type is too slow."""
    numbers = [int(argument) for argument in arguments if argument.isdigit()]
    rows, rounds = (numbers + [100_000, 3][len(numbers) :])[:2]
    print(f"{rows} rows, best of {rounds} rounds, one core; rows/s")
    print(f"{'type':<16}{'natural':>14}{'event':>14}   {'slowest mode':<30}{'slow rows':>10}")
    below = []
    for name, sample in SAMPLES.items():
        reset_slow_rows()
        rates = dict(measure(name, rows, rounds))
        slow = sum(slow_rows().values()) // rounds
        worst = min(rates, key=lambda face: rates[face])
        shown = f"{worst} {_shown(rates[worst])}"
        event = _shown(rates["event"]) if "event" in rates else "none"
        print(f"{name:<16}{_shown(rates['natural']):>14}{event:>14}   {shown:<30}{slow:>10}")
        if sample.scalar and rates[worst] < BOUND:
            below.append(f"{name} ({shown})")
    if below:
        print("below the bound:", ", ".join(below))
    return 1 if below and "--check" in arguments else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

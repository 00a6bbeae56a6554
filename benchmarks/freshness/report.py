"""The figures as text: one table of the goals, one of where the CPU's time went."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.freshness.large_tables import NAMES as LARGE

_PACKAGES = ("pyspark", "delta-spark", "deltalake", "duckdb", "pyarrow", "psycopg")
_GOALS_F1 = {"p50": 1.5, "p95": 3.0, "max": 6.0}
_GOALS_F2 = {100: 5.0, 500: 8.0}
_GOAL_T1 = 1.2


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _first("/proc/cpuinfo", "model name"),
        "memory_mb": int((_first("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) // 1024,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "java": _java(),
        "load_average_before": os.getloadavg()[0],
        "commit": _commit(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def problems(figures: Mapping[str, Any]) -> list[str]:
    """What kept figures from being what they say, a sentence each."""
    return [f"{name}: {one['problem']}" for name, one in _each(figures) if one.get("problem")]


def as_text(figures: Mapping[str, Any]) -> str:
    """Machine, goals, CPU, problems."""
    facts = figures["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in facts["packages"].items())
    lines = [
        f"{facts['cores']} cores ({facts['processor']}), {facts['memory_mb']:,} MB, {facts['system']}; "
        f"PostgreSQL {figures['server']} on the same machine; Python {facts['python']}, {facts['java']}; {packages}; "
        f"commit {facts['commit']}; load average before: {facts['load_average_before']:.1f}",
        "",
    ]
    if figures["quick"]:
        lines += ["Quick form: small and short, not to be compared with the goals.", ""]
    if figures["properties"]:
        lines += ["Set: " + ", ".join(f"{name}={value}" for name, value in figures["properties"]), ""]
    lines += ["| id | what | p50 | p95 | max | goal | met |", "|---|---|---|---|---|---|---|"]
    lines += [line for name, one in _each(figures) for line in _goal_lines(name, one)]
    lines += ["", "| id | CPU of | cores | CPU-seconds a round |", "|---|---|---|---|"]
    lines += [line for name, one in _each(figures) for line in _cpu_lines(name, one)]
    lines += [f"\nPROBLEM {one}" for one in problems(figures)]
    return "\n".join(lines)


def _each(figures: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ("F1", "F2", "F3", "F4", "F5", "F6", "R1", "C1", "S1", "T1", "K1", "K2", *LARGE):
        found = figures.get(name, [])
        yield from ((name, one) for one in (found if isinstance(found, list) else [found]))


def _goal_lines(name: str, one: Mapping[str, Any]) -> list[str]:
    makers: dict[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
        "F1": _f1,
        "F2": _f2,
        "F3": _f3,
        "F4": _f4,
        "F5": _f5,
        "F6": _f6,
        "R1": _r1,
        "C1": _c1,
        "S1": _s1,
        "T1": _t1,
        "K1": _k1,
        "K2": _k2,
        **{large: partial(_large, large) for large in LARGE},
    }
    try:
        return list(makers[name](one))
    except KeyError:
        return [f"| {name} | not measured: see the problem below | | | | | |"]


def _f1(one: Mapping[str, Any]) -> Iterator[str]:
    what = f"{one['tables']} tables × {one['rows_a_table']:,} rows, {one['changes_a_second']:,.0f} changes/s: seconds"
    seen = one["freshness"]
    is_met = all(seen[part] <= bound for part, bound in _GOALS_F1.items())
    yield _line("F1", what, seen, "p50 ≤ 1.5, p95 ≤ 3, max ≤ 6", is_met)
    first, last = one["p95_of_first_and_last_minute"]
    yield f"| | p95 of the first and of the last minute | | {_number(first)} → {_number(last)} | | not growing | |"
    held = one["wal_held"]["seconds"]
    yield _line("F7", "WAL held by the slot: seconds of it", held, "≤ 3", held["max"] <= 3)
    memory = one["memory_mb"]
    driver, whole = memory.get("driver Python"), memory["product"]
    if driver:
        yield _line("F8", "memory of the driver's Python: MB", driver, "≤ 400", driver["max"] <= 400)
    yield _line("F8", "memory of all processes: MB", whole, "≤ 3,072", whole["max"] <= 3072)


def _f2(one: Mapping[str, Any]) -> Iterator[str]:
    goal = _GOALS_F2.get(one["tables"])
    what = f"{one['tables']} tables, {one['changes_a_table']} changes in each, committed at once: seconds until all"
    seen = one["seconds_until_all"]
    yield _line("F2", what, seen, f"≤ {goal:g}" if goal else "", seen["max"] <= goal if goal else None)


def _f3(one: Mapping[str, Any]) -> Iterator[str]:
    what = f"one table of {one['rows_a_table']:,} rows, {one['changes_a_second']:,.0f} updates/s: seconds"
    yield _line("F3", what, one["freshness"], "p95 ≤ 15", one["freshness"]["p95"] <= 15)


def _f4(one: Mapping[str, Any]) -> Iterator[str]:
    warm, cold = one["warm_ratio"], one["cold_ratio"]
    yield _line("F4", f"{one['rows']:,} inserts, warm: × pg_recvlogical", warm, "≤ 2.0", warm["p50"] <= 2)
    yield _line("F4", "cold, beyond start-up: × pg_recvlogical", cold, "≤ 3.0", cold["p50"] <= 3)


def _f5(one: Mapping[str, Any]) -> Iterator[str]:
    window = one["window"]
    for unit, name in (("seconds", "seconds_a_round"), ("CPU-seconds", "cpu_seconds_a_round")):
        what = f"{unit} a round: rounds {window} to {2 * window} → last {window} of {one['transactions']:,}"
        change = f"{_number(one[f'early_{name}'])} → {_number(one[f'late_{name}'])}"
        ratio = one[f"ratio_of_{name}"]
        yield f"| F5 | {what} | {change} | | × {_number(ratio)} | ≤ 1.3 × | {_mark(ratio <= 1.3)} |"
    for name, what in (("lake_table_most", "a lake table"), ("changelog_most", "a changelog")):
        found = one[name]
        text = f"files {what}, most: active (on disk {found['files_on_disk']:,}; log entries {found['log_entries']:,})"
        is_met = found["active_files"] <= 64
        yield f"| F5 | {text} | | | {found['active_files']:,} | ≤ 64 | {_mark(is_met)} |"


def _f6(one: Mapping[str, Any]) -> Iterator[str]:
    first, status = one["first_change"], one["status"]
    yield _line("F6", f"start → first change visible: seconds ({one['runs']} runs)", first, "≤ 12", first["p50"] <= 12)
    yield _line("F6", "start → all tables up to date: seconds", one["all_changes"], "", None)
    yield _line("F6", "`wal2lake status`: seconds", status, "≤ 2", status["p50"] <= 2)


def _r1(one: Mapping[str, Any]) -> Iterator[str]:
    what = f"{one['tables']} tables under load: seconds before another"
    yield _line("R1", what, one["before"], "", None)
    rows, seconds = one["rows_read_again"], one["seconds_reading"]
    yield _line("R1", f"while one of {rows:,} rows is read again, {seconds:.0f} s", one["during"], "", None)


def _c1(one: Mapping[str, Any]) -> Iterator[str]:
    turns, goal, identity = one["turns"], one["goal"], one["identity"]
    for number in range(len(turns["with"])):
        for kind in ("without", "with"):
            what = f"identity {identity}, turn {number + 1}, {kind} a feed: seconds"
            yield _line("C1", what, turns[kind][number]["freshness"], "", None)
    middle, cpu = one["ratios"]["p95"][0], one["ratios"]["cpu_ms_a_change"][0]
    what = f"identity {identity}, with a feed: p95 × without, median of the turns"
    yield f"| C1 | {what} | | {_number(middle)} | | ≤ {goal} | {_mark(middle <= goal)} |"
    yield f"| C1 | identity {identity}, with a feed: the product's CPU × without | {_number(cpu)} | | | | |"


def _s1(one: Mapping[str, Any]) -> Iterator[str]:
    wait, asked = one["milliseconds_a_request"], one["requests"]
    what = f"{one['tables']} tables, {one['changes_a_second']:,.0f} changes/s, {wait:g} ms a request: seconds"
    yield _line("S1", what, one["freshness"], "p95 ≤ 1.8", one["freshness"]["p95"] <= 1.8)
    count = f"{_number(asked['tables'])} (all: {_number(asked['all'])})"
    what = f"requests a table and round, of {asked['table_rounds']:,}"
    yield f"| S1 | {what} | {count} | | | ≤ 4 | {_mark(asked['tables'] <= 4)} |"
    for name, number in asked["by"].items():
        yield f"| | {name} | {_number(number)} | | | | |"
    dollars = asked["dollars_a_million_changes"]
    yield f"| S1 | requests of a million changes: $ | {dollars:.3f} | | | ≤ 0.05 | {_mark(dollars <= 0.05)} |"


def _t1(one: Mapping[str, Any]) -> Iterator[str]:
    size = f"{one['changed']} of {one['tables']:,} tables, {one['changes_a_table']} changes in each a second"
    for name, what in (("many", size), ("few", f"{one['changed']} tables, the same")):
        yield _line("T1", f"{what}: seconds until all", one["freshness"][name], "", None)
        parts = ", ".join(f"{kind} {_number(value)}" for kind, value in one["cpu_milliseconds_a_round"][name].items())
        yield f"| | CPU-milliseconds a round: {parts} ({one['rounds'][name]} rounds) | | | | | |"
        yield _line("", "memory of all processes: MB", one["memory_mb"][name], "", None)
    cpu, fresh = one["ratio_of_cpu"], one["ratio_of_freshness"]
    bound = f"p50 ≤ {_GOAL_T1:g}"
    yield _line("T1", "CPU of a round, of 20 seconds at a time: many × few", cpu, bound, cpu["p50"] <= _GOAL_T1)
    yield _line("T1", "freshness: many × few", fresh, bound, fresh["p50"] <= _GOAL_T1)


def _k1(one: Mapping[str, Any]) -> Iterator[str]:
    seen = one["freshness"]
    size = f"{one['tables']} tables × {one['rows_a_table']:,} rows, {one['changes_a_second']:,.0f} changes/s"
    yield _line("K1", f"{size}, both sinks: seconds to the lake", seen, "p95 ≤ 2", seen["p95"] <= 2)
    yield _line("K1", "seconds to a consumer of Kafka", one["kafka"], "p95 ≤ 0.5", one["kafka"]["p95"] <= 0.5)


def _k2(one: Mapping[str, Any]) -> Iterator[str]:
    size = f"{one['tables']} tables × {one['rows_a_table']:,} rows, {one['changes_a_second']:,.0f} changes/s"
    what, seen = f"{size}, Kafka alone: seconds to a consumer", one["kafka"]
    yield _line("K2", what, seen, "p95 ≤ 0.5", seen["p95"] <= 0.5)


def _large(name: str, one: Mapping[str, Any]) -> Iterator[str]:
    goal, seen = one["goal"], one["freshness"]
    size = f"{one['tables']} × {one['rows_a_table']:,} rows"
    what = f"{one['what']}, {size}, {one['changes_a_second']:,.0f} updates/s: seconds"
    yield _line(name, what, seen, f"p95 ≤ {goal:g}", seen["p95"] <= goal)
    first, last = one["p95_of_first_and_last_minute"]
    yield f"| | p95 of the first and of the last minute | | {_number(first)} → {_number(last)} | | not growing | |"
    for kind in ("Python workers", "product"):
        memory = one["memory_mb"].get(kind)
        if memory:
            yield _line(name, f"memory, {kind}: MB", memory, "", None)
    reading = one["reading"]
    change = f"{_number(reading['before'])} → {_number(reading['after'])}"
    what, ratio = f"CPU-seconds to read all, before → after ({reading['files']:,} files)", reading["ratio"]
    yield f"| {name} | {what} | {change} | | × {_number(ratio)} | ≤ 1.3 × | {_mark(ratio <= 1.3)} |"


def _cpu_lines(name: str, one: Mapping[str, Any]) -> Iterator[str]:
    for kind, turns in one.get("turns", {}).items():
        each = ", ".join(_number(turn["cpu_ms_a_change"]) for turn in turns)
        yield f"| {name} | identity {one['identity']}, {kind} a feed: CPU ms a change, by turn | {each} | |"
    cores, a_round = one.get("cpu_cores", {}), one.get("cpu_seconds_a_round", {})
    for kind in a_round:
        yield f"| {name} | {kind} | {_number(cores.get(kind))} | {_number(a_round[kind])} |"
    if a_round:
        yield f"| {name} | ({one['rounds']} rounds) | | |"


def _line(name: str, what: str, seen: Mapping[str, float], goal: str, is_met: bool | None) -> str:
    values = " | ".join(_number(seen[part]) for part in ("p50", "p95", "max"))
    return f"| {name} | {what} | {values} | {goal} | {_mark(is_met)} |"


def _mark(is_met: bool | None) -> str:
    return "" if is_met is None else "yes" if is_met else "no"


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _first(path: str, key: str) -> str | None:
    for line in Path(path).read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return "no Java"
    return done.stderr.splitlines()[0] if done.stderr else "Java of unknown version"


def _commit() -> str:
    folder = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"

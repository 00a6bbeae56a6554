"""S1: the lake in an object store that takes a while to answer, and what a round asks of it.

The store is moto's S3 server behind a relay that delays and counts requests (tests/support/store_proxy.py). Server and
relay share the machine's cores with the product; their CPU is told apart. A commit is visible from the moment at which
the relay passes on the store's answer to the PUT of its log entry.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.freshness.bench import Bench, Observed, say, wait_ready
from benchmarks.freshness.log_tail import LogTail
from benchmarks.freshness.processes import DRIVER, POSTGRES, Sampler
from benchmarks.freshness.product import MeasureError, made_site, running
from benchmarks.freshness.under_load import steady
from tests.support.object_stores import SECRETS, made_bucket, missing, s3_server
from tests.support.store_proxy import Request, StoreProxy

_TABLES = ("lake ", "changelog ")
STORE = "store and relay"
_ENTRY_DIGITS = 20
# List prices of S3 standard in us-east-1, dollars for 1,000 requests; DELETE is free.
_PRICES = {"PUT": 0.005, "POST": 0.005, "LIST": 0.005, "GET": 0.0004, "HEAD": 0.0004}


class StoreTail(LogTail):
    """``LogTail`` for a lake behind a relay, which knows the log entries that it has passed on."""

    def __init__(self, store: StoreProxy, prefix: str, slot: str, tables: Sequence[str]) -> None:
        super().__init__(Path(prefix), slot, tables)
        self._store = store
        self._places = {f"{prefix}/{table.replace('.', '/', 1)}": place for place, table in enumerate(tables)}

    def _run(self) -> None:
        seen = 0
        while not self._stop.is_set():
            new = self._store.requests(seen)
            seen += len(new)
            with self._changed:
                for request in new:
                    self._note(request)
                self._changed.notify_all()
            self._stop.wait(0.25)

    def _note(self, request: Request) -> None:
        place = self._places.get(request.table)
        stem = request.key.rpartition("/")[2].removesuffix(".json")
        if request.body and request.status == 200 and place is not None and len(stem) == _ENTRY_DIGITS:
            self._logs[place].take(int(stem), request.body.splitlines(), request.at)


def s1(bench: Bench) -> dict[str, Any]:
    """F1's load, with a lake behind a store of some latency."""
    if missing("s3"):
        raise MeasureError("moto is not installed: pip install 'wal2lake[stores]'")
    plan = bench.plan
    os.environ.update(SECRETS)
    with s3_server() as server:
        bucket, (host, _, port) = made_bucket(server), urlsplit(server).netloc.partition(":")
        with StoreProxy(host, int(port), plan.s1_milliseconds / 1000) as store:
            near = bucket.by(store.url)
            direct = bucket.options
            with (
                made_site(
                    bench.cluster,
                    bench.folder,
                    "s1",
                    plan.s1_tables,
                    plan.f1_rows,
                    storage=direct,
                    **{**bench.properties, **near.properties},
                ) as site,
                StoreTail(store, "lake/test", site.slot, site.tables) as tail,
                Sampler() as sampler,
                running(site.config) as product,
            ):
                sampler.watch(bench.cluster.pid, POSTGRES)
                sampler.watch(product.pid, DRIVER)
                sampler.watch(store.pid, STORE)
                seen = Observed(site, product, tail, sampler)
                wait_ready(seen, plan.ready_seconds)
                say(f"s1: ready after {time.time() - product.started:.0f} s")
                found = steady(bench, seen, plan.f1_rows, plan.s1_rate, plan.f1_seconds)
                found["milliseconds_a_request"] = plan.s1_milliseconds
                found["requests"] = _requests(store.requests(), tail, found)
    return found


def _requests(every: Iterable[Request], tail: StoreTail, found: dict[str, Any]) -> dict[str, Any]:
    """Requests by kind and area, for each table and round; and what they cost by S3's list prices."""
    start, end = found["start"], found["end"]
    during = [each for each in every if start <= each.at <= end]
    commits = sum(start <= commit.time <= end for table in tail.commits().values() for commit in table)
    changes = found["changes_a_second"] * (end - start)
    by = Counter((each.area, each.kind) for each in during)
    dollars = sum(_PRICES.get(each.kind, 0.0) / 1000 for each in during)
    return {
        "table_rounds": commits,
        "all": len(during) / max(1, commits),
        "tables": sum(count for (area, _), count in by.items() if area.startswith(_TABLES)) / max(1, commits),
        "by": {f"{area} {kind}": count / max(1, commits) for (area, kind), count in sorted(by.items())},
        "dollars_a_million_changes": dollars / changes * 1e6 if changes else None,
        "failed": Counter(each.status for each in during if each.status >= 400),
    }

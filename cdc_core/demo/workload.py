"""The shop's workload: inserts, updates that do not change the large texts, key changes, deletes."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

from cdc_core.postgres import PostgresOptions, connect

_TICK_SECONDS = 0.05

# (weight, statement); {r} is a random integer. Each changes about one row.
_CHANGES: tuple[tuple[int, str], ...] = (
    (20, "insert into shop.page_views (path, seconds) values ('/product/{r}', {r} / 7.0)"),
    (15, "insert into shop.orders (customer_id, total, notes) values (1 + {r} % 2000, {r} % 900, '{{\"n\": {r}}}')"),
    (
        12,
        "insert into shop.order_items select max(id), 1, 1 + {r} % 500, 2, 5.25 from shop.orders on "
        "conflict do nothing",
    ),
    (15, "update shop.products set price = {r} % 300 + 0.5, updated_at = now() where id = 1 + {r} % 500"),
    (2, "update shop.products set description = repeat(md5('{r}'), 160) where id = 1 + {r} % 500"),
    (12, "update shop.orders set status = 'shipped' where id = (select max(id) from shop.orders) - {r} % 300"),
    (
        8,
        "update shop.stock set quantity = {r} % 90, counted_at = localtime where warehouse = 'BER' and "
        "product_id = 1 + {r} % 500",
    ),
    (5, "update shop.customers set is_active = not is_active where id = 1 + {r} % 2000"),
    (
        4,
        "update shop.coupons set code = code || '-{r}' where code = (select min(code) from shop.coupons "
        "where length(code) < 60)",
    ),
    (4, "delete from shop.order_items where order_id = 1 + {r} % 5000 and line = 1 + {r} % 3"),
    (3, "delete from shop.orders where id = 1 + {r} % 5000"),
)


class Workload:
    """A thread of small transactions with about ``per_second`` changes. Ends with ``stop`` or the context."""

    def __init__(self, options: PostgresOptions, per_second: int, seed: int = 7) -> None:
        self._options = options
        self._per_tick = max(1, round(per_second * _TICK_SECONDS))
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-workload", daemon=True)
        self.changes = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Workload:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End after the current transaction."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def _run(self) -> None:
        try:
            with connect(self._options, application_name="wal2lake-demo-workload") as connection:
                due = time.monotonic()
                while not self._stop.wait(max(0.0, due - time.monotonic())):
                    # After a delay the rate is not exceeded to catch up.
                    due = max(due + _TICK_SECONDS, time.monotonic())
                    self._tick(connection)
        except BaseException as error:
            self.error = error

    def _tick(self, connection: Any) -> None:
        weights = [weight for weight, _ in _CHANGES]
        with connection.transaction():
            for _, statement in self._random.choices(_CHANGES, weights, k=self._per_tick):
                # PostgreSQL does not accept parameters in many of these places, and the numbers are generated here.
                connection.execute(statement.format(r=self._random.randrange(1_000_000)).encode())
                self.changes += 1

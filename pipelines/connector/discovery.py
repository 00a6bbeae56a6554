"""The captured tables when definitions load: from the cached catalogue, at first from the server, else by name."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from cdc_core.config import ConnectorConfig
from cdc_core.errors import CdcError, TransientError
from cdc_core.schema import TableSchema
from wal2lake.pipelines.connector import catalogue
from wal2lake.pipelines.connector.site import KnownTable

# Definitions load without a server: one that has not answered by then is queried by the sensor.
SERVER_SECONDS = 2.5

Result = TypeVar("Result")
ReadTables = Callable[[], Sequence[TableSchema]]


def known_tables(config: ConnectorConfig) -> tuple[KnownTable, ...]:
    """The tables of the cached catalogue; without one, those that the include list names."""
    return catalogue.read(config.state_path) or catalogue.from_include_list(config.selection.table_include_list)


def fill_catalogues(connectors: Sequence[tuple[ConnectorConfig, ReadTables]]) -> None:
    """Ask the servers of connectors that have no catalogue yet, all at once, for SERVER_SECONDS at most.

    So the first start shows every table, if it can. An error is no reason to fail: the sensor asks again, and its tick
    says what is wrong.
    """
    missing = [connector for connector in connectors if not (connector[0].state_path / catalogue.FILE).exists()]
    if not missing:
        return
    from cdc_core.postgres import answers

    answering = asked([partial(answers, config.postgres) for config, _ in missing], SERVER_SECONDS)
    reachable = [connector for connector, is_there in zip(missing, answering, strict=True) if is_there is True]
    if reachable:
        import cdc_core.assemble  # noqa: F401  (it takes longer than a server, and its time is not the server's)
    for (config, _), tables in zip(reachable, asked([read for _, read in reachable], SERVER_SECONDS), strict=True):
        if not isinstance(tables, CdcError):
            with suppress(OSError):
                catalogue.write(config.state_path, tables)


def asked(questions: Sequence[Callable[[], Result]], seconds: float | None) -> list[Result | CdcError]:
    """Ask all at once: each one's answer or error. No answer within ``seconds`` (None: no limit) is an error, too."""
    answers: list[Result | CdcError] = [TransientError("The server has not answered in time.") for _ in questions]

    def ask(number: int) -> None:
        try:
            answers[number] = questions[number]()
        except CdcError as error:
            answers[number] = error

    threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(len(questions))]
    for thread in threads:
        thread.start()
    deadline = None if seconds is None else time.monotonic() + seconds
    for thread in threads:
        thread.join(None if deadline is None else max(0.0, deadline - time.monotonic()))
    return list(answers)

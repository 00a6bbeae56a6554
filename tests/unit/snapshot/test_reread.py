"""Requests of re-reads: which tables are read together, and whose error an error is."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from cdc_core.errors import (
    CdcError,
    InvariantError,
    LakeError,
    OlderTransactionsError,
    TransientError,
    UnreachableError,
)
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport
from cdc_core.snapshot.reread import Rereads
from tests.support.waits import patient, wait_until

A, B, C, D = (TableId("public", name) for name in "abcd")


class Server:
    """Reads tables. The first call waits in its table until it is let go, so that requests gather behind it.

    ``errors`` are of single tables, ``of_all`` is raised in a call that reads B. ``is_held``: the second
    call waits, too.
    """

    def __init__(
        self, errors: dict[TableId, CdcError] | None = None, of_all: Exception | None = None, is_held: bool = False
    ) -> None:
        self.calls: list[dict[TableId, int]] = []
        self.errors, self.of_all = errors or {}, of_all
        self.began = [threading.Event(), threading.Event()]
        self.let_go = [threading.Event(), threading.Event()]
        if not is_held:
            self.let_go[1].set()

    def take(self, numbers: Any, listen: Any) -> dict[TableId, CdcError]:
        self.calls.append(dict(numbers))
        for place, table in enumerate(numbers):
            if table in self.errors:
                continue
            listen(SnapshotProgress(table, 0, None, False))
            if place == 0 and len(self.calls) <= 2:
                self.began[len(self.calls) - 1].set()
                assert self.let_go[len(self.calls) - 1].wait(patient(30))
            if table == B and self.of_all is not None:
                raise self.of_all
            listen(SnapshotProgress(table, 5, None, True, report=report(table)))
        return {table: self.errors[table] for table in numbers if table in self.errors}


def report(table: TableId) -> SnapshotReport:
    return SnapshotReport(table, 5, Lsn(30), 0.1, 1)


def requested(server: Server, *tables: TableId) -> Rereads:
    """A is being read, and the others were requested meanwhile."""
    rereads = Rereads(server.take)
    rereads.request(A, 1)
    assert server.began[0].wait(patient(30))
    for number, table in enumerate(tables, 2):
        rereads.request(table, number)
        rereads.request(table, 99)
    return rereads


def ended(server: Server, rereads: Rereads, count: int) -> dict[TableId, Any]:
    server.let_go[0].set()
    found: dict[TableId, Any] = {}

    def all_ended() -> bool:
        found.update({each.table: each.report or each.error for each in rereads.finished()})
        return len(found) == count

    wait_until(all_ended, 30, "the results")
    assert not rereads.are_under_way
    rereads.close()
    return found


def test_what_is_requested_while_tables_are_read_is_read_together():
    server = Server()
    rereads = requested(server, B, C, D)
    assert D in rereads and rereads.are_under_way
    assert ended(server, rereads, 4) == {table: report(table) for table in (A, B, C, D)}
    assert server.calls == [{A: 1}, {B: 2, C: 3, D: 4}]


def test_a_table_with_an_error_is_tried_again_alone_before_it_counts():
    error = LakeError("The folder is gone.")
    server = Server({C: error})
    assert ended(server, requested(server, B, C, D), 4) == {A: report(A), B: report(B), C: error, D: report(D)}
    assert server.calls == [{A: 1}, {B: 2, C: 3, D: 4}, {C: 3}]


def test_an_error_of_all_tables_is_that_of_one_of_them():
    """Whichever it is: those that were committed before have been read, and each of the others is tried alone."""
    server = Server(of_all=TransientError("A worker was killed."))
    found = ended(server, requested(server, C, B, D), 4)
    assert found == {A: report(A), C: report(C), B: server.of_all, D: report(D)}
    assert server.calls == [{A: 1}, {C: 2, B: 3, D: 4}, {B: 3}, {D: 4}]


@pytest.mark.parametrize("error", [UnreachableError("Away.", ""), OlderTransactionsError("Open.", "")])
def test_what_another_attempt_would_meet_as_well_is_not_tried_again_at_once(error):
    server = Server(of_all=error)
    assert ended(server, requested(server, C, B, D), 4) == {A: report(A), C: report(C), B: error, D: error}
    assert server.calls == [{A: 1}, {C: 2, B: 3, D: 4}]


def test_an_unexpected_error_ends_no_other_re_read(caplog):
    server = Server(of_all=ValueError("a value"))
    found = ended(server, requested(server, B, C), 3)
    assert found[A] == report(A) and isinstance(found[B], InvariantError) and found[C] == report(C)

    def broken(*_: Any) -> dict[TableId, CdcError]:
        raise ZeroDivisionError

    rereads = Rereads(broken)
    rereads.request(A, 1)
    found = ended(server, rereads, 1)
    assert isinstance(found[A], InvariantError) and "public.a" in found[A].message


def closed(server: Server, rereads: Rereads, call: int) -> list[TableId]:
    """Close during a call; the tables that were read after that."""
    closing = threading.Thread(target=rereads.close)
    closing.start()
    wait_until(rereads._closed.is_set, 30, "the end")
    server.let_go[call].set()
    closing.join(patient(60))
    assert not closing.is_alive()
    return [each.table for each in rereads.finished() if each.report]


def test_at_the_end_what_was_requested_is_not_begun():
    server = Server()
    assert closed(server, requested(server, B, C), 0) == [A] and server.calls == [{A: 1}]


def test_at_the_end_no_further_table_of_several_is_begun():
    server = Server(is_held=True)
    rereads = requested(server, B, C, D)
    server.let_go[0].set()
    assert server.began[1].wait(patient(30))
    assert [each.table for each in rereads.finished()] == [A]
    assert closed(server, rereads, 1) == [B] and server.calls == [{A: 1}, {B: 2, C: 3, D: 4}]

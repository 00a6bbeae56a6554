"""What a stream reports to the server, and when: without a server."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cdc_core.config.connector import from_entries
from cdc_core.postgres.options import LsnFlushMode, PostgresOptions
from cdc_core.postgres.replication import standby_status
from cdc_core.postgres.replication.standby_status import StandbyStatus

ENTRIES = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "t"}
OPTIONS = from_entries(ENTRIES.items()).postgres


class Line:
    """A connection that takes messages, or does not; ``sent`` is (written, confirmed, whether a reply is wanted)."""

    def __init__(self) -> None:
        self.takes = True
        self.sent: list[tuple[int, int, bool]] = []

    def __call__(self, message: bytes) -> int:
        kind, written, flushed, applied, _, wants_reply = struct.unpack("!cQQQqB", message)
        assert (kind, flushed) == (b"r", applied)
        if self.takes:
            self.sent.append((written, flushed, bool(wants_reply)))
        return int(self.takes)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(standby_status, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def status(options: PostgresOptions = OPTIONS, timeout_ms: int = 0) -> StandbyStatus:
    return StandbyStatus(options, 100, timeout_ms)


def test_while_idle_each_end_of_wal_is_confirmed_also_one_that_was_sent_before() -> None:
    found = status()
    found.note_keepalive(200, follows_frames=False)
    assert found.confirmed == 0
    found.set_idle(True)
    assert found.confirmed == 200
    found.note_keepalive(300, follows_frames=False)
    assert found.confirmed == 300
    found.note_frames(310, 400)
    found.note_keepalive(500, follows_frames=False)
    assert (found.confirmed, found.received, found.wal_end) == (300, 310, 500)
    found.set_idle(False)
    assert found.confirmed == 300


def test_an_end_of_wal_behind_frames_that_were_not_returned_is_not_confirmed() -> None:
    found = status()
    found.set_idle(True)
    found.note_keepalive(300, follows_frames=True)
    found.note_keepalive(400, follows_frames=True)
    found.note_frames(250, 290)
    assert (found.confirmed, found.wal_end) == (0, 400)
    found.set_idle(True)
    assert found.confirmed == 400


def test_a_confirmation_is_sent_once_and_again_where_the_connection_did_not_take_it(clock: list[float]) -> None:
    found, line = status(), Line()
    found.note_frames(250, 290)
    found.confirm(200)
    found.confirm(150)
    line.takes = False
    found.report_if_due(line)
    line.takes = True
    found.report_if_due(line)
    found.report_if_due(line)
    assert line.sent == [(290, 200, False)]


@pytest.mark.parametrize(
    "options", [replace(OPTIONS, lsn_flush_mode=LsnFlushMode.MANUAL), replace(OPTIONS, flush_lsn_source=False)]
)
def test_a_slot_that_others_confirm_gets_only_received_positions(clock: list[float], options: PostgresOptions) -> None:
    found, line = status(options), Line()
    found.confirm(200)
    found.report_if_due(line)
    assert not line.sent
    found.report(line)
    assert line.sent == [(200, 0, False)]


@pytest.mark.parametrize(
    ("interval_ms", "timeout_ms", "seconds"), [(2_000, 0, 2.0), (60_000, 0, 10.0), (60_000, 3_000, 1.0)]
)
def test_a_reply_is_asked_for_well_before_the_servers_time_out(
    clock: list[float], interval_ms: int, timeout_ms: int, seconds: float
) -> None:
    found, line = status(replace(OPTIONS, status_update_interval_ms=interval_ms), timeout_ms), Line()
    clock[0] += seconds - 0.01
    found.report_if_due(line)
    assert not line.sent
    clock[0] += 0.02
    found.report_if_due(line)
    found.report_if_due(line)
    assert line.sent == [(100, 0, True)]

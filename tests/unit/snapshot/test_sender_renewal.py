"""When a stream is begun anew: behind every transaction that was open when it was requested, and only once."""

from __future__ import annotations

from dataclasses import dataclass

from cdc_core.lsn import Lsn
from cdc_core.snapshot.sender_renewal import SenderRenewal


@dataclass
class Server:
    """Transactions below ``oldest`` have ended; the WAL ends at ``end``."""

    oldest: int = 10
    end: int = 100

    def oldest_transaction(self) -> int:
        return self.oldest

    def wal_lsn(self) -> Lsn:
        return Lsn(self.end)


def test_a_stream_is_restarted_after_the_transactions_that_were_open():
    server, renewal = Server(), SenderRenewal()
    assert not renewal.is_due(server, 10**9)  # nothing was requested
    assert not renewal.covers(15)
    assert not renewal.is_due(server, 10**9)  # transaction 10 is open
    server.oldest, server.end = 16, 200
    assert not renewal.is_due(server, 199)  # it has ended somewhere before 200
    server.end = 300
    assert renewal.is_due(server, 200)  # what is written later does not matter
    renewal.begin(199)  # the last confirmation did not reach the server
    assert not renewal.covers(15) and renewal.is_due(server, 200)
    renewal.begin(200)
    assert renewal.covers(15) and renewal.covers(16)
    assert not renewal.is_due(server, 10**9)


def test_a_request_meanwhile_moves_the_end():
    server, renewal = Server(oldest=20, end=100), SenderRenewal()
    renewal.covers(15)
    assert not renewal.is_due(server, 99)
    renewal.covers(25)  # another change, beside transaction 20
    assert not renewal.is_due(server, 10**9)
    server.oldest, server.end = 30, 400
    assert not renewal.is_due(server, 399)
    assert renewal.is_due(server, 400)
    renewal.begin(400)
    assert renewal.covers(25) and not renewal.covers(31)

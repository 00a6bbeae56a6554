"""Waiting for the transactions that began before a table was published, with a server that is two numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from cdc_core.errors import OlderTransactionsError
from cdc_core.lake.paths import LakePaths
from cdc_core.snapshot.unsent import UnsentChanges
from tests.unit.schema.versions import ID, table

TABLE = table(ID)


class Server:
    """``oldest``: what the server returns, one after the other, the last for ever."""

    def __init__(self, next_id: int, *oldest: int) -> None:
        self.next_id = next_id
        self.oldest = list(oldest)

    def next_transaction(self) -> int:
        return self.next_id

    def oldest_transaction(self) -> int:
        return self.oldest.pop(0) if len(self.oldest) > 1 else self.oldest[0]


@pytest.fixture
def changes(tmp_path: Path) -> UnsentChanges:
    return UnsentChanges(LakePaths(str(tmp_path), "t"), "slot")


@pytest.mark.parametrize(("oldest", "left"), [(90, [TABLE]), (99, [TABLE]), (100, []), (101, [])])
def test_a_table_waits_until_every_transaction_before_the_bound_has_ended(
    changes: UnsentChanges, oldest: int, left: list[object]
) -> None:
    assert changes.left(Server(100, oldest), [TABLE], 0) == left


def test_the_bound_is_that_of_the_first_question(changes: UnsentChanges) -> None:
    assert changes.left(Server(100, 90), [TABLE], 0) == [TABLE]
    assert changes.left(Server(200, 100), [TABLE], 0) == []


def test_a_bound_that_was_noted_before_is_not_taken_again(changes: UnsentChanges) -> None:
    changes.note([TABLE], 50)
    assert changes.left(Server(100, 50), [TABLE], 0) == []
    assert changes.left(Server(100, 49), [TABLE], 0) == [TABLE]


def test_transactions_that_end_in_time_are_waited_for(changes: UnsentChanges) -> None:
    changes.require(Server(100, 90, 95, 100), [TABLE], 30)


def test_those_that_do_not_are_an_error_with_a_remedy(changes: UnsentChanges) -> None:
    with pytest.raises(OlderTransactionsError) as raised:
        changes.require(Server(100, 90), [TABLE], 0)
    assert str(TABLE.id) in str(raised.value)
    assert "pg_stat_activity" in str(raised.value)

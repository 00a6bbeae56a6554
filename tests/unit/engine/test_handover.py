"""What a start has proved goes to one operation, which closes it; what nobody takes is closed."""

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_core.engine.start.handover import Handover, Proved


def proved(**proof: Any) -> Proved:
    found: Any = SimpleNamespace(**{"is_new": False, "mismatch": None, **proof})
    nothing: Any = None
    return Proved([], found, nothing)


def source(has_claim: bool = True) -> Any:
    return SimpleNamespace(renew=lambda: has_claim)


def given(handover: Handover, what: Proved | None, source: Any) -> list[str]:
    """Give it with something that is open; returns what was closed."""
    closed = list[str]()
    with ExitStack() as opened:
        opened.callback(closed.append, "claim")
        handover.give(source, what, opened.pop_all())
    return closed


def test_who_takes_it_closes_it_and_nobody_gets_it_twice() -> None:
    with Handover() as handover:
        what, mine = proved(), source()
        closed = given(handover, what, mine)
        with ExitStack() as stream:
            assert handover.take(stream) == (mine, what)
            assert handover.take(stream) is None and closed == []
        assert closed == ["claim"]
    assert closed == ["claim"]


def test_what_nobody_takes_is_closed_after_an_error_too() -> None:
    with pytest.raises(KeyboardInterrupt), Handover() as handover:
        closed = given(handover, proved(), source())
        raise KeyboardInterrupt
    assert closed == ["claim"]


@pytest.mark.parametrize("has_claim", [True, False])
def test_where_nothing_is_proved_there_is_the_claim_while_the_server_has_it(has_claim: bool) -> None:
    with Handover() as handover:
        mine = source(has_claim)
        closed = given(handover, None, mine)
        with ExitStack() as stream:
            assert handover.take(stream) == ((mine, None) if has_claim else None)
            # Before the stream claims anew.
            assert closed == ([] if has_claim else ["claim"])
        assert closed == ["claim"]


@pytest.mark.parametrize(
    ("proof", "goes_on"), [({}, True), ({"is_new": True}, False), ({"mismatch": "the slot is ahead"}, False)]
)
def test_only_a_recorded_stream_without_a_gap_continues(proof: dict[str, Any], goes_on: bool) -> None:
    assert proved(**proof).goes_on is goes_on

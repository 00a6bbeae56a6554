"""A batch is nothing but its rows: what they become does not depend on how they are cut."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from cdc_core.events.envelope.context import EnvelopeContext
from tests.unit.events.envelope.tiny import CUSTOMERS, UNSENT, TinyPlan, context, events, made

_TEXTS = st.none() | st.sampled_from(["", "a", 'q"', "日"])
_ROWS = st.fixed_dictionaries(
    {"id": st.sampled_from(["1", "2", "x", None]), "name": _TEXTS, "note": _TEXTS | st.just(UNSENT)}
)
_OLD = st.fixed_dictionaries({"id": st.sampled_from(["1", "2"]), "name": _TEXTS, "note": _TEXTS})
_CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("I"), st.none(), _ROWS),
        st.tuples(st.just("U"), st.none(), _ROWS),
        st.tuples(st.sampled_from(["UO", "UK"]), _OLD, _ROWS),
        st.tuples(st.sampled_from(["DO", "DK"]), _OLD, st.none()),
    ),
    max_size=8,
)


def marked(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("<", pc.fill_null(text, "nothing"), ">", "")


_PLANS = st.sampled_from([[], [TinyPlan("note", mapper=marked)], [TinyPlan("name", included=False)]])
_CONTEXTS = st.sampled_from(
    [
        context(),
        context(skipped="d"),
        context(skipped="cu"),
        context(tombstones_on_delete=False, extended_headers_enabled=False),
        context(skip_messages_without_change=True),
    ]
)


@given(_CHANGES, _PLANS, _CONTEXTS)
def test_many_rows_at_once_are_as_one_by_one(changes: list[Any], plans: list[Any], ctx: EnvelopeContext) -> None:
    table_events = events(CUSTOMERS, ctx, plans)
    alone = [record for change in changes for record in made(table_events, [change])]
    together = made(table_events, changes)
    for record in alone + together:
        if record["value"]:  # LSNs follow the place in the batch
            record["value"]["payload"]["source"].pop("lsn")
            record["value"]["payload"]["source"].pop("sequence")
    assert together == alone

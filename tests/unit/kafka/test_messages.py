"""RECORDS become what a producer takes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cdc_core.envelope.record import one_record, records
from cdc_core.kafka.messages import Messages, key_columns

TEXT = pa.large_string()


def test_headers_keep_the_text_of_their_values() -> None:
    text = (
        '[{"key":"a","value":{"schema":{"type":"double","optional":false},"payload":1.0E10}},'
        '{"key":"b\\"c","value":"x]},{"},{"key":"d","value":null}]'
    )
    assert Messages().headers(text) == [
        ("a", b'{"schema":{"type":"double","optional":false},"payload":1.0E10}'),
        ('b"c', b'"x]},{"'),
        ("d", b"null"),
    ]
    assert Messages().headers("[]") == []


def test_headers_that_are_texts_have_no_quotes() -> None:
    text = '[{"key":"a","value":"caf\u00e9"},{"key":"b","value":null},{"key":"c","value":{"id":1}}]'
    found = Messages(are_texts=True).headers(text)
    assert found == [("a", "caf\u00e9".encode()), ("b", None), ("c", b'{"id":1}')]


def test_records_are_messages_in_order() -> None:
    rows = 5000
    key = pa.array([f'{{"id":{n}}}' for n in range(rows)], TEXT)
    value = pa.array([None if n % 2 else "v" for n in range(rows)], TEXT)
    table = pa.concat_tables(
        [
            records(np.arange(rows), np.zeros(rows), "s.t", key=key, value=value),
            one_record(rows, 0, "beat", "k", "v", 0),
        ]
    )
    found = list(Messages().of(table))
    assert [key for _, key, *_ in found[:rows]] == [b'{"id":%d}' % n for n in range(rows)]
    assert [value for _, _, value, *_ in found[:4]] == [b"v", None, b"v", None]
    assert {(topic, *rest) for topic, _, _, _, *rest in found} == {("s.t", -1, 0), ("beat", 0, 0)}


def test_names_of_key_columns() -> None:
    assert key_columns(b'{"schema":{},"payload":{"id":5,"part":"x"}}') == ("id", "part")
    assert key_columns(b'{"id":5}') == ("id",)
    assert key_columns(b"\x00\x00") == ()
    assert key_columns(None) == ()

"""RECORDS become what a producer takes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from cdc_core.events.envelope.record import one_record, records
from cdc_core.events.kafka.messages import NO_PARTITION, NOW, Messages, TopicRecords, key_columns

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


def sent(table: pa.Table) -> Iterator[tuple[object, ...]]:
    """Each record as librdkafka gets it."""
    for found in Messages().of(table):
        if isinstance(found, TopicRecords):
            yield from ((found.topic, row["key"], row["value"], [], NO_PARTITION, NOW) for row in found.messages)
        else:
            yield from found


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
    found = list(sent(table))
    assert [key for _, key, *_ in found[:rows]] == [b'{"id":%d}' % n for n in range(rows)]
    assert [value for _, _, value, *_ in found[:4]] == [b"v", None, b"v", None]
    assert {(topic, str(headers), *rest) for topic, _, _, headers, *rest in found} == {
        ("s.t", "[]", -1, 0),
        ("beat", "[]", 0, 0),
    }
    assert [type(part) is TopicRecords for part in Messages().of(table)] == [True, True, False]


def changed(table: pa.Table, **columns: list[object]) -> pa.Table:
    for name, values in columns.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    return table


@pytest.mark.parametrize(
    "columns",
    [
        {"topic": ["a", "b", "a"]},
        {"headers": ["[]", '[{"key":"h","value":1}]', "[]"]},
        {"headers": ['[{"key":"h","value":1}]'] * 3},
        {"partition": [None, 4, None]},
        {"timestamp": [5, None, None]},
    ],
)
def test_what_is_a_records_own_is_sent_with_it(columns: dict[str, list[object]]) -> None:
    values = pa.array(["v"] * 3, TEXT)
    alike = records(np.arange(3), np.zeros(3), "a", key=values, value=values)
    assert isinstance(next(Messages().of(alike)), TopicRecords)
    found = list(sent(changed(alike, **columns)))
    topics, partitions, times = (
        columns.get("topic", ["a"] * 3),
        columns.get("partition", []),
        columns.get("timestamp", []),
    )
    assert [row[0] for row in found] == topics
    assert [len(row[3]) for row in found] == [len(text) > 2 for text in columns.get("headers", ["[]"] * 3)]
    assert [row[4] for row in found] == ([-1 if at is None else at for at in partitions] or [-1] * 3)
    assert [row[5] for row in found] == ([0 if at is None else at for at in times] or [0] * 3)


def test_names_of_key_columns() -> None:
    assert key_columns(b'{"schema":{},"payload":{"id":5,"part":"x"}}') == ("id", "part")
    assert key_columns(b'{"id":5}') == ("id",)
    assert key_columns(b"\x00\x00") == ()
    assert key_columns(None) == ()

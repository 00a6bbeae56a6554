"""Signals: what a row or a line asks for, what is malformed, and the channels that are asked for them."""

import json

import pytest

from cdc_core.errors import ConfigError
from cdc_core.schema.table import TableId
from cdc_core.snapshot.signals.actions import load_actions
from cdc_core.snapshot.signals.channels import FileChannel, Inbox, append_signal
from cdc_core.snapshot.signals.options import parse_actions
from cdc_core.snapshot.signals.parse import (
    ExecuteSnapshot,
    Log,
    MalformedSignalError,
    PauseSnapshot,
    ResumeSnapshot,
    Signal,
    SnapshotKind,
    StopSnapshot,
    action_of,
    read_line,
    read_signal,
)
from tests.support.clock import Clock


def asked(kind, **data):
    return action_of(read_signal("id-1", kind, json.dumps(data)))


def test_a_snapshot_of_tables_is_incremental_unless_it_says_otherwise():
    assert asked("execute-snapshot", **{"data-collections": ["s.a", " s.b "]}) == ExecuteSnapshot(("s.a", "s.b"))
    blocking = asked("execute-snapshot", **{"data-collections": ["s.a"], "type": "BLOCKING"})
    assert blocking.kind is SnapshotKind.BLOCKING


def test_conditions_belong_to_the_tables_that_their_patterns_match():
    found = asked(
        "execute-snapshot",
        **{
            "data-collections": ["s.a", "s.b"],
            "additional-conditions": [{"data-collection": "s.A", "filter": "id > 3"}],
            "additional-condition": "id > 9",
            "surrogate-key": "u",
        },
    )
    assert found.condition_of(TableId("s", "a")) == "id > 3"
    assert found.condition_of(TableId("s", "b")) == "id > 9"
    assert found.surrogate_key == "u"


def test_a_name_in_quotes_is_the_table_of_that_name():
    for entry, table, other in (
        ('"s"."My.Table"', TableId("s", "My.Table"), TableId("s", "my.table")),
        ('"s"."a(b"', TableId("s", "a(b"), TableId("s", "ab")),
        ('db."s".t', TableId("s", "t"), TableId("t", "s")),
        ("s.t.*", TableId("s", "T1"), TableId("s", '"t"')),
    ):
        data = {"data-collections": [entry], "additional-conditions": [{"data-collection": entry, "filter": "x"}]}
        found = asked("execute-snapshot", **data)
        assert (found.condition_of(table), found.condition_of(other)) == ("x", ""), entry


def test_the_other_signals():
    assert asked("stop-snapshot") == StopSnapshot()
    assert asked("stop-snapshot", **{"data-collections": ["s.*"], "type": "incremental"}) == StopSnapshot(("s.*",))
    assert asked("pause-snapshot", type="INCREMENTAL") == PauseSnapshot()
    assert asked("resume-snapshot") == ResumeSnapshot()
    assert asked("log", message="at {}") == Log("at {}")
    assert action_of(read_signal("1", "my-signal", None)) is None


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("execute-snapshot", None, "data-collections is not a list"),
        ("execute-snapshot", "{", "not JSON"),
        ("execute-snapshot", "[1]", "not a JSON object"),
        ("execute-snapshot", '{"data-collections": []}', "names no table"),
        ("execute-snapshot", '{"data-collections": "s.a"}', "not a list"),
        ("execute-snapshot", '{"data-collections": [1]}', "not a list of strings"),
        ("execute-snapshot", '{"data-collections": ["s.(a"]}', "not a regular expression"),
        ("execute-snapshot", '{"data-collections": ["s.a"], "type": "quick"}', "neither incremental nor blocking"),
        ("execute-snapshot", '{"data-collections": ["s.a"], "surrogate-key": 1}', "surrogate-key"),
        ("execute-snapshot", '{"data-collections": ["s.a"], "additional-conditions": [1]}', "list of objects"),
        (
            "execute-snapshot",
            '{"data-collections": ["s.a"], "additional-conditions": [{"data-collection": "s.a"}]}',
            "filter is missing",
        ),
        ("stop-snapshot", '{"type": "blocking"}', "only incremental snapshots"),
        ("log", "{}", "message is missing"),
    ],
)
def test_what_says_nothing_clear_is_refused(kind, data, said):
    with pytest.raises(MalformedSignalError, match=said):
        action_of(read_signal("1", kind, data))


def test_a_refusal_does_not_repeat_what_the_signal_holds():
    with pytest.raises(MalformedSignalError) as caught:
        action_of(read_signal("1", "execute-snapshot", '{"data-collections": ["(secret"], "type": "secret"}'))
    assert "secret" not in str(caught.value)


def test_a_line_holds_its_data_as_an_object_or_as_text():
    data = {"message": "m"}
    expected = Signal("1", "log", data)
    assert read_line(json.dumps({"id": "1", "type": "log", "data": data})) == expected
    assert read_line(json.dumps({"id": "1", "type": "log", "data": json.dumps(data)})) == expected
    assert read_line('{"type": "log"}') == Signal("", "log", {})
    for line in ('{"id": "1"}', '{"type": "log", "data": [1]}', "nonsense"):
        with pytest.raises(MalformedSignalError):
            read_line(line)


def test_a_file_is_looked_into_at_its_interval_and_emptied(tmp_path, caplog):
    path, clock = tmp_path / "folder" / "signals.txt", Clock()
    channel = FileChannel(path, 1000, clock)
    assert channel.take() == [], "no file yet"
    append_signal(path, '{"id": "1", "type": "log", "data": {"message": "secret"}}')
    append_signal(path, "not a signal: secret")
    assert channel.take() == [], "the interval is not over"
    clock.now = 1.0
    assert [signal.id for signal in channel.take()] == ["1"]
    assert "Line 2" in caplog.text and "secret" not in caplog.text
    assert path.read_text() == ""


def test_a_line_that_is_half_written_waits_for_its_end(tmp_path):
    path, clock = tmp_path / "signals.txt", Clock()
    channel = FileChannel(path, 1000, clock)
    path.write_text('{"id": "1", "type": "log"}\n{"id": "2", "ty')
    assert [signal.id for signal in channel.take()] == ["1"]
    with path.open("a") as file:
        file.write('pe": "log"}')
    clock.now = 1.0
    assert [signal.id for signal in channel.take()] == ["2"]
    assert path.read_text() == ""


def test_a_file_whose_lines_are_held_gives_them_once_and_keeps_them_until_they_are_done(tmp_path):
    path, clock = tmp_path / "signals.txt", Clock()
    channel = FileChannel(path, 1000, clock, holds=True)
    append_signal(path, '{"id": "1", "type": "log"}')
    assert [signal.id for signal in channel.take()] == ["1"]
    append_signal(path, '{"id": "2", "type": "log"}')
    clock.now = 1.0
    assert channel.take() == [] and len(path.read_text().splitlines()) == 2
    assert [signal.id for signal in FileChannel(path, 1000, clock, holds=True).take()] == ["1", "2"], "a killed run"
    channel.done()
    clock.now = 2.0
    assert [signal.id for signal in channel.take()] == ["2"]
    channel.done()
    assert path.read_text() == ""


def test_an_inbox_gives_each_signal_once():
    inbox = Inbox()
    inbox.put(Signal("1", "log"))
    assert [signal.id for signal in inbox.take()] == ["1"]
    assert inbox.take() == []


class Mine:
    def arrived(self, signal):
        pass


class Deaf:
    pass


def test_actions_are_named_by_their_type():
    found = load_actions(parse_actions(f"mine={__name__}.Mine, other = {__name__}.Mine"))
    assert list(found) == ["mine", "other"]
    with pytest.raises(ValueError, match="my-signal"):
        parse_actions("mine")


@pytest.mark.parametrize("path", ["Mine", "no_such_package_at_all.Mine", f"{__name__}.Deaf", f"{__name__}.Nothing"])
def test_an_action_that_cannot_be_created_is_reported(path):
    with pytest.raises(ConfigError, match=r"wal2lake\.signal\.actions"):
        load_actions([("mine", path)])

"""Several connectors in one process: their faults are kept apart, and a failed one starts again from its file."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from cdc_core.config.connector import load
from cdc_core.connector_threads import current_connector
from cdc_core.engine.reports import StreamReport, Until
from cdc_core.engine.run_state import WaitingFile
from cdc_core.errors import ConfigError, SourceError
from cdc_core.lsn import Lsn
from cdc_core.postgres.sessions import Sessions
from cdc_core.supervise import ConnectorGroup, GroupHooks, ServiceHooks, group
from tests.support.waits import patient, wait_until

LOST = SourceError("The slot is lost.", "Take a snapshot.")
DONE = StreamReport(1, 2, Lsn(3), (), 0.1, "request")


class Stub:
    """Streams until ``stop``, or raises the next of the test's faults of its name, once it has begun."""

    def __init__(self, path, faults, stop):
        self.config = load(path)
        self.name, self.slot, self.streams = self.config.schema.topic_prefix, self.config.postgres.slot_name, True
        self.context = SimpleNamespace(
            sessions=Sessions(was_accepted=True), name=self.name, config=self.config, counted=[]
        )
        self._faults, self._stop = faults.setdefault(self.name, []), stop

    def observed(self):
        return nullcontext()

    def initial_snapshot(self, **_):
        return []

    def stream(self, until, on_start, **_):
        if self._faults:
            raise self._faults.pop(0)
        on_start()
        if until == Until():
            assert self._stop.wait(patient(20))
        return DONE


class Trial:
    """A group of stubs in a thread, and what it says, by connector."""

    def __init__(self, folder):
        self.folder, self.faults, self.stop = folder, {}, threading.Event()
        self.streams, self.failed, self.ended = [], [], []
        self.group = self.result = None

    def file(self, name, **properties):
        path = self.folder / f"{name}.properties"
        content = {
            "database.hostname": "h",
            "database.user": "u",
            "database.dbname": "d",
            "topic.prefix": name,
            "slot.name": name,
            "wal2lake.lake.path": self.folder / "lake",
            "wal2lake.state.path": self.folder / "state",
            **properties,
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in content.items() if value is not None))
        return path

    def open(self, *paths):
        self.group = ConnectorGroup(paths, lambda path: Stub(path, self.faults, self.stop))
        return self

    def run(self, until=None):
        hooks = GroupHooks(
            lambda connector: ServiceHooks(
                on_snapshot=lambda taken: None,
                on_wait=lambda waiting: None,
                on_resume=lambda seconds, attempts: None,
                on_stream=lambda: self.streams.append(current_connector()),
                should_stop=self.stop.is_set,
            ),
            lambda connector, report: self.ended.append(connector.name),
            lambda error, seconds: self.failed.append((current_connector(), error, seconds)),
            self.stop.is_set,
        )
        self.result = self.group.run(until or Until(), hooks)
        return self.result

    def start(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def end(self):
        self.stop.set()
        self.thread.join(patient(20))
        assert not self.thread.is_alive()
        return self.result


@pytest.fixture
def trial(tmp_path, monkeypatch):
    monkeypatch.setattr(group, "_FIRST_SECONDS", 0.01)
    trial = Trial(tmp_path)
    yield trial
    trial.stop.set()


def test_a_failed_connector_starts_again_while_others_run(trial):
    a, b = trial.file("a"), trial.file("b")
    trial.faults["b"] = [LOST, LOST, ValueError("a row's value")]
    trial.open(a, b).start()
    wait_until(lambda: sorted(trial.streams) == ["a", "b"], 20, "both streams")
    assert [(name, error, seconds) for name, error, seconds in trial.failed[:2]] == [
        ("b", LOST, 0.01),
        ("b", LOST, 0.02),
    ]
    assert trial.failed[2][0] == "b" and isinstance(trial.failed[2][1], ValueError) and len(trial.failed) == 3
    assert trial.end() is True and sorted(trial.ended) == ["a", "b"]


def test_status_and_health_show_a_failed_connector_until_it_starts_again(trial, monkeypatch):
    monkeypatch.setattr(group, "_FIRST_SECONDS", 600.0)
    a, b = trial.file("a"), trial.file("b")
    trial.faults["b"] = [LOST]
    trial.open(a, b).start()
    file = WaitingFile(trial.folder / "state", "b", "b")
    waiting = wait_until(file.read, 20, "the file")
    assert (waiting.cause, waiting.remedy, waiting.retries) == (LOST.message, LOST.remedy, 1)
    failed = next(member for member in trial.group._members if member.name == "b")
    assert failed.metrics.health().state == "failed" and failed.metrics.health().cause == LOST.message
    assert trial.end() is False
    assert trial.streams == ["a"]


def test_a_group_in_which_nothing_runs_ends(trial, monkeypatch):
    monkeypatch.setattr(group, "_FIRST_SECONDS", 600.0)
    trial.faults |= {"a": [LOST], "b": [LOST]}
    trial.open(trial.file("a"), trial.file("b")).start()
    trial.thread.join(patient(20))
    assert not trial.thread.is_alive() and trial.result is False
    assert sorted(name for name, *_ in trial.failed) == ["a", "b"]


def test_a_group_with_limits_starts_nothing_again(trial):
    trial.faults["b"] = [LOST]
    assert trial.open(trial.file("a"), trial.file("b")).run(Until(idle_seconds=1.0)) is False
    assert trial.failed == [("b", LOST, None)] and trial.ended == ["a"] == trial.streams


def test_a_file_that_is_not_valid_fails_alone_and_is_read_again(trial):
    a, b = trial.file("a"), trial.file("b", **{"snapshot.mode": "sometimes"})
    trial.open(a, b).start()
    wait_until(lambda: trial.failed and trial.streams, 20, "a failure and a stream")
    name, error, _ = trial.failed[0]
    assert name == str(b) and isinstance(error, ConfigError) and "snapshot.mode" in error.message
    trial.file("b")
    wait_until(lambda: "b" in trial.streams, 20, "the corrected one")
    assert trial.end() is True and sorted(trial.ended) == ["a", "b"]


def test_a_corrected_file_must_fit_the_running_ones(trial):
    a, b = trial.file("a"), trial.file("b", **{"snapshot.mode": "sometimes"})
    trial.open(a, b).start()
    wait_until(lambda: trial.failed and trial.streams, 20, "a failure and a stream")
    trial.file("b", **{"slot.name": "a"})
    wait_until(lambda: "same slot.name" in str(trial.failed[-1][1]), 20, "the refusal")
    trial.file("b")
    wait_until(lambda: "b" in trial.streams, 20, "the corrected one")
    assert trial.end() is True and trial.ended.count("a") == 1


def test_files_that_cannot_run_together_or_at_all_start_nothing(trial):
    with pytest.raises(ConfigError, match="same slot"):
        trial.open(trial.file("a"), trial.file("b", **{"slot.name": "a"}))
    wrong = [trial.file(name, **{"database.dbname": None}) for name in ("a", "b")]
    with pytest.raises(ConfigError, match="dbname is missing"):
        trial.open(*wrong)
    assert not trial.streams

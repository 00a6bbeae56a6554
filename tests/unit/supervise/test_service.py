"""A run that stays, with a connector whose attempts fail as the test says."""

import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from cdc_core.config.connector import from_entries
from cdc_core.engine.reports import StreamReport, Until
from cdc_core.errors import CommitConflictError, InUseError, SourceError, UnknownHostError, UnreachableError
from cdc_core.lsn import Lsn
from cdc_core.postgres.sessions import Sessions
from cdc_core.supervise import service
from cdc_core.supervise.service import Service, ServiceHooks
from tests.support.waits import patient

LOST = UnreachableError("The connection was lost.", "Check it.")
DONE = StreamReport(1, 2, Lsn(3), (), 0.1, "request")


class Connector:
    """Raises ``faults`` one after the other, then streams to the end. ``accepted``: the slot was claimed."""

    def __init__(self, folder, faults, *, accepted=True, **properties):
        self.config = from_entries(
            {
                "database.hostname": "h",
                "database.user": "u",
                "database.dbname": "d",
                "topic.prefix": "shop",
                "wal2lake.lake.path": str(folder / "lake"),
                "wal2lake.state.path": str(folder / "state"),
                "errors.retry.delay.initial.ms": "1",
                "errors.retry.delay.max.ms": "2",
                **properties,
            }.items()
        )
        self.context = SimpleNamespace(
            sessions=Sessions(was_accepted=accepted), name="shop", config=self.config, counted=[]
        )
        self.name, self.slot, self.streams = "shop", "debezium", True
        self.faults, self.limits = list(faults), []

    def observed(self):
        return nullcontext()

    def initial_snapshot(self, **_):
        return []

    def stream(self, until, on_start, **_):
        self.limits.append(until)
        if self.faults:
            raise self.faults.pop(0)
        on_start()
        return DONE


class Said:
    def __init__(self, stop=lambda: False):
        self.waits, self.resumed = [], []
        self.hooks = ServiceHooks(
            on_snapshot=lambda taken: None,
            on_wait=self.waits.append,
            on_resume=lambda seconds, attempts: self.resumed.append(attempts),
            should_stop=stop,
        )


@pytest.fixture(autouse=True)
def no_server(monkeypatch):
    monkeypatch.setattr(service, "answers", lambda options: True)


def test_a_fault_that_passes_is_waited_for_and_said_once(tmp_path):
    said, connector = Said(), Connector(tmp_path, [LOST, LOST, CommitConflictError(), LOST])
    report = Service(connector, Until(), said.hooks).run()
    assert report is not None and report.lsn == DONE.lsn
    assert [each.cause for each in said.waits] == [LOST.message]
    assert said.resumed == [4]
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["reached-shop-debezium.json"]


def test_a_person_is_waited_for_by_ending(tmp_path):
    gone = SourceError("Slot s does not exist.", "Take a snapshot.")
    said, connector = Said(), Connector(tmp_path, [LOST, gone])
    with pytest.raises(SourceError, match="does not exist"):
        Service(connector, Until(), said.hooks).run()
    assert len(said.waits) == 1 and said.resumed == []
    with pytest.raises(InUseError):
        Service(Connector(tmp_path, [InUseError("Taken.", "")]), Until(), said.hooks).run()


def test_before_the_server_was_reached_a_refusal_ends_the_run(tmp_path):
    with pytest.raises(UnreachableError):
        Service(Connector(tmp_path, [LOST], accepted=False), Until(), Said().hooks).run()


def test_a_server_that_was_reached_before_is_waited_for_at_the_start(tmp_path):
    Service(Connector(tmp_path, []), Until(), Said().hooks).run()
    said = Said()
    gone = UnknownHostError("The host name does not exist.", "Correct it.")
    assert Service(Connector(tmp_path, [LOST, gone], accepted=False), Until(), said.hooks).run() is not None
    assert [each.cause for each in said.waits] == [LOST.message] and said.resumed == [2]
    # Not by a run that ends by itself, not with another address, and not what only a person can mend.
    refused = SourceError("The server refuses the password.", "Correct it.")
    for fault, until, changed in (
        (LOST, Until(max_seconds=60.0), {}),
        (LOST, Until(), {"database.port": "5433"}),
        (LOST, Until(), {"database.hostname": "h2"}),
        (LOST, Until(), {"errors.max.retries": "0"}),
        (refused, Until(), {}),
    ):
        with pytest.raises(type(fault)):
            Service(Connector(tmp_path, [fault], accepted=False, **changed), until, Said().hooks).run()


def test_retries_have_a_limit(tmp_path):
    said = Said()
    connector = Connector(tmp_path, [LOST] * 9, **{"errors.max.retries": "3"})
    with pytest.raises(UnreachableError):
        Service(connector, Until(), said.hooks).run()
    assert len(connector.limits) == 4
    with pytest.raises(UnreachableError):
        Service(Connector(tmp_path, [LOST], **{"errors.max.retries": "0"}), Until(), said.hooks).run()


def test_limits_of_a_run_count_over_all_attempts(tmp_path):
    connector = Connector(
        tmp_path, [LOST], **{"errors.retry.delay.initial.ms": "60", "errors.retry.delay.max.ms": "60"}
    )
    Service(connector, Until(max_seconds=5.0), Said().hooks).run()
    first, second = connector.limits
    assert second.max_seconds < first.max_seconds - 0.05
    connector = Connector(tmp_path, [LOST] * 999)
    with pytest.raises(UnreachableError):
        Service(connector, Until(max_seconds=0.2), Said().hooks).run()


def test_a_request_to_stop_ends_the_wait_without_an_error(tmp_path):
    stopping = []
    said = Said(lambda: bool(stopping))
    connector = Connector(tmp_path, [LOST] * 999, **{"errors.retry.delay.initial.ms": "60000"})
    connector.config = replace(
        connector.config, engine=replace(connector.config.engine, errors_retry_delay_max_ms=60_000)
    )
    asked = service._LOOK_SECONDS

    def sleep(seconds):
        assert seconds <= asked
        stopping.append(1)

    said.hooks = replace(said.hooks, should_stop=lambda: bool(stopping))
    before = time.monotonic()
    original, service.time.sleep = service.time.sleep, sleep
    try:
        report = Service(connector, Until(), said.hooks).run()
    finally:
        service.time.sleep = original
    assert report is not None and report.stopped_by == "request"
    assert time.monotonic() - before < patient(30)


def test_a_wait_ends_when_a_server_that_was_away_is_back(tmp_path, monkeypatch):
    answers = iter([False, False, True])
    monkeypatch.setattr(service, "answers", lambda options: next(answers))
    monkeypatch.setattr(service, "_LOOK_SECONDS", 0.01)
    long = {"errors.retry.delay.initial.ms": "60000", "errors.retry.delay.max.ms": "60000"}
    connector = Connector(tmp_path, [LOST], **long, **{"retriable.restart.connector.wait.ms": "60000"})
    before = time.monotonic()
    assert Service(connector, Until(), Said().hooks).run() is not None
    assert time.monotonic() - before < patient(30)


def test_an_error_without_a_message_is_a_defect_and_is_raised(tmp_path):
    with pytest.raises(KeyError):
        Service(Connector(tmp_path, [KeyError("x")]), Until(), Said().hooks).run()
    done = Service(Connector(tmp_path, [ConnectionResetError(104, "Connection reset by peer")]), Until(), Said().hooks)
    assert done.run() is not None

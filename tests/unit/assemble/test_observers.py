"""Observers are told what happens in a run, and never disturb it."""

import pytest

from cdc_core.assemble.observers import Observer, Observers
from cdc_core.engine.stream.run import Hooks
from cdc_core.lsn import Lsn
from cdc_core.schema.table import TableId
from cdc_core.snapshot.reports import SnapshotProgress, SnapshotReport

ORDERS = TableId("public", "orders")


class Told(Observer):
    def __init__(self):
        self.calls = []

    def opened(self, tables):
        self.calls.append(("opened", tables))

    def described(self, table):
        self.calls.append(("described", table))

    def read(self, report):
        self.calls.append(("read", report))

    def durable(self, report):
        self.calls.append(("durable", report))

    def merged(self, report):
        self.calls.append(("merged", report))

    def unmerged(self, tables):
        self.calls.append(("unmerged", tables))

    def failed(self, error):
        self.calls.append(("failed", str(error)))

    def end(self):
        self.calls.append(("end", None))


class Broken(Observer):
    def merged(self, report):
        raise ValueError("a value of a row")

    def end(self):
        raise ValueError("another")


def test_nested_operations_are_one_run():
    told, observers = Told(), Observers()
    with observers.run(lambda: [told]):
        with pytest.raises(ValueError, match="first"), observers.run(lambda: pytest.fail("opened already")):
            raise ValueError("first")
        with observers.run(lambda: pytest.fail("opened already")):
            observers.opened(["t"])
    assert told.calls == [("failed", "first"), ("opened", ["t"]), ("end", None)]
    again = Told()
    with observers.run(lambda: [again]):
        pass
    assert again.calls == [("end", None)]


def test_each_hook_tells_and_passes_on():
    told, observers, passed = Told(), Observers(), []
    report = SnapshotReport(ORDERS, 1, Lsn(1), 0.1, 0)
    with observers.run(lambda: [told]):
        hooks = observers.hooks(Hooks(passed.append, passed.append, on_unmerged=passed.append))
        hooks.on_batch("batch")
        hooks.on_round("round")
        hooks.on_unmerged({})
        observers.hooks(Hooks()).on_round("second")
        progress = observers.progress(passed.append)
        progress(SnapshotProgress(ORDERS, 1, 1, False))
        progress(SnapshotProgress(ORDERS, 1, 1, True, report=report))
        assert observers.describing(lambda *relation: relation)("relation", 5) == ("relation", 5)
        assert observers.describing(lambda *relation: None)("relation", 5) is None
    assert [name for name, _ in told.calls] == ["durable", "merged", "unmerged", "merged", "read", "described", "end"]
    assert len(passed) == 5


def test_nothing_is_wrapped_without_observers():
    observers, hooks = Observers(), Hooks()
    with observers.run(list):
        assert observers.hooks(hooks) is hooks
        assert observers.progress(None) is None
        assert observers.describing(len) is len


def test_an_observer_that_breaks_disturbs_nobody(caplog):
    told, observers = Told(), Observers()
    with observers.run(lambda: [Broken(), told]):
        hooks = observers.hooks(Hooks())
        hooks.on_round("first")
        hooks.on_round("second")
    assert [name for name, _ in told.calls] == ["merged", "merged", "end"]
    assert [record.getMessage() for record in caplog.records] == [
        "Broken.merged: ValueError. The run continues.",
        "Broken.end: ValueError. The run continues.",
    ]

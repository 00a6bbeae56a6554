"""The job that sends signals."""

import dagster as dg
import pytest

from cdc_core.errors import ConfigError
from cdc_core.snapshot.signals.parse import ExecuteSnapshot, Log, SnapshotKind, StopSnapshot, action_of, read_signal
from tests.pipelines.fake import FakeEngine, site
from wal2lake.pipelines.connector.keys import snapshot_key
from wal2lake.pipelines.factory import definitions_of

SNAPSHOT = {"type": "execute-snapshot"}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    monkeypatch.setattr("wal2lake.pipelines.factory.spark_resource", lambda site: object())


def press(engine, instance, op, config=None):
    """Run the op's job with that configuration, or as it is; what was sent, as the engine understands it."""
    run_config = {"ops": {f"shop_{op}": {"config": config}}} if config is not None else None
    job = definitions_of([site(engine)]).resolve_job_def(f"shop_{op}_job")
    result = job.execute_in_process(run_config=run_config, instance=instance, raise_on_error=False)
    sent = [action_of(read_signal("1", kind, data)) for name, kind, data in engine.calls if name == "signal"]
    return result, sent


def failure_of(result):
    (failed,) = [event for event in result.all_events if event.is_step_failure]
    return failed.event_specific_data.user_failure_data.description


def test_the_signal_job_can_be_pressed_as_it_is(instance):
    result, sent = press(FakeEngine(), instance, "signal")
    assert result.success
    assert sent == [Log("Signal from Dagster at {}")]


def test_a_snapshot_is_asked_for_with_everything_that_a_signal_holds(instance):
    config = {
        "type": "execute-snapshot",
        "snapshot_type": "blocking",
        "data_collections": ["public.orders"],
        "additional_conditions": [{"data_collection": "public.orders", "filter": "id > 5"}],
        "surrogate_key": "number",
    }
    result, sent = press(FakeEngine(), instance, "signal", config)
    assert result.success
    conditions = (("public.orders", "id > 5"),)
    assert sent == [ExecuteSnapshot(("public.orders",), SnapshotKind.BLOCKING, conditions, "number")]


@pytest.mark.parametrize("kind", ["pause-snapshot", "resume-snapshot"])
def test_signals_without_data(instance, kind):
    engine = FakeEngine()
    result, sent = press(engine, instance, "signal", {"type": kind})
    assert result.success
    assert (engine.calls[0][1], len(sent)) == (kind, 1)


def test_stopping_some_tables_or_all(instance):
    _, some = press(FakeEngine(), instance, "signal", {"type": "stop-snapshot", "data_collections": ["public.o.*"]})
    _, everything = press(FakeEngine(), instance, "signal", {"type": "stop-snapshot"})
    assert (some, everything) == ([StopSnapshot(("public.o.*",))], [StopSnapshot()])


def test_a_type_of_ones_own(instance):
    engine = FakeEngine()
    result, _ = press(engine, instance, "signal", {"custom_type": "my-signal", "custom_data": '{"a": 1}'})
    assert result.success
    assert engine.calls == [("signal", "my-signal", '{"a": 1}')]


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({"type": "execute-snapshot"}, "The signal of type execute-snapshot has no tables."),
        (
            {"type": "log", "data_collections": ["public.orders"]},
            "A signal of type log does not have the fields data_collections.",
        ),
        (
            {"type": "execute-snapshot", "data_collections": ["public.ordres"]},
            "No captured table matches public.ordres.",
        ),
        ({"type": "execute-snapshot", "data_collections": ["public.(ord"]}, "is not a regular expression"),
        ({"custom_type": "x", "custom_data": "[1]"}, "custom_data is not a JSON object."),
    ],
)
def test_what_cannot_be_obeyed_fails_the_run_with_its_sentence_and_sends_nothing(instance, config, sentence):
    engine = FakeEngine()
    result, sent = press(engine, instance, "signal", config)
    assert not result.success
    assert sentence in failure_of(result)
    assert sent == []


def test_a_table_that_is_nearly_one_is_named(instance):
    result, _ = press(FakeEngine(), instance, "signal", {**SNAPSHOT, "data_collections": ["public.ordres"]})
    assert "Did you mean public.orders?" in failure_of(result)


def test_a_wrong_type_is_refused_by_dagster_before_the_run_starts(instance):
    with pytest.raises(dg.DagsterInvalidConfigError, match="execute-snapshot"):
        press(FakeEngine(), instance, "signal", {"type": "exceute-snapshot"})


def test_without_a_channel_the_run_fails_with_the_engines_sentence(instance):
    engine = FakeEngine(error=ConfigError("No channel takes signals.", "Set signal.data.collection."))
    result, _ = press(engine, instance, "signal")
    assert failure_of(result) == "No channel takes signals. Set signal.data.collection."


def test_what_was_sent_is_observed_at_the_snapshots(instance):
    press(FakeEngine(), instance, "signal", {**SNAPSHOT, "data_collections": ["public.orders"]})
    (found,) = instance.fetch_observations(snapshot_key(site(FakeEngine())), limit=10).records
    assert found.asset_observation.description == "Signal execute-snapshot sent through channel source"
    assert found.asset_observation.metadata["data"].value["data-collections"] == ["public.orders"]


def test_many_tables_are_sent_in_signals_that_fit_a_signal_tables_row(instance):
    engine = FakeEngine()
    result, sent = press(engine, instance, "signal", {**SNAPSHOT, "data_collections": ["public.orders"] * 500})
    assert result.success
    assert len(sent) > 3
    assert sum(len(one.collections) for one in sent) == 500
    assert all(len(data) <= 2048 for _, _, data in engine.calls)


def test_a_signal_job_does_not_take_the_slots_place(instance):
    from wal2lake.pipelines.jobs.slot_runs import consumes_slot

    here = site(FakeEngine())
    press(FakeEngine(), instance, "signal")
    (run,) = instance.get_runs()
    assert not consumes_slot(run, here)

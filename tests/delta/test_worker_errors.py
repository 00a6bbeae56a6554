"""Errors of workers reach the driver as themselves; Spark's own never quote a value."""

import pyarrow as pa
import pytest

from cdc_core.errors import CommitConflictError, ConversionError, LakeError, ProtocolError, TransientError
from cdc_core.lake.delta.conflicts import on_conflict
from cdc_core.lake.delta.table import DeltaTable
from cdc_core.lake.spark.commit import transaction
from cdc_core.spark.errors import received
from cdc_core.spark.run_tasks import run_tasks

pytestmark = pytest.mark.spark


def raising(error):
    def work(item):
        if item == "two":
            raise error
        return item

    return work


def test_results_come_in_the_order_of_the_items(spark):
    assert run_tasks(spark, [["a", "b"], ["c"], []], str.upper, "shouting") == ["A", "B", "C"]
    assert run_tasks(spark, [], str.upper, "shouting") == []


@pytest.mark.parametrize(
    "error",
    [
        ConversionError("public.orders", "total", "a number", 3, 0x16B374D848),
        ProtocolError("public.orders", 7, "17 bytes", "16 bytes"),
        TransientError("Another writer was faster.", "Run again."),
        CommitConflictError(),
    ],
)
def test_an_error_of_ours_arrives_whole(spark, error):
    with pytest.raises(type(error)) as caught:
        run_tasks(spark, [["one", "two"]], raising(error), "decoding public.orders")
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert caught.value.__reduce__() == error.__reduce__()


def test_an_error_of_spark_names_its_kind_and_no_value(spark):
    with pytest.raises(LakeError) as caught, received("merging public.orders"):
        spark.sql("select cast('very secret' as int)").collect()
    assert "merging public.orders" in str(caught.value)
    assert "CAST_INVALID_INPUT" in str(caught.value)
    assert "very secret" not in str(caught.value)


def test_a_conflict_that_delta_finds_is_repeated_as_any_other(spark, tmp_path):
    path, tries = str(tmp_path / "t"), []
    DeltaTable.create(path, pa.schema([("id", pa.int64())]), {})

    def attempt():
        tries.append(1)
        with received("changing t"), transaction(spark, path) as late:
            late.position("a")
            if len(tries) < 3:
                with transaction(spark, path) as early:
                    early.commit({"a": len(tries)}, {})
            return late.commit({"a": 9}, {})

    with pytest.raises(CommitConflictError, match=r"Spark failed while changing t: .*Concurrent"):
        attempt()
    assert on_conflict(attempt) == 3 and len(tries) == 3


def test_another_error_of_a_worker_is_no_secret_either(spark):
    with pytest.raises(LakeError) as caught:
        run_tasks(spark, [["two"]], raising(ValueError("very secret")), "decoding")
    assert "very secret" not in str(caught.value)

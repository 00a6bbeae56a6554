"""Errors of workers reach the driver as themselves; Spark's own never quote a value."""

import pytest

from cdc_core.errors import CommitConflictError, ConversionError, LakeError, ProtocolError, TransientError
from cdc_core.spark.errors import received
from cdc_core.spark.tasks import run_tasks

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


def test_another_error_of_a_worker_is_no_secret_either(spark):
    with pytest.raises(LakeError) as caught:
        run_tasks(spark, [["two"]], raising(ValueError("very secret")), "decoding")
    assert "very secret" not in str(caught.value)

"""Errors of workers reach the driver as themselves; Spark's own never quote a value."""

import pyarrow as pa
import pytest

from cdc_core.errors import ConversionError, LakeError, ProtocolError
from cdc_core.spark.errors import received
from cdc_core.spark.map_in_arrow import read_by_tasks

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64())])


def raising(error):
    def read(item):
        yield pa.RecordBatch.from_arrays([pa.array([1])], schema=SCHEMA)
        raise error

    return read


@pytest.mark.parametrize(
    "error",
    [
        ConversionError("public.orders", "total", "a number", 3, 0x16B374D848),
        ProtocolError("public.orders", 7, "17 bytes", "16 bytes"),
    ],
)
def test_an_error_of_ours_arrives_whole(spark, error):
    with pytest.raises(type(error)) as caught, received("decoding public.orders"):
        read_by_tasks(spark, ["one"], raising(error), SCHEMA).collect()
    assert str(caught.value) == str(error)
    assert caught.value.__reduce__() == error.__reduce__()


def test_an_error_of_spark_names_its_kind_and_no_value(spark):
    with pytest.raises(LakeError) as caught, received("merging public.orders"):
        spark.sql("select cast('very secret' as int)").collect()
    assert "merging public.orders" in str(caught.value)
    assert "CAST_INVALID_INPUT" in str(caught.value)
    assert "very secret" not in str(caught.value)


def test_another_error_of_a_worker_is_no_secret_either(spark):
    with pytest.raises(LakeError) as caught, received("decoding"):
        read_by_tasks(spark, ["one"], raising(ValueError("very secret")), SCHEMA).collect()
    assert "very secret" not in str(caught.value)

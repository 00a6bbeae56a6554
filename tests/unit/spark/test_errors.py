"""Errors of Spark as the driver sees them."""

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError, get_return_value

from cdc_core.errors import LakeError, SparkLostError
from cdc_core.spark.errors import received, spark_lost


def raised(answer: str) -> Py4JError:
    with pytest.raises(Py4JError) as found:
        get_return_value(answer, None, "o12", "parallelize")
    return found.value


def test_a_command_without_an_answer_means_that_java_has_ended() -> None:
    # What py4j takes for the answer when the connection fails while a command is sent: not a network error.
    unanswered = raised("x")
    assert type(unanswered) is Py4JError
    for error in (unanswered, Py4JNetworkError("Answer from Java side is empty")):
        assert isinstance(spark_lost(error), SparkLostError)
        with pytest.raises(SparkLostError, match="ended while reading"), received("reading"):
            raise error


def test_an_answer_with_an_error_does_not() -> None:
    answered = raised("xsMethod o12.parallelize does not exist")
    assert spark_lost(answered) is None
    with pytest.raises(LakeError, match="Spark failed while reading") as found, received("reading"):
        raise answered
    assert not isinstance(found.value, SparkLostError)

"""Errors of Spark as the driver sees them."""

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError, get_return_value

from cdc_core.errors import ConfigError, LakeError, SparkLostError
from cdc_core.spark import tasks
from cdc_core.spark.errors import received, sent, spark_lost


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


def test_executors_without_the_package_or_with_another_version_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "x\n  File \"serializers.py\", line 474\nModuleNotFoundError: No module named 'cdc_core.spark'\n\tat org"
    with pytest.raises(ConfigError, match="executors has no module cdc_core"), received("reading"):
        raise Py4JError(text)
    tasks.require_version(tasks.__version__)
    with pytest.raises(ConfigError, match=r"wal2lake 0\.0\.1, and the driver has"), received("reading"):
        monkeypatch.setattr(tasks, "__version__", "0.0.1")
        try:
            with sent():
                tasks.require_version("0.1.0")
        except Exception as error:
            raise Py4JError(f"Job aborted: {error}") from None

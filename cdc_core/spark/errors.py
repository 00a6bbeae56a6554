"""Transfers errors from Spark's workers to the driver.

Spark passes a worker's exception to the driver as a text. To preserve CdcErrors, a task pickles them into that text
(``sent``), and the driver extracts them (``received``). Spark's own errors become a LakeError with the type of failure
but without the message, which may contain values.
"""

from __future__ import annotations

import base64
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from cdc_core.errors import CdcError, ConfigError, LakeError, SparkLostError
from cdc_core.storage_faults import fault_in, storage_fault

_WORKER_ENDED = re.compile(r"Python worker exited unexpectedly|Python worker failed to connect|ExecutorLostFailure")
# py4j's text where there was no answer: the connection failed while a command was sent. Errors of Java have more.
_UNANSWERED = re.compile(r"An error occurred while calling \S+")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
_MARK = re.compile(r"wal2lake-error:([A-Za-z0-9+/=]+):")


class WorkerError(Exception):
    """Contains a CdcError for the transfer through Spark; its text is the pickled error."""


@contextmanager
def sent() -> Iterator[None]:
    """In a task: send a CdcError to the driver, also for storage that is full or does not answer."""
    try:
        yield
    except Exception as error:
        found = error if isinstance(error, CdcError) else storage_fault(error)
        if found is None:
            raise
        packed = base64.b64encode(pickle.dumps(found)).decode()
        raise WorkerError(f"wal2lake-error:{packed}: {type(found).__name__}") from None


@contextmanager
def received(doing: str) -> Iterator[None]:
    """In the driver: raise a worker's CdcError unchanged, and Spark's own errors as a LakeError.

    ``doing`` completes the sentence "Spark failed while …".
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        match = _MARK.search(text)
        if match is not None:
            raise _unpacked(match[1]) from None
        if _is_unanswered(error):
            raise _lost(doing) from None
        if _WORKER_ENDED.search(text):
            raise SparkLostError(
                f"A worker process of Spark ended while {doing}.", "Check the memory of this machine."
            ) from None
        missing = _MISSING.search(text)
        if missing is not None:
            raise ConfigError(
                f"Python on Spark's executors has no module {missing[1]}.",
                "Install wal2lake there, or set PYSPARK_PYTHON to a Python that has it (docs/scaling.md).",
            ) from None
        fault = fault_in(text)
        if fault is not None:
            raise fault from None
        kind = _kind(error, text)
        remedy = "No partial result was committed. Run again with --verbose to see Spark's own report of the cause."
        raise LakeError(f"Spark failed while {doing}: {kind}.", remedy) from None
    except (ConnectionError, EOFError):
        raise _lost(doing) from None  # a task's results are read from a socket of Java's


def spark_lost(error: BaseException, *, is_lost: bool = False) -> SparkLostError | None:
    """Return the error for Spark's Java process that no longer answers; None if ``error`` has another reason.

    ``is_lost``: the process has ended, so a connection that failed was to it.
    """
    is_connection = is_lost and isinstance(error, ConnectionError | EOFError)
    return _lost("working") if is_connection or _is_unanswered(error) else None


def _is_unanswered(error: BaseException) -> bool:
    if isinstance(error, Py4JNetworkError):
        return True
    return type(error) is Py4JError and _UNANSWERED.fullmatch(str(error)) is not None


def _lost(doing: str) -> SparkLostError:
    return SparkLostError(f"Spark's Java process ended while {doing}.", "Check the memory of this machine.")


def _unpacked(packed: str) -> CdcError:
    error = pickle.loads(base64.b64decode(packed))
    assert isinstance(error, CdcError)
    return error


def _kind(error: Exception, text: str) -> str:
    """Return Spark's error class (``DIVIDE_BY_ZERO``), else the Java class of the root cause, else the Python class."""
    if isinstance(error, PySparkException):
        condition = error.getCondition()
        if condition:
            return str(condition)
    causes = re.findall(r"(?:Caused by: |: )((?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error))", text)
    return causes[-1].rpartition(".")[2] if causes else type(error).__name__

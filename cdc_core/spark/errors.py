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

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from cdc_core.errors import CdcError, CommitConflictError, LakeError

_MARK = re.compile(r"wal2lake-error:([A-Za-z0-9+/=]+):")


class WorkerError(Exception):
    """Contains a CdcError for the transfer through Spark; its text is the pickled error."""


@contextmanager
def sent() -> Iterator[None]:
    """In a task: send a CdcError to the driver."""
    try:
        yield
    except CdcError as error:
        packed = base64.b64encode(pickle.dumps(error)).decode()
        raise WorkerError(f"wal2lake-error:{packed}: {type(error).__name__}") from None


@contextmanager
def received(doing: str) -> Iterator[None]:
    """In the driver: raise a worker's CdcError unchanged, and Spark's own errors as a LakeError.

    ``doing`` completes the sentence "Spark failed while …". Conflicts that Delta finds become a CommitConflictError.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        found = _MARK.search(text)
        if found is not None:
            raise _unpacked(found[1]) from None
        kind = _kind(error, text)
        remedy = "No partial result was committed. See Spark's log for the cause; run again once it is corrected."
        if "Concurrent" in kind or "CONCURRENT" in kind:
            raise CommitConflictError(f"Spark failed while {doing}: {kind}.", remedy) from None
        raise LakeError(f"Spark failed while {doing}: {kind}.", remedy) from None


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

"""Which errors say that the storage as a whole is full or away; no other one may make a run wait for ever."""

import errno
import os

import pytest
from deltalake.exceptions import DeltaError

from cdc_core.errors import SourceError, StorageError
from cdc_core.storage_faults import fault_in, storage_fault

S3 = "Generic S3 error: Error performing PUT http://127.0.0.1:9/b/x in 14.2s, after 10 retries, max_retries: 10"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "is full"),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), "is full"),
        (OSError("[Errno 28] Error writing bytes to file. Detail: [errno 28] No space left on device"), "is full"),
        (DeltaError("Generic LocalFileSystem error: No space left on device (os error 28)"), "is full"),
        (OSError(errno.ESTALE, os.strerror(errno.ESTALE)), "does not answer"),
        (OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)), "does not answer"),
        (DeltaError(f"{S3} - Server returned error status: 503 Service Unavailable"), "does not answer"),
        (DeltaError("Generic S3 error: ... <Code>SlowDown</Code>"), "does not answer"),
        (OSError("Generic GCS error: ... status code: 429 Too Many Requests: ..."), "does not answer"),
        (OSError("Generic MicrosoftAzure error: ... <Code>ServerBusy</Code>"), "does not answer"),
        (DeltaError("Generic S3 error: HTTP error: error sending request"), "does not answer"),
        (StorageError("It is full.", ""), "It is full"),
    ],
)
def test_a_storage_that_is_full_or_away_is_recognised(error, said):
    found = storage_fault(error)
    assert isinstance(found, StorageError)
    assert said in found.message


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "x"),
        PermissionError(errno.EACCES, "x"),
        OSError(errno.EIO, os.strerror(errno.EIO)),
        DeltaError("Kernel error: Invalid JSON at line 28"),
        DeltaError("Generic S3 error: 404 Not Found"),
        DeltaError("Generic S3 error: 403 Forbidden: <Code>AccessDenied</Code>"),
        SourceError("The server has no space left on device.", ""),
        ValueError("28"),
    ],
)
def test_an_error_of_one_file_or_of_something_else_is_not(error):
    assert storage_fault(error) is None


def test_the_text_of_a_library_is_not_quoted():
    found = fault_in("Error writing value 'secret': No space left on device")
    assert found is not None and "secret" not in str(found)

"""Whether an error says that the storage as a whole is full or does not answer, rather than that one file is damaged.

A table whose files are damaged is paused, and a person repairs it. A full disk, or an object store that answers 503,
concerns every table and passes: pausing tables for it would need a person for each of them afterwards.

Operating system errors are recognised by ``errno``; EIO is not among them, because it may be one file's bad block.
delta-rs, obstore and Java report texts, which are matched against what their libraries write: Rust's object_store
("Generic S3 error: …"), the stores' own codes, and ``strerror``.
"""

from __future__ import annotations

import errno
import os
import re

from cdc_core.errors import CdcError, StorageError

_FULL = {errno.ENOSPC, errno.EDQUOT}
_AWAY = {
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EROFS,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ENOTCONN,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
}
_STRERRORS = "|".join(re.escape(os.strerror(number)) for number in sorted(_FULL | _AWAY))
_FULL_TEXT = re.compile(r"No space left on device|Disk quota exceeded|StorageFull|os error (28|122)\b", re.IGNORECASE)
_AWAY_TEXT = re.compile(
    rf"\b(500|502|503|504) (Internal Server|Bad Gateway|Service Unavailable|Slow Down|Gateway)|SlowDown|"
    rf"\b429 Too Many Requests|ServerBusy|"
    rf"ServiceUnavailable|RequestTimeout|Code: InternalError|Service Unavailable|"
    rf"error sending request|connection (closed|error|reset)|operation timed out|client error \(Connect\)|"
    rf"dns error|after \d+ retries|{_STRERRORS}",
    re.IGNORECASE,
)


def storage_fault(error: BaseException) -> StorageError | None:
    """Return the error for storage that is full or away; None if ``error``, or its cause, has another reason."""
    if isinstance(error, CdcError):
        return error if isinstance(error, StorageError) else None
    number = error.errno if isinstance(error, OSError) else None
    if number is not None:
        return _full() if number in _FULL else _away() if number in _AWAY else None
    return fault_in(str(error))


def fault_in(text: str) -> StorageError | None:
    """As ``storage_fault``, for the text of an error of a library without ``errno``. The text is not quoted."""
    if _FULL_TEXT.search(text):
        return _full()
    return _away() if _AWAY_TEXT.search(text) else None


def _full() -> StorageError:
    return StorageError(
        "The storage of the lake, or of wal2lake.state.path, is full.", "Make room: no change is lost meanwhile."
    )


def _away() -> StorageError:
    return StorageError(
        "The storage of the lake, or of wal2lake.state.path, does not answer.",
        "Check it and the network: no change is lost meanwhile.",
    )

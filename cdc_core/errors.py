"""The hierarchy of wal2lake's errors.

    CdcError
    ├─ ConfigError            before anything starts: names the property, what was found, what is allowed
    ├─ TransientError         may succeed on retry: connection, time-out, server restarting, conflicting commit
    │   ├─ UnreachableError   no connection to the server: refused, cut, silent
    │   │   └─ ServerBusyError  the server says itself that it is starting, stopping or full
    │   ├─ InUseError         another consumer uses the slot, another run the lake
    │   ├─ OtherServerError   two connections led to two servers
    │   ├─ StorageError       the storage of the lake or of the spool is full or does not answer
    │   ├─ SparkLostError     Spark's Java process has ended
    │   ├─ LostFolderError    a file of the run was removed by somebody else
    │   ├─ CommitConflictError  another writer's commit was made first
    │   ├─ InProgressLimitError  transactions that have not ended exceed what is kept of them
    │   ├─ OlderTransactionsError  a table cannot be read before older transactions have ended
    │   └─ LockedError        a table cannot be read while another session has locked it
    ├─ DefiniteError          a fact about the source or the lake; the same at every retry
    │   ├─ SourceError        slot, publication, privilege, server setting
    │   │   ├─ UnknownHostError  the host name does not exist (any more)
    │   │   └─ PluginError        the server does not load the output plug-in
    │   ├─ TableError         one table: missing, without identity, incompatible change, undecodable value
    │   │   ├─ RereadNeededError   its changes cannot be merged; the table must be re-read
    │   │   │   └─ MissingRowsError  rows that its changes update or delete are not in its lake table
    │   │   ├─ ChangesRefusedError  its changes are not merged before an operator has decided
    │   │   │   ├─ LimitExceededError  more of them fail a quality rule than its limit allows
    │   │   │   ├─ NotJudgedError      a quality rule could not be evaluated on them
    │   │   │   └─ SliceFailedError    they fail a critical expectation on a slice as a whole
    │   │   ├─ MissingKeyError     it has no key, which its changes or its delete mode need
    │   │   ├─ NotUtf8Error        a value that is not UTF-8, in a database with encoding SQL_ASCII
    │   │   ├─ NotComparableError  it cannot be compared with its source now
    │   │   └─ UnsendableRowError  a row that the server cannot send: too large, damaged, or not to be had in UTF-8
    │   └─ LakeError          the lake's path or tables cannot be written as required
    │       └─ UnreadableError  the folder of one Delta table: log or data files damaged, missing, not accessible
    │           └─ SharedFolderError  the folder belongs to another table, whose name is the same for the storage
    ├─ ProtocolError          malformed bytes, or messages in an impossible order
    └─ InvariantError         a defect of wal2lake

An error is one sentence that describes what was found and, if the user can act, a second that describes what to do. It
never contains a row's values or a secret: relation, column, LSN, counts and types only. All are picklable, because they
are sent from Spark's workers to the driver. What a run does about each class is in ``engine/stream/recovery``.
"""

from __future__ import annotations

from typing import Any


class CdcError(Exception):
    """Root of the hierarchy. ``message`` describes what was found, ``remedy`` what to do about it (may be empty)."""

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class ConfigError(CdcError):
    """The connector file is not valid."""


class TransientError(CdcError):
    """A temporary fault: the operation can be retried."""


class UnreachableError(TransientError):
    """There is no connection to the server, or it was lost."""


class ServerBusyError(UnreachableError):
    """The server answered that it accepts no connection now: it is starting or stopping, or has no free one."""


class InUseError(TransientError):
    """Another consumer uses the slot, or another run writes to the lake."""


class OtherServerError(TransientError):
    """Two connections to one address led to two servers."""


class StorageError(TransientError):
    """The storage of the lake or of a run's files is full, or does not answer: no table can be written now."""


class SparkLostError(TransientError):
    """Spark's Java process has ended, or does not answer."""


class LostFolderError(TransientError):
    """A file of the run is gone: its folder was removed, or another program wrote into it."""


class CommitConflictError(TransientError):
    """Another writer's commit was made first: load the table again and repeat the decision."""

    def __init__(
        self, message: str = "The commit conflicted with a commit of another writer.", remedy: str = ""
    ) -> None:
        super().__init__(
            message,
            remedy or "Check for other writers of this lake; only one run of wal2lake may write to it at a time.",
        )


class InProgressLimitError(TransientError):
    """Transactions in progress, or prepared, are larger than what may be kept: they must be read after their commit."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(
            "Transactions in progress and prepared ones exceed wal2lake.streaming.transactions.max.bytes "
            f"({max_bytes:,} bytes).",
            "Set wal2lake.streaming.transactions=off, or raise the limit.",
        )
        self.args = (max_bytes,)


class OlderTransactionsError(TransientError):
    """A table was published while transactions were open whose earlier changes are not sent: it is read after them."""


class LockedError(TransientError):
    """Another session holds a lock on a table that keeps it from being read; the others are read."""

    def __init__(self, table: str, timeout_ms: int) -> None:
        super().__init__(
            f"{table} could not be read within {timeout_ms / 1000:g} s (snapshot.lock.timeout.ms), because another "
            "session has locked it.",
            "End that session (see pg_locks, mode AccessExclusiveLock), and run again.",
        )
        self.args = (table, timeout_ms)


class DefiniteError(CdcError):
    """A permanent fault: a retry fails in the same way."""


class RecordError(DefiniteError):
    """A transform or a format cannot process a record; with ``errors.tolerance=all`` the record is left out."""


class SourceError(DefiniteError):
    """The server, slot or publication does not meet the requirements."""


class UnknownHostError(SourceError):
    """The host name does not exist. If the server was reached before, name resolution fails."""


class PluginError(SourceError):
    """The server does not load the connector's output plug-in. ``statements`` for psql follow on ``advice``."""

    def __init__(self, message: str, advice: str, statements: tuple[str, ...] = ()) -> None:
        super().__init__(message, "\n".join([advice, *statements]))
        self.args = (message, advice, statements)
        self.advice, self.statements = advice, statements


class TableError(DefiniteError):
    """One table cannot be captured in its present state; the others continue."""

    def __init__(self, message: str, remedy: str = "", table: str = "") -> None:
        super().__init__(message, remedy)
        self.args = (message, remedy, table)
        self.table = table


class RereadNeededError(TableError):
    """Changes of a table cannot be read with its current description: the table must be re-read."""


class MissingRowsError(RereadNeededError):
    """Changes update or delete ``count`` rows that the lake table must have and has not; the first is at ``lsn``."""

    def __init__(self, table: str, count: int, lsn: int) -> None:
        rows = (
            "1 row that changes update or delete is"
            if count == 1
            else f"{count} rows that changes update or delete are"
        )
        super().__init__(
            f"{rows} not in the lake table of {table}; the first of these changes is at LSN "
            f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}.",
            "Find out what removes or alters rows of the lake table (wal2lake reconcile compares it with its source); "
            f"then run wal2lake replay with {table}: it re-reads the table.",
            table,
        )
        self.args = (table, count, lsn)
        self.count = count
        self.lsn = lsn

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.table, self.count, self.lsn)


class ChangesRefusedError(TableError):
    """Changes of a table are not merged until an operator decides: the table is paused, the others continue."""


class LimitExceededError(ChangesRefusedError):
    """More changes of a table fail a quality rule than its limit allows."""


class NotJudgedError(ChangesRefusedError):
    """A quality rule of a table could not be evaluated: DuckDB, Great Expectations or the rule itself failed."""


class SliceFailedError(ChangesRefusedError):
    """Changes of a table fail a critical expectation on a slice as a whole."""


class MissingKeyError(TableError):
    """A table has no key, and its changes or its delete mode need one: the table is paused, the others continue."""


class NotUtf8Error(TableError):
    """A value that is not UTF-8: a database with encoding SQL_ASCII permits any bytes."""

    def __init__(self, table: str, column: str, lsn: int | None = None) -> None:
        at = f" at LSN {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}" if lsn is not None else ""
        super().__init__(
            f"Column {column} of {table} has a value{at} that is not UTF-8, which a database with encoding SQL_ASCII "
            "permits.",
            "Correct the values in the source. Changes in the WAL keep them: to continue without these, add the table "
            "to table.exclude.list.",
            table,
        )
        self.args = (table, column, lsn)
        self.column = column
        self.lsn = lsn

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.table, self.column, self.lsn)


class UnsendableRowError(TableError):
    """The server cannot send a row of a table, ``found``: the table is paused, the others continue."""

    def __init__(self, table: str, found: str) -> None:
        super().__init__(
            f"The server cannot send a row of {table}: {found}.",
            "Correct or delete the row in the source.",
            table,
        )
        self.args = (table, found)


class NotComparableError(TableError):
    """A lake table that cannot be compared with its source now. The message is a part of a sentence: why."""


class LakeError(DefiniteError):
    """The lake cannot be read or written as required."""


class UnreadableError(LakeError):
    """A Delta table's folder, ``path``, cannot be used: only the captured table to which it belongs is paused."""

    def __init__(self, message: str, remedy: str, path: str) -> None:
        super().__init__(message, remedy)
        self.args = (message, remedy, path)
        self.path = path


class SharedFolderError(UnreadableError):
    """The folder of a Delta table belongs to another table or connector: the storage does not tell their names apart.

    Nothing is read from it or written to it.
    """

    @classmethod
    def of(cls, path: str, owner: str, own: str) -> SharedFolderError:
        """The error for a folder of ``owner`` under the path of ``own``."""
        return cls(
            f"The folder {path} belongs to {owner}, not to {own}: the storage does not distinguish their names.",
            "Each needs a folder of its own: give one of them to another connector, with another topic.prefix and "
            "wal2lake.lake.path, or move the lake to storage that distinguishes such names.",
            path,
        )


class ProtocolError(CdcError):
    """Bytes from the server that do not follow the protocol.

    ``lsn`` is an int or None, ``expected`` and ``actual`` describe lengths, kinds and counts, never content.
    """

    def __init__(self, relation: str, lsn: int | None, expected: str, actual: str) -> None:
        where = f"relation {relation}" if relation else "the stream"
        at = f" at LSN {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}" if lsn is not None else ""
        super().__init__(
            f"Malformed message in {where}{at}: expected {expected}, found {actual}.",
            "Nothing of this batch was written; reading it again from the slot is safe.",
        )
        self.args = (relation, lsn, expected, actual)
        self.relation = relation
        self.lsn = lsn
        self.expected = expected
        self.actual = actual

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.relation, self.lsn, self.expected, self.actual)


class ConversionError(TableError):
    """A value that its type's converter cannot read. Contains the column's name and the count, never the value."""

    def __init__(self, table: str, column: str, expected: str, count: int, lsn: int | None = None) -> None:
        at = f" at LSN {lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}" if lsn is not None else ""
        super().__init__(
            f"Column {column} of {table} holds {count} value(s){at} that cannot be read: expected {expected}.",
            "Set event.converting.failure.handling.mode to warn or skip to continue without them.",
            table,
        )
        self.args = (table, column, expected, count, lsn)
        self.column = column
        self.expected = expected
        self.count = count
        self.lsn = lsn

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.table, self.column, self.expected, self.count, self.lsn)


class InvariantError(CdcError):
    """A violated invariant of wal2lake itself; please report it."""

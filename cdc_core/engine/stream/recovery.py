"""What a run does about an error: it tries again, it ends and waits for a person, or one table is paused.

``POLICY`` is the one place that decides it. A cause is a class of error; the row of the nearest class applies. Before
a run of the connector has reached its server and claimed its slot (``first``), most causes are mistakes of the
configuration, which trying again would hide: a service manager that starts the run sees them at once. Afterwards
(``later``) the same error is a fault that passes.

A retry begins the operation anew at what is durable: server and slot are identified again, the slot is claimed again,
and the stream starts at the slot's position (``engine/start/continuity``), so another server is never followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cdc_core.errors import (
    CdcError,
    CommitConflictError,
    ConfigError,
    DefiniteError,
    InUseError,
    InvariantError,
    LostFolderError,
    OtherServerError,
    ProtocolError,
    ServerBusyError,
    SparkLostError,
    StorageError,
    TableError,
    TransientError,
    UnknownHostError,
    UnreachableError,
    UnreadableError,
)


class Action(StrEnum):
    """What follows from an error."""

    RETRY = "retry"
    PERSON = "wait for a person"
    PAUSE = "pause one table"


@dataclass(frozen=True, slots=True)
class RecoveryRule:
    """One cause: its error, and what follows before (``first``) and after the server was reached (``later``).

    ``PAUSE`` is what the stream itself does about one table. Where such an error concerns the whole run it is raised,
    and the run ends: as ``PERSON``.
    """

    cause: str
    error: type[CdcError]
    first: Action
    later: Action


_RETRY, _PERSON, _PAUSE = Action.RETRY, Action.PERSON, Action.PAUSE

POLICY: tuple[RecoveryRule, ...] = (
    RecoveryRule(
        "the server is starting, stopping, read-only, or has no free connection", ServerBusyError, _RETRY, _RETRY
    ),
    RecoveryRule("the connection is refused, cut or silent", UnreachableError, _PERSON, _RETRY),
    RecoveryRule("the host name is not known", UnknownHostError, _PERSON, _RETRY),
    RecoveryRule("another consumer uses the slot, or another run the lake", InUseError, _PERSON, _PERSON),
    RecoveryRule("two connections led to two servers", OtherServerError, _PERSON, _RETRY),
    RecoveryRule("the storage is full or does not answer", StorageError, _PERSON, _RETRY),
    RecoveryRule("Spark's Java process, or a worker of it, ended", SparkLostError, _RETRY, _RETRY),
    RecoveryRule("another writer's commit was made first", CommitConflictError, _RETRY, _RETRY),
    RecoveryRule("the folder of the run was removed", LostFolderError, _PERSON, _PERSON),
    RecoveryRule("another fault that passes: a lock, a time-out", TransientError, _PERSON, _RETRY),
    RecoveryRule("a fact about one table: key, value, rule, schema", TableError, _PERSON, _PAUSE),
    RecoveryRule("the folder of one Delta table is damaged", UnreadableError, _PERSON, _PAUSE),
    RecoveryRule(
        "another fact about source or lake: privilege, slot, other server, gap", DefiniteError, _PERSON, _PERSON
    ),
    RecoveryRule("the connector file", ConfigError, _PERSON, _PERSON),
    RecoveryRule("bytes that do not follow the protocol", ProtocolError, _PERSON, _PERSON),
    RecoveryRule("a defect of wal2lake", InvariantError, _PERSON, _PERSON),
)
_BY_ERROR = {rule.error: rule for rule in POLICY}


def rule_of(error: CdcError) -> RecoveryRule:
    """Return the row for an error: that of its class, or of the nearest class above it."""
    return next((_BY_ERROR[kind] for kind in type(error).__mro__ if kind in _BY_ERROR), _BY_ERROR[DefiniteError])


def is_retried(error: CdcError, *, was_reached: bool) -> bool:
    """Whether a run tries again after an error that ended its attempt."""
    rule = rule_of(error)
    return (rule.later if was_reached else rule.first) is Action.RETRY


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often and how fast a run tries again. Times in milliseconds.

    ``max_retries`` in a row, −1 for no limit. The wait doubles from ``initial_ms``, up to the lower of ``max_ms`` and
    ``restart_ms``.
    """

    max_retries: int = -1
    initial_ms: int = 300
    max_ms: int = 10_000
    restart_ms: int = 10_000

    def allows(self, retries: int) -> bool:
        """Whether another retry may follow after ``retries`` of them in a row."""
        return self.max_retries < 0 or retries < self.max_retries

    def seconds(self, retries: int) -> float:
        """Return the wait before the next retry, after ``retries`` of them in a row."""
        doubled = self.initial_ms << min(retries, 30)
        return min(doubled, self.max_ms, self.restart_ms) / 1000

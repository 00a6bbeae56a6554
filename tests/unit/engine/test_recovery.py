"""What a run does about each cause, as a table, and how long it waits."""

import inspect

import pytest

from cdc_core import errors
from cdc_core.engine.stream.recovery import POLICY, Action, Backoff, is_retried, rule_of
from cdc_core.errors import CdcError

RETRY, PERSON, PAUSE = Action.RETRY, Action.PERSON, Action.PAUSE
# Error → before the server was reached, afterwards. Every error of the hierarchy is here.
WANTED = {
    "ServerBusyError": (RETRY, RETRY),
    "UnreachableError": (PERSON, RETRY),
    "UnknownHostError": (PERSON, RETRY),
    "InUseError": (PERSON, PERSON),
    "OtherServerError": (PERSON, RETRY),
    "StorageError": (PERSON, RETRY),
    "SparkLostError": (RETRY, RETRY),
    "CommitConflictError": (RETRY, RETRY),
    "LostFolderError": (PERSON, PERSON),
    "TransientError": (PERSON, RETRY),
    "InProgressLimitError": (PERSON, RETRY),
    "LockedError": (PERSON, RETRY),
    "OlderTransactionsError": (PERSON, RETRY),
    "TableError": (PERSON, PAUSE),
    "RereadNeededError": (PERSON, PAUSE),
    "MissingRowsError": (PERSON, PAUSE),
    "ChangesRefusedError": (PERSON, PAUSE),
    "LimitExceededError": (PERSON, PAUSE),
    "NotJudgedError": (PERSON, PAUSE),
    "SliceFailedError": (PERSON, PAUSE),
    "MissingKeyError": (PERSON, PAUSE),
    "NotUtf8Error": (PERSON, PAUSE),
    "UnsendableRowError": (PERSON, PAUSE),
    "NotComparableError": (PERSON, PAUSE),
    "ConversionError": (PERSON, PAUSE),
    "UnreadableError": (PERSON, PAUSE),
    "SharedFolderError": (PERSON, PAUSE),
    "LakeError": (PERSON, PERSON),
    "SourceError": (PERSON, PERSON),
    "PluginError": (PERSON, PERSON),
    "RecordError": (PERSON, PERSON),
    "DefiniteError": (PERSON, PERSON),
    "ConfigError": (PERSON, PERSON),
    "ProtocolError": (PERSON, PERSON),
    "InvariantError": (PERSON, PERSON),
}
KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if inspect.isclass(kind) and issubclass(kind, CdcError) and kind is not CdcError
}


def made(kind):
    """An error of a class, whatever its arguments are."""
    error = kind.__new__(kind)
    CdcError.__init__(error, "Found.", "Do.")
    return error


def test_the_table_has_every_error():
    assert set(KINDS) == set(WANTED)


@pytest.mark.parametrize("name", WANTED)
def test_an_error_is_treated_as_the_table_says(name):
    error = made(KINDS[name])
    rule = rule_of(error)
    assert (rule.first, rule.later) == WANTED[name]
    assert is_retried(error, was_reached=False) is (WANTED[name][0] is RETRY)
    assert is_retried(error, was_reached=True) is (WANTED[name][1] is RETRY)


def test_each_cause_has_one_row_that_no_other_hides():
    assert len({rule.cause for rule in POLICY}) == len({rule.error for rule in POLICY}) == len(POLICY)
    assert all(rule_of(made(rule.error)) is rule for rule in POLICY)


def test_the_wait_doubles_up_to_the_lower_limit():
    backoff = Backoff()
    assert [backoff.seconds(n) for n in range(8)] == [0.3, 0.6, 1.2, 2.4, 4.8, 9.6, 10.0, 10.0]
    assert Backoff(restart_ms=1000).seconds(9) == 1.0
    assert Backoff(max_ms=2000).seconds(9) == 2.0
    assert backoff.seconds(10_000) == 10.0


def test_retries_are_counted_in_a_row():
    assert Backoff().allows(10**9)
    assert not Backoff(0).allows(0)
    assert Backoff(3).allows(2) and not Backoff(3).allows(3)

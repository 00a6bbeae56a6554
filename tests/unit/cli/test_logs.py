"""Lines of a command: text or JSON objects, no stack for an error that has a message, one line a minute."""

import json
import logging
import os

import pytest

from cdc_core.cli import logs
from cdc_core.cli.progress import RoundProgress
from cdc_core.connector_threads import of_connector
from cdc_core.engine.reports import MergeReport, RoundReport
from cdc_core.errors import SourceError
from cdc_core.lsn import Lsn
from cdc_core.observe.options import LogFormat
from cdc_core.schema.table import TableId
from cdc_core.spark.quiet_start import RELAYED, VERBOSE_VARIABLE, OutputFilter, pass_on

TABLE = TableId("public", "t")


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    monkeypatch.delenv(VERBOSE_VARIABLE, raising=False)
    yield
    root.handlers[:] = before
    root.setLevel(level)
    os.environ.pop(VERBOSE_VARIABLE, None)
    RELAYED.clear()
    for name in (*logs._SPOKEN, *logs._NOISY):
        logging.getLogger(name).setLevel(logging.NOTSET)


def fail():
    raise ValueError("a row's value")


def test_text_is_the_message_without_a_stack(capsys):
    logs.set_up()
    logs.say("snapshot: 3 rows", event="snapshot", rows=3)
    try:
        fail()
    except ValueError:
        logging.getLogger("cdc_core.engine").exception("It failed.")
    library = logging.getLogger("great_expectations.data_context")
    library.setLevel(logging.INFO)
    library.info("Created temporary directory '/tmp/x' for ephemeral docs site")
    logging.getLogger().setLevel(logging.INFO)
    logging.info("Exception while sending command.", exc_info=True)
    logging.error("Exception while sending command.")
    assert capsys.readouterr().err == "snapshot: 3 rows\nIt failed.\n"


def test_json_is_one_object_a_line(capsys):
    logs.set_up("json")
    logs.say("waiting", event="waiting", cause="it is away")
    logging.getLogger("cdc_core.engine").warning("A table is %s.", "paused")
    logs.say_error(SourceError("Found.", "Do."))
    try:
        fail()
    except ValueError as error:
        logs.say_defect(error)
    one, two, three, four = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert (one["message"], one["event"], one["cause"], one["level"]) == ("waiting", "waiting", "it is away", "info")
    assert (two["logger"], two["message"], two["level"]) == ("cdc_core.engine", "A table is paused.", "warning")
    assert (three["message"], three["remedy"], three["error"]) == ("Found.", "Do.", "SourceError")
    assert "row's value" not in json.dumps(four) and "ValueError" in four["message"]


def test_a_line_names_its_connector_if_there_are_several(capsys):
    with of_connector("shop"):
        logs.set_up(several=True)
        logging.getLogger("cdc_core.engine").warning("A table is paused.")
        logs.say_failed(SourceError("Found.", "Do."), 10.0)
        logs.set_up()
        logs.say("x")
    logs.set_up("json", several=True)
    logs.say("y")
    with of_connector("shop"):
        logs.say("z")
    *text, y, z = capsys.readouterr().err.splitlines()
    assert text == ["shop: A table is paused.", "shop: Found.", "  → Do.", "shop: It starts again in 10 s.", "x"]
    assert "connector" not in json.loads(y) and json.loads(z)["connector"] == "shop"


def test_the_command_line_prevails_over_the_file(capsys):
    logs.set_up("text", LogFormat.JSON)
    logs.say("x")
    logs.set_up(None, LogFormat.JSON)
    logs.say("y")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "x" and json.loads(second)["message"] == "y"


def test_a_defect_is_named_without_its_text(capsys):
    logs.set_up()
    try:
        fail()
    except ValueError as error:
        logs.say_defect(error)
    said = capsys.readouterr().err
    assert "ValueError in test_logs.py" in said and "--verbose" in said and "row's value" not in said


def rounds(number, changes, lsn):
    merge = MergeReport(TABLE, Lsn(lsn), number, changes, changes, 0, 0, 0.1)
    return RoundReport(Lsn(lsn), (merge,), lag_bytes=7)


def test_the_first_round_is_logged_at_once_and_then_one_line_a_minute(capsys):
    logs.set_up()
    now = [0.0]
    progress = RoundProgress(60.0, lambda: now[0])
    for number in range(1, 121):
        now[0] += 1.0
        progress.note(rounds(number, 2, number))
    assert capsys.readouterr().err.splitlines() == [
        f"{Lsn(1)}  2 changes into 1 table in 1 round, 7 bytes behind",
        f"{Lsn(61)}  120 changes into 1 table in 60 rounds, 7 bytes behind",
    ]
    logs.set_up(verbose=True)
    progress.note(rounds(1, 2, 121))
    assert "2 changes into 1 tables" in capsys.readouterr().err


SPARK = b"""\
26/01/02 03:04:05 ERROR Executor: Exception in task 0.0 in stage 1.0 (TID 1)
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
cdc_core.spark.errors.WorkerError: wal2lake-error:gASV: CommitConflictError

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:1)
Caused by: java.io.EOFException
\t... 12 more
26/01/02 03:04:05 ERROR TaskSetManager: Task 0 in stage 1.0 failed 1 times; aborting job
Traceback (most recent call last):
  File "/x/daemon.py", line 1, in manager
BrokenPipeError: [Errno 32] Broken pipe
26/01/02 03:04:05 ERROR S3AFileSystem: The bucket is not there
\tat org.apache.hadoop.Foo(Foo.java:1)
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
"""


def test_what_spark_prints_of_reported_errors_is_left_out():
    kept = [line for line in SPARK.splitlines(keepends=True) if OutputFilter().passes(line)]
    assert kept == [
        b"26/01/02 03:04:05 ERROR S3AFileSystem: The bucket is not there\n",
        b'Exception in thread "main" java.lang.OutOfMemoryError: Java heap space\n',
    ]
    everything = OutputFilter(everything=True)
    assert all(everything.passes(line) for line in SPARK.splitlines(keepends=True))


def test_where_lines_are_json_those_of_spark_are_too(capsys):
    logs.set_up("json")
    reading, writing = os.pipe()
    os.write(writing, SPARK)
    os.close(writing)
    pass_on(reading, os.dup(2))
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [each["logger"] for each in said] == ["wal2lake.spark"] * 2

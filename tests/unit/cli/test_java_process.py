"""A command's Java process ends with it, whatever it is doing: here a program that does not look at its stdin."""

import subprocess
import threading
import time

import pytest

from cdc_core.spark import java_process
from cdc_core.spark.java_process import JavaProcess, java_of_command
from tests.support.waits import patient


def started(*command):
    return JavaProcess(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_in_order_it_ends_by_the_end_of_its_stdin():
    with java_of_command():
        process = started("sh", "-c", "cat; echo done")
    assert process.returncode == 0 and process.stdout.read() == b"done\n"


def test_after_an_error_it_is_killed_at_once():
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), java_of_command():
        process = started("sleep", "600")
        raise KeyboardInterrupt
    assert process.returncode == -9 and time.monotonic() - begun < 5


def test_one_that_does_not_end_is_killed(monkeypatch):
    monkeypatch.setattr(java_process, "_SECONDS", 0.1)
    with java_of_command():
        process = started("sleep", "600")
    assert process.returncode == -9


def test_a_late_thread_starts_none():
    go, refused = threading.Event(), []

    def start():
        go.wait(patient(10))
        try:
            started("true")
        except RuntimeError as error:
            refused.append(str(error))

    thread = threading.Thread(target=start)
    with java_of_command():
        thread.start()
    go.set()
    thread.join(patient(10))
    assert refused == ["The command has ended."]
    with java_of_command():
        assert started("true").wait(patient(10)) == 0


def test_one_that_was_there_before_is_not_the_commands():
    process = started("sleep", "600")
    with java_of_command():
        pass
    assert process.poll() is None
    process.kill()
    process.wait(patient(10))

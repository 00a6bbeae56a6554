"""What ``tests/support/forked.py`` promises of the end of a run."""

import contextlib
import socket
import threading

from tests.support.forked import Forked
from tests.support.waits import patient

ROUNDS = 200


def test_every_thread_that_waits_for_a_run_is_notified_of_its_end():
    """As where a test signals a run again and again while it waits for the end."""

    def wait(run, found):
        found.append(run.wait(patient(60)))

    for code in range(ROUNDS):
        near, far = socket.socketpair()
        run, found = Forked(["run"], near, pid=0), []
        waiters = [threading.Thread(target=wait, args=(run, found)) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        with contextlib.closing(far):
            far.sendall(code.to_bytes(4, signed=True))
            while run.poll() is None:
                pass
        for waiter in waiters:
            waiter.join(patient(20))
        assert found == [code] * 3

"""What each process of a parallel run takes next."""

from collections import OrderedDict
from types import SimpleNamespace

import pytest

from tests.support.order import LongestFirst, piece, rank

CUTS, SIZES = "tests/faults/test_cuts.py::test_a[x::y]", "tests/end_to_end/test_sizes.py::test_b"
LAYOUT, SLOT = "tests/delta/test_layout.py::test_c", "tests/postgres/test_slot.py::test_d"
KILL, KAFKA = "tests/faults/test_kill.py::test_e[spark]", "tests/golden/test_kafka.py::test_f"
INSTALLED = "tests/end_to_end/test_installed.py::test_g"
ALL = (CUTS, SIZES, LAYOUT, SLOT, KILL, KAFKA, INSTALLED)


class Worker:
    """As xdist's: the process of this number, and what it was told to run."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.asked = list[str]()

    def send_runtest_some(self, places: list[int]) -> None:
        self.asked += [ALL[place] for place in places]


@pytest.mark.parametrize(
    ("number", "order"),
    [
        (0, (INSTALLED, LAYOUT, SLOT, CUTS, SIZES, KILL, KAFKA)),
        (1, (KILL, CUTS, SIZES, INSTALLED, SLOT, KAFKA, LAYOUT)),
        (2, (CUTS, SIZES, KAFKA, INSTALLED, SLOT, KILL, LAYOUT)),
        (3, (CUTS, SIZES, INSTALLED, SLOT, KILL, KAFKA, LAYOUT)),
    ],
)
def test_a_process_takes_first_what_starts_no_other_java_process_and_then_the_rest(number, order):
    scheduler = LongestFirst(SimpleNamespace(option=SimpleNamespace(), getvalue=lambda _: [""]), None)
    scheduler.workqueue = OrderedDict((piece(test), {test: False}) for test in sorted(ALL, key=rank))
    worker = Worker(number)
    scheduler.registered_collections[worker] = list(ALL)
    for _ in ALL:
        scheduler._assign_work_unit(worker)
    assert tuple(worker.asked) == order and not scheduler.workqueue

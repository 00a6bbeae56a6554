"""What each process of a parallel run takes next."""

from collections import OrderedDict
from types import SimpleNamespace

import pytest

from tests.support.order import LongestFirst, is_for, piece, rank

CUTS, SIZES = "tests/faults/test_cuts.py::test_a[x::y]", "tests/end_to_end/test_sizes.py::test_b"
LAYOUT, SLOT = "tests/delta/test_layout.py::test_c", "tests/postgres/test_slot.py::test_d"
KILL, KAFKA = "tests/faults/test_kill.py::test_e", "tests/golden/test_kafka.py::test_f"
INSTALLED = "tests/end_to_end/test_installed.py::test_g"
ALL = (CUTS, SIZES, LAYOUT, SLOT, KILL, KAFKA, INSTALLED)


@pytest.fixture
def two_cores(monkeypatch):
    """Whatever the machine has, and the process of this test may use of it."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1}, raising=False)


class Worker:
    """As xdist's: the process of this number, and what it was told to run."""

    def __init__(self, number: int) -> None:
        self.gateway = SimpleNamespace(id=f"gw{number}")
        self.asked = list[str]()
        self.shutting_down = False

    def shutdown(self) -> None:
        self.shutting_down = True

    def send_runtest_some(self, places: list[int]) -> None:
        self.asked += [ALL[place] for place in places]


@pytest.mark.parametrize(
    ("number", "order"),
    [
        (0, (LAYOUT, SLOT, INSTALLED, CUTS, KILL, SIZES, KAFKA)),
        (1, (INSTALLED, CUTS, KILL, SIZES, SLOT, LAYOUT, KAFKA)),
        (2, (KAFKA, INSTALLED, CUTS, KILL, SIZES, SLOT, LAYOUT)),
        (3, (INSTALLED, CUTS, KILL, SIZES, SLOT, KAFKA, LAYOUT)),
    ],
)
def test_a_process_takes_first_what_starts_no_other_java_process_and_then_the_rest(two_cores, number, order):
    worker = Worker(number)
    scheduler = scheduler_of(worker)
    for _ in ALL:
        scheduler._assign_work_unit(worker)
    assert tuple(worker.asked) == order and not scheduler.workqueue


def test_no_more_processes_than_cores_start_a_session(two_cores):
    for number, worker in enumerate(Worker(number) for number in range(4)):
        run_alone(worker, scheduler_of(worker))
        assert (LAYOUT in worker.asked) is (number < 2)
        assert sorted({*worker.asked, LAYOUT}) == sorted(ALL)
    assert is_for(LAYOUT, "gw4", cores=2, workers=4)  # in place of one that has crashed


@pytest.mark.parametrize(("count", "taken"), [(4, 6), (5, 1)])
def test_the_last_of_more_than_two_processes_a_core_takes_what_needs_no_java(two_cores, count, taken):
    worker = Worker(count - 1)
    run_alone(worker, scheduler_of(worker, count))
    assert len(worker.asked) == taken and SLOT in worker.asked
    assert is_for(CUTS, "gw3", cores=2, workers=5) and is_for(CUTS, "gw5", cores=2, workers=5)
    # xdist gives each process a first piece, whatever there is.
    scheduler = scheduler_of(worker, count)
    del scheduler.workqueue[piece(SLOT)]
    scheduler._assign_work_unit(worker)
    assert len(worker.asked) == taken + 1


def run_alone(worker: Worker, scheduler: LongestFirst) -> None:
    """The worker takes and ends one piece after the other, until it is told to end."""
    while not worker.shutting_down:
        scheduler._reschedule(worker)
        for unit in scheduler.assigned_work[worker].values():
            unit.update(dict.fromkeys(unit, True))


def scheduler_of(worker: Worker, count: int = 4) -> LongestFirst:
    """All tests are still to be taken."""
    scheduler = LongestFirst(SimpleNamespace(option=SimpleNamespace(), getvalue=lambda _: [""] * count), None)
    scheduler.workqueue = OrderedDict((piece(test), {test: False}) for test in sorted(ALL, key=rank))
    scheduler.registered_collections[worker] = list(ALL)
    scheduler.add_node(worker)
    return scheduler

"""Which core a process of a parallel run keeps to."""

import pytest

from tests.support.cores import core_of


@pytest.mark.parametrize(
    ("count", "cores", "found"),
    [
        (2, [0, 1], [0, 1]),
        (4, [0, 1], [0, 1, 0, None]),
        (3, [4, 7], [4, 7, None]),
        (3, [0, 1, 2, 3], [None, None, None]),
        (2, [5], [5, None]),
    ],
)
def test_each_keeps_to_one_and_the_last_of_many_to_none(count, cores, found):
    assert [core_of(f"gw{number}", count, cores) for number in range(count)] == found


@pytest.mark.parametrize("name", ["", "master"])
def test_a_process_alone_may_use_all(name):
    assert core_of(name, 1, [0]) is None

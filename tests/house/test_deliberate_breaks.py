"""The list of deliberate breaks describes this tree: each text occurs once in its file, and each test exists."""

import pytest

from tools.deliberate_breaks import ROOT, breaks

BREAKS = breaks()


def test_there_are_at_least_thirty():
    assert len(BREAKS) >= 30


@pytest.mark.parametrize("one", BREAKS, ids=lambda one: one.name)
def test_a_break_has_its_place_and_its_test(one):
    assert one.occurrences(ROOT) == 1, f"{one.file}: adapt the break {one.name} to the code"
    assert one.becomes != one.text
    for test in one.tests:
        path, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text("utf-8") if name else (ROOT / path).exists()

"""The rule of waiting (``tests/support/waits.py``): a look at what is not there yet is one that is not met."""

import re
from pathlib import Path

import deltalake
import psycopg
import pyarrow as pa
import pytest

from tests.house.test_habits import broken
from tests.support import waits
from tests.support.lake import rows
from tests.support.waits import wait_until

# A bound in seconds as a plain number: a machine that is slower, or busy, needs more.
PLAIN_BOUND = re.compile(
    r"\.(?:join|wait|result)\((?:timeout=)?[1-9][\d.]*\)"
    r"|assert (?:[\d.]+ <=? )?time\.monotonic\(\) - \w+ < \d"
    r"|(?:deadline|end) = time\.monotonic\(\) \+ \d"
    r"|(?<!\w)timeout=(?:[2-9]\d|\d{3,})"
    r"|mark\.timeout"
)


def test_a_table_a_column_and_a_row_that_are_not_there_yet_are_waited_for(tmp_path: Path) -> None:
    table, looks = str(tmp_path / "t"), iter(range(9))

    def look():
        number = next(looks)
        if number == 1:
            deltalake.write_deltalake(table, pa.table({"id": [1]}))
        if number == 2:
            deltalake.write_deltalake(table, pa.table({"id": [1], "v": ["x"]}), mode="overwrite", schema_mode="merge")
        return rows(tmp_path / "t", f"select v from t where id = {number - 2}")[0]["v"]

    assert wait_until(look, pause=0) == "x"
    assert next(looks) == 4


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(), psycopg.errors.UndefinedTable("t"), ValueError("half a line"), KeyError("id")]
)
def test_at_its_end_a_wait_says_what_was_not_there(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(waits, "PATIENCE", 1.0)

    def look():
        raise error

    with pytest.raises(AssertionError, match="the port did not come true") as found:
        wait_until(look, 0.05, "the port")
    assert found.value.__cause__ is error


@pytest.mark.parametrize("error", [AssertionError("the run ended"), psycopg.errors.SyntaxError("x"), TypeError("x")])
def test_what_cannot_come_true_ends_a_wait_at_once(error: Exception) -> None:
    def look():
        raise error

    with pytest.raises(type(error)):
        wait_until(look)


def test_bounds_grow_with_the_patience_of_the_tests():
    """Each is given by ``wait_until``, ``Running.end`` or ``patient(seconds)``; that of a whole test is one for all."""
    assert not broken(PLAIN_BOUND.findall, "tests")

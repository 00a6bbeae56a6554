"""Whether a table is still the one that was described when its snapshot began."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_core.snapshot.copy.unaltered import _is_as_described
from tests.unit.schema.versions import ID, column, table


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"naming": "90"}, {"naming": "90"}, True),
        ({"naming": "90"}, {"naming": "95"}, False),  # renamed and back: COPY may have read another table by this name
        ({"naming": "90", "owner": 10}, {"naming": "95", "owner": 11}, True),
    ],
)
def test_a_table_that_had_another_name_meanwhile_is_read_again(
    before: dict[str, Any], after: dict[str, Any], expected: bool
) -> None:
    described, now = (table(ID, column(2, "note"), changes=facts) for facts in (before, after))
    assert _is_as_described(described, now.fingerprint) is expected


def test_a_table_that_no_longer_exists_is_not_the_one_that_was_described() -> None:
    assert not _is_as_described(table(ID, changes={"naming": "90"}), None)

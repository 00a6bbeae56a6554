"""Where commits lie that a table lacks, relative to what the stream has passed and what the table has."""

from __future__ import annotations

from cdc_core.lsn import just_after, last_begin


def test_a_commit_that_begins_where_a_record_ended_is_behind_both() -> None:
    end = 0x1_0000_0060
    assert last_begin(end) < just_after(last_begin(end)) < end


def test_an_earlier_commit_is_not_behind() -> None:
    # The smallest record of a commit: a header, the header of its data, and the time.
    commit = 0x1_0000_0060
    assert commit <= last_begin(commit + 24 + 2 + 8)
    assert last_begin(0) == 0

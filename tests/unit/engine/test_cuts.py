"""How tables stand to a round's LSN, and when a round is written down."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_core.engine.round.merge_state import MergeState
from cdc_core.engine.round.record import Cuts, state_at
from cdc_core.lake.evolution.table_versions import TableVersions
from cdc_core.lake.stores.rounds import RoundLog, TableState
from cdc_core.lake.stores.schema_log import Pause
from cdc_core.lsn import last_begin
from cdc_core.schema.table import TableId
from tests.support.sampling import examples

A, B = TableId("public", "a"), TableId("public", "b")
AT = datetime(2026, 1, 1, tzinfo=UTC)


def merge_state(**facts):
    versions = facts.pop("versions", TableVersions())
    return MergeState(versions, version=3, token=5, **facts)


@pytest.mark.parametrize(
    ("facts", "read_at", "wanted"),
    [
        ({"merged": 90}, None, TableState.CURRENT),
        ({}, 100, TableState.CURRENT),
        ({}, 101, TableState.AHEAD),
        ({"merged": 101}, None, TableState.AHEAD),
        ({"merged": 90, "backlog": 100}, None, TableState.BEHIND),
        ({"merged": 90, "backlog": 101}, None, TableState.CURRENT),
        # A transaction that is still open stands behind one that is whole and not merged.
        ({"merged": 80, "backlog": 101, "whole": 90}, None, TableState.BEHIND),
        ({"merged": 90, "backlog": 101, "whole": 90}, None, TableState.CURRENT),
        ({"whole": 90}, None, TableState.BEHIND),
        ({"merged": 90, "failed_at": 1.0}, None, TableState.FAILED),
        ({"merged": 90, "versions": TableVersions(reread="why")}, None, TableState.REREADING),
        ({"merged": 90, "versions": TableVersions(paused=Pause("", "", 1, AT))}, None, TableState.PAUSED),
    ],
)
def test_state(facts, read_at, wanted):
    assert state_at(merge_state(**facts), read_at, 100) is wanted


def test_a_table_without_a_lake_table_is_unread():
    assert state_at(MergeState(TableVersions()), None, 100) is TableState.UNREAD


class Known(dict):
    """Merge states of some tables; ``overlaps`` are snapshots in force by table."""

    looked = 0

    def __init__(self, states, overlaps=None):
        super().__init__(states)
        self.settled = set()
        self.overlaps = overlaps or {}

    def __getitem__(self, table):
        self.settled.discard(table)
        return super().__getitem__(table)

    @property
    def unsettled(self):
        return [(table, state) for table, state in self.items() if table not in self.settled]

    def settle(self, table):
        self.settled.add(table)

    def overlap(self, table):
        return self.overlaps.get(table)

    def find_maintained_versions(self):
        self.looked += 1


@pytest.fixture
def log(tmp_path):
    return RoundLog(str(tmp_path / "rounds"), 0)


def recorded(log):
    log.refresh()
    return [(head.lsn, head.committed_at) for head in log.heads()]


def test_a_round_holds_every_table_and_its_last_commit_time(log):
    known = Known({B: merge_state(merged=50), A: merge_state(merged=100)})
    cuts = Cuts(log, known, lambda: None)
    cuts.note_commit(100, int(AT.timestamp() * 1e6))
    cuts.record(100)
    # Nothing new is said twice, and a later LSN is a round whatever changed.
    cuts.record(100)
    known[A].failed_at = 1.0
    cuts.note_commit(110, None)
    cuts.record(110)
    assert recorded(log) == [(100, AT), (110, AT)]
    first, second = log.round(1), log.round(2)
    assert [(one.table, one.version) for one in first.tables] == [(A, 3), (B, 3)]
    assert [(one.table, one.version, one.state) for one in second.tables] == [
        (A, None, TableState.FAILED),
        (B, 3, TableState.CURRENT),
    ]


def test_a_later_run_continues_where_the_last_one_ended(log, tmp_path):
    known = Known({A: merge_state(merged=100)})
    first = Cuts(log, known, lambda: None)
    first.note_commit(100, int(AT.timestamp() * 1e6))
    first.record(100)
    # The slot sends changes again, and tables are ahead of them: no round of an earlier LSN follows.
    known = Known(known)
    again = Cuts(RoundLog(str(tmp_path / "rounds"), 0), known, lambda: None)
    again.record(90)
    again.record(100)
    assert recorded(log) == [(100, AT)]
    known[A].version = 4
    again.record(100)
    again.record(120)
    assert recorded(log) == [(100, AT), (100, AT), (120, AT)]


def test_what_changes_without_a_round_is_written_down_too(log, monkeypatch):
    known = Known({A: merge_state(merged=70, versions=TableVersions(reread="why"))})
    cuts = Cuts(log, known, lambda: None)
    now = SimpleNamespace(monotonic=lambda: clock[0])
    clock = [1000.0]
    monkeypatch.setattr("cdc_core.engine.round.record.time", now)
    cuts.between_rounds(100)
    known[A].versions.reread = None
    cuts.between_rounds(110)
    assert recorded(log) == [(76, None)], "it looks seldom"
    clock[0] += 6
    cuts.between_rounds(110)
    clock[0] += 6
    cuts.between_rounds(220)
    assert recorded(log) == [(76, None), (86, None)]
    assert [one.state for one in log.newest().tables] == [TableState.CURRENT]


def test_no_two_contents_have_one_lsn_when_a_commit_begins_where_the_stream_stood(log, monkeypatch):
    """The stream has passed the record that ends at 200; the next one begins there, and is a commit."""
    known = Known({A: merge_state(merged=100)})
    cuts = Cuts(log, known, lambda: None)
    clock = [1000.0]
    monkeypatch.setattr("cdc_core.engine.round.record.time", SimpleNamespace(monotonic=lambda: clock[0]))
    cuts.record(100)
    known[A].version = 4
    cuts.between_rounds(200)
    known[A].version, known[A].merged = 5, 200
    cuts.record(200)
    assert [int(lsn) for lsn, _ in recorded(log)] == [100, 176, 200]
    # Another version of what is merged up to the newest round: nothing has come behind it.
    known[A].version = 6
    clock[0] += 6
    cuts.between_rounds(200)
    assert [int(lsn) for lsn, _ in recorded(log)] == [100, 176, 200, 200]
    assert log.newest().tables[0].version == 6
    # The slot sends changes again that the tables have.
    known[A].version = 7
    clock[0] += 6
    cuts.between_rounds(199)
    assert len(recorded(log)) == 4


def test_a_table_that_a_killed_run_merged_is_current_once_the_stream_has_passed_it(log, tmp_path, monkeypatch):
    """The next run begins where the slot was confirmed, ends within a second, and nothing follows on a quiet server."""
    monkeypatch.setattr("cdc_core.engine.round.record.time", SimpleNamespace(monotonic=lambda: 1000.0))
    known = Known({A: merge_state(merged=100), B: merge_state(merged=60)})
    Cuts(log, known, lambda: None).record(60)
    again = Cuts(RoundLog(str(tmp_path / "rounds"), 0), Known(known), lambda: None)
    for passed in (100, 101, 123, 124, 125):
        again.between_rounds(passed)
    assert [int(lsn) for lsn, _ in recorded(log)] == [60, 100]
    assert [one.state for one in log.newest().tables] == [TableState.CURRENT, TableState.CURRENT]


def test_a_table_altered_without_an_event_is_not_part_of_the_round(log):
    """The catalogue is looked at after the merges and before the states are read: see docs/reading.md."""
    known = Known({A: merge_state(merged=100), B: merge_state(merged=100)})

    def look():
        known[A].versions.reread = "its values were rewritten"

    Cuts(log, known, look).record(100)
    assert {one.table: one.state for one in log.newest().tables} == {
        A: TableState.REREADING,
        B: TableState.CURRENT,
    }


@pytest.mark.parametrize(
    ("facts", "is_settled"),
    [
        ({}, True),
        ({"merged": 101}, False),
        ({"backlog": 130}, False),  # a transaction that is not complete
        ({"due_at": 1e12}, False),
        ({"failed_at": 1.0}, False),
        ({"merged": None, "waits_for": 90}, False),
        ({"versions": TableVersions(waiting=(100, None))}, False),
        ({"versions": TableVersions(owed="why")}, False),
        ({"versions": TableVersions(absent=True)}, False),
        ({"versions": TableVersions(paused=Pause("", "", 1, AT))}, False),
    ],
)
def test_a_table_to_which_something_is_due_is_looked_at_again(log, facts, is_settled):
    known = Known({A: merge_state(**{"merged": 100, **facts})})
    cuts = Cuts(log, known, lambda: None)
    cuts.record(100)
    assert (A in known.settled) is is_settled
    cuts.record(140)
    assert log.newest().tables == Cuts(log, Known(known), lambda: None).tables_at(140)


TABLES = [TableId("public", f"t{number}") for number in range(5)]


def appended(state, lsn, draw):
    state.appended(lsn + draw(st.integers(1, 60)), None, draw(st.sampled_from([None, lsn, lsn + 30])))


def merged(state, lsn, draw):
    state.merged = lsn + draw(st.sampled_from([0, 0, 0, 40]))
    state.failed_at, state.backlog, state.whole = None, None, None
    state.seen(state.version + 1, "id", state.merged)


def rests_or_not(state, lsn, draw):
    state.due_at = draw(st.sampled_from([0.0, 1e12]))


def waits_or_not(state, lsn, draw):
    state.versions.waiting = draw(st.sampled_from([None, (lsn, None)]))


CHANGES = {
    "appended": appended,
    "merged": merged,
    "failed": lambda state, lsn, draw: state.failed("why"),
    "retried": lambda state, lsn, draw: state.begin_again(),
    "reread": lambda state, lsn, draw: setattr(state.versions, "reread", draw(st.sampled_from([None, "why"]))),
    "paused": lambda state, lsn, draw: setattr(
        state.versions, "paused", draw(st.sampled_from([None, Pause("", "", 1, AT)]))
    ),
    "rests": rests_or_not,
    "waits": waits_or_not,
}


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_a_round_that_looks_at_unsettled_tables_only_is_that_of_all_tables(tmp_path_factory, data):
    """Tables change and are read again, while rounds are recorded, also at earlier LSNs, and runs end and begin."""
    path, draw = str(tmp_path_factory.mktemp("cuts") / "rounds"), data.draw
    known = Known({table: merge_state(merged=50, identity="id") for table in TABLES})
    clock, newest, cuts = [0.0], 50, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cdc_core.engine.round.record.time", SimpleNamespace(monotonic=lambda: clock[0]))
        for _ in range(draw(st.integers(1, 25))):
            for table in draw(st.lists(st.sampled_from(TABLES), max_size=2)):
                CHANGES[draw(st.sampled_from(sorted(CHANGES)))](known[table], newest, draw)
                if draw(st.integers(0, 9)) == 0:
                    known.overlaps[table] = SimpleNamespace(lsn=newest + draw(st.integers(0, 80)))
            if cuts is None or draw(st.integers(0, 9)) == 0:
                known, log = Known(known, known.overlaps), RoundLog(path, 0)
                cuts = Cuts(log, known, lambda: None)
            clock[0] += 6
            at = newest + draw(st.sampled_from([-20, 0, 0, 10, 30, 60]))
            if draw(st.booleans()):
                cuts.record(at)
                of_round = at
            else:
                cuts.between_rounds(at)
                of_round = max(last_begin(at), log.newest_lsn or 0) if at >= (log.newest_lsn or 0) else 0
            every = Cuts(log, Known(known, known.overlaps), lambda: None)
            if of_round >= (log.newest_lsn or 0):
                found = log.newest()
                assert found is not None and found.tables == every.tables_at(of_round)
                newest = max(newest, of_round)

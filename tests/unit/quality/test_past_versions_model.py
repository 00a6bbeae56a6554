"""History tables: changes that a rule refused become versions between those that the lake has, in any steps.

The model is the history of all events, as if nothing had been refused. At any time the lake has the versions of the
model but for those whose change the quarantine table still holds; in the end it has all of them.
"""

import itertools
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from cdc_core.engine.slice.order import Replay
from cdc_core.errors import LakeError
from cdc_core.lake.delete_modes import DeleteMode, DeleteModes
from cdc_core.lake.delta.table import DeltaTable
from tests.delta.kept_model import KeptModel
from tests.support.one_table import quarantined
from tests.support.sampling import examples
from tests.unit.quality.test_quarantine_model import FULL, KEYED, Run, effects_of, folded, histories, rules

PAST = 4


class PastRun(Run):
    """One history table brought along."""

    def __init__(self, folder, table):
        super().__init__(folder, table)
        self.one.tables = replace(self.one.tables, modes=DeleteModes(DeleteMode.HISTORY))

    def replay(self, **how):
        return self.one.merge(self.one.lake_position.lsn + 1, replay=Replay(**how))

    def replay_killed(self, **how):
        """A replay that ends after the quarantine table was written, before the commit of the lake table."""
        commit = DeltaTable.commit

        def ends(table, *arguments, **more):
            if table.path == self.one.lake:
                raise RuntimeError("ended")
            return commit(table, *arguments, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(DeltaTable, "commit", ends)
            try:
                self.replay(**how)
            except LakeError:
                event("killed")

    def compare(self, events, in_the_end=False):
        """Compare with the model; the rows of the quarantine table. Each table is read once, as reading costs most."""
        rows, entries = self.one.rows, self.entries
        waiting = effects_of(entries)
        model = KeptModel(("k",))
        for one in events:
            model.apply(one)
        # The positions of changes whose version is not in the lake.
        missing = set() if in_the_end else {place for place, effects in waiting.items() if effects & (1 | PAST)}
        began = {(version_of(v.values), v.began[:2]) for v in model.versions if v.began[:2] not in missing}
        found = {(version_of(row), (row["__valid_from_lsn"], row["__tx_index"])) for row in rows}
        assert found == began
        assert len(rows) == len(found)
        ended = {}
        for row in rows:
            to = None if row["__valid_to_lsn"] is None else (row["__valid_to_lsn"], row["__valid_to_index"])
            assert row["__current"] is (to is None) is (row["__valid_to"] is None)
            assert row["__valid_from_lsn"] == row["__commit_lsn"] and row["__valid_from"] == row["__commit_ts"]
            ended[row["k"], (row["__valid_from_lsn"], row["__tx_index"])] = to
        if not missing and not waiting:
            assert ended == {
                (v.values["k"], v.began[:2]): None if v.ended is None else v.ended[:2] for v in model.versions
            }
        for key in {key for key, _ in ended}:
            mine = sorted((began, to) for (k, began), to in ended.items() if k == key)
            for (_, to), (following, _) in itertools.pairwise(mine):
                assert to is not None and to <= following
        waits = {place: effects & ~PAST for place, effects in waiting.items()}
        current = {(row["k"], row["v"], row["t"]) for row in rows if row["__current"]}
        assert current == set(folded(events, self.one.table, waits))
        return entries


def version_of(values):
    return values["k"], values["v"], values["t"]


def luck(number):
    return rules(luck=f"__op = 't' or __lsn % {number} <> 0")


@pytest.mark.slow
@pytest.mark.parametrize("table", [KEYED, FULL], ids=["default", "full"])
@settings(
    max_examples=examples(10),
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(number=st.integers(2, 4), data=st.data())
def test_replayed_changes_become_versions_in_between(tmp_path_factory, table, number, data):
    events, cuts = data.draw(histories(table))
    run = PastRun(tmp_path_factory.mktemp("past"), table)
    run.one.quality = luck(number)
    at = 0
    for cut in cuts:
        run.one.append([one for one in events if at < one["__commit_lsn"] <= cut], cut)
        run.one.merge(cut)
        at = cut
        seen = [one for one in events if one["__commit_lsn"] <= at]
        held = run.compare(seen)
        if held and data.draw(st.integers(0, 2)) == 0:
            run.one.quality = luck(number * data.draw(st.integers(2, 3)))
            if data.draw(st.booleans()):
                run.replay_killed()
            done = run.replay()
            event("replayed" if quarantined(done).replayed else "nothing to replay")
            run.compare(seen)
            run.one.quality = luck(number)
    if held:
        for factor in data.draw(st.lists(st.integers(2, 6), max_size=2)):
            run.one.quality = luck(number * factor)
            run.replay()
            run.compare(events)
        run.replay(accept_all=True)
        assert quarantined(run.replay(accept_all=True)).replayed == 0
    held = run.compare(events, in_the_end=True)
    assert not effects_of(held)
    assert {one["status"] for one in held} <= {"replayed"}

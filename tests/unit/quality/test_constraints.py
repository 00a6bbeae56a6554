"""Since when a column's constraints count."""

import dataclasses

from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.quality.constraints import KEY, ConstraintsSeen, constraint_marks
from cdc_core.quality.options import QualityOptions
from cdc_core.schema.fingerprint import ColumnMark, Fingerprint, KeyMark, PublicationEntry, PublicationMark
from cdc_core.schema.relation import ReplicaIdentity
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.unit.quality.people import TABLE, frame, image, row


def marked(**rows):
    """The table with the marks of its columns' catalogue rows."""
    columns = tuple(dataclasses.replace(c, attnum=n) for n, c in enumerate(TABLE.columns, 1))
    marks = tuple(ColumnMark(c.attnum, rows.get(c.name.replace(" ", "_"), "1"), 0, False) for c in columns)
    print_ = Fingerprint("s", 1, 1, "people", 4, "d", False, marks, ())
    return dataclasses.replace(TABLE, columns=columns, fingerprint=print_)


def test_a_column_counts_from_when_it_was_first_seen_so():
    ends = iter([100, 200, 300])
    seen = ConstraintsSeen(lambda: next(ends))
    first = marked()
    assert set(seen.since(first).values()) == {100}
    assert seen.since(first) is seen.since(first)
    assert seen.since(marked()) == seen.since(first)
    assert seen.since(marked(na_me="2")) == {
        "id": 100,
        "na me": 200,
        "mood": 100,
        "wealth": 100,
        KEY: 100,
    }
    assert seen.since(marked(na_me="1"))["na me"] == 300


def judged(refreshed, since, lsn=1000):
    plan = TypingPlan(TypeOptions(), SelectionOptions())
    checks = TableChecks(QualityOptions(), plan, lambda table: refreshed)
    rows = [
        row(0, after=image(name="much too long"), commit_lsn=lsn),
        row(1, after=image(id=2, name=None), commit_lsn=lsn),
    ]
    return checks.judged(marked(), frame(rows), since)


def test_a_change_from_before_the_constraint_passes():
    assert judged(marked(), {"na me": 999}).refused.to_pylist() == [True, True]
    passed = judged(marked(), {"na me": 1000})
    assert passed.refused is None
    assert passed.summary.failed["not_null:na me"] == 0


def test_a_constraint_that_was_created_again_is_not_applied_to_earlier_rows():
    assert judged(marked(na_me="2"), {"na me": 10}).refused is None
    assert constraint_marks(marked(na_me="2")) != constraint_marks(marked())


def with_key(**changes):
    """The table with other marks of its key."""
    table = marked()
    return dataclasses.replace(table, fingerprint=dataclasses.replace(table.fingerprint, **changes))


def repeated(table, since=None, refreshed=None, **selection):
    """The rows refused of two inserts of one key, the first at LSN 1000 and the second at 1001."""
    plan = TypingPlan(TypeOptions(), SelectionOptions(**selection))
    checks = TableChecks(QualityOptions(), plan, lambda _: refreshed or table)
    rows = [row(0, after=image()), row(0, after=image(), commit_lsn=1001)]
    refused = checks.judged(table, frame(rows), since or {}).refused
    return [] if refused is None else refused.to_pylist()


def test_a_repeated_key_is_refused_from_when_the_key_was_seen():
    assert repeated(marked()) == [False, True]
    assert repeated(marked(), {KEY: 999}) == [False, True]
    # The first of the two may have been written before the key was there.
    assert repeated(marked(), {KEY: 1000}) == []


def test_a_key_that_was_created_again_is_not_applied_to_earlier_rows():
    for other in (with_key(keys=(KeyMark(7, 6, (1,)),)), with_key(oid=2), marked(id="2")):
        assert repeated(marked(), {KEY: 10}, other) == []
        assert constraint_marks(other)[KEY] != constraint_marks(marked())[KEY]
    assert repeated(marked(), {KEY: 10}, dataclasses.replace(marked(), is_key_deferrable=True)) == []


def published(operations, **entry):
    entries = (PublicationEntry("t", 5, **entry),)
    return with_key(publication=PublicationMark(4, "1", operations, False, "", entries))


def test_a_repeated_key_that_the_source_may_write_is_not_refused():
    assert repeated(published("cudt")) == [False, True]
    for operations in ("c", "cud", "cut", "cdt"):
        assert repeated(published(operations)) == []
    assert repeated(published("cudt", is_filtered=True)) == []
    assert repeated(with_key(is_partitioned=True)) == []
    assert repeated(dataclasses.replace(marked(), is_key_deferrable=True)) == []
    assert repeated(dataclasses.replace(marked(), primary_key=())) == []
    assert repeated(TABLE) == []  # nothing is known of its key
    assert repeated(marked(), skipped_operations=("d",)) == []
    by_name = dataclasses.replace(marked(), primary_key=("na me",))
    assert repeated(by_name) == [False, True]
    assert repeated(by_name, column_mask_with_n_chars=(("3", ("public.people.na me",)),)) == []


def test_the_key_of_the_replica_identity_is_never_deferrable():
    by_index = dataclasses.replace(marked(), identity=ReplicaIdentity.INDEX, identity_key=("id",))
    assert repeated(dataclasses.replace(by_index, is_key_deferrable=True)) == [False, True]

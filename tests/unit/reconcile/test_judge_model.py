"""Which rows a comparison names, over any history: the corrupted ones and no other, whatever lies in between."""

import random

import pyarrow as pa
import pytest

from cdc_core.lake.compare.judge import Between, after_truncate, judge_keyed, judge_multiset
from cdc_core.lake.compare.key_texts import key_texts
from cdc_core.lake.compare.rows import Compared, is_among, surplus
from cdc_core.lake.rows.row_keys import KeyIndex
from cdc_core.lake.rows.survey import hidden
from cdc_core.lake.schema.lake_schema import lake_schema
from tests.delta.source_model import ROW
from tests.support.spark import AT, change_schema
from tests.unit.lake.test_chunk_rows_model import KEY, Server, key_of

SEEDS = 160
CAPTURED = pa.schema([*ROW, ("__commit_lsn", pa.int64()), ("__tx_index", pa.int64())])
COMPARED = Compared.of(CAPTURED, lake_schema(ROW), KEY)
MULTISET = Compared.of(CAPTURED, lake_schema(ROW), ())
VALUES = [each.name for each in ROW if each.name not in (*KEY, "__rescued")]


def as_rows(rows):
    made = [{**row, "__commit_lsn": 7, "__tx_index": -1, "__commit_ts": AT} for row in rows]
    return COMPARED.conformed(pa.Table.from_pylist(made, schema=lake_schema(ROW)))


def matched(index, rows):
    return index.match(rows.select(COMPARED.key.read).combine_chunks()) >= 0


def plain_row(row):
    return {name: row[name] for name in [*KEY, *VALUES]}


def corrupted(rows, chance):
    """Rows of the lake of which some are not as they were."""
    out = []
    for row in rows:
        what = chance.choice(["none"] * 6 + ["removed", "changed", "doubled"])
        if what != "removed":
            out.append(row)
        if what == "changed":
            name = next((each for each in VALUES if isinstance(row[each], str)), None)
            if name is not None:
                out[-1] = {**row, name: row[name] + "?"}
        if what == "doubled":
            out.append(dict(row))
    if chance.random() < 0.3 and rows:
        out.append({**chance.choice(rows), "k": f"invented {chance.random()}"})
    return out


def replayed(rows, changes):
    """Apply changes one by one to rows; also the keys whose row cannot be known."""
    held, unknown = {}, set()
    for row in rows:
        held[key_of(row)] = row
    for one in changes.to_pylist():
        after, before = one["after"], one["before"]
        if one["__op"] == "t":
            held, unknown = {}, set()
            continue
        old = key_of(before) if before is not None else key_of(after)
        was = held.pop(old, None)
        lost = old in unknown
        unknown.discard(old)
        if one["__op"] == "d":
            continue
        made = dict(after)
        for name in one["__unchanged"] or ():
            made[name] = None if was is None else was[name]
            lost |= was is None
        held[key_of(made)] = made
        unknown.discard(key_of(made))
        if lost and one["__unchanged"]:
            unknown.add(key_of(made))
    return held, unknown


@pytest.mark.parametrize("part", range(4))
def test_only_what_differs_is_named(part):
    for seed in range(part * SEEDS // 4, (part + 1) * SEEDS // 4):
        one_history(seed)


def one_history(seed):
    chance = random.Random(seed)
    server = Server(seed, 4, truncates=False)
    for _ in range(chance.randint(2, 12)):
        server.commit(chance.randint(1, 4))
        server.end_some()
    shown, visible = server.shown(), server.visible()
    for _ in range(chance.randint(0, 4)):
        server.commit(chance.randint(1, 4))
    at = chance.randrange(len(server.lsns))
    good = [row for rows in server.after[at].values() for row in rows]
    lake = corrupted(good, chance) if seed % 4 else list(good)
    every = pa.Table.from_pylist(server.changes, schema=change_schema(ROW))
    in_lake = every.column("__commit_lsn").to_numpy() <= server.lsns[at]
    unseen = hidden(every, visible)
    ahead, behind = every.filter(pa.array(in_lake & unseen)), every.filter(pa.array(~in_lake & ~unseen))
    between = Between(ahead, behind, every.slice(0, 0))

    mine, theirs = every_mine, every_theirs = as_rows(shown), as_rows(lake)

    def more(keys):
        index, _ = KeyIndex.of(COMPARED.key, keys)
        return tuple(rows.filter(pa.array(matched(index, rows))) for rows in (every_mine, every_theirs))

    unlike = surplus(COMPARED.digests(theirs), COMPARED.digests(mine))
    mine = mine.filter(pa.array(is_among(COMPARED.digests(mine), unlike)))
    theirs = theirs.filter(pa.array(is_among(COMPARED.digests(theirs), unlike)))
    judged = judge_keyed(mine, theirs, between, COMPARED, 1000, more)

    expected, nothing = replayed(shown, ahead)
    assert not nothing
    held, unknown = replayed(lake, behind)
    counts = {}
    for row in lake:
        counts[key_of(row)] = counts.get(key_of(row), 0) + 1
    doubled = {key for key, count in counts.items() if count > 1}
    same = {key for key in expected.keys() & held.keys() if plain_row(expected[key]) == plain_row(held[key])}
    named = {
        "missing": expected.keys() - held.keys(),
        "extra": (held.keys() - expected.keys()) | (same & doubled),
        "changed": (expected.keys() & held.keys()) - same,
    }
    undecided = {(int(h), k) for h, k in judged.found.undecided.keys}
    assert undecided <= unknown, seed
    for kind, keys in named.items():
        found = getattr(judged.found, kind)
        wanted = {key for key in keys if key not in undecided}
        assert {(int(h), k) for h, k in found.keys} == wanted, (seed, kind)
        assert found.count == len(wanted)
    assert len(key_texts(judged.keys.keys, COMPARED.key)) == judged.found.count


def test_a_truncate_removes_what_was_there():
    server = Server(3, 2, truncates=False)
    for _ in range(4):
        server.commit(2)
    rows = pa.Table.from_pylist(server.changes, schema=change_schema(ROW))
    cut = dict.fromkeys(rows.schema.names) | {"__op": "t", "__commit_lsn": 10**6, "__tx_index": 0}
    with_cut = pa.concat_tables([rows, pa.Table.from_pylist([cut], schema=rows.schema), rows.slice(0, 1)])
    left, is_cut = after_truncate(with_cut)
    assert is_cut
    assert left.num_rows == 1
    assert after_truncate(rows) == (rows, False)


def test_rows_without_a_key_are_counted():
    rows = [{**dict.fromkeys([each.name for each in ROW]), "h": 1, "k": "a"}]
    none = pa.Table.from_pylist([], schema=change_schema(ROW))
    between = Between(none, none, none)
    one, three = MULTISET.digests(as_rows(rows)), MULTISET.digests(as_rows(rows * 3))
    assert judge_multiset(three, one, between, MULTISET).missing.count == 2
    assert judge_multiset(one, three, between, MULTISET).extra.count == 2
    found = judge_multiset(three, three, between, MULTISET)
    assert found.count == 0

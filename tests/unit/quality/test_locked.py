"""A user's rule reads no file, network or table, changes nothing, can be repeated, and is bounded in time."""

import time

import duckdb
import pyarrow as pa
import pytest

from cdc_core.errors import NotJudgedError, TableError
from cdc_core.quality import duck, time_bound
from cdc_core.quality.judge import judge
from cdc_core.quality.whole_table import judge_whole
from tests.unit.quality.people import RULES, frame, image, row, rules

NAME = "public.people"
ONE = frame([row(0, after=image(name="secret"))])
python_table = pa.table({"x": [1]})

REFUSED = {
    # other tables, files and the network
    "(select count(*) from python_table) > 0": "python_table does not exist",
    "after.id in (select x from python_table)": "python_table does not exist",
    "exists(from read_csv('{file}'))": "Permission Error",
    "exists(select 1 from read_parquet('https://example.invalid/x'))": "Permission Error",
    "exists(from '{file}')": "Permission Error",
    "read_text('{file}') is null": "table function",
    "query_table('python_table') is null": "table function",
    "getenv('HOME') is null": "getenv does not exist",
    "changes_1.after.id > 0": "not found",
    "python_table.x > 0": "not found",
    "x > 0": "not found",
    "temp.changes_1.after is null": "not found",
    "rules is null": "not found",
    # what is not the same when a round is done again
    "random() > 0.5": "the function random, whose result differs when a round is repeated",
    "(select max(Random()) from range(3)) > 0.5": "the function random",
    "uuid() is not null": "the function uuid",
    "sleep_ms(60000) is null": "the function sleep_ms",
    # more than one expression, or what would get out of the query around it
    "true; select 1": "syntax error",
    "true; drop table x": "Only SELECT",
    "true;": "syntax error",
    "true) or (true": "syntax error",
    "true)) from python_table --": "syntax error",
    "true /*": "unterminated /* comment",
    "true, false": "not BOOLEAN",
    "true as x": "syntax error",
    "true from python_table": "syntax error",
    "true union select true": "syntax error",
    "columns(*) is null": "it is 7 expressions",
    "after.* is null": "STAR expression",
    # what looks at other rows
    "count(*) > 0": "aggregate function calls cannot be nested",
    "row_number() over () = 1": "cannot contain window function calls",
    "unnest([true])": "UNNEST not supported here",
    "$1": "Values were not provided",
}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "passwords.csv"
    path.write_text("name,word\nann,xyzzy\n")
    return path


@pytest.mark.parametrize("predicate", REFUSED)
def test_a_rule_that_is_not_one_expression_of_its_row_is_refused(predicate, file):
    text = predicate.format(file=file)
    with pytest.raises(TableError) as caught:
        judge(NAME, ONE, rules(mine=text))
    message = str(caught.value)
    assert message.startswith("Quality rule mine of public.people is not valid (")
    assert REFUSED[predicate] in message
    assert "secret" not in message
    assert "xyzzy" not in message
    assert sorted(file.parent.iterdir()) == [file]
    assert judge(NAME, ONE, RULES).summary.quarantined == 1  # the name is too long; the connection goes on


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('{file}')",
        "COPY (SELECT 1) TO '{file}.out'",
        "ATTACH '{file}.db' AS other",
        "EXPORT DATABASE '{file}.dir'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "LOAD '{file}'",
        "SELECT * FROM 'https://example.invalid/x.csv'",
        "SET threads = 2",
        "SET lock_configuration = false",
        "SET enable_external_access = true",
        "SET GLOBAL python_enable_replacements = true",
        "RESET memory_limit",
        "PRAGMA memory_limit = '8GB'",
        "SELECT * FROM python_table",
        "CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET 'y')",
    ],
)
def test_the_connection_itself_is_closed_to_the_outside(statement, file):
    judge(NAME, ONE, RULES)
    with pytest.raises(duckdb.Error):
        duck._engine().connection.execute(statement.format(file=file)).fetchall()
    assert sorted(file.parent.iterdir()) == [file]


UNDERSTOOD = [
    "after.id > 0 -- the first line\n and after.id < 9 /* and the second */",
    "after.id > 0 -- to the end",
    "AFTER.ID > 0",
    "after.`na me` <> 'zoe'",
    "after['id'] > 0",
    "struct_extract(after, 'id') > 0",
    "after is not null",
    "coalesce(before.id, after.id) = after.id",
    "__op in ('c', 'u') and __commit_ts < now() and __commit_ts < current_timestamp",
    "__xid = 7 and __commit_lsn > 0",
    "len(__unchanged) = 0",
    "after.mood ilike 'S%' and after.mood similar to 's.d' and regexp_matches(after.mood, '^s')",
    'try_cast(after."na me" as int) is null',
    'try(cast(after."na me" as int)) is null',
    "case after.id when 1 then true else false end",
    "if(after.id = 1, true, false)",
    "nullif(after.id, 2) = 1",
    "after.id between 0 and 2",
    "date_trunc('day', __commit_ts) = timestamptz '2026-01-01'",
    "extract(year from __commit_ts) = 2026",
    "__commit_ts + interval 1 day > __commit_ts",
    "list_contains([1, 2], after.id) and len(list_filter([1, 2], lambda x: x > after.id)) = 1",
    "map_contains(coalesce(after.__rescued, map {}), 'id') = false",
    "after.\"na me\" collate nocase = 'SECRET'",
    "json_extract_string('{\"a\": 1}', '$.a') = '1'",
    "split_part(after.\"na me\", 'c', 1) = 'se'",
    "round(after.id / 3, 2) = 0.33",
    "after.wealth is null or after.wealth >= 0",
    "after.id = any(array(select 1)) and exists(select 1 from range(after.id) r(x) where x = 0)",
    "(select count(*) from (select after.*) one where one.id = 1) = 1",
    "main.lower('x') = 'x'",
    "(null)",
]


@pytest.mark.parametrize("predicate", UNDERSTOOD)
def test_what_a_check_constraint_may_say_is_understood(predicate):
    assert judge(NAME, ONE, rules(mine=predicate)).summary.failed["user:mine"] == 0
    if predicate != "(null)":
        assert judge(NAME, ONE, rules(mine=f"not ({predicate}\n)")).summary.failed["user:mine"] == 1


@pytest.mark.parametrize(
    ("predicate", "found"),
    [
        ("after.nothing > 1", 'Could not find key "nothing" in struct'),
        ("after.id >", "syntax error"),
        ("no_such_function(after.id)", "no_such_function does not exist"),
        ("after.id + 1", "it is of type BIGINT, not BOOLEAN"),
        ("after.mood", "it is of type VARCHAR, not BOOLEAN"),
        ("after.id < [1]", "Cannot compare values of type BIGINT and type INTEGER"),
        ("lower(after.id, 1) = 'x'", "No function matches"),
    ],
)
def test_a_rule_that_is_not_understood_is_named_with_what_was_found(predicate, found):
    with pytest.raises(TableError) as caught:
        judge(NAME, ONE, rules(fine="true", mine=predicate))
    assert found in caught.value.message
    assert caught.value.message.endswith(f": mine: {predicate}.")
    assert "DuckDB SQL" in caught.value.remedy
    assert "\n" not in str(caught.value)
    assert caught.value.table == NAME
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("predicate", "kind"),
    [
        ('cast(after."na me" as int) > 1', "ConversionException"),
        ("after.id * 9223372036854775807 * 2 > 0", "OutOfRangeException"),
        ('length(repeat(after."na me", 1000000000)) > 0', "OutOfMemoryException|OutOfRangeException|InvalidInput"),
        ("regexp_matches(after.mood, after.mood || '(')", "InvalidInputException"),
    ],
)
def test_a_rule_that_fails_over_a_value_is_named_without_the_value(predicate, kind):
    with pytest.raises(
        TableError, match=rf"Evaluating quality rule mine of public\.people failed \(({kind})"
    ) as caught:
        judge(NAME, ONE, rules(fine="true", mine=predicate))
    assert "try_cast" in caught.value.remedy
    assert "secret" not in str(caught.value)
    assert judge(NAME, ONE, rules(fine="true")).summary.failed["user:fine"] == 0


ENDLESS = "(select count(*) from range(1000000) a, range(1000000) b where a.range + b.range = after.id) >= 0"


def test_a_rule_that_does_not_end_is_named(monkeypatch):
    monkeypatch.setattr(time_bound, "SECONDS", 0.5)
    monkeypatch.setattr(time_bound, "_LOOK", 0.05)
    with pytest.raises(NotJudgedError, match=r"Quality rule mine of public\.people took more than .*: mine: \(select"):
        judge(NAME, ONE, rules(fine="true", mine=ENDLESS))
    assert judge(NAME, ONE, rules(fine="true")).summary.failed["user:fine"] == 0


def test_rows_that_are_read_in_batches_extend_the_time(monkeypatch):
    """Each batch takes less CPU time than a statement may, all of them more."""
    monkeypatch.setattr(time_bound, "SECONDS", 0.5)
    monkeypatch.setattr(time_bound, "_LOOK", 0.05)
    batches = 0

    def read():
        nonlocal batches
        for _ in range(6):
            ends = time.process_time() + 0.25
            while time.process_time() < ends:
                pass
            batches += 1
            yield ONE

    judge_whole(NAME, rules(fine="true"), ONE.schema, read)
    assert batches == 6


def test_the_catalogue_is_not_changed_by_rules():
    judge(NAME, ONE, RULES)
    connection = duck._engine().connection
    before = connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall()
    for predicate in REFUSED:
        with pytest.raises(TableError):
            judge(NAME, ONE, rules(mine=predicate.format(file="x")))
    assert connection.execute("SELECT count(*) FROM duckdb_tables()").fetchall() == before == [(0,)]
    views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
    assert len(views) == len(duck._engine()._plans)

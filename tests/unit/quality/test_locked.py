"""A user's rule sees the row and nothing else: no file, network, table, variable or setting, and it changes nothing."""

import duckdb
import pyarrow as pa
import pytest

from cdc_core.errors import TableError
from cdc_core.quality import duck
from cdc_core.quality.judge import judge
from tests.unit.quality.people import RULES, frame, image, row, rules

NAME = "public.people"
ONE = frame([row(0, after=image(name="secret"))])
python_table = pa.table({"x": [1]})

REFUSED = {
    # other tables, files and the network
    "(select count(*) from python_table) > 0": "a subquery",
    "exists(from read_csv('{file}'))": "a subquery",
    "after.id in (select x from python_table)": "a subquery",
    "after.id = any(array(select 1))": "a subquery",
    "(from duckdb_settings() select bool_or(true))": "a subquery",
    "exists(select 1 from read_parquet('https://example.invalid/x'))": "a subquery",
    "after.id > 0 from read_text('{file}')": "a query instead of an expression",
    "true from python_table": "a query instead of an expression",
    "read_text('{file}') is null": "the function read_text",
    "read_csv('{file}') is null": "the function read_csv",
    "glob('{file}') is null": "the function glob",
    "query('select 1') is null": "the function query",
    "query_table('python_table') is null": "the function query_table",
    "json_execute_serialized_sql('{{}}') is null": "the function json_execute_serialized_sql",
    # the process and its settings
    "getenv('HOME') is null": "the function getenv",
    "current_setting('threads') = 1": "the function current_setting",
    "getvariable('x') is null": "the function getvariable",
    "pragma_version() is null": "the function pragma_version",
    "pg_sleep(60) is null": "the function pg_sleep",
    "sleep_ms(60000) is null": "the function sleep_ms",
    "write_log('x') is null": "the function write_log",
    "len(range(1000000000000)) > 0": "the function range",
    "nextval('x') > 0": "the function nextval",
    "current_query() is null": "the function current_query",
    "duckdb_functions() is null": "the function duckdb_functions",
    "system.main.lower('x') = 'x'": "a function of another schema",
    "main.lower('x') = 'x'": "a function of another schema",
    # what is not the same when a round is done again
    "random() > 0.5": "the function random",
    "uuid() is not null": "the function uuid",
    # more than one statement, or another
    "true; select 1": "2 statements",
    "true; drop table x": "is not valid",
    "true; copy (select 1) to '{file}.out'": "is not valid",
    "true; attach '{file}.db' as x": "is not valid",
    "true; install httpfs": "is not valid",
    "true; load httpfs": "is not valid",
    "true; set threads = 4": "is not valid",
    "true; pragma threads = 4": "is not valid",
    "true;": "is not valid",
    ";": "is not valid",
    # what would get out of the query around it
    "true) or (true": "is not valid",
    "true)) from python_table --": "is not valid",
    "true /*": "is not valid",
    "true, false": "2 expressions",
    "true as x": "an alias",
    "true x": "an alias",
    "distinct true": "a query instead of an expression",
    "true limit 1": "a query instead of an expression",
    "true order by 1": "a query instead of an expression",
    "true where false": "a query instead of an expression",
    "true group by all": "a query instead of an expression",
    "true having true": "a query instead of an expression",
    "true qualify true": "a query instead of an expression",
    "true using sample 1": "a query instead of an expression",
    "true union select true": "a query instead of an expression",
    "true window w as ()": "is not valid",
    # what looks at other rows
    "count(*) > 0": "the function count_star",
    "sum(after.id) > 0": "the function sum",
    "row_number() over () = 1": "a window function",
    "lag(after.id) over () = 1": "a window function",
    "unnest([true])": "the function unnest",
    # what is no expression of the row
    "after.* is null": "is not valid",
    "columns(*) is null": "a star",
    "$1": "a parameter",
    "$name": "a parameter",
    "?": "a parameter",
    "#1": "a positional reference",
    "default": "is not valid",
}
REACHING_ELSEWHERE = [
    "changes_1.after.id > 0",
    "python_table.x > 0",
    "x > 0",
    "temp.changes_1.after is null",
    "rules is null",
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "passwords.csv"
    path.write_text("name,word\nann,xyzzy\n")
    return path


@pytest.mark.parametrize("predicate", REFUSED)
def test_a_rule_that_reaches_beyond_its_row_is_refused(predicate, file):
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


@pytest.mark.parametrize("predicate", REACHING_ELSEWHERE)
def test_no_other_name_is_known(predicate):
    with pytest.raises(TableError, match="is not valid"):
        judge(NAME, ONE, rules(mine=predicate))


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
        ("no_such_function(after.id)", "the function no_such_function"),
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

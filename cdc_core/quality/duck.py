"""Computes the metrics of a table's rules on one Arrow table of change rows, with DuckDB; judges nothing.

One in-memory connection per process, with one thread, bounded in memory and time (``time_bound``), without access to
files, network, extensions, settings and Python's variables. A set of rules for one schema is prepared once and executed
for every slice: the plan reads the table that its box contains at the time. Only the columns that the rules use are
passed on, and only the null bits of columns of which only presence is checked; so values of types that DuckDB does not
support can be checked as well.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import NotJudgedError, TableError
from cdc_core.quality.predicate import IMAGES, RefusedError, Uses, columns_read, uses_of
from cdc_core.quality.predicate import over_new_image as translated
from cdc_core.quality.quarantine_json import key_json_sql, row_json_sql
from cdc_core.quality.report import Metrics
from cdc_core.quality.rules import By, Origin, Rule
from cdc_core.quality.slice_input import Batches, Box, Pruning, is_known, pruning_of
from cdc_core.quality.time_bound import SECONDS, SECONDS_PER_ROW, TimeBound

POSITION_COLUMNS = ("__op", "__commit_lsn", "__tx_index", "__lsn", "__xid", "__commit_ts")
REASONS, ROW, KEY = "reasons", "row", "key"

_KEPT_PLANS = 600
_SETTINGS = (
    "threads = 1",
    "memory_limit = '1GB'",
    "temp_directory = ''",
    "TimeZone = 'UTC'",
    "python_enable_replacements = false",
    "autoload_known_extensions = false",
    "autoinstall_known_extensions = false",
    "allow_community_extensions = false",
    "enable_external_access = false",
    "lock_configuration = true",  # last, because no setting can be changed after it
)
_NOT_UNDERSTOOD = (
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ParserException,
    duckdb.PermissionException,
    duckdb.SyntaxException,
)
_REMEDY_SYNTAX = (
    "Its predicate must be one boolean expression in DuckDB SQL over __op, before.<column> and after.<column>: "
    "names quoted with double quotes where necessary. It cannot read files, other tables or settings."
)
_REMEDY_VALUE = "Use try_cast or try(...) where a conversion can fail."
_REMEDY_REPORT = "The changes are kept in the changelog; please report this."


def require_valid(table: str, rules: Sequence[Rule], schema: pa.Schema) -> None:
    """Raise TableError naming the first of a user's rules that cannot be evaluated on change rows of ``schema``."""
    with _lock:
        _engine().plan(table, tuple(rules), schema)


class Measuring:
    """The rules of a table on one slice, while it is loaded (``measuring``). Raises NotJudgedError if one fails."""

    def __init__(self, table: str, rules: tuple[Rule, ...], engine: _Engine, plan: _Plan) -> None:
        self._table = table
        self._rules = rules
        self._engine = engine
        self._plan = plan

    def metrics(self) -> list[Metrics]:
        """Compute the metrics of every rule, in one pass."""
        if not self._rules:
            return []
        with self._executed(f"EXECUTE {self._plan.name}") as result:
            values = result.fetchall()[0]
        return [_metrics(rule, at, values) for rule, at in zip(self._rules, self._plan.places, strict=True)]

    def unexpected(self, rules: Sequence[Rule]) -> np.ndarray:
        """Return which rows are unexpected by each of ``rules``. Shape: bool[N, rules]"""
        return self._flags([rule.failure for rule in rules])

    def judged(self, rules: Sequence[Rule]) -> np.ndarray:
        """Return which rows each of ``rules`` judges. Shape: bool[N, rules]"""
        return self._flags([rule.applies for rule in rules])

    def _flags(self, conditions: Sequence[str]) -> np.ndarray:
        flags = ", ".join(f"coalesce({condition}, false) AS f{n}" for n, condition in enumerate(conditions))
        with self._executed(f"SELECT {flags} FROM {self._plan.view}") as result:
            columns = result.fetchnumpy()
        return np.stack([np.asarray(columns[f"f{n}"], dtype=bool) for n in range(len(conditions))], axis=1)

    @contextmanager
    def _executed(self, sql: str) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            with self._engine.bound.over(self._plan.box.num_rows):
                yield self._engine.connection.execute(sql)
        except duckdb.Error as error:
            rows = self._plan.box.table
            if isinstance(rows, Batches) and rows.error is not None:
                raise rows.error from None
            raise _failed_rule(self._table, self._rules, self._plan, error) from None


@contextmanager
def measuring(table: str, changes: pa.Table | Batches, rules: Sequence[Rule]) -> Iterator[Measuring]:
    """Load the change rows of ``table`` (``schema.table``) for the rules that one DuckDB statement measures.

    Raises NotJudgedError naming the user's rule that DuckDB cannot parse or evaluate; the text never contains a row's
    values.
    """
    rules = tuple(rules)
    with _lock:
        engine = _engine()
        plan, pruning = engine.plan(table, rules, changes.schema)
        plan.box.table = pruning.apply(changes, engine.bound.extend)
        try:
            yield Measuring(table, rules, engine, plan)
        finally:
            plan.box.table = plan.empty


def columns_of_rules(table: str, rules: Sequence[Rule], schema: pa.Schema) -> set[str]:
    """Return the columns of new rows that DuckDB reads for the rules. Raises NotJudgedError, as ``measuring`` does."""
    with _lock:
        _, pruning = _engine().plan(table, tuple(rules), schema)
    return {made.name for _, made, _ in pruning.images["after"]}


def queried(table: str, rule: Rule, rows: pa.Table) -> tuple[int, np.ndarray | None]:
    """Run the query of an UnexpectedRowsExpectation on rows: how many it returns, and their positions.

    The positions are None if the query does not return whole rows (``SELECT *``): int64[U].
    """
    place = _unused(rows.column_names)
    rows = rows.append_column(place, pa.array(np.arange(rows.num_rows)))
    query = rule.arguments["unexpected_rows_query"].format(batch="batch_rows")
    with _lock:
        engine = _engine()
        connection = engine.connection
        connection.register("batch_rows", Box(rows))
        try:
            with engine.bound.over(rows.num_rows):
                unexpected = connection.sql(f"SELECT * FROM ({query}\n)").to_arrow_table()
        except duckdb.Error as error:
            raise _not_evaluated(table, rule, error) from None
        finally:
            connection.unregister("batch_rows")
    if place not in unexpected.column_names:
        return unexpected.num_rows, None
    places = np.unique(unexpected.column(place).to_numpy())
    return unexpected.num_rows, places


def _unused(names: Sequence[str]) -> str:
    """A column's name that none of these has."""
    return "__place" + "_" * max((len(name) for name in names), default=0)


def _metrics(rule: Rule, at: Sequence[int], values: Sequence[Any]) -> Metrics:
    # count_if is null if the rule was null for every row.
    if rule.measures:
        names = [name for name, _ in rule.measures]
        return Metrics(values[at[0]] or 0, values=dict(zip(names, (values[n] for n in at[1:]), strict=True)))
    rows, unexpected, ignored = [*(int(values[n] or 0) for n in at), 0, 0][:3]
    return Metrics(rows, ignored, unexpected)


def over_new_image(condition: str) -> tuple[str, tuple[str, ...]]:
    """Convert a condition on the new image's columns to a rule's predicate, and return its columns.

    Raises ValueError if it is no expression or not repeatable; the text contains the reason.
    """
    with _lock:
        connection = _engine().connection
        parsed = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT {condition}\n"]).fetchall()
        predicate, columns = translated(condition, parsed[0][0])
        _engine().check(predicate)
    return predicate, columns


def columns_of_query(query: str, names: Collection[str]) -> tuple[str, ...]:
    """Return which of a table's columns a query names; none if it is not valid, which is reported when it is run."""
    with _lock:
        parsed = _engine().connection.execute("SELECT json_serialize_sql(?)", [query.replace("{batch}", "batch")])
        read = columns_read(parsed.fetchall()[0][0])
    return tuple(name for name in names if name.lower() in read)


def as_quarantine_rows(rows: pa.Table, reasons: pa.ListArray, key: Sequence[str] = ()) -> pa.Table:
    """Convert change rows to rows of the quarantine table.

    They contain the position columns, ``reasons`` list<string>, ``row``, the change's images and unchanged columns as
    JSON text including nulls, and ``key``, the values of the columns ``key`` as JSON text (null without a key).
    """
    images = rows.select(["__op", "__unchanged", *IMAGES])
    texts = _as_json(images, key)
    placed = {name: rows.column(name) for name in POSITION_COLUMNS}
    return pa.table({**placed, REASONS: reasons, ROW: texts.column(ROW), KEY: texts.column(KEY)})


def _as_json(images: pa.Table, key: Sequence[str]) -> pa.Table:
    readable = _readable(images)
    shown = pa.schema([readable.schema.field(name) for name in ("__unchanged", *IMAGES)])
    with _lock:
        connection = _engine().connection
        box = Box(readable)
        connection.register("refused", box)
        try:
            sql = f"SELECT {row_json_sql(shown)} AS {ROW}, {key_json_sql(readable.schema, key)} AS {KEY} FROM refused"
            texts = connection.sql(sql).to_arrow_table()
        finally:
            connection.unregister("refused")
    return texts.combine_chunks().cast(pa.schema([(ROW, pa.string()), (KEY, pa.string())]))


def _readable(images: pa.Table) -> pa.Table:
    """Convert columns of types that DuckDB does not support to Python's text of their values."""
    for place, name in enumerate(images.column_names):
        column = images.column(name)
        if not pa.types.is_struct(column.type) or all(is_known(part.type) for part in column.type):
            continue
        array = column.combine_chunks()
        array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
        fields = [part if is_known(part.type) else pa.field(part.name, pa.string()) for part in column.type]
        children = [
            array.field(n)
            if is_known(part.type)
            # row-wise: refused rows of a type that neither DuckDB nor a cast can read
            else pa.array([None if value is None else str(value) for value in array.field(n).to_pylist()], pa.string())
            for n, part in enumerate(column.type)
        ]
        made = pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(array))
        images = images.set_column(place, name, made)
    return images


@dataclass(slots=True)
class _Plan:
    """A prepared statement that measures the rules, and the view and box that it reads.

    ``places`` are the numbers of each rule's results among those of the statement.
    """

    name: str
    view: str
    box: Box
    empty: pa.Table
    places: tuple[tuple[int, ...], ...] = ()


class _Engine:
    """The connection of this process and its plans."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.connection = duckdb.connect(":memory:")
        for setting in _SETTINGS:
            self.connection.execute(f"SET GLOBAL {setting}")
        self.bound = TimeBound(self.connection.interrupt)
        self._volatile: frozenset[str] = frozenset()
        self._plans: OrderedDict[tuple[tuple[tuple[str, ...], ...], pa.Schema], _Plan] = OrderedDict()
        self._last: dict[str, tuple[tuple[Rule, ...], pa.Schema, _Plan, Pruning]] = {}
        self._uses: dict[str, Uses] = {}
        self._made = 0

    def plan(self, table: str, rules: tuple[Rule, ...], schema: pa.Schema) -> tuple[_Plan, Pruning]:
        """Return the plan of these rules, shared by equal tables, and the input columns for slices of ``schema``."""
        last = self._last.get(table)
        if last is not None and last[0] == rules and last[1].equals(schema):
            return last[2], last[3]
        uses = [self._uses_of(table, rule) for rule in rules if rule.is_condition]
        pruning = pruning_of(rules, uses, schema)
        key = (tuple(_measured(rule) for rule in rules), pruning.schema)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._prepare(table, rules, pruning.schema)
            self._plans[key] = plan
            while len(self._plans) > _KEPT_PLANS:
                self._forget(self._plans.popitem(last=False)[1])
        else:
            self._plans.move_to_end(key)
        self._last[table] = (rules, schema, plan, pruning)
        return plan, pruning

    def close(self) -> None:
        self._plans.clear()
        self._last.clear()
        self.connection.close()

    def _prepare(self, table: str, rules: tuple[Rule, ...], schema: pa.Schema) -> _Plan:
        self._made += 1
        empty = schema.empty_table()
        plan = _Plan(f"plan_{self._made}", f"changes_{self._made}", Box(empty), empty)
        self.connection.register(plan.view, plan.box)
        measures: dict[str, int] = {}
        plan.places = tuple(tuple(measures.setdefault(sql, len(measures)) for sql in _measured(rule)) for rule in rules)
        try:
            for rule in rules:
                if rule.is_condition:
                    self._must_be_boolean(table, rule, plan.view)
            if rules:
                self.connection.execute(f"PREPARE {plan.name} AS SELECT {', '.join(measures)} FROM {plan.view}")
        except duckdb.Error as error:
            failure = _failed_rule(table, rules, plan, error)
            self.connection.unregister(plan.view)
            raise failure from None
        except TableError:
            self.connection.unregister(plan.view)
            raise
        return plan

    def _forget(self, plan: _Plan) -> None:
        self._last = {table: entry for table, entry in self._last.items() if entry[2] is not plan}
        self.connection.execute(f"DEALLOCATE {plan.name}")
        self.connection.unregister(plan.view)

    def check(self, predicate: str) -> Uses:
        """Return the columns that a predicate reads. Raises RefusedError if it is no expression or not repeatable."""
        if predicate not in self._uses:
            parsed = self.connection.execute("SELECT json_serialize_sql(?)", [f"SELECT {predicate}\n"]).fetchall()
            if not self._volatile:
                named = "SELECT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE'"
                self._volatile = frozenset(name for (name,) in self.connection.execute(named).fetchall())
            self._uses[predicate] = uses_of(parsed[0][0], self._volatile)
        return self._uses[predicate]

    def _uses_of(self, table: str, rule: Rule) -> Uses:
        try:
            return self.check(rule.predicate)
        except RefusedError as refused:
            raise _not_understood(table, rule, str(refused)) from None

    def _must_be_boolean(self, table: str, rule: Rule, view: str) -> None:
        try:
            result = self.connection.execute(f"SELECT ({rule.predicate}\n) FROM {view} LIMIT 0")
            described = result.description
            result.fetchall()
        except (*_NOT_UNDERSTOOD, duckdb.InvalidInputException) as error:
            raise _not_understood(table, rule, str(error).splitlines()[0]) from None
        if len(described) != 1:
            raise _not_understood(table, rule, f"it is {len(described)} expressions")
        type_name = str(described[0][1])
        if type_name not in ("BOOLEAN", '"NULL"', "NULL"):
            raise _not_understood(table, rule, f"it is of type {type_name}, not BOOLEAN")


def _not_understood(table: str, rule: Rule, problem: str) -> NotJudgedError:
    return NotJudgedError(
        f"Quality rule {rule.plain_name} of {table} is not valid ({problem}): {rule.description}.",
        _REMEDY_SYNTAX,
        table,
    )


def _failed_rule(table: str, rules: tuple[Rule, ...], plan: _Plan, error: duckdb.Error) -> NotJudgedError:
    """Return the error to raise for DuckDB's error during evaluation, by its type: its message may contain a value."""
    kind, engine = type(error).__name__, _engine()
    if isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
        _engines.clear()  # the database accepts no more statements; the next slice opens another one
        return NotJudgedError(f"DuckDB failed while evaluating the rules of {table} ({kind}).", _REMEDY_REPORT, table)
    for rule in rules:
        if rule.origin is not Origin.USER:
            continue
        try:
            with engine.bound.over(plan.box.num_rows):
                engine.connection.execute(f"SELECT {', '.join(_measured(rule))} FROM {plan.view}").fetchall()
        except duckdb.Error as refused:
            return _not_evaluated(table, rule, refused)
    if isinstance(error, duckdb.InterruptException):
        return _endless(f"The quality rules of {table}", "", table)
    return NotJudgedError(f"The quality rules of {table} could not be evaluated ({kind}).", _REMEDY_REPORT, table)


def _not_evaluated(table: str, rule: Rule, error: duckdb.Error) -> NotJudgedError:
    if isinstance(error, _NOT_UNDERSTOOD):
        return _not_understood(table, rule, str(error).splitlines()[0])
    if isinstance(error, duckdb.InterruptException):
        return _endless(f"Quality rule {rule.plain_name} of {table}", f": {rule.description}", table)
    return NotJudgedError(
        f"Evaluating quality rule {rule.plain_name} of {table} failed ({type(error).__name__}).",
        f"{_REMEDY_VALUE} Then run wal2lake replay with {table}.",
        table,
    )


def _endless(what: str, description: str, table: str) -> NotJudgedError:
    return NotJudgedError(
        f"{what} took more than {SECONDS:g} s of CPU time and {SECONDS_PER_ROW * 1e3:g} ms a row{description}.",
        f"Correct the rule so that it ends, then run wal2lake replay with {table}.",
        table,
    )


def _measured(rule: Rule) -> tuple[str, ...]:
    """The aggregates of a rule: rows, then unexpected and ignored ones, or those of its measures."""
    rows = "count(*)" if rule.applies == "true" else f"count_if({rule.applies})"
    if rule.measures:
        return rows, *(sql for _, sql in rule.measures)
    if rule.by is not By.SQL:
        return (rows,)
    if rule.ignored == "false":
        return rows, f"count_if({rule.failure})"
    return rows, f"count_if({rule.failure})", f"count_if(({rule.applies}) and ({rule.ignored}))"


_lock = threading.RLock()
_engines: list[_Engine] = []


def _engine() -> _Engine:
    """Return the engine of this process; an engine inherited by a fork is not used, because its locks may be held."""
    if not _engines or _engines[0].process != os.getpid():
        _engines.insert(0, _Engine())
    return _engines[0]


@atexit.register
def _close() -> None:
    if _engines and _engines[0].process == os.getpid():
        _engines.pop().close()

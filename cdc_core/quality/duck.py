"""Evaluates a table's rules on one Arrow table of change rows, with DuckDB.

One in-memory connection per process, with one thread, without access to files, network, extensions, settings and
Python's variables. A set of rules for one schema is prepared once and executed for every slice: the plan reads the
table that its box contains at the time. Only the columns that the rules use are passed on, and only the null bits of
columns of which only presence is checked; so values of types that DuckDB does not support can be checked as well.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.errors import InvariantError, TableError
from cdc_core.quality.predicate import IMAGES, RefusedError, Uses, plain_functions, uses_of
from cdc_core.quality.predicate import over_new_image as translated
from cdc_core.quality.quarantine_json import key_json_sql, row_json_sql
from cdc_core.quality.report import Summary, error_rules
from cdc_core.quality.rules import Origin, Reads, Rule, Severity

POSITION_COLUMNS = ("__op", "__commit_lsn", "__tx_index", "__lsn", "__xid", "__commit_ts")
REASONS, ROW, KEY = "reasons", "row", "key"

_READ_BY_EVERY_RULE = ("__op", "__commit_lsn", "__tx_index", "__lsn", "__unchanged")
_RESCUED = "__rescued"
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
_PLAIN_TYPES = (
    pa.types.is_boolean,
    pa.types.is_integer,
    pa.types.is_float32,
    pa.types.is_float64,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_date32,
    pa.types.is_time64,
    pa.types.is_timestamp,
    pa.types.is_decimal128,
)
_NOT_UNDERSTOOD = (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.SyntaxException)
_REMEDY_SYNTAX = (
    "Its predicate must be one boolean expression in DuckDB SQL over __op, before.<column> and after.<column>: "
    "names quoted with double quotes where necessary, no subqueries, no functions that access anything outside "
    "the row."
)
_REMEDY_VALUE = "Use try_cast or try(...) where a conversion can fail."


@dataclass(frozen=True, slots=True)
class Judged:
    """The check result of a slice. ``bad`` and ``reasons`` are set only if a row failed an error rule.

    ``bad`` is a mask of the slice's rows, ``reasons`` the names of the error rules that each bad row fails, in the
    rules' order: bool[N], list<string>[bad rows].
    """

    summary: Summary
    bad: pa.BooleanArray | None = None
    reasons: pa.ListArray | None = None


def require_valid(table: str, rules: Sequence[Rule], schema: pa.Schema) -> None:
    """Raise TableError naming the first of a user's rules that cannot be evaluated on change rows of ``schema``."""
    with _lock:
        _engine().plan(table, tuple(rules), schema)


def judge(
    table: str, changes: pa.Table, rules: Sequence[Rule], found_failed: Mapping[str, np.ndarray] | None = None
) -> Judged:
    """Evaluate the rules of ``table`` (``schema.table``) on its change rows in one pass.

    A second pass, with the error rules that failed, is made only if there are any. ``found_failed`` contains the rows
    that fail rules over several rows, by rule, bool[N] each; such rules are true in SQL. Raises TableError naming the
    user's rule that DuckDB cannot parse or evaluate; the text never contains a row's values.
    """
    rules = tuple(rules)
    rows = changes.num_rows
    duplicates = _duplicates(changes)
    highest = pc.max(changes.column("__commit_lsn")).as_py()
    if not rows:
        return Judged(Summary(0, {rule.name: 0 for rule in rules}, 0, 0, None))
    with _lock:
        engine = _engine()
        plan, pruning = engine.plan(table, rules, changes.schema)
        plan.box.table = pruning.apply(changes)
        try:
            counts = engine.connection.execute(f"EXECUTE {plan.name}").fetchall()[0] if rules else ()
            # count_if is null if the rule was null for every row.
            failed = {rule.name: count or 0 for rule, count in zip(rules, counts, strict=True)}
            failed |= {name: int(mask.sum()) for name, mask in (found_failed or {}).items()}
            failed |= {r.name: 0 for r in rules if r.severity is Severity.WARN and r.tolerates(failed[r.name], rows)}
            wrong = [rule for rule in error_rules(rules) if failed[rule.name]]
            if not wrong:
                return Judged(Summary(rows, failed, 0, duplicates, highest))
            flags = ", ".join(f"coalesce({rule.failure}, false) AS f{n}" for n, rule in enumerate(wrong))
            found = engine.connection.execute(f"SELECT {flags} FROM {plan.view}").fetchnumpy()
        except duckdb.Error as error:
            raise _failed_rule(table, rules, plan, error) from None
        finally:
            plan.box.table = plan.empty
    grid = np.stack([np.asarray(found[f"f{n}"], dtype=bool) for n in range(len(wrong))], axis=1)
    for number, rule in enumerate(wrong):
        if found_failed and rule.name in found_failed:
            grid[:, number] = found_failed[rule.name]
    _apply_tolerance(grid, wrong, changes)
    failed |= {rule.name: int(count) for rule, count in zip(wrong, grid.sum(axis=0), strict=True)}
    bad = grid.any(axis=1)
    if not bad.any():
        return Judged(Summary(rows, failed, 0, duplicates, highest))
    reasons = _reasons(grid[bad], [rule.name for rule in wrong])
    return Judged(Summary(rows, failed, int(bad.sum()), duplicates, highest), pa.array(bad), reasons)


def _apply_tolerance(grid: np.ndarray, rules: Sequence[Rule], changes: pa.Table) -> None:
    """Clear the failures of rules that may not have been in force at the row's position, or that are tolerated."""
    lsn = changes.column("__commit_lsn").fill_null(0).to_numpy()
    for number, rule in enumerate(rules):
        if rule.since:
            grid[:, number] &= lsn > rule.since
        if rule.tolerates(int(grid[:, number].sum()), len(grid)):
            grid[:, number] = False


def over_new_image(condition: str) -> tuple[str, tuple[str, ...]]:
    """Convert a condition on the new image's columns to a rule's predicate, and return its columns.

    Raises ValueError if the expression is not allowed in a rule; the text contains the reason.
    """
    with _lock:
        connection = _engine().connection
        parsed = connection.execute("SELECT json_serialize_sql(?)", [f"SELECT {condition}\n"]).fetchall()
        predicate, columns = translated(condition, parsed[0][0])
        _engine().check(predicate)
    return predicate, columns


def quarantine_rows(changes: pa.Table, judged: Judged, key: Sequence[str] = ()) -> pa.Table:
    """Return the bad rows as rows of the quarantine table (``as_quarantine_rows``).

    ``judged`` must contain bad rows of ``changes``.
    """
    if judged.bad is None or judged.reasons is None:
        raise InvariantError("No row of this slice failed, so none can be quarantined.")
    return as_quarantine_rows(changes.filter(judged.bad), judged.reasons, key)


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
        box = _Box(readable)
        connection.register("refused", box)
        try:
            sql = f"SELECT {row_json_sql(shown)} AS {ROW}, {key_json_sql(readable.schema, key)} AS {KEY} FROM refused"
            found = connection.sql(sql).to_arrow_table()
        finally:
            connection.unregister("refused")
    return found.combine_chunks().cast(pa.schema([(ROW, pa.string()), (KEY, pa.string())]))


def _readable(images: pa.Table) -> pa.Table:
    """Convert columns of types that DuckDB does not support to Python's text of their values."""
    for place, name in enumerate(images.column_names):
        column = images.column(name)
        if not pa.types.is_struct(column.type) or all(_is_known(part.type) for part in column.type):
            continue
        array = column.combine_chunks()
        array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
        fields = [part if _is_known(part.type) else pa.field(part.name, pa.string()) for part in column.type]
        children = [
            array.field(n)
            if _is_known(part.type)
            # row-wise: refused rows of a type that neither DuckDB nor a cast can read
            else pa.array([None if value is None else str(value) for value in array.field(n).to_pylist()], pa.string())
            for n, part in enumerate(column.type)
        ]
        made = pa.StructArray.from_arrays(children, fields=fields, mask=pc.is_null(array))
        images = images.set_column(place, name, made)
    return images


def _reasons(grid: np.ndarray, names: list[str]) -> pa.ListArray:
    """Return the names of the rules that each row fails. Shape: bool[N, rules] -> list<string>[N]."""
    offsets = np.concatenate(([0], np.cumsum(grid.sum(axis=1)))).astype(np.int32)
    which = pa.array(np.nonzero(grid)[1])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(names, pa.string()).take(which))


def _duplicates(changes: pa.Table) -> int:
    """Count the rows whose position (commit LSN, index in the transaction) an earlier row has, too."""
    lsn, index = (
        changes.column(name).cast(pa.int64()).fill_null(np.iinfo(np.int64).min).to_numpy()
        for name in ("__commit_lsn", "__tx_index")
    )
    rising = (lsn[1:] > lsn[:-1]) | ((lsn[1:] == lsn[:-1]) & (index[1:] > index[:-1]))
    if rising.all():  # the order in which a changelog is written
        return 0
    order = np.lexsort((index, lsn))
    lsn, index = lsn[order], index[order]
    return int(((lsn[1:] == lsn[:-1]) & (index[1:] == index[:-1])).sum())


class _Box:
    """The input of a plan: an Arrow table that can be replaced by another of the same schema."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_schema__(self) -> object:
        return self.table.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, slots=True)
class _Pruning:
    """The input columns of a plan: ``columns`` unchanged, and of each image (index, field, only presence).

    ``schema`` is the resulting schema.
    """

    columns: tuple[str, ...]
    images: dict[str, tuple[tuple[int, pa.Field, bool], ...]]
    schema: pa.Schema

    def apply(self, changes: pa.Table) -> pa.Table:
        """Return these parts of ``changes``, without copying values."""
        return pa.Table.from_batches([self._batch(batch) for batch in changes.to_batches()], self.schema)

    def _batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [batch.column(name) for name in self.columns]
        for name, wanted in self.images.items():
            image = batch.column(name)
            children = [
                _presence(image.field(place)) if presence else image.field(place) for place, _, presence in wanted
            ]
            mask = pc.is_null(image) if image.null_count else None
            arrays.append(pa.StructArray.from_arrays(children, fields=[made for _, made, _ in wanted], mask=mask))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _presence(values: pa.Array) -> pa.BooleanArray:
    """Return a column that is null where ``values`` is and not null elsewhere, without copying values."""
    if pa.types.is_null(values.type) or not values.null_count:
        return pa.nulls(len(values), pa.bool_()) if pa.types.is_null(values.type) else pc.is_valid(values)
    valid = values.buffers()[0]
    return pa.Array.from_buffers(pa.bool_(), len(values), [valid, valid], values.null_count, values.offset)


@dataclass(slots=True)
class _Plan:
    """A prepared statement that counts the failures of each rule, and the view and box that it reads."""

    name: str
    view: str
    box: _Box
    empty: pa.Table


class _Engine:
    """The connection of this process and its plans."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.connection = duckdb.connect(":memory:")
        for setting in _SETTINGS:
            self.connection.execute(f"SET GLOBAL {setting}")
        self._functions: frozenset[str] = frozenset()
        self._plans: OrderedDict[tuple[tuple[str, ...], pa.Schema], _Plan] = OrderedDict()
        self._last: dict[str, tuple[tuple[Rule, ...], pa.Schema, _Plan, _Pruning]] = {}
        self._uses: dict[str, Uses] = {}
        self._made = 0

    def plan(self, table: str, rules: tuple[Rule, ...], schema: pa.Schema) -> tuple[_Plan, _Pruning]:
        """Return the plan of these rules, shared by equal tables, and the input columns for slices of ``schema``."""
        last = self._last.get(table)
        if last is not None and last[0] == rules and last[1].equals(schema):
            return last[2], last[3]
        uses = [self._uses_of(table, rule) for rule in rules if rule.origin is Origin.USER]
        pruning = _pruning(rules, uses, schema)
        key = (tuple(rule.failure for rule in rules), pruning.schema)
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
        plan = _Plan(f"plan_{self._made}", f"changes_{self._made}", _Box(empty), empty)
        self.connection.register(plan.view, plan.box)
        counts = ", ".join(f"count_if({rule.failure})" for rule in rules)
        try:
            for rule in rules:
                if rule.origin is Origin.USER:
                    self._must_be_boolean(table, rule, plan.view)
            if rules:
                self.connection.execute(f"PREPARE {plan.name} AS SELECT {counts} FROM {plan.view}")
        except duckdb.Error as error:
            found = _failed_rule(table, rules, plan, error)
            self.connection.unregister(plan.view)
            raise found from None
        except TableError:
            self.connection.unregister(plan.view)
            raise
        return plan

    def _forget(self, plan: _Plan) -> None:
        self._last = {table: held for table, held in self._last.items() if held[2] is not plan}
        self.connection.execute(f"DEALLOCATE {plan.name}")
        self.connection.unregister(plan.view)

    def check(self, predicate: str) -> Uses:
        """Return the columns that a predicate reads. Raises RefusedError if it is not allowed in a rule."""
        if predicate not in self._uses:
            parsed = self.connection.execute("SELECT json_serialize_sql(?)", [f"SELECT {predicate}\n"]).fetchall()
            if not self._functions:
                self._functions = plain_functions(
                    self.connection.execute(
                        "SELECT DISTINCT function_name, function_type, stability FROM duckdb_functions()"
                    ).fetchall()
                )
            self._uses[predicate] = uses_of(parsed[0][0], self._functions)
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
        except _NOT_UNDERSTOOD as error:
            raise _not_understood(table, rule, str(error).splitlines()[0]) from None
        found = str(described[0][1]) if described else ""
        if found not in ("BOOLEAN", '"NULL"', "NULL"):
            raise _not_understood(table, rule, f"it is of type {found}, not BOOLEAN")


def _pruning(rules: tuple[Rule, ...], uses: list[Uses], schema: pa.Schema) -> _Pruning:
    """Return the parts of a slice that the rules need."""
    columns = [name for name in _READ_BY_EVERY_RULE if name in schema.names]
    read = {name for use in uses for name in use.columns}
    columns += [name for name in schema.names if name.lower() in read and name not in (*columns, *IMAGES)]
    presence = {rule.column for rule in rules if rule.origin is Origin.CATALOGUE and rule.reads is Reads.PRESENCE}
    values = {rule.column for rule in rules if rule.origin is Origin.CATALOGUE and rule.reads is Reads.VALUE}
    images = {}
    for image in IMAGES:
        whole = any(image in use.images for use in uses)
        asked = {name for use in uses for where, name in use.fields if where == image}
        wanted = []
        for place, part in enumerate(schema.field(image).type):
            by_value = part.name == _RESCUED or whole or part.name.lower() in asked
            by_value = by_value or (part.name in values and image == "after")
            if by_value and _is_known(part.type):
                wanted.append((place, part, False))
            elif part.name in presence:
                wanted.append((place, pa.field(part.name, pa.bool_()), True))
        images[image] = tuple(wanted)
    parts = [pa.field(name, pa.struct([made for _, made, _ in wanted])) for name, wanted in images.items()]
    return _Pruning(tuple(columns), images, pa.schema([*(schema.field(name) for name in columns), *parts]))


def _is_known(kind: pa.DataType) -> bool:
    """Whether DuckDB supports columns of this type."""
    if kind in _known_types:
        return _known_types[kind]
    if pa.types.is_struct(kind):
        known = all(_is_known(part.type) for part in kind)
    elif pa.types.is_list(kind):
        known = _is_known(kind.value_type)
    elif pa.types.is_map(kind):
        known = _is_known(kind.key_type) and _is_known(kind.item_type)
    else:
        known = any(test(kind) for test in _PLAIN_TYPES) or _is_read(kind)
    _known_types[kind] = known
    return known


def _is_read(kind: pa.DataType) -> bool:
    """Whether DuckDB can read an empty column of this type, determined by trying."""
    try:
        with duckdb.connect(":memory:") as scratch:
            scratch.register("probe", _Box(pa.schema([("x", kind)]).empty_table()))
            scratch.execute("SELECT x FROM probe").fetchall()
    except duckdb.Error:
        return False
    return True


def _not_understood(table: str, rule: Rule, found: str) -> TableError:
    return TableError(
        f"Quality rule {rule.name.removeprefix('user:')} of {table} is not valid ({found}): {rule.description}.",
        _REMEDY_SYNTAX,
        table,
    )


def _failed_rule(table: str, rules: tuple[Rule, ...], plan: _Plan, error: duckdb.Error) -> Exception:
    """Return the error to raise for DuckDB's error during evaluation, by its type: its message may contain a value."""
    kind = type(error).__name__
    connection = _engine().connection
    if isinstance(error, (duckdb.FatalException, duckdb.InternalException)):
        _engines.clear()  # the database accepts no more statements; the next slice opens another one
        return InvariantError(f"DuckDB failed while evaluating the rules of {table} ({kind}).")
    for rule in rules:
        if rule.origin is not Origin.USER:
            continue
        try:
            connection.execute(f"SELECT count_if({rule.failure}) FROM {plan.view}").fetchall()
        except _NOT_UNDERSTOOD as refused:
            return _not_understood(table, rule, str(refused).splitlines()[0])
        except duckdb.Error as refused:
            return TableError(
                f"Evaluating quality rule {rule.name.removeprefix('user:')} of {table} failed "
                f"({type(refused).__name__}).",
                _REMEDY_VALUE,
                table,
            )
    return InvariantError(f"The rules of {table} could not be evaluated ({kind}).")


_lock = threading.RLock()
_engines: list[_Engine] = []
_known_types: dict[pa.DataType, bool] = {}


def _engine() -> _Engine:
    """Return the engine of this process; an engine inherited by a fork is not used, because its locks may be held."""
    if not _engines or _engines[0].process != os.getpid():
        _engines.insert(0, _Engine())
    return _engines[0]


@atexit.register
def _close() -> None:
    if _engines and _engines[0].process == os.getpid():
        _engines.pop().close()

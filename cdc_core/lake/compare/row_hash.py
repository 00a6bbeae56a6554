"""Hashes of rows that the server computes, and the same of the lake's rows: what differs is then read and compared.

    source  SELECT string_agg(hash of the row) FROM a range ─▶ 8 bytes a row ─┐
    lake    data files ─▶ the same functions on Arrow values ─────────────────┴▶ equally often?

A hash decides nothing but which rows are read: rows whose hashes differ are typed and compared as if there were none.
So a value whose hash is not the same on both sides although the value is (another text of it) costs time, and is no
difference. What must hold is the other direction: different values have different hashes, but for a chance of 2^-64.
Each column's function is chosen so: where a server function folds its value to 32 bits, or takes two values for one, a
second hash is added; a lake row with a value that has no such hash (``__rescued``) gets one that no source row has.

A row's hash is the exclusive or of its columns' hashes, each with its own seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_core.arrays import Bools
from cdc_core.lake.compare.rows import Compared
from cdc_core.lake.compare.server_hash import hash_bytes, hash_float64, hash_int64, hash_uint32, high_half
from cdc_core.lake.delta.conform import plain_type
from cdc_core.lake.names import RESCUED
from cdc_core.lake.rows.change_rows import RowTyper
from cdc_core.lake.rows.images import column, validity
from cdc_core.schema import PgType, TypeKind

Hashes = np.ndarray

_EPOCH_DAYS = 10_957  # 2000-01-01
# Below it a double of seconds distinguishes microseconds: its values are less than one microsecond from each other.
_MOST_MICROS = 2**33 * 1_000_000
# Arrow prints decimals with more places in another form.
_MOST_PLACES = 6
# A longer text is hashed by SHA-256 first: a step of the server's hash takes 12 bytes of all values.
_LONG = 240
# Mixed into the hash of a lake row that must be read: the chance that a source row has the result is 2^-64.
_UNLIKE = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class HashedType:
    """How values of a type are hashed: ``sql`` by the server, ``hashes`` from the lake's values.

    In ``sql``, c is the column, s and t are its seeds, n is the hash of null, and m that of a value that the type in
    the lake does not have. ``hashes`` also returns which values have to be read, None for none; of nulls any hash.
    """

    sql: str
    hashes: Callable[[pa.Array, int, int], tuple[Hashes, np.ndarray | None]]


@dataclass(frozen=True, slots=True)
class HashedColumn:
    """A column by its names in the source and in the lake, with its two seeds."""

    source: str
    lake: str
    type: HashedType
    seeds: tuple[int, int]

    @property
    def of_null(self) -> int:
        """The hash of null, as a bigint; the number after it is that of a value that the lake's type does not have."""
        return self.seeds[0] ^ self.seeds[1]

    def expression(self) -> str:
        """Return the server's expression for a column of ``r``."""
        first, second = self.seeds
        return self.type.sql.format(c=_quoted(self.source), s=first, t=second, n=self.of_null, m=self.of_null + 1)

    def hashes(self, values: pa.Array) -> tuple[Hashes, np.ndarray | None]:
        """Return the hashes of the lake's values, and which rows have to be read. Shape: array[N] -> uint64[N], [N]"""
        hashes, unlike = self.type.hashes(values, *self.seeds)
        if values.null_count:
            hashes = np.where(validity(values), hashes, np.uint64(self.of_null))
        return hashes, unlike


@dataclass(frozen=True, slots=True)
class RowHash:
    """The hashes of a table's rows."""

    columns: tuple[HashedColumn, ...]

    @classmethod
    def of(cls, typer: RowTyper, compared: Compared) -> RowHash | None:
        """Return how a table's rows are hashed; None if a column is masked, or of a type without such a hash."""
        lake = {lake_field.name.lower(): lake_field for lake_field in compared.schema}
        hashed = []
        for number, (plan, codec) in enumerate(zip(typer.plans, typer.codecs, strict=True)):
            if not plan.included or plan.name.lower() not in lake:
                continue
            field, natural = lake[plan.name.lower()], codec.natural.arrow_type
            how = hashed_type(typer.table.column(plan.name).type, natural)
            if how is None or plan.mapper is not None or plain_type(natural) != field.type:
                return None
            hashed.append(HashedColumn(plan.name, field.name, how, (_seed(2 * number), _seed(2 * number + 1))))
        return cls(tuple(hashed)) if hashed else None

    def select(self, rows: str) -> str:
        """Return the query for the hashes of the rows of a SELECT: one value, 16 hexadecimal digits a row."""
        inner = f"SELECT {self._expression()} AS h FROM ({rows}) AS r"
        return f"SELECT encode(string_agg(int8send(h), ''::bytea), 'hex') FROM ({inner}) AS hashed"

    def select_rows(self, rows: str, names: Sequence[str], hashes: Hashes) -> str:
        """Return the query for the columns ``names`` of those rows of a SELECT that have a hash among ``hashes``."""
        columns = ", ".join(map(_quoted, names))
        values = ",".join(map(str, hashes.view(np.int64).tolist()))
        return f"SELECT {columns} FROM ({rows}) AS r WHERE {self._expression()} = ANY ('{{{values}}}'::bigint[])"

    def digests(self, rows: pa.Table) -> Hashes:
        """Return the hashes of rows of the lake. Shape: compared.schema[N] -> uint64[N]"""
        combined, unlike = np.zeros(rows.num_rows, dtype=np.uint64), np.zeros(rows.num_rows, dtype=bool)
        if RESCUED in rows.schema.names:
            unlike |= _has_entries(column(rows, RESCUED))
        for part in self.columns:
            hashes, mine = part.hashes(column(rows, part.lake))
            combined ^= hashes
            unlike = unlike if mine is None else unlike | mine
        combined[unlike] ^= _UNLIKE
        return combined

    def _expression(self) -> str:
        return " # ".join(f"({column_hash.expression()})" for column_hash in self.columns)


def parsed(lines: bytes) -> Hashes:
    """Return the hashes from the COPY text of ``RowHash.select``. Shape: -> uint64[N]"""
    text = lines.strip()
    hashes = np.frombuffer(b"" if text == b"\\N" else bytes.fromhex(text.decode()), dtype=">u8")
    return hashes.astype(np.uint64)


def hashed_type(kind: PgType, natural: pa.DataType) -> HashedType | None:
    """Return how values of a type are hashed whose values in the lake are ``natural``, None if they are not."""
    while kind.kind is TypeKind.DOMAIN and kind.inner is not None:
        kind = kind.inner
    if kind.kind is TypeKind.ENUM or kind.name == "citext":
        return _PRINTED if pa.types.is_string(natural) else None
    if kind.kind is not TypeKind.BASE or kind.namespace != "pg_catalog":
        return None
    if kind.name == "numeric":
        is_plain = pa.types.is_decimal128(natural) and 0 <= natural.scale <= _MOST_PLACES
        return _NUMERIC if is_plain else None
    known = _TYPES.get(kind.name)
    return known[1] if known is not None and known[0] == natural else None


def _int32(values: pa.Array, seed: int, other: int) -> tuple[Hashes, None]:
    plain = values.fill_null(0).to_numpy(zero_copy_only=False)
    return hash_uint32(plain.astype(np.int32, copy=False).view(np.uint32), seed), None


def _int64(values: pa.Array, seed: int, other: int) -> tuple[Hashes, None]:
    plain = values.fill_null(0).to_numpy(zero_copy_only=False)
    return hash_int64(plain, seed) ^ hash_uint32(high_half(plain).view(np.uint32), other), None


def _bool(values: pa.Array, seed: int, other: int) -> tuple[Hashes, None]:
    plain = values.fill_null(False).to_numpy(zero_copy_only=False)
    return hash_uint32(plain.astype(np.uint32), seed), None


def _float(values: pa.Array, seed: int, other: int) -> tuple[Hashes, None]:
    plain = values.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64)
    hashes, zero = hash_float64(plain, seed), plain == 0
    if zero.any():
        positive, negative = hash_bytes(pa.array(["0", "-0"]), other)
        hashes[zero] ^= np.where(np.signbit(plain[zero]), negative, positive)
    return hashes, None


def _date(values: pa.Array, seed: int, other: int) -> tuple[Hashes, None]:
    days = values.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
    return hash_uint32((days - np.int32(_EPOCH_DAYS)).view(np.uint32), seed), None


def _moment(values: pa.Array, seed: int, other: int) -> tuple[Hashes, np.ndarray | None]:
    micros = values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    far = (micros >= _MOST_MICROS) | (micros <= -_MOST_MICROS)
    return hash_float64(micros / 1_000_000.0, seed), far if far.any() else None


def _bytes(values: pa.Array, seed: int, other: int) -> tuple[Hashes, None]:
    return _hashed(values, seed, other), None


def _binary(values: pa.Array, seed: int, other: int) -> tuple[Hashes, None]:
    return _hashed(values, seed, other, in_array=31), None


def _hashed(values: pa.Array, seed: int, other: int, in_array: int = 0) -> Hashes:
    """Hash texts or bytes. ``in_array`` is added to those that the server hashes as the only element of an array."""
    values = values.cast(pa.large_binary())
    long = pc.fill_null(pc.greater(pc.binary_length(values), _LONG), False)
    if not pc.any(long).as_py():
        return hash_bytes(values, seed) + np.uint64(in_array)
    hashes = hash_bytes(pc.if_else(long, pa.scalar(b"", pa.large_binary()), values), seed) + np.uint64(in_array)
    # row-wise: values of more than 240 bytes, whose hashing takes longer than the step to the next one
    digests = [hashlib.sha256(value.as_buffer()).hexdigest() for value in values.filter(long)]
    hashes[long.to_numpy(zero_copy_only=False)] = hash_bytes(pa.array(digests, pa.string()), other)
    return hashes


def _decimal(values: pa.Array, seed: int, other: int) -> tuple[Hashes, None]:
    return hash_bytes(values.cast(pa.string()), seed), None


def _has_entries(rescued: pa.Array) -> Bools:
    """Return which maps have an entry. Shape: map[N] -> bool[N]"""
    offsets = rescued.offsets.to_numpy()
    return np.asarray(validity(rescued) & (np.diff(offsets) > 0))


def _long_or(length: str, octets: str, short: str) -> str:
    """Return an expression that hashes long values by SHA-256, and of others is ``short``."""
    sha = f"hashtextextended(encode(sha256({octets}), 'hex') COLLATE \"C\", {{t}})"
    return f"CASE WHEN {{c}} IS NULL THEN {{n}} WHEN octet_length({length}) > {_LONG} THEN {sha} ELSE {short} END"


def _text(shown: str) -> HashedType:
    """Return how a column is hashed whose values in the lake are the text ``shown``."""
    return HashedType(
        _long_or(shown, f"convert_to({shown}, 'UTF8')", f'hashtextextended({shown} COLLATE "C", {{s}})'), _bytes
    )


_TEXT = _text("{c}::text")
# A cast to text may leave out what the server prints: the blanks of char(n), the netmask of inet.
_PRINTED = _text("format('%s', {c})")
_BINARY = HashedType(_long_or("{c}", "{c}", "hash_array_extended(ARRAY[{c}], {s})"), _binary)
_UUID = HashedType('coalesce(hashtextextended({c}::text COLLATE "C", {s}), {n})', _bytes)
_NUMERIC = HashedType(_UUID.sql, _decimal)
_FLOAT = HashedType(
    "coalesce(hashfloat8extended({c}::float8, {s}) "
    '# CASE WHEN {c} = 0 THEN hashtextextended({c}::text COLLATE "C", {t}) ELSE 0 END, {n})',
    _float,
)
_MOMENT = HashedType("coalesce(hashfloat8extended(date_part('epoch', {c}), {s}), {n})", _moment)
_TYPES: dict[str, tuple[pa.DataType, HashedType]] = {
    "bool": (pa.bool_(), HashedType("coalesce(hashint4extended({c}::int4, {s}), {n})", _bool)),
    "int2": (pa.int16(), HashedType("coalesce(hashint4extended({c}::int4, {s}), {n})", _int32)),
    "int4": (pa.int32(), HashedType("coalesce(hashint4extended({c}, {s}), {n})", _int32)),
    "int8": (
        pa.int64(),
        HashedType("coalesce(hashint8extended({c}, {s}) # hashint4extended(({c} >> 32)::int4, {t}), {n})", _int64),
    ),
    "float4": (pa.float32(), _FLOAT),
    "float8": (pa.float64(), _FLOAT),
    "date": (
        pa.date32(),
        HashedType(
            "CASE WHEN {c} IS NULL THEN {n} WHEN isfinite({c}) THEN hashint4extended({c} - date '2000-01-01', {s}) "
            "ELSE {m} END",
            _date,
        ),
    ),
    "timestamp": (pa.timestamp("us"), _MOMENT),
    "timestamptz": (pa.timestamp("us", tz="UTC"), _MOMENT),
    "text": (pa.string(), _TEXT),
    "varchar": (pa.string(), _TEXT),
    "name": (pa.string(), _TEXT),
    "uuid": (pa.string(), _UUID),
    "json": (pa.string(), _TEXT),
    "jsonb": (pa.string(), _TEXT),
    "bpchar": (pa.string(), _PRINTED),
    "inet": (pa.string(), _PRINTED),
    "cidr": (pa.string(), _PRINTED),
    "macaddr": (pa.string(), _PRINTED),
    "bytea": (pa.binary(), _BINARY),
}


def _quoted(column: str) -> str:
    """Return the name of a column of ``r``."""
    return 'r."{}"'.format(column.replace('"', '""'))


def _seed(number: int) -> int:
    """Return a positive bigint: splitmix64 of the number."""
    mask = 2**64 - 1
    value = (number + 1) * 0x9E3779B97F4A7C15 & mask
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & mask
    value = (value ^ value >> 27) * 0x94D049BB133111EB & mask
    return (value ^ value >> 31) >> 2 | 1

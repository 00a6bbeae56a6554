"""The known faults of servers' minor versions and of output plug-ins, and what is done about each.

``KNOWN_FAULTS`` is the one table of them: docs/plugins.md shows it, ``check`` names the rows that concern the server,
and the other modules ask it which columns are concerned. A fault of the server is in the versions of ``versions``: of
each major version that has it, the first minor version with the fault and the first one without. A major version that
was never repaired has None for the latter; one that is not listed does not have the fault. A fault of a plug-in is in
each of its versions.

What follows is one of three things:

* ``RENEWED``: the stream is restarted with another walsender once the transactions have ended beside which the fault
  occurs, and the tables concerned are read after that (``snapshot/sender_renewal``).
* ``REFUSED``: a table of which the fault concerns columns that identify rows is refused, or paused if it is in the lake
  already. In other columns the values are wrong as described, which ``check`` and the start of a run report.
* ``SAID``: ``check`` reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cdc_core.postgres.options import OutputPlugin, PostgresOptions
from cdc_core.schema import Column, ReplicaIdentity, TableSchema

_FLOAT4, _FLOAT8, _NUMERIC, _TIMETZ = 700, 701, 1700, 1266
_AS_STRING = "numeric-data-types-as-string"
_OFF = ("0", "false", "f", "off", "no")

Versions = Mapping[int, tuple[int, int | None]]


class Answer(StrEnum):
    """What wal2lake does about a fault."""

    RENEWED = "the stream is begun anew after these transactions, then the tables concerned are read again"
    REFUSED = "tables are refused where such columns identify rows; elsewhere the columns are named"
    SAID = "named by the check"

    @property
    def is_manual(self) -> bool:
        """Whether nothing is done beyond naming the fault."""
        return self is Answer.SAID


@dataclass(frozen=True, slots=True, eq=False)
class KnownFault:
    """One row of the table. ``plugin`` is empty for every plug-in.

    ``effect`` is a sentence. ``remedy`` ends the fault without another version of the server; empty if nothing does.
    ``concerns`` returns which columns of a table have wrong values in rows that the stream sends; None for a fault that
    does not depend on columns. With ``old_rows_only`` only the old rows of updates and deletes have them.
    """

    name: str
    effect: str
    answer: Answer
    plugin: str = ""
    versions: Versions | None = None
    remedy: str = ""
    concerns: Callable[[TableSchema, Column], bool] | None = None
    parameter: str = ""
    old_rows_only: bool = False

    def is_in(self, options: PostgresOptions, version: int) -> bool:
        """Whether a stream with these options from a server of this version (150018) has the fault.

        ``parameter`` of slot.stream.params ends it.
        """
        if self.plugin and options.plugin_name.on_server != self.plugin:
            return False
        if self.parameter and dict(options.slot_stream_params).get(self.parameter, "0") not in _OFF:
            return False
        return self.versions is None or _is_among(version, self.versions)

    def has_column(self, table: TableSchema, column: Column) -> bool:
        """Whether the column has wrong values in rows that the stream sends."""
        return self.concerns is not None and self.concerns(table, column)

    def repaired(self, version: int) -> str:
        """Return the first version without the fault of the server's major version, or what it is repaired in.

        Empty for a fault of a plug-in.
        """
        if self.versions is None:
            return ""
        major = version // 10_000
        minor = self.versions[major][1]
        if minor is not None:
            return f"PostgreSQL {major}.{minor}"
        repaired = min((known, least) for known, (_, least) in self.versions.items() if least is not None)
        return f"PostgreSQL {repaired[0]}.{repaired[1]}; of version {major} none"


def _is_special(table: TableSchema, column: Column) -> bool:
    return column.type.oid in (_FLOAT4, _FLOAT8, _NUMERIC)


def _has_zone(table: TableSchema, column: Column) -> bool:
    return column.type.oid == _TIMETZ


def _has_missing(table: TableSchema, column: Column) -> bool:
    return table.identity is ReplicaIdentity.FULL and column.has_missing


OUTDATED_CATALOGUE = KnownFault(
    "outdated catalogue entries",
    "A transaction that has written is open while a table is added to the publication, or while an enum's label is "
    "renamed or a composite type is altered: from then on the walsender goes by what it knew before, so that changes "
    "of the table are missing, labels are the old ones, and new attributes are left out.",
    Answer.RENEWED,
    versions={
        **dict.fromkeys((10, 11, 12), (0, None)),
        13: (0, 21),
        14: (0, 18),
        15: (0, 13),
        16: (0, 9),
        17: (0, 5),
    },
)
NULL_FOR_DEFAULT = KnownFault(
    "NULL for a column added with a default",
    "pgoutput sends NULL in place of the default for a column that was added with one, in old rows (REPLICA IDENTITY "
    "FULL) that were written before it was added.",
    Answer.REFUSED,
    plugin=OutputPlugin.PGOUTPUT,
    versions={15: (0, 6), 16: (0, 2)},
    remedy="rewrite the table (VACUUM FULL)",
    concerns=_has_missing,
    old_rows_only=True,
)
TOO_MANY_INVALIDATIONS = KnownFault(
    "memory for altered catalogues",
    "Many changes of the catalogue while transactions are open can end the stream with 'invalid memory alloc "
    "request size', at the same position each time.",
    Answer.SAID,
    versions={13: (21, 22), 14: (18, 19), 15: (13, 14), 16: (9, 10), 17: (5, 6)},
)
NULL_FOR_NAN = KnownFault(
    "NULL for NaN and infinity",
    "wal2json sends NaN and infinity of real, double precision and numeric as null.",
    Answer.REFUSED,
    plugin=OutputPlugin.WAL2JSON,
    remedy=f"set slot.stream.params={_AS_STRING}=1 (wal2json 2.6), or use pgoutput or decoderbufs",
    concerns=_is_special,
    parameter=_AS_STRING,
)
ZONE_LOST = KnownFault(
    "time zones as UTC",
    "decoderbufs sends time with time zone in UTC, without the zone that it was written with.",
    Answer.REFUSED,
    plugin=OutputPlugin.DECODERBUFS,
    remedy="use pgoutput or wal2json",
    concerns=_has_zone,
)

KNOWN_FAULTS = (OUTDATED_CATALOGUE, NULL_FOR_DEFAULT, TOO_MANY_INVALIDATIONS, NULL_FOR_NAN, ZONE_LOST)


@dataclass(frozen=True, slots=True)
class ConcernedTable:
    """A table with values that the stream does not send as they are.

    ``columns`` are all concerned ones, ``identifying`` those of them by which changes find their rows.
    """

    fault: KnownFault
    table: TableSchema
    columns: tuple[str, ...]
    identifying: tuple[str, ...]
    repaired: str

    @property
    def reason(self) -> str:
        """Describe the fault in one sentence, for a table that is refused or with wrong values."""
        names = ", ".join(self.identifying or self.columns)
        if self.identifying:
            return f"{self.fault.effect} Changes find rows of {self.table.id} by such values: {names}."
        where = "events' old rows and changelogs have" if self.fault.old_rows_only else "the lake and events get"
        return f"{self.fault.effect} Of {self.table.id} {where} such values in {names}."

    @property
    def action(self) -> str:
        """What the user does, without a full stop."""
        ways = [f"upgrade the server to {self.repaired}"] if self.repaired else []
        ways.append(self.fault.remedy)
        if self.identifying:
            ways.append(f"add a primary key without such columns to {self.table.id}, or exclude it")
        text = "; or ".join(ways)
        return text[0].upper() + text[1:]


def faults_of(options: PostgresOptions, version: int) -> list[KnownFault]:
    """Return the faults of a stream with these options from a server of this version."""
    return [fault for fault in KNOWN_FAULTS if fault.is_in(options, version)]


def concerned_tables(
    options: PostgresOptions,
    version: int,
    tables: Iterable[TableSchema],
    captures: Callable[[TableSchema], Iterable[str]] | None = None,
) -> list[ConcernedTable]:
    """Return the tables with values that the stream does not send as they are, once for each fault.

    ``captures`` returns the names of a table's captured columns; without it all are.
    """
    known = [fault for fault in faults_of(options, version) if fault.concerns is not None]
    concerned = []
    for table in tables if known else ():
        captured = {column.name for column in table.columns} if captures is None else set(captures(table))
        for fault in known:
            names = [c.name for c in table.columns if c.name in captured and fault.has_column(table, c)]
            if names:
                by = identifying(table)
                repaired = fault.repaired(version)
                concerned.append(
                    ConcernedTable(fault, table, tuple(names), tuple(name for name in names if name in by), repaired)
                )
    return concerned


def identifying(table: TableSchema) -> tuple[str, ...]:
    """Return the columns by which changes find their rows: all of a keyless table whose old rows are sent."""
    if table.row_key:
        return table.row_key
    return tuple(c.name for c in table.columns) if table.identity is ReplicaIdentity.FULL else ()


def _is_among(version: int, versions: Versions) -> bool:
    known = versions.get(version // 10_000)
    return known is not None and known[0] <= version % 10_000 and (known[1] is None or version % 10_000 < known[1])

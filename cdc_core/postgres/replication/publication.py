"""Publications: the tables and operations whose changes the server sends.

A publication must be older than the changes it publishes, so ``ensure`` is called before the slot is created. An
existing one is not changed, except with ``filtered``: then its list of tables follows the include list; tables are
added and dropped one by one, so that row filters and column lists of the others are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc_core.errors import CdcError, SourceError
from cdc_core.postgres.connection import Connection, connect
from cdc_core.postgres.options import PostgresOptions, PublicationAutocreateMode
from cdc_core.postgres.server import server_info
from cdc_core.postgres.sqlstate import one_row, server_error, translated
from cdc_core.schema import TableId, TableSchema

_OPERATIONS = (("c", "insert"), ("u", "update"), ("d", "delete"), ("t", "truncate"))


@dataclass(frozen=True, slots=True)
class PublicationInfo:
    """A publication in the catalogue.

    ``tables`` are those it lists, ``published`` those whose changes are sent (partitions or their root, depending on
    ``via_root``); ``operations`` are insert, update, delete, truncate.
    """

    name: str
    exists: bool = False
    all_tables: bool = False
    operations: tuple[str, ...] = ()
    via_root: bool = False
    tables: frozenset[TableId] = frozenset()
    published: frozenset[TableId] = frozenset()
    owner: str = ""


@dataclass(frozen=True, slots=True)
class PublicationChange:
    """The result of ``ensure``: ``created`` it, or ``added`` and ``dropped`` tables; nothing if it was unchanged."""

    name: str
    created: bool = False
    added: tuple[TableId, ...] = ()
    dropped: tuple[TableId, ...] = ()


def inspect(connection: Connection, name: str) -> PublicationInfo:
    """Read a publication from the catalogue. Raises SourceError or TransientError."""
    version = connection.info.server_version
    truncates = "p.pubtruncate" if version >= 110000 else "false"
    via_root = "p.pubviaroot" if version >= 130000 else "false"
    with translated("looking up the publication"):
        row = connection.execute(
            f"SELECT p.oid, p.puballtables, p.pubinsert, p.pubupdate, p.pubdelete, {truncates}, {via_root}, "
            "pg_get_userbyid(p.pubowner) FROM pg_publication p WHERE p.pubname = %s",
            (name,),
        ).fetchone()
        if row is None:
            return PublicationInfo(name)
        listed = connection.execute(
            "SELECT n.nspname, c.relname FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE r.prpubid = %s",
            (row[0],),
        ).fetchall()
        published = connection.execute(
            "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s", (name,)
        ).fetchall()
    operations = tuple(word for (_, word), has in zip(_OPERATIONS, row[2:6], strict=True) if has)
    return PublicationInfo(
        name,
        True,
        row[1],
        operations,
        row[6],
        frozenset(TableId(*pair) for pair in listed),
        frozenset(TableId(*pair) for pair in published),
        row[7],
    )


def ensure(
    connection: Connection,
    options: PostgresOptions,
    tables: Iterable[TableSchema | TableId],
    skipped_operations: Sequence[str] = (),
) -> PublicationChange:
    """Create or alter the publication according to publication.autocreate.mode.

    ``tables`` are the captured ones (used by ``filtered`` only). ``skipped_operations`` (c, u, d, t) are excluded from
    a publication created here. Raises SourceError, with the statement for an owner to run if a privilege is missing.
    """
    info = inspect(connection, options.publication_name)
    captured = sorted({_id(table) for table in tables})
    mode = options.publication_autocreate_mode
    if mode is PublicationAutocreateMode.FILTERED and not captured:
        raise SourceError(
            "No table is captured, so a filtered publication would be empty.",
            "Check table.include.list and schema.include.list, or create the tables first.",
        )
    if info.exists:
        if mode is PublicationAutocreateMode.FILTERED:
            return _follow(connection, info, captured)
        return PublicationChange(info.name)
    statement = _creation(connection, options, captured, skipped_operations)
    if mode is PublicationAutocreateMode.DISABLED:
        raise SourceError(
            f'There is no publication "{info.name}", and publication.autocreate.mode is disabled.',
            f"Let the tables' owner run CREATE PUBLICATION {sql.Identifier(info.name).as_string()} FOR TABLE …, "
            "or set publication.autocreate.mode=filtered.",
        )
    _run(connection, [statement], info.name, "creating")
    return PublicationChange(info.name, created=True, added=tuple(captured) if _lists(mode) else ())


def unsent_operations(info: PublicationInfo, skipped_operations: Sequence[str]) -> list[str]:
    """Return the operations (insert, update, delete, truncate) that are not published, without skipped ones."""
    return [word for code, word in _OPERATIONS if code not in skipped_operations and word not in info.operations]


def unsent_text(info: PublicationInfo, words: Sequence[str]) -> str:
    """Return a sentence about operations that a publication leaves out."""
    return f'Publication "{info.name}" does not publish {", ".join(words)}.'


def drop(connection: Connection, name: str) -> None:
    """Drop a publication if it exists. Raises SourceError or TransientError."""
    with translated(f'dropping publication "{name}"'):
        connection.execute(sql.SQL("DROP PUBLICATION IF EXISTS {}").format(sql.Identifier(name)))


def _lists(mode: PublicationAutocreateMode) -> bool:
    return mode is PublicationAutocreateMode.FILTERED


def _creation(
    connection: Connection, options: PostgresOptions, captured: Sequence[TableId], skipped_operations: Sequence[str]
) -> sql.Composed:
    version = connection.info.server_version
    target = {
        PublicationAutocreateMode.ALL_TABLES: sql.SQL(" FOR ALL TABLES"),
        PublicationAutocreateMode.FILTERED: sql.SQL(" FOR TABLE ") + _listed(captured),
        PublicationAutocreateMode.NO_TABLES: sql.SQL(""),
        PublicationAutocreateMode.DISABLED: sql.SQL(""),
    }[options.publication_autocreate_mode]
    offered = [(code, word) for code, word in _OPERATIONS if word != "truncate" or version >= 110000]
    published = [word for code, word in offered if code not in skipped_operations]
    settings: list[sql.Composable] = []
    if len(published) < len(offered):
        settings.append(sql.SQL("publish = {}").format(sql.Literal(", ".join(published))))
    if options.publish_via_partition_root and version >= 130000:
        settings.append(sql.SQL("publish_via_partition_root = true"))
    ending = sql.SQL(" WITH ({})").format(sql.SQL(", ").join(settings)) if settings else sql.SQL("")
    return sql.SQL("CREATE PUBLICATION {}{}{}").format(sql.Identifier(options.publication_name), target, ending)


def _follow(connection: Connection, info: PublicationInfo, captured: Sequence[TableId]) -> PublicationChange:
    if info.all_tables:
        raise SourceError(
            f'Publication "{info.name}" is FOR ALL TABLES, and publication.autocreate.mode is filtered.',
            "Drop it, choose another publication.name, or set publication.autocreate.mode=all_tables.",
        )
    added = tuple(table for table in captured if table not in info.tables)
    dropped = tuple(sorted(info.tables - set(captured)))
    name = sql.Identifier(info.name)
    statements = []
    if added:
        statements.append(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(name, _listed(added)))
    if dropped:
        statements.append(sql.SQL("ALTER PUBLICATION {} DROP TABLE {}").format(name, _listed(dropped)))
    if statements:
        _run(connection, statements, info.name, "changing")
    return PublicationChange(info.name, added=added, dropped=dropped)


def _run(connection: Connection, statements: Sequence[sql.Composed], name: str, doing: str) -> None:
    try:
        with connection.transaction():
            for statement in statements:
                connection.execute(statement)
    except psycopg.errors.DuplicateObject as error:
        if doing != "creating":
            raise server_error(error, f'{doing} publication "{name}"') from None
        # Another session created it concurrently, which has the same result as an existing one.
    except psycopg.errors.ReadOnlySqlTransaction as error:
        if not server_info(connection).is_standby:
            raise server_error(error, f'{doing} publication "{name}"') from None
        needed = "; ".join(statement.as_string() for statement in statements)
        raise SourceError(
            f'The server is a standby, and {doing} publication "{name}" is possible on the primary only.',
            f"Run on the primary: {needed}",
        ) from None
    except psycopg.Error as error:
        raise _refused(error, statements, name, doing) from None


def _refused(error: psycopg.Error, statements: Sequence[sql.Composed], name: str, doing: str) -> CdcError:
    if not isinstance(error, psycopg.errors.InsufficientPrivilege):
        return server_error(error, f'{doing} publication "{name}"')
    said = (error.diag.message_primary or "").rstrip(".")
    needed = "; ".join(statement.as_string() for statement in statements)
    return SourceError(
        f'The role lacks the privileges for {doing} publication "{name}": {said}.',
        "Let a role with these privileges (a superuser for FOR ALL TABLES, otherwise the tables' owner with "
        f"CREATE on the database) run: {needed}",
    )


def _listed(tables: Sequence[TableId]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(table.schema, table.table) for table in tables)


def _id(table: TableSchema | TableId) -> TableId:
    return table.id if isinstance(table, TableSchema) else table


def removable(options: PostgresOptions) -> tuple[str, str]:
    """Return the publication that ``reset`` may remove, and why it is kept; both are empty if there is none.

    It is removed where this role owns it and the connector file lets wal2lake make it. Queries the server.
    """
    if not options.plugin_name.has_publication:
        return "", ""
    with connect(options) as connection:
        info = inspect(connection, options.publication_name)
        (role,) = one_row(connection, "SELECT current_user")
    if not info.exists:
        return "", ""
    if options.publication_autocreate_mode is PublicationAutocreateMode.DISABLED:
        return "", "publication.autocreate.mode is disabled: it was made by somebody else"
    if info.owner != role:
        return "", f"its owner is {info.owner}"
    return info.name, ""

"""Checks whether the server will send the changes of the captured tables."""

from __future__ import annotations

from collections.abc import Sequence

from cdc_core.postgres.options import OutputPlugin, PublicationAutocreateMode
from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.postgres.replication import partition_names, publication
from cdc_core.postgres.replication.publication import PublicationInfo
from cdc_core.postgres.sqlstate import translated
from cdc_core.schema.table import TableId

NAME = "publication"


def check(context: Context) -> list[Finding]:
    """Run the check."""
    if context.options.plugin_name is not OutputPlugin.PGOUTPUT:
        return []
    info = publication.inspect(context.connection, context.options.publication_name)
    ids = [table.id for table in context.tables]
    with translated("reading what the role may create"):
        row = context.connection.execute(
            "SELECT r.rolsuper, has_database_privilege(current_database(), 'CREATE'), "
            "(SELECT array_agg(c.oid::bigint) FROM pg_class c "
            " WHERE c.oid = ANY(%s::oid[]) AND pg_has_role(c.relowner, 'USAGE')) "
            "FROM pg_roles r WHERE r.rolname = current_user",
            ([table.oid for table in context.tables],),
        ).fetchone()
    assert row is not None
    owned = set(row[2] or ())
    foreign = [table.id for table in context.tables if table.oid not in owned]
    mode = context.options.publication_autocreate_mode
    names = partition_names.named(context.connection, context.options, context.tables)
    silent = partition_names.silent_partitions(context.connection, names.own)
    told = [*unheard_verdicts(names.unheard), *silent_verdicts(silent)]
    if not info.exists and context.server.is_standby:
        return [*told, standby_verdict(info.name)]
    if not info.exists:
        return [*told, missing_verdict(info.name, mode, row[0], row[1], foreign)]
    roots = _roots(context)
    covered = [table for table in ids if table in info.published or roots.get(table, frozenset()) & info.published]
    findings = existing_verdicts(info, mode, ids, covered, context.selection.skipped_operations)
    return [*told, *findings]


def unheard_verdicts(tables: Sequence[TableId]) -> list[Finding]:
    """``tables``: partitioned tables and partitions whose changes are sent only under names that are not captured."""
    return [
        doubtful(
            NAME,
            partition_names.unheard_text(table),
            "Set publish_via_partition_root for the publication (publish.via.partition.root=true for one that is "
            "created at start) to capture partitioned tables, or capture the partitions without it.",
        )
        for table in tables
    ]


def silent_verdicts(texts: Sequence[str]) -> list[Finding]:
    """``texts``: what is said of partitions whose changes are not in the WAL."""
    remedy = "Make it an ordinary partition (ALTER TABLE … SET LOGGED), detach it, or read the table again when needed."
    return [doubtful(NAME, text, remedy) for text in texts]


def standby_verdict(name: str) -> Finding:
    """A publication that is missing on a standby."""
    return bad(
        NAME,
        f'There is no publication "{name}", and the server is a standby, which cannot create it.',
        f'Let the tables\' owner run CREATE PUBLICATION "{name}" FOR TABLE … on the primary.',
    )


def missing_verdict(
    name: str, mode: PublicationAutocreateMode, is_superuser: bool, may_create: bool, foreign: Sequence[TableId]
) -> Finding:
    """``may_create``: CREATE on the database. ``foreign``: captured tables the role does not own."""
    found = f'There is no publication "{name}"'
    if mode is PublicationAutocreateMode.DISABLED:
        return bad(
            NAME,
            f"{found}, and publication.autocreate.mode is disabled.",
            f'Let the tables\' owner run CREATE PUBLICATION "{name}" FOR TABLE ….',
        )
    if mode is PublicationAutocreateMode.ALL_TABLES and not is_superuser:
        return bad(
            NAME,
            f"{found}, and only a superuser may create one FOR ALL TABLES.",
            f'As a superuser run CREATE PUBLICATION "{name}" FOR ALL TABLES, or set '
            "publication.autocreate.mode=filtered as the tables' owner.",
        )
    if not is_superuser and not may_create:
        return bad(NAME, f"{found}, and the role lacks CREATE on the database.", "Run GRANT CREATE ON DATABASE.")
    if mode is PublicationAutocreateMode.FILTERED and not is_superuser and foreign:
        return bad(
            NAME,
            f"{found}, and the role does not own {listed(foreign)}.",
            f'Let the owner run CREATE PUBLICATION "{name}" FOR TABLE …, and set publication.autocreate.mode=disabled.',
        )
    return good(NAME, f"{found}; it is created at start.")


def existing_verdicts(
    info: PublicationInfo,
    mode: PublicationAutocreateMode,
    captured: Sequence[TableId],
    covered: Sequence[TableId],
    skipped_operations: Sequence[str] = (),
) -> list[Finding]:
    """``covered``: captured tables whose changes the publication sends, by their own, a root's or a leaf's name."""
    findings = []
    if mode is PublicationAutocreateMode.FILTERED and info.all_tables:
        findings.append(
            bad(
                NAME,
                f'Publication "{info.name}" is FOR ALL TABLES, and publication.autocreate.mode is filtered.',
                "Choose another publication.name, or set publication.autocreate.mode=all_tables.",
            )
        )
    uncovered = [table for table in captured if table not in set(covered)]
    if uncovered and mode is not PublicationAutocreateMode.FILTERED:
        findings.append(
            doubtful(
                NAME,
                f'Publication "{info.name}" does not include {listed(uncovered)}: their changes are not published.',
                f'Let the owner run ALTER PUBLICATION "{info.name}" ADD TABLE …, or exclude them.',
            )
        )
    wanted = [word for code, word in (("c", "insert"), ("u", "update"), ("d", "delete"), ("t", "truncate"))
              if code not in skipped_operations]  # fmt: skip
    unsent = [word for word in wanted if word not in info.operations]
    if unsent:
        findings.append(
            doubtful(
                NAME,
                f'Publication "{info.name}" does not publish {listed(unsent)}.',
                f"Let its owner run ALTER PUBLICATION \"{info.name}\" SET (publish = '{', '.join(wanted)}').",
            )
        )
    return findings or [good(NAME, f'Publication "{info.name}" includes all {len(captured)} captured tables.')]


def _roots(context: Context) -> dict[TableId, frozenset[TableId]]:
    """Return each captured partition's ancestors and each partitioned table's leaves, whose names changes may have."""
    with translated("reading partitions"):
        rows = context.connection.execute(
            "WITH RECURSIVE up AS (SELECT inhrelid AS child, inhparent AS other FROM pg_inherits UNION "
            "SELECT up.child, i.inhparent FROM up JOIN pg_inherits i ON i.inhrelid = up.other), "
            "kin AS (SELECT child AS a, other AS b FROM up UNION SELECT other, child FROM up) "
            "SELECT kin.a::bigint, n.nspname, c.relname FROM kin JOIN pg_class c ON c.oid = kin.b "
            "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE kin.a = ANY(%s::oid[])",
            ([table.oid for table in context.tables],),
        ).fetchall()
    ids = {table.oid: table.id for table in context.tables}
    kin: dict[TableId, set[TableId]] = {}
    for oid, namespace, name in rows:
        kin.setdefault(ids[oid], set()).add(TableId(namespace, name))
    return {table: frozenset(others) for table, others in kin.items()}

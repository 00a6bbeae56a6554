"""Checks whether the server will send the changes of the captured tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdc_core.postgres.options import OutputPlugin, PublicationAutocreateMode
from cdc_core.postgres.preflight.context import Context, listed
from cdc_core.postgres.preflight.finding import Finding, bad, doubtful, good
from cdc_core.postgres.preflight.statements import (
    add_to_publication,
    create_publication,
    drop_from_publication,
    grant_create,
    identity_full,
    publish_operations,
)
from cdc_core.postgres.replication import partition_names, publication
from cdc_core.postgres.replication.publication import PublicationInfo
from cdc_core.postgres.sqlstate import one_row, translated
from cdc_core.schema import TableId

NAME = "publication"
_VIA_ROOT = 130_000


def check(context: Context) -> list[Finding]:
    """Run the check."""
    if context.options.plugin_name is not OutputPlugin.PGOUTPUT:
        return []
    info = publication.inspect(context.connection, context.options.publication_name)
    ids = [table.id for table in context.tables]
    with translated("reading what the role may create"):
        row = one_row(
            context.connection,
            "SELECT r.rolsuper, has_database_privilege(r.oid, current_database(), 'CREATE'), "
            "(SELECT array_agg(c.oid::bigint) FROM pg_class c "
            " WHERE c.oid = ANY(%s::oid[]) AND pg_has_role(r.oid, c.relowner, 'USAGE')), one.name, "
            "(SELECT pg_has_role(r.oid, p.pubowner, 'USAGE') FROM pg_publication p WHERE p.pubname = %s) "
            "FROM (SELECT coalesce(%s, current_user::text) AS name) AS one "
            "LEFT JOIN pg_roles r ON r.rolname = one.name",
            ([table.oid for table in context.tables], info.name, context.role),
        )
    owned = set(row[2] or ())
    foreign = [table.id for table in context.tables if table.oid not in owned]
    mode = context.options.publication_autocreate_mode
    names = partition_names.named(context.connection, context.options, context.tables)
    silent = partition_names.silent_partitions(context.connection, names.own)
    unlike = partition_names.unlike_partitions(context.connection, names.own)
    told = [*unheard_verdicts(names.unheard), *silent_verdicts(silent), *unlike_verdicts(unlike)]
    make = _creation(context, ids)
    if not info.exists and context.server.is_standby:
        return [*told, standby_verdict(info.name, make)]
    if not info.exists:
        grant = grant_create(context.options.database_dbname, row[3])
        return [*told, missing_verdict(info.name, mode, row[0], row[1], foreign, make, grant)]
    roots = _roots(context)
    covered = [table for table in ids if table in info.published or roots.get(table, frozenset()) & info.published]
    findings = existing_verdicts(info, mode, ids, covered, context.selection.skipped_operations, make)
    if mode is PublicationAutocreateMode.FILTERED and not row[0]:
        findings = following_verdicts(info, ids, bool(row[4]), foreign) or findings
    return [*told, *findings]


def _creation(context: Context, ids: Sequence[TableId]) -> str:
    """Return the statement of a publication for the captured tables."""
    lists = context.selection
    # Tables that do not exist yet cannot be listed.
    every = not ids or (
        context.options.publication_autocreate_mode is PublicationAutocreateMode.ALL_TABLES
        and not (
            lists.table_include_list
            or lists.table_exclude_list
            or lists.schema_include_list
            or lists.schema_exclude_list
        )
    )
    via_root = context.options.publish_via_partition_root and context.connection.info.server_version >= _VIA_ROOT
    return create_publication(context.options.publication_name, None if every else ids, via_root=via_root)


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
    """``texts``: a sentence for each partition whose changes are not in the WAL."""
    remedy = "Make it an ordinary partition (ALTER TABLE … SET LOGGED), detach it, or read the table again when needed."
    return [doubtful(NAME, text, remedy) for text in texts]


def unlike_verdicts(texts: Mapping[TableId, str]) -> list[Finding]:
    """``texts``: a sentence for each partition whose replica identity does not identify rows of its table."""
    remedy = "As the partition's owner run, and read the table again if the partition was changed before:"
    return [doubtful(NAME, text, remedy, identity_full(leaf)) for leaf, text in texts.items()]


def standby_verdict(name: str, make: str = "") -> Finding:
    """A publication that is missing on a standby. ``make``: the statement that makes it on the primary."""
    return bad(
        NAME,
        f'There is no publication "{name}", and the server is a standby, which cannot create it.',
        "As a superuser or the tables' owner, run on the primary:",
        *([make] if make else []),
    )


def missing_verdict(
    name: str,
    mode: PublicationAutocreateMode,
    is_superuser: bool,
    may_create: bool,
    foreign: Sequence[TableId],
    make: str = "",
    grant: str = "",
) -> Finding:
    """``may_create``: CREATE on the database. ``foreign``: captured tables that the role does not own.

    ``make``: the statement of a publication for the captured tables; ``grant``: the one that gives CREATE.
    """
    problem = f'There is no publication "{name}"'
    if mode is PublicationAutocreateMode.DISABLED:
        return bad(
            NAME,
            f"{problem}, and publication.autocreate.mode is disabled.",
            "As a superuser, or as the tables' owner with CREATE on the database, run:",
            make,
        )
    if mode is PublicationAutocreateMode.ALL_TABLES and not is_superuser:
        return bad(
            NAME,
            f"{problem}, and only a superuser may create one FOR ALL TABLES.",
            "Set publication.autocreate.mode=filtered if the role owns the tables, or as a superuser run:",
            make,
        )
    if mode is PublicationAutocreateMode.FILTERED and not is_superuser and foreign:
        return bad(
            NAME,
            f"{problem}, and the role does not own {listed(foreign)}.",
            "Set publication.autocreate.mode=disabled, and as a superuser or the tables' owner run:",
            make,
        )
    if not is_superuser and not may_create:
        return bad(
            NAME,
            f"{problem}, and the role lacks CREATE on the database.",
            "As the database's owner or a superuser run:",
            grant,
        )
    return good(NAME, f"{problem}; it is created at start.", make)


def following_verdicts(
    info: PublicationInfo, captured: Sequence[TableId], owns: bool, foreign: Sequence[TableId]
) -> list[Finding]:
    """Report a list of tables that a role without SUPERUSER is to change (``filtered``) and may not.

    ``owns``: the role owns the publication. ``foreign``: captured tables that it does not own.
    """
    if info.all_tables:
        return []
    added = sorted(set(captured) - info.tables)
    dropped = sorted(info.tables - set(captured))
    if not (added or dropped) or (owns and not set(added) & set(foreign)):
        return []
    changes = [add_to_publication(info.name, added)] if added else []
    changes += [drop_from_publication(info.name, dropped)] if dropped else []
    return [
        bad(
            NAME,
            f'Publication "{info.name}" does not list exactly the captured tables, as filtered asks for, and the role '
            f"may not change it: {listed([*added, *dropped])}.",
            "As a superuser, or as the owner of publication and tables, run:",
            *changes,
        )
    ]


def existing_verdicts(
    info: PublicationInfo,
    mode: PublicationAutocreateMode,
    captured: Sequence[TableId],
    covered: Sequence[TableId],
    skipped_operations: Sequence[str] = (),
    make: str = "",
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
                "Exclude them, or as a superuser or the owner of publication and tables run:",
                add_to_publication(info.name, uncovered),
            )
        )
    unsent = publication.unsent_operations(info, skipped_operations)
    if unsent:
        make_whole = publish_operations(info.name, [*info.operations, *unsent])
        findings.append(doubtful(NAME, publication.unsent_text(info, unsent), "As its owner run:", make_whole))
    return findings or [good(NAME, f'Publication "{info.name}" includes all {len(captured)} captured tables.', make)]


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

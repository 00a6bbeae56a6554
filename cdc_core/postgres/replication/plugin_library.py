"""Why a server does not load an output plug-in: it is not in the list of those that are allowed, or not installed.

The list is the setting ``output_plugin_libraries``, which servers have from the minor versions of November 2026 on. It
applies whenever a plug-in is loaded, pgoutput included: when a slot is created and whenever it is read. Its value is
shown to superusers and members of pg_read_all_settings only; one that was set for a role or a database, to every role.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

import psycopg
from psycopg import sql

from cdc_core.errors import PluginError
from cdc_core.postgres.connection import Connection

SETTING = "output_plugin_libraries"
# Where the server finds and opens files of libraries.
_LOADER, _SYMBOLS = "dfmgr.c", "LoadOutputPlugin"
# Of settings for a role or a database, the most specific one applies.
_SPECIFIC = f"""
SELECT coalesce(r.rolname, ''), coalesce(d.datname, ''), substr(item, {len(SETTING) + 2})
FROM pg_db_role_setting AS s CROSS JOIN unnest(s.setconfig) AS item
LEFT JOIN pg_roles AS r ON r.oid = s.setrole LEFT JOIN pg_database AS d ON d.oid = s.setdatabase
WHERE item LIKE '{SETTING}=%' AND (s.setrole = 0 OR r.rolname = session_user)
    AND (s.setdatabase = 0 OR d.datname = current_database())
ORDER BY s.setrole = 0, s.setdatabase = 0 LIMIT 1
"""
_GENERAL = f"SELECT setting, source FROM pg_settings WHERE name = '{SETTING}'"
_SYSTEM, _ARGUMENT = "SYSTEM", "command line"
_EMPTY, _OWN = ("", '""'), ("pgoutput",)
_RELOAD = "SELECT pg_reload_conf();"
_BESIDES = "A slot keeps its position."


@dataclass(frozen=True, slots=True)
class AllowedPlugins:
    """The setting as it applies to a connection. ``value`` is None where the role may not read it.

    ``place``: what ALTER … SET changes, or that it is an argument of the server.
    """

    value: str | None = None
    place: str = _SYSTEM

    def allows(self, plugin: str) -> bool:
        """Whether a plug-in is known to be allowed."""
        return self.value is not None and plugin in re.split(r"\s*,\s*", self.value)

    def refusal(self, plugin: str) -> str:
        """Return the sentence that a plug-in is not allowed, with the setting's value."""
        by = "" if self.place in (_SYSTEM, _ARGUMENT) else f", set by ALTER {self.place},"
        said = f"{SETTING}{by} is '{self.value}'."
        if self.value is None:
            said = f"{SETTING}, which only superusers and members of pg_read_all_settings may read, lacks it."
        return f"The server does not allow output plug-in {plugin}: {said}"

    def remedy(self, plugin: str) -> str:
        """Return the remedy that introduces ``statements``."""
        if self.place == _ARGUMENT:
            return f"Add {plugin} to {SETTING} in the arguments of the server, and restart it. {_BESIDES}"
        return (
            f"Of a managed service, add {plugin} to its parameter {SETTING}. Of another server, as a superuser run "
            f"this with psql; new connections have it without a restart. {_BESIDES}"
        )

    def statements(self, plugin: str) -> tuple[str, ...]:
        """Return the statements for psql that add the plug-in to the allowed ones."""
        if self.place == _ARGUMENT:
            return ()
        if self.value is None:
            return allow(plugin)
        present = "" if self.value in _EMPTY else f"{self.value}, "
        statement = f"ALTER {self.place} SET {SETTING} = {present}{plugin};"
        return (statement, _RELOAD) if self.place == _SYSTEM else (statement,)


def allow(plugin: str) -> tuple[str, ...]:
    """Return statements for psql that add a plug-in to the setting, whatever its value; none where there is no setting.

    ALTER SYSTEM accepts no expression, and runs in no function.
    """
    return (
        f"SELECT format('ALTER SYSTEM SET {SETTING} = %s', concat_ws(', ', nullif(nullif(setting, ''), '\"\"'), "
        f"'{plugin}')) FROM pg_settings WHERE name = '{SETTING}' "
        f"AND '{plugin}' <> ALL (regexp_split_to_array(setting, ' *, *')) \\gexec",
        _RELOAD,
    )


def is_limited(connection: Connection) -> bool:
    """Whether the server has the setting."""
    try:
        connection.execute(f"SHOW {SETTING}".encode())
    except psycopg.errors.InsufficientPrivilege:
        return True
    except psycopg.errors.UndefinedObject:
        return False
    return True


def allowed(connection: Connection) -> AllowedPlugins:
    """Read the setting, as far as the role may."""
    with suppress(psycopg.Error):  # in a transaction that has failed
        specific = connection.execute(_SPECIFIC.encode()).fetchone()
        if specific is not None:
            return AllowedPlugins(specific[2], _altered(specific[0], specific[1]))
        general = connection.execute(_GENERAL.encode()).fetchone()
        if general is not None:
            return AllowedPlugins(general[0], _ARGUMENT if general[1] == _ARGUMENT else _SYSTEM)
    return AllowedPlugins()


def _altered(role: str, database: str) -> str:
    of_role, of_database = (sql.Identifier(name).as_string() if name else "" for name in (role, database))
    if of_role and of_database:
        return f"ROLE {of_role} IN DATABASE {of_database}"
    return f"ROLE {of_role}" if of_role else f"DATABASE {of_database}" if of_database else "ROLE ALL"


def load_error(error: psycopg.Error, connection: Connection, plugin: str) -> PluginError | None:
    """Return why the server did not load a plug-in; None if the error has another cause.

    Decided by names that no language changes: of the setting, of the server's source files and functions.
    """
    if isinstance(error, psycopg.errors.InsufficientPrivilege) and SETTING in (error.diag.message_hint or ""):
        setting = allowed(connection)
        return PluginError(setting.refusal(plugin), setting.remedy(plugin), setting.statements(plugin))
    if error.diag.source_file != _LOADER and error.diag.source_function != _SYMBOLS:
        return None
    said = (error.diag.message_primary or "").rstrip(".")
    package = f"postgresql-{connection.info.server_version // 10000}" + f"-{plugin}" * (plugin not in _OWN)
    return PluginError(
        f"The server cannot load output plug-in {plugin}: {said}.",
        f"Install its package on the server ({package} of Debian and apt.postgresql.org), without a restart. "
        f"{_BESIDES} A new connector may have plugin.name=pgoutput instead.",
    )

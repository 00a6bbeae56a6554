"""The Dagster component ``wal2lake.dagster.ConnectorComponent``: one connector of a ``defs.yaml``."""

# Dagster resolves the annotations of the component's attributes, so they are not postponed in this file.

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
from dagster.components import (
    ComponentLoadContext,
    DefsStateConfig,
    DefsStateConfigArgs,
    Model,
    Resolvable,
    ResolvedDefsStateConfig,
    Scaffolder,
    ScaffoldRequest,
    StateBackedComponent,
    scaffold_with,
)
from dagster.components.component_scaffolding import scaffold_component
from dagster.components.utils.project_paths import get_local_state_path
from pydantic import BaseModel, Field, PrivateAttr

from cdc_core.config import ConnectorConfig, file_entries, from_entries
from cdc_core.errors import CdcError, ConfigError, TransientError
from cdc_core.schema import TableSchema
from wal2lake.pipelines.connector import catalogue
from wal2lake.pipelines.connector.discovery import SERVER_SECONDS, asked, fill_catalogues
from wal2lake.pipelines.connector.files import site_of
from wal2lake.pipelines.connector.site import Engine, KnownTable, Labels, Site
from wal2lake.pipelines.factory import site_definitions

Value = str | int | float | bool | None

_STATE, _LAKE = "wal2lake.state.path", "wal2lake.lake.path"
_NEEDED = {"database.hostname", "database.user", "database.dbname"}
_log = logging.getLogger(__name__)


class Schedules(Model, Resolvable):
    """When Dagster runs the connector's scheduled jobs. A schedule without a cron expression is stopped."""

    incremental_snapshot: str | None = Field(
        default=None, description="Cron expression of incremental snapshots, such as 0 3 * * 0."
    )
    tables: list[str] | None = Field(
        default=None,
        description="Captured tables that the scheduled snapshot reads, names or patterns; all if not set.",
    )
    timezone: str | None = Field(default=None, description="Time zone of incremental_snapshot; UTC if not set.")
    maintenance: str | None = Field(default=None, description="Cron expression of maintenance, such as 17 2 * * *.")
    reconcile: str | None = Field(
        default=None, description="Cron expression of comparisons with the source, such as 41 3 * * 6."
    )

    def entries(self) -> dict[str, Value]:
        """As properties of a connector file."""
        return {
            "wal2lake.snapshot.schedule": self.incremental_snapshot,
            "wal2lake.snapshot.schedule.tables": _listed(self.tables),
            "wal2lake.snapshot.schedule.timezone": self.timezone,
            "wal2lake.maintenance.schedule": self.maintenance,
            "wal2lake.reconcile.schedule": self.reconcile,
        }


class JobSettings(Model, Resolvable):
    """Settings of Spark of single jobs; they prevail over those of all."""

    stream: dict[str, Value] | None = Field(default=None, description="Of runs that stream.")
    snapshot: dict[str, Value] | None = Field(default=None, description="Of runs that read whole tables.")
    incremental_snapshot: dict[str, Value] | None = Field(default=None, description="Of runs that read ranges.")
    replay: dict[str, Value] | None = Field(default=None, description="Of runs that resume a table.")
    maintenance: dict[str, Value] | None = Field(default=None, description="Of runs of maintenance.")

    def settings(self) -> dict[str, dict[str, str]]:
        """The settings by job."""
        by_job = {name: getattr(self, name) or {} for name in type(self).model_fields}
        return {name: {key: _text(value) for key, value in settings.items()} for name, settings in by_job.items()}


class ConnectorParams(BaseModel):
    """What ``dg scaffold defs wal2lake.dagster.ConnectorComponent NAME`` may be given."""

    hostname: str = Field(default="localhost", description="Host of the PostgreSQL server.")
    port: int = Field(default=5432, description="Port of the server.")
    dbname: str = Field(default="postgres", description="Database to capture.")
    user: str = Field(default="wal2lake", description="Role with REPLICATION, and SELECT on the tables.")
    tables: str = Field(default="public\\..*", description="Tables to capture: regular expressions of schema.table.")
    lake: str = Field(default="lake", description="Folder or URI of the lake.")


class ConnectorScaffolder(Scaffolder[ConnectorParams]):
    """Writes a ``defs.yaml`` that needs the role's password in the environment, and keeps its data out of git."""

    @classmethod
    def get_scaffold_params(cls) -> type[ConnectorParams]:
        """The parameters of the command."""
        return ConnectorParams

    def scaffold(self, request: ScaffoldRequest[ConnectorParams]) -> None:
        """Write the file."""
        params = request.params
        name = re.sub(r"\W", "_", request.target_path.name)
        properties = {
            "topic.prefix": name,
            "plugin.name": "pgoutput",
            "database.hostname": params.hostname,
            "database.port": params.port,
            "database.user": params.user,
            # Not PGPASSWORD, which often is an administrator's.
            "database.password": f"{{{{ env.{name.upper()}_PASSWORD }}}}",
            "database.dbname": params.dbname,
            "slot.name": name,
            "publication.name": name,
            "table.include.list": params.tables,
            _LAKE: params.lake,
            _STATE: f".wal2lake/{name}",
        }
        scaffold_component(request, {"properties": properties})
        if request.project_root is not None:
            _ignore_in_git(request.project_root, [params.lake, ".wal2lake"])


@scaffold_with(ConnectorScaffolder)
class ConnectorComponent(StateBackedComponent, Model, Resolvable):
    """One connector of wal2lake: PostgreSQL tables, their snapshot, their changes and their lake tables as assets.

    Its properties are those of a connector file. The captured tables are state: read from the server by ``dagster dev``
    and ``dg utils refresh-defs-state``, later by the connector's sensor. Definitions load without the server.
    """

    file: str | None = Field(
        default=None, description="A connector file (.properties or .json), relative to the folder of this defs.yaml."
    )
    properties: dict[str, Value] | None = Field(
        default=None,
        description="Properties of the connector, as in a connector file; they prevail over those of the file. Secrets "
        "by {{ env.NAME }}.",
    )
    key_prefix: list[str] | None = Field(
        default=None, description="How the keys of the connector's assets begin; its topic.prefix if not set."
    )
    lake_key_prefix: list[str] | None = Field(
        default=None,
        description="How the keys of lake tables begin, before schema and table; the key prefix and lake if not set.",
    )
    group_name: str | None = Field(
        default=None,
        description="The group of snapshot and changes, and how the groups of sources, lake tables and maintenance "
        "begin (NAME_source, NAME_lake, NAME_maintenance); the topic.prefix if not set.",
    )
    owners: list[str] | None = Field(default=None, description="Owners of the assets: addresses, or team:name.")
    tags: dict[str, str] | None = Field(default=None, description="Tags of the assets.")
    spark_config: dict[str, Value] | None = Field(
        default=None,
        description="Settings of Spark for all runs, such as spark.master; the launchpad's spark_config prevails.",
    )
    job_spark_config: JobSettings | None = Field(
        default=None, description="Settings of Spark of single jobs, such as snapshot: {spark.executor.instances: 8}."
    )
    schedules: Schedules | None = Field(default=None, description="When scheduled jobs run.")
    freshness: dict[str, str] | None = Field(
        default=None,
        description="Freshness policies: regular expressions of schema.table, each with its window (1d) or its windows "
        "of a warning and a failure (15m:1h).",
    )
    checks: dict[str, str] | None = Field(
        default=None,
        description="What failed checks of lake tables mean: merged, great_expectations, each with "
        "warn, error or block.",
    )
    defs_state: ResolvedDefsStateConfig = DefsStateConfigArgs.local_filesystem()

    _folder: Path = PrivateAttr(default=Path())
    _project: Path = PrivateAttr(default=Path())
    _is_loading: bool = PrivateAttr(default=False)
    _kept: tuple[KnownTable, ...] = PrivateAttr(default=())

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where the captured tables are kept."""
        name = (self.properties or {}).get("topic.prefix") or self.file or "connector"
        return DefsStateConfig.from_args(self.defs_state, default_key=f"wal2lake.dagster.ConnectorComponent[{name}]")

    @classmethod
    def load(cls, attributes: BaseModel | None, context: ComponentLoadContext) -> "ConnectorComponent":
        """The component of a ``defs.yaml``; relative paths are relative to its folder and to the project's."""
        loaded: ConnectorComponent = super().load(attributes, context)
        loaded._folder, loaded._project = context.path, context.project_root
        return loaded

    def write_state_to_path(self, state_path: Path) -> None:
        """Write the captured tables as the server has them.

        While definitions load, a server that does not answer in time leaves the tables that were known. Raises
        CdcError if the state is read again on request.
        """
        config = self.config()
        tables = self._asked(config)
        if isinstance(tables, CdcError):
            if not self._is_loading:
                raise tables
            _log.warning("%s: the tables known before are shown. %s", config.connector_name, tables)
            known = catalogue.read(config.state_path) or self._kept
            tables = [table.schema for table in known if table.schema is not None]
        else:
            catalogue.write(config.state_path, tables)
        state_path.parent.mkdir(parents=True, exist_ok=True)
        state_path.write_text(catalogue.text_of(tables), encoding="utf-8")

    def _asked(self, config: ConnectorConfig) -> Sequence[TableSchema] | CdcError:
        """The captured tables as the server has them, or why not."""
        from cdc_core.postgres import answers

        seconds = SERVER_SECONDS if self._is_loading else None
        (is_there,) = asked([lambda: answers(config.postgres)], seconds)
        if self._is_loading and is_there is not True and not self._missing():
            return TransientError(f"The server at {config.postgres.database_hostname} does not answer.")
        import cdc_core.assemble  # noqa: F401  (it takes longer than a server, and its time is not the server's)

        (tables,) = asked([lambda: self.engine().tables()], seconds)
        return tables

    def build_defs(self, context: ComponentLoadContext) -> dg.Definitions:
        """The definitions, after the state was read again where Dagster does so (``dagster dev``, ``dg``)."""
        self._folder, self._project = context.path, context.project_root
        # Dagster removes the local state before it is written again.
        self._kept = catalogue.read_file(get_local_state_path(self.defs_state_config.key, context.project_root))
        self._is_loading = True
        try:
            return super().build_defs(context)
        finally:
            self._is_loading = False

    def build_defs_from_state(self, context: ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """The definitions with the tables of the connector's own catalogue, else of the state, else by their names."""
        return site_definitions([self.site(state_path)])

    def config(self) -> ConnectorConfig:
        """The configuration: the file's properties, then ``properties``, then the other attributes.

        Properties without a value, such as a secret whose variable is not set, are left out, and those that a connector
        needs are a word: the definitions load, and ``engine`` raises. Raises ConfigError.
        """
        entries: dict[str, Value] = {}
        if self.file is not None:
            entries |= dict(file_entries(self._folder / self.file))
        entries |= dict.fromkeys(_NEEDED & set(self._missing()), "unset")
        entries |= {name: value for name, value in self._given().items() if value is not None}
        name = entries.get("topic.prefix") or "connector"
        entries[_STATE] = self._place(entries.get(_STATE) or f".wal2lake/{name}")
        if entries.get(_LAKE):
            entries[_LAKE] = self._place(entries[_LAKE])
        texts = [(name, _text(value)) for name, value in entries.items()]
        return from_entries(texts, f"{self._folder / 'defs.yaml'}")

    def engine(self) -> Engine:
        """The engine, with the configuration of now. Raises ConfigError, also for properties without a value."""
        from cdc_core.assemble import Connector

        if self._missing():
            raise ConfigError(
                f"{self._folder / 'defs.yaml'}: no value for {', '.join(self._missing())}.",
                "Set the environment variables that they refer to.",
            )
        return Connector.of_runs(self.config())

    def site(self, state_path: Path | None) -> Site:
        """The connector as its definitions need it."""
        config = self.config()
        file = self._folder / self.file if self.file is not None else None
        if state_path is None and not self._missing():
            fill_catalogues([(config, lambda: self.engine().tables())])
        made = site_of(config, file, self.engine)
        tables = catalogue.read(config.state_path)
        if not tables and state_path is not None:
            tables = catalogue.read_file(state_path)
        labels = Labels(tuple(self.key_prefix or ()), tuple(self.lake_key_prefix or ()), self.group_name or "")
        by_job = self.job_spark_config.settings() if self.job_spark_config is not None else {}
        return replace(made, labels=labels, tables=tables or made.tables, job_spark_settings=by_job)

    def _missing(self) -> list[str]:
        return [name for name, value in (self.properties or {}).items() if value is None]

    def _given(self) -> dict[str, Value]:
        own: dict[str, Value] = {
            "wal2lake.dagster.owners": _listed(self.owners),
            "wal2lake.dagster.tags": _paired(self.tags),
            "wal2lake.dagster.freshness": _paired(self.freshness),
            "wal2lake.dagster.checks": _paired(self.checks),
        }
        own |= {f"wal2lake.spark.{name}": value for name, value in (self.spark_config or {}).items()}
        own |= self.schedules.entries() if self.schedules is not None else {}
        return {**(self.properties or {}), **{name: value for name, value in own.items() if value not in (None, "")}}

    def _place(self, text: Value) -> str:
        """A path as it is if it is absolute or a URI, else in the project's folder."""
        path = str(text)
        return path if "://" in path or Path(path).is_absolute() else str(self._project / path)


def _ignore_in_git(project: Path, folders: Sequence[str]) -> None:
    """Add those of the folders that are in the project to its .gitignore."""
    file = project / ".gitignore"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    relative = [folder for folder in folders if "://" not in folder and not Path(folder).is_absolute()]
    lines = [line for folder in relative if (line := f"/{folder.strip('/')}/") not in text.splitlines()]
    if lines:
        file.write_text("\n".join([*text.splitlines(), *lines, ""]), encoding="utf-8")


def _listed(values: Sequence[str] | None) -> str | None:
    return ",".join(values) if values else None


def _paired(values: Mapping[str, str] | None) -> str | None:
    return ",".join(f"{name}={value}" for name, value in values.items()) if values else None


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Access to PostgreSQL servers; the only package that imports psycopg.

Connections  ``PostgresOptions`` are the settings (``InProgress``, ``LsnFlushMode``, ``OffsetStrategy``,
             ``OutputPlugin``, ``PublicationAutocreateMode``, ``IdentityRule``). ``connect`` opens a ``Connection``;
             ``connection_string`` makes a picklable ``ConnectionString`` for tasks, ``place`` names a server in
             messages, ``answers`` says whether it accepts connections. ``Sessions`` and ``SessionFile`` end what a
             killed process left. ``translated`` and ``known_error`` make our errors of the server's.
             ``HeartbeatAction`` runs heartbeat.action.query.
Source       ``Source`` is one connector's server, opened for a run: claim, publication and slot. ``is_claimed`` says
             whether a run has it. ``slot``, ``publication`` and ``plugin`` are modules of functions about these
             (``SlotInfo``).
Catalogue    ``Catalog`` describes tables (``ResolvedRelation``, ``TableSize``, ``Leaf``, ``KeyBounds``,
             ``range_condition``); ``DescribeNow`` does so inside a task. ``concerned_tables`` names tables that a
             known fault of the server concerns (``ConcernedTable``, ``OUTDATED_CATALOGUE``). ``doubtful_columns`` and
             ``sample_misfits`` look for numerics that do not fit.
Stream       ``ReplicationStream`` receives messages and confirms positions; ``peek`` reads the slot without moving it.
             ``StreamFacts`` and ``stream_facts`` identify the history that a server has; ``wal_end`` is a
             position, up to which ``request_flush`` has WAL written to disk.
Rows         ``OpenSnapshot`` is an exported snapshot, which a ``SnapshotHolder`` keeps and a ``SnapshotReader`` reads
             under; ``copy_chunks``, ``own_rows_sql``, ``select_from`` and ``select_sql`` are its statements.
             ``ChunkConnection`` reads chunks by key, by ``chunk_sql``, ``own_chunk_sql``, ``keys_sql``, ``bounds_sql``
             and ``largest_key_sql`` (``KeyColumn``); ``ReadTogether`` is what one snapshot read,
             ``received_visibility`` parses what it shows.
Check        ``run_checks`` runs each ``Check`` of `wal2lake check` in a ``Context``; a ``Finding`` is ``good``,
             ``doubtful`` or ``bad``. ``script``, ``uncorrected``, ``left_out`` and ``is_unreached`` print corrections.

A connection belongs to one thread. Nothing is written to the source but slots, publications, replica identities,
heartbeats and signals, as configured. A position is confirmed only by ``ReplicationStream``, and only when its caller
says so. Errors name the server and the remedy, never a password.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.postgres.catalog.describe_now import DescribeNow as DescribeNow
    from cdc_core.postgres.catalog.key_bounds import KeyBounds as KeyBounds
    from cdc_core.postgres.catalog.key_bounds import range_condition as range_condition
    from cdc_core.postgres.catalog.leaves import Leaf as Leaf
    from cdc_core.postgres.catalog.tables import Catalog as Catalog
    from cdc_core.postgres.catalog.tables import ResolvedRelation as ResolvedRelation
    from cdc_core.postgres.catalog.tables import TableSize as TableSize
    from cdc_core.postgres.connection import Connection as Connection
    from cdc_core.postgres.connection import ConnectionString as ConnectionString
    from cdc_core.postgres.connection import answers as answers
    from cdc_core.postgres.connection import connect as connect
    from cdc_core.postgres.connection import connection_string as connection_string
    from cdc_core.postgres.connection import place as place
    from cdc_core.postgres.heartbeat import HeartbeatAction as HeartbeatAction
    from cdc_core.postgres.known_faults import OUTDATED_CATALOGUE as OUTDATED_CATALOGUE
    from cdc_core.postgres.known_faults import ConcernedTable as ConcernedTable
    from cdc_core.postgres.known_faults import concerned_tables as concerned_tables
    from cdc_core.postgres.options import IdentityRule as IdentityRule
    from cdc_core.postgres.options import InProgress as InProgress
    from cdc_core.postgres.options import LsnFlushMode as LsnFlushMode
    from cdc_core.postgres.options import OffsetStrategy as OffsetStrategy
    from cdc_core.postgres.options import OutputPlugin as OutputPlugin
    from cdc_core.postgres.options import PostgresOptions as PostgresOptions
    from cdc_core.postgres.options import PublicationAutocreateMode as PublicationAutocreateMode
    from cdc_core.postgres.preflight.check import Check as Check
    from cdc_core.postgres.preflight.check import run_checks as run_checks
    from cdc_core.postgres.preflight.context import Context as Context
    from cdc_core.postgres.preflight.finding import Finding as Finding
    from cdc_core.postgres.preflight.finding import bad as bad
    from cdc_core.postgres.preflight.finding import doubtful as doubtful
    from cdc_core.postgres.preflight.finding import good as good
    from cdc_core.postgres.preflight.script import is_unreached as is_unreached
    from cdc_core.postgres.preflight.script import left_out as left_out
    from cdc_core.postgres.preflight.script import script as script
    from cdc_core.postgres.preflight.script import uncorrected as uncorrected
    from cdc_core.postgres.replication import plugin as plugin
    from cdc_core.postgres.replication import publication as publication
    from cdc_core.postgres.replication import slot as slot
    from cdc_core.postgres.replication.peek import peek as peek
    from cdc_core.postgres.replication.slot import SlotInfo as SlotInfo
    from cdc_core.postgres.replication.stream import ReplicationStream as ReplicationStream
    from cdc_core.postgres.replication.stream_identity import StreamFacts as StreamFacts
    from cdc_core.postgres.replication.stream_identity import stream_facts as stream_facts
    from cdc_core.postgres.rows.chunk_sql import KeyColumn as KeyColumn
    from cdc_core.postgres.rows.chunk_sql import bounds_sql as bounds_sql
    from cdc_core.postgres.rows.chunk_sql import chunk_sql as chunk_sql
    from cdc_core.postgres.rows.chunk_sql import keys_sql as keys_sql
    from cdc_core.postgres.rows.chunk_sql import largest_key_sql as largest_key_sql
    from cdc_core.postgres.rows.chunk_sql import own_chunk_sql as own_chunk_sql
    from cdc_core.postgres.rows.chunks import ChunkConnection as ChunkConnection
    from cdc_core.postgres.rows.chunks import ReadTogether as ReadTogether
    from cdc_core.postgres.rows.chunks import received_visibility as received_visibility
    from cdc_core.postgres.rows.copy_out import SnapshotHolder as SnapshotHolder
    from cdc_core.postgres.rows.copy_out import SnapshotReader as SnapshotReader
    from cdc_core.postgres.rows.copy_out import copy_chunks as copy_chunks
    from cdc_core.postgres.rows.copy_out import own_rows_sql as own_rows_sql
    from cdc_core.postgres.rows.copy_out import select_from as select_from
    from cdc_core.postgres.rows.copy_out import select_sql as select_sql
    from cdc_core.postgres.rows.numeric_samples import doubtful_columns as doubtful_columns
    from cdc_core.postgres.rows.numeric_samples import sample_misfits as sample_misfits
    from cdc_core.postgres.server import request_flush as request_flush
    from cdc_core.postgres.server import wal_end as wal_end
    from cdc_core.postgres.sessions import SessionFile as SessionFile
    from cdc_core.postgres.sessions import Sessions as Sessions
    from cdc_core.postgres.source import OpenSnapshot as OpenSnapshot
    from cdc_core.postgres.source import Source as Source
    from cdc_core.postgres.source import is_claimed as is_claimed
    from cdc_core.postgres.sqlstate import known_error as known_error
    from cdc_core.postgres.sqlstate import translated as translated

lazily(
    __name__,
    {
        "Catalog": "catalog.tables",
        "Check": "preflight.check",
        "ChunkConnection": "rows.chunks",
        "ConcernedTable": "known_faults",
        "Connection": "connection",
        "ConnectionString": "connection",
        "Context": "preflight.context",
        "DescribeNow": "catalog.describe_now",
        "Finding": "preflight.finding",
        "HeartbeatAction": "heartbeat",
        "IdentityRule": "options",
        "InProgress": "options",
        "KeyBounds": "catalog.key_bounds",
        "KeyColumn": "rows.chunk_sql",
        "Leaf": "catalog.leaves",
        "LsnFlushMode": "options",
        "OUTDATED_CATALOGUE": "known_faults",
        "OffsetStrategy": "options",
        "OpenSnapshot": "source",
        "OutputPlugin": "options",
        "PostgresOptions": "options",
        "PublicationAutocreateMode": "options",
        "ReadTogether": "rows.chunks",
        "ReplicationStream": "replication.stream",
        "ResolvedRelation": "catalog.tables",
        "SessionFile": "sessions",
        "Sessions": "sessions",
        "SlotInfo": "replication.slot",
        "SnapshotHolder": "rows.copy_out",
        "SnapshotReader": "rows.copy_out",
        "Source": "source",
        "StreamFacts": "replication.stream_identity",
        "TableSize": "catalog.tables",
        "answers": "connection",
        "bad": "preflight.finding",
        "bounds_sql": "rows.chunk_sql",
        "chunk_sql": "rows.chunk_sql",
        "concerned_tables": "known_faults",
        "connect": "connection",
        "connection_string": "connection",
        "copy_chunks": "rows.copy_out",
        "doubtful": "preflight.finding",
        "doubtful_columns": "rows.numeric_samples",
        "good": "preflight.finding",
        "is_claimed": "source",
        "is_unreached": "preflight.script",
        "keys_sql": "rows.chunk_sql",
        "known_error": "sqlstate",
        "largest_key_sql": "rows.chunk_sql",
        "left_out": "preflight.script",
        "own_chunk_sql": "rows.chunk_sql",
        "own_rows_sql": "rows.copy_out",
        "peek": "replication.peek",
        "place": "connection",
        "plugin": "replication.plugin",
        "publication": "replication.publication",
        "range_condition": "catalog.key_bounds",
        "received_visibility": "rows.chunks",
        "request_flush": "server",
        "run_checks": "preflight.check",
        "sample_misfits": "rows.numeric_samples",
        "script": "preflight.script",
        "select_from": "rows.copy_out",
        "select_sql": "rows.copy_out",
        "slot": "replication.slot",
        "stream_facts": "replication.stream_identity",
        "translated": "sqlstate",
        "uncorrected": "preflight.script",
        "wal_end": "server",
    },
)

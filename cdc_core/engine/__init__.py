"""Control flow: slot ─▶ micro-batches ─▶ rounds; what is durable, what is confirmed, what follows from a change of the
source.

Reports   ``Until`` bounds a run. ``StreamReport``, ``RoundReport``, ``MergeReport``, ``BatchReport``, ``ReplayReport``
          and ``LakeJudgement`` are results; ``Status``, ``TableStatus``, ``OwnTableStatus``, ``StreamStatus``,
          and ``KafkaStatus`` say how a connector is, by ``with_lake_status``, ``source_rows``,
          ``waiting_in_quarantine`` and ``paused_now``; ``SlotBacklog`` how far its slot is behind. ``RENEWAL`` is a
          reason for an end. ``WaitingRun``, ``WaitingFile``, ``ReachedFile``, ``RereadsFile`` and
          ``state_file`` are what other processes see of a run.
Reading   ``open_reader`` returns what receives a slot in batches (``WaitingChanges``), sorted by a ``SegmentSorter``
          (``Tap``, ``OwnRows``). ``TableRegistry`` describes relations; ``DeliveredFilter``, ``DeliveredPlace`` and
          ``place_of`` leave out what another connector delivered; ``Seen`` and ``IdleEnd`` tell how far the stream is.
          ``BrokenStreamError`` says that it cannot continue.
Start     ``ConnectorLake`` is the lake of one connector. ``RecordedStream`` and ``UnrecordedStream`` prove that a
          stream continues what a lake has: ``Continuity``, ``expect_server``, ``Handover``, ``Proved``,
          ``LakeTakeover``, ``end_of_lake``. ``require_read``, ``require_rules``, ``misfits``, ``concerned``
          and ``judge_table`` are about single tables; ``table_findings``, ``lake_finding``,
          ``folder_finding`` and ``java_finding`` are what ``check`` says.
Stream    ``StreamRun`` hands batches to a ``Sink`` and confirms (``Confirmations``, ``Hooks``, ``Meter``,
          ``connected``). A ``LakeSink`` (``open_lake_sink``) merges them, ``NoopSink`` discards them; ``with_signals``
          (``SignalParts``) and ``SinkBesideEvents`` add signals and events, as an ``OpenedSink``. Other processes send
          requests by ``ask_stream`` (``snapshot_of``); ``Backoff`` and ``is_retried`` decide what follows from an
          error; ``needing_sender``, ``note_sender`` and ``with_new_senders`` begin a stream anew.
Backfill  ``TableSnapshots`` reads whole tables: what a start requires (``read_required``), what is named
          (``read_named``). ``plan_ranges`` and ``read_ranges`` read tables in ranges
          (``JobCallbacks``). ``replayed`` and ``require_replayable`` are for a table that is merged again.
Files     ``EngineOptions``; ``RunFolder``, ``spark_scratch`` and ``scratch_of_command`` are temporary files of a run.

A position is confirmed only after every row before it is durable; each commit contains its own position, so a run may
be killed at any point and continued. One run at a time has a slot and a lake; its objects belong to its thread, but for
the reader's own.

Not behind this door: what a lake table holds and how it is written (``cdc_core.lake``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.engine.backfill.range_job import JobCallbacks as JobCallbacks
    from cdc_core.engine.backfill.range_job import plan_ranges as plan_ranges
    from cdc_core.engine.backfill.range_job import read_ranges as read_ranges
    from cdc_core.engine.backfill.table_reads import read_named as read_named
    from cdc_core.engine.backfill.table_reads import read_required as read_required
    from cdc_core.engine.backfill.table_snapshots import TableSnapshots as TableSnapshots
    from cdc_core.engine.connector_lake import ConnectorLake as ConnectorLake
    from cdc_core.engine.connector_status import waiting_in_quarantine as waiting_in_quarantine
    from cdc_core.engine.connector_status import with_lake_status as with_lake_status
    from cdc_core.engine.options import EngineOptions as EngineOptions
    from cdc_core.engine.reading.continuity import BrokenStreamError as BrokenStreamError
    from cdc_core.engine.reading.delivered import DeliveredFilter as DeliveredFilter
    from cdc_core.engine.reading.delivered import DeliveredPlace as DeliveredPlace
    from cdc_core.engine.reading.delivered import place_of as place_of
    from cdc_core.engine.reading.idle import IdleEnd as IdleEnd
    from cdc_core.engine.reading.own_rows import OwnRows as OwnRows
    from cdc_core.engine.reading.seen import Seen as Seen
    from cdc_core.engine.reading.segment_sorter import SegmentSorter as SegmentSorter
    from cdc_core.engine.reading.segment_sorter import Tap as Tap
    from cdc_core.engine.reading.slot_reader import WaitingChanges as WaitingChanges
    from cdc_core.engine.reading.tables import TableRegistry as TableRegistry
    from cdc_core.engine.reports import RENEWAL as RENEWAL
    from cdc_core.engine.reports import BatchReport as BatchReport
    from cdc_core.engine.reports import KafkaStatus as KafkaStatus
    from cdc_core.engine.reports import LakeJudgement as LakeJudgement
    from cdc_core.engine.reports import MergeReport as MergeReport
    from cdc_core.engine.reports import OwnTableStatus as OwnTableStatus
    from cdc_core.engine.reports import ReplayReport as ReplayReport
    from cdc_core.engine.reports import RoundReport as RoundReport
    from cdc_core.engine.reports import SlotBacklog as SlotBacklog
    from cdc_core.engine.reports import Status as Status
    from cdc_core.engine.reports import StreamReport as StreamReport
    from cdc_core.engine.reports import StreamStatus as StreamStatus
    from cdc_core.engine.reports import TableStatus as TableStatus
    from cdc_core.engine.reports import Until as Until
    from cdc_core.engine.round.lake_sink import LakeSink as LakeSink
    from cdc_core.engine.round.opening import open_lake_sink as open_lake_sink
    from cdc_core.engine.round.replays import replayed as replayed
    from cdc_core.engine.round.replays import require_replayable as require_replayable
    from cdc_core.engine.run_folder import RunFolder as RunFolder
    from cdc_core.engine.run_state import ReachedFile as ReachedFile
    from cdc_core.engine.run_state import RereadsFile as RereadsFile
    from cdc_core.engine.run_state import WaitingFile as WaitingFile
    from cdc_core.engine.run_state import WaitingRun as WaitingRun
    from cdc_core.engine.run_state import state_file as state_file
    from cdc_core.engine.scratch import scratch_of_command as scratch_of_command
    from cdc_core.engine.scratch import spark_scratch as spark_scratch
    from cdc_core.engine.start.continuity import Continuity as Continuity
    from cdc_core.engine.start.findings import table_findings as table_findings
    from cdc_core.engine.start.handover import Handover as Handover
    from cdc_core.engine.start.handover import Proved as Proved
    from cdc_core.engine.start.held import require_read as require_read
    from cdc_core.engine.start.misfits import concerned as concerned
    from cdc_core.engine.start.misfits import misfits as misfits
    from cdc_core.engine.start.places import folder_finding as folder_finding
    from cdc_core.engine.start.places import java_finding as java_finding
    from cdc_core.engine.start.places import lake_finding as lake_finding
    from cdc_core.engine.start.recorded_stream import RecordedStream as RecordedStream
    from cdc_core.engine.start.recorded_stream import UnrecordedStream as UnrecordedStream
    from cdc_core.engine.start.recorded_stream import expect_server as expect_server
    from cdc_core.engine.start.rules import judge_table as judge_table
    from cdc_core.engine.start.rules import require_rules as require_rules
    from cdc_core.engine.start.takeover import LakeTakeover as LakeTakeover
    from cdc_core.engine.start.takeover import end_of_lake as end_of_lake
    from cdc_core.engine.status import paused_now as paused_now
    from cdc_core.engine.status import source_rows as source_rows
    from cdc_core.engine.stream.ask import ask_stream as ask_stream
    from cdc_core.engine.stream.ask import snapshot_of as snapshot_of
    from cdc_core.engine.stream.beside import SinkBesideEvents as SinkBesideEvents
    from cdc_core.engine.stream.confirmations import Confirmations as Confirmations
    from cdc_core.engine.stream.meter import Meter as Meter
    from cdc_core.engine.stream.meter import connected as connected
    from cdc_core.engine.stream.noop import NoopSink as NoopSink
    from cdc_core.engine.stream.opening import SignalParts as SignalParts
    from cdc_core.engine.stream.opening import open_reader as open_reader
    from cdc_core.engine.stream.opening import with_signals as with_signals
    from cdc_core.engine.stream.recovery import Backoff as Backoff
    from cdc_core.engine.stream.recovery import is_retried as is_retried
    from cdc_core.engine.stream.renewed import needing_sender as needing_sender
    from cdc_core.engine.stream.renewed import note_sender as note_sender
    from cdc_core.engine.stream.renewed import with_new_senders as with_new_senders
    from cdc_core.engine.stream.run import Hooks as Hooks
    from cdc_core.engine.stream.run import OpenedSink as OpenedSink
    from cdc_core.engine.stream.run import Sink as Sink
    from cdc_core.engine.stream.run import StreamRun as StreamRun

lazily(
    __name__,
    {
        "Backoff": "stream.recovery",
        "BatchReport": "reports",
        "BrokenStreamError": "reading.continuity",
        "Confirmations": "stream.confirmations",
        "ConnectorLake": "connector_lake",
        "Continuity": "start.continuity",
        "DeliveredFilter": "reading.delivered",
        "DeliveredPlace": "reading.delivered",
        "EngineOptions": "options",
        "Handover": "start.handover",
        "Hooks": "stream.run",
        "IdleEnd": "reading.idle",
        "JobCallbacks": "backfill.range_job",
        "KafkaStatus": "reports",
        "LakeJudgement": "reports",
        "LakeSink": "round.lake_sink",
        "LakeTakeover": "start.takeover",
        "MergeReport": "reports",
        "Meter": "stream.meter",
        "NoopSink": "stream.noop",
        "OpenedSink": "stream.run",
        "OwnRows": "reading.own_rows",
        "OwnTableStatus": "reports",
        "Proved": "start.handover",
        "RENEWAL": "reports",
        "ReachedFile": "run_state",
        "RecordedStream": "start.recorded_stream",
        "ReplayReport": "reports",
        "RereadsFile": "run_state",
        "RoundReport": "reports",
        "RunFolder": "run_folder",
        "Seen": "reading.seen",
        "SegmentSorter": "reading.segment_sorter",
        "SignalParts": "stream.opening",
        "Sink": "stream.run",
        "SinkBesideEvents": "stream.beside",
        "SlotBacklog": "reports",
        "Status": "reports",
        "StreamReport": "reports",
        "StreamRun": "stream.run",
        "StreamStatus": "reports",
        "TableRegistry": "reading.tables",
        "TableSnapshots": "backfill.table_snapshots",
        "TableStatus": "reports",
        "Tap": "reading.segment_sorter",
        "UnrecordedStream": "start.recorded_stream",
        "Until": "reports",
        "WaitingChanges": "reading.slot_reader",
        "WaitingFile": "run_state",
        "WaitingRun": "run_state",
        "ask_stream": "stream.ask",
        "concerned": "start.misfits",
        "connected": "stream.meter",
        "end_of_lake": "start.takeover",
        "expect_server": "start.recorded_stream",
        "folder_finding": "start.places",
        "is_retried": "stream.recovery",
        "java_finding": "start.places",
        "judge_table": "start.rules",
        "lake_finding": "start.places",
        "misfits": "start.misfits",
        "needing_sender": "stream.renewed",
        "note_sender": "stream.renewed",
        "open_lake_sink": "round.opening",
        "open_reader": "stream.opening",
        "paused_now": "status",
        "place_of": "reading.delivered",
        "plan_ranges": "backfill.range_job",
        "read_named": "backfill.table_reads",
        "read_ranges": "backfill.range_job",
        "read_required": "backfill.table_reads",
        "replayed": "round.replays",
        "require_read": "start.held",
        "require_replayable": "round.replays",
        "require_rules": "start.rules",
        "scratch_of_command": "scratch",
        "snapshot_of": "stream.ask",
        "source_rows": "status",
        "spark_scratch": "scratch",
        "state_file": "run_state",
        "table_findings": "start.findings",
        "waiting_in_quarantine": "connector_status",
        "with_lake_status": "connector_status",
        "with_new_senders": "stream.renewed",
        "with_signals": "stream.opening",
    },
)

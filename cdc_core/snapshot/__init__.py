"""Snapshots: which ranges of which tables are read, when, and what they show.

Settings       ``SnapshotOptions`` and ``SignalOptions``. ``mode_actions`` says what a mode does
               (``ModeActions``); ``Snapshotter`` is the protocol of a custom one.
Whole tables   ``SnapshotRun`` reads tables into the lake under one exported snapshot (``SnapshotSettings``);
               ``Rereads`` reads tables again while a stream continues (``Reread``). ``in_reading_order`` is
               the order of what is read; ``lock_tables`` locks tables.
               ``SnapshotReport``, ``SnapshotProgress`` and ``OnProgress`` report. ``TableSelects`` are the statements
               that read a table for a comparison.
Unsent         ``UnsentChanges`` decides which tables cannot be read yet, because the stream may lack earlier changes;
               ``SenderRenewal`` begins the stream anew where the server needs it.
Incremental    ``RangeReads`` reads ranges of keys in Spark tasks and stages them (``RangeReader``,
               ``RangeToRead``, ``RangeRead``, ``Planned``); ``StagedRange`` and ``RangeFacts`` are what is staged,
               ``LakeProgress`` what is stored of it (``Request``, ``Search``, ``Discarded``).
               ``SnapshotQueue`` has what is requested (``Collection``). ``IncrementalSnapshots`` reads chunks into a
               stream of records (``ChunkReader``, ``ChunkWindow``, ``Watermarks``, ``Progress``). ``columns_of``
               are those that are read of a chunk; ``is_unaltered`` compares descriptions.
               ``IncrementalProgress``, ``RangeReport`` and ``KeyRange`` report.
Signals        ``SignalProcessor`` obeys a ``Signal``, such as ``REREAD_TABLE`` or ``REPLAY_TABLE``; a
               ``SignalToSend`` (``SnapshotKind``) is checked before it is sent. ``read_line`` and ``signal_rows``
               parse them (``SignalRow``, ``MalformedSignalError``). ``Channel``, ``FileChannel``, ``Forwarding`` and
               ``Inbox`` receive them, ``append_signal`` and ``withdraw_signal`` write a file's. ``SignalAction`` is the
               protocol of a user's own, ``load_actions`` loads them. ``signal_table`` finds the table of the source.
Notifications  ``Notifier`` sends a ``Notification`` (``SnapshotStatus``, ``ScanStatus``) to ``OnNotification`` and a
               table, as ``opened_notifier`` says; ``notify_of_snapshot`` those of a whole snapshot.

What is read is visible only after a commit of the lake, which contains the position that it shows; anything may be read
again. A processor, a queue and a window belong to one thread; a notifier may be used by any.

Not behind this door: statements (``cdc_core.postgres``), and how rows enter a table (``cdc_core.lake``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.snapshot.copy.plan import in_reading_order as in_reading_order
    from cdc_core.snapshot.copy.run import SnapshotRun as SnapshotRun
    from cdc_core.snapshot.copy.selects import TableSelects as TableSelects
    from cdc_core.snapshot.copy.settings import SnapshotSettings as SnapshotSettings
    from cdc_core.snapshot.incremental.chunk import columns_of as columns_of
    from cdc_core.snapshot.incremental.lake_progress import Discarded as Discarded
    from cdc_core.snapshot.incremental.lake_progress import LakeProgress as LakeProgress
    from cdc_core.snapshot.incremental.lake_progress import Request as Request
    from cdc_core.snapshot.incremental.lake_progress import Search as Search
    from cdc_core.snapshot.incremental.progress import Collection as Collection
    from cdc_core.snapshot.incremental.progress import Progress as Progress
    from cdc_core.snapshot.incremental.queue import SnapshotQueue as SnapshotQueue
    from cdc_core.snapshot.incremental.range_reads import Planned as Planned
    from cdc_core.snapshot.incremental.range_reads import RangeRead as RangeRead
    from cdc_core.snapshot.incremental.range_reads import RangeReader as RangeReader
    from cdc_core.snapshot.incremental.range_reads import RangeReads as RangeReads
    from cdc_core.snapshot.incremental.reader import ChunkReader as ChunkReader
    from cdc_core.snapshot.incremental.reports import IncrementalProgress as IncrementalProgress
    from cdc_core.snapshot.incremental.reports import KeyRange as KeyRange
    from cdc_core.snapshot.incremental.reports import RangeReport as RangeReport
    from cdc_core.snapshot.incremental.snapshots import IncrementalSnapshots as IncrementalSnapshots
    from cdc_core.snapshot.incremental.snapshots import Watermarks as Watermarks
    from cdc_core.snapshot.incremental.staged import RangeFacts as RangeFacts
    from cdc_core.snapshot.incremental.staged import RangeToRead as RangeToRead
    from cdc_core.snapshot.incremental.staged import StagedRange as StagedRange
    from cdc_core.snapshot.incremental.window import ChunkWindow as ChunkWindow
    from cdc_core.snapshot.incremental.window import is_unaltered as is_unaltered
    from cdc_core.snapshot.locks import lock_tables as lock_tables
    from cdc_core.snapshot.modes import ModeActions as ModeActions
    from cdc_core.snapshot.modes import mode_actions as mode_actions
    from cdc_core.snapshot.notification_table import opened_notifier as opened_notifier
    from cdc_core.snapshot.notifications import Notification as Notification
    from cdc_core.snapshot.notifications import Notifier as Notifier
    from cdc_core.snapshot.notifications import OnNotification as OnNotification
    from cdc_core.snapshot.notifications import ScanStatus as ScanStatus
    from cdc_core.snapshot.notifications import SnapshotStatus as SnapshotStatus
    from cdc_core.snapshot.notifications import notify_of_snapshot as notify_of_snapshot
    from cdc_core.snapshot.options import SnapshotOptions as SnapshotOptions
    from cdc_core.snapshot.reports import OnProgress as OnProgress
    from cdc_core.snapshot.reports import SnapshotProgress as SnapshotProgress
    from cdc_core.snapshot.reports import SnapshotReport as SnapshotReport
    from cdc_core.snapshot.reread import Reread as Reread
    from cdc_core.snapshot.reread import Rereads as Rereads
    from cdc_core.snapshot.sender_renewal import SenderRenewal as SenderRenewal
    from cdc_core.snapshot.signals.actions import SignalAction as SignalAction
    from cdc_core.snapshot.signals.actions import load_actions as load_actions
    from cdc_core.snapshot.signals.channels import Channel as Channel
    from cdc_core.snapshot.signals.channels import FileChannel as FileChannel
    from cdc_core.snapshot.signals.channels import Forwarding as Forwarding
    from cdc_core.snapshot.signals.channels import Inbox as Inbox
    from cdc_core.snapshot.signals.channels import append_signal as append_signal
    from cdc_core.snapshot.signals.channels import withdraw_signal as withdraw_signal
    from cdc_core.snapshot.signals.options import SignalOptions as SignalOptions
    from cdc_core.snapshot.signals.parse import REPLAY_TABLE as REPLAY_TABLE
    from cdc_core.snapshot.signals.parse import REREAD_TABLE as REREAD_TABLE
    from cdc_core.snapshot.signals.parse import MalformedSignalError as MalformedSignalError
    from cdc_core.snapshot.signals.parse import Signal as Signal
    from cdc_core.snapshot.signals.parse import SnapshotKind as SnapshotKind
    from cdc_core.snapshot.signals.parse import read_line as read_line
    from cdc_core.snapshot.signals.processor import SignalProcessor as SignalProcessor
    from cdc_core.snapshot.signals.rows import SignalRow as SignalRow
    from cdc_core.snapshot.signals.rows import signal_rows as signal_rows
    from cdc_core.snapshot.signals.sending import SignalToSend as SignalToSend
    from cdc_core.snapshot.signals.source_table import signal_table as signal_table
    from cdc_core.snapshot.snapshotter import Snapshotter as Snapshotter
    from cdc_core.snapshot.unsent import UnsentChanges as UnsentChanges

lazily(
    __name__,
    {
        "Channel": "signals.channels",
        "ChunkReader": "incremental.reader",
        "ChunkWindow": "incremental.window",
        "Collection": "incremental.progress",
        "Discarded": "incremental.lake_progress",
        "FileChannel": "signals.channels",
        "Forwarding": "signals.channels",
        "Inbox": "signals.channels",
        "IncrementalProgress": "incremental.reports",
        "IncrementalSnapshots": "incremental.snapshots",
        "KeyRange": "incremental.reports",
        "LakeProgress": "incremental.lake_progress",
        "MalformedSignalError": "signals.parse",
        "ModeActions": "modes",
        "Notification": "notifications",
        "Notifier": "notifications",
        "OnNotification": "notifications",
        "OnProgress": "reports",
        "Planned": "incremental.range_reads",
        "Progress": "incremental.progress",
        "REPLAY_TABLE": "signals.parse",
        "REREAD_TABLE": "signals.parse",
        "RangeFacts": "incremental.staged",
        "RangeRead": "incremental.range_reads",
        "RangeReader": "incremental.range_reads",
        "RangeReads": "incremental.range_reads",
        "RangeReport": "incremental.reports",
        "RangeToRead": "incremental.staged",
        "Request": "incremental.lake_progress",
        "Reread": "reread",
        "Rereads": "reread",
        "ScanStatus": "notifications",
        "Search": "incremental.lake_progress",
        "SenderRenewal": "sender_renewal",
        "Signal": "signals.parse",
        "SignalAction": "signals.actions",
        "SignalOptions": "signals.options",
        "SignalProcessor": "signals.processor",
        "SignalRow": "signals.rows",
        "SignalToSend": "signals.sending",
        "SnapshotKind": "signals.parse",
        "SnapshotOptions": "options",
        "SnapshotProgress": "reports",
        "SnapshotQueue": "incremental.queue",
        "SnapshotReport": "reports",
        "SnapshotRun": "copy.run",
        "SnapshotSettings": "copy.settings",
        "SnapshotStatus": "notifications",
        "Snapshotter": "snapshotter",
        "StagedRange": "incremental.staged",
        "TableSelects": "copy.selects",
        "UnsentChanges": "unsent",
        "Watermarks": "incremental.snapshots",
        "append_signal": "signals.channels",
        "columns_of": "incremental.chunk",
        "in_reading_order": "copy.plan",
        "is_unaltered": "incremental.window",
        "load_actions": "signals.actions",
        "lock_tables": "locks",
        "mode_actions": "modes",
        "notify_of_snapshot": "notifications",
        "opened_notifier": "notification_table",
        "read_line": "signals.parse",
        "signal_rows": "signals.rows",
        "signal_table": "signals.source_table",
        "withdraw_signal": "signals.channels",
    },
)

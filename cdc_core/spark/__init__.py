"""Spark: one session for each process, and plain Python functions run in its tasks.

Session    ``get_context`` starts or returns the context, ``get_session`` the session, ``start_workers`` the Python
           workers. ``SessionStart`` starts a session in the background; ``Session``, ``StartSession``,
           ``GivenSession`` and ``Frame`` are types. ``serve`` is the loop of the workers' daemon. ``check_programs``,
           ``java_program`` and ``has_started`` say whether a session can be started. ``RELAYED`` and
           ``VERBOSE_VARIABLE`` are how Java logs.
Tasks      ``run_tasks`` runs a function for each item and returns the results; ``balanced`` divides items among tasks,
           ``parallelism`` is the number of tasks that run at the same time.
Errors     ``received`` converts Spark's errors to ours; ``JavaWatch`` is for a Java process that has ended.
Java       ``java_option`` and ``java_of_command`` are settings of the Java process, ``install`` lets it write logs of
           Delta tables to S3; ``java`` and ``retrieve`` are for other programs in Java.

Items, functions and results are pickled, and contain facts and paths, never rows. Spark may run a task again, so a
function must be repeatable. Threads of several connectors may call all of this: they share the session, and each
connector's jobs have a pool of Spark's fair scheduler (``connector_threads``).

Not behind this door: queries. Only ``cdc_core.lake`` calls Spark's SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_core.door import lazily

if TYPE_CHECKING:
    from cdc_core.spark.daemon import serve as serve
    from cdc_core.spark.environment import check_programs as check_programs
    from cdc_core.spark.environment import java_program as java_program
    from cdc_core.spark.errors import received as received
    from cdc_core.spark.ivy import java as java
    from cdc_core.spark.ivy import retrieve as retrieve
    from cdc_core.spark.java_process import java_of_command as java_of_command
    from cdc_core.spark.java_process import java_option as java_option
    from cdc_core.spark.known_jars import has_started as has_started
    from cdc_core.spark.quiet_start import RELAYED as RELAYED
    from cdc_core.spark.quiet_start import VERBOSE_VARIABLE as VERBOSE_VARIABLE
    from cdc_core.spark.s3_log_store import install as install
    from cdc_core.spark.session import JavaWatch as JavaWatch
    from cdc_core.spark.session import get_context as get_context
    from cdc_core.spark.session import get_session as get_session
    from cdc_core.spark.session_start import Frame as Frame
    from cdc_core.spark.session_start import GivenSession as GivenSession
    from cdc_core.spark.session_start import Session as Session
    from cdc_core.spark.session_start import SessionStart as SessionStart
    from cdc_core.spark.session_start import StartSession as StartSession
    from cdc_core.spark.tasks import balanced as balanced
    from cdc_core.spark.tasks import parallelism as parallelism
    from cdc_core.spark.tasks import run_tasks as run_tasks
    from cdc_core.spark.tasks import start_workers as start_workers

lazily(
    __name__,
    {
        "Frame": "session_start",
        "GivenSession": "session_start",
        "JavaWatch": "session",
        "RELAYED": "quiet_start",
        "Session": "session_start",
        "SessionStart": "session_start",
        "StartSession": "session_start",
        "VERBOSE_VARIABLE": "quiet_start",
        "balanced": "tasks",
        "check_programs": "environment",
        "get_context": "session",
        "get_session": "session",
        "has_started": "known_jars",
        "install": "s3_log_store",
        "java": "ivy",
        "java_of_command": "java_process",
        "java_option": "java_process",
        "java_program": "environment",
        "parallelism": "tasks",
        "received": "errors",
        "retrieve": "ivy",
        "run_tasks": "tasks",
        "serve": "daemon",
        "start_workers": "tasks",
    },
)

"""Runs Great Expectations outside of rounds: summaries are added up and validated by a thread at intervals.

There is about one round per second and a suite takes tens of milliseconds, so not every round is validated: the counts
of all rounds since the last validation are added, so that no failure is lost. Great Expectations is imported by the
thread too, because this takes seconds.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from cdc_core.quality.great_expectations import Validation, load, validate_sample, validations, write_data_docs
from cdc_core.quality.report import Stated, Statement, Summary, statements

_DOCS_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The validations of one table so far: their number, the failed ones, the last, and the last failed one."""

    validations: int
    failed: int
    last: Validation
    last_failed: Validation | None = None

    @property
    def shown(self) -> Validation:
        """The last failed validation, else the last."""
        return self.last_failed or self.last


class SummaryValidator:
    """Validates submitted summaries, every ``interval`` seconds if there are any.

    It pauses between the suites of single tables, so that it uses at most ``share`` (0 to 1] of a core while rounds
    continue. All methods may be called from any thread; only ``flush`` and ``close`` wait.
    """

    def __init__(self, interval: float = 30.0, share: float = 0.15) -> None:
        self._interval = interval
        self._share = share
        self._changed = threading.Condition()
        self._pending: dict[str, dict[tuple[Statement, ...], Summary]] = {}
        self._verdicts: dict[str, Verdict] = {}
        self._thread: threading.Thread | None = None
        self._busy = False
        self._hurried = 0
        self._samples: dict[str, tuple[tuple[str, ...], bytes]] = {}
        self._sample_failures: dict[str, Validation] = {}
        self._closing = self._closed = False

    def submit(self, table: str, rules: Iterable[Stated], summary: Summary) -> None:
        """Add a round's summary of ``table`` (``schema.table``) to those pending. Never waits for a validation."""
        stated = statements(rules)
        with self._changed:
            if self._closed:
                return
            held = self._pending.setdefault(table, {})
            held[stated] = held[stated].plus(summary) if stated in held else summary
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="wal2lake-validator", daemon=True)
                self._thread.start()

    def submit_sample(self, table: str, suites: tuple[str, ...], sample: bytes) -> None:
        """Submit rows (Arrow IPC) for the user's own expectations of a table; a later sample replaces an earlier."""
        with self._changed:
            if not self._closed:
                self._samples[table] = (suites, sample)

    def sample_failure(self, table: str) -> Validation | None:
        """Return the user's expectations that the newest sample of a table failed; None if it failed none."""
        with self._changed:
            return self._sample_failures.get(table)

    def verdict(self, table: str) -> Verdict | None:
        """Return the results for ``table`` so far; None if it was never validated."""
        with self._changed:
            return self._verdicts.get(table)

    def verdicts(self) -> dict[str, Verdict]:
        """Return the results for every table so far."""
        with self._changed:
            return dict(self._verdicts)

    def flush(self, timeout: float) -> bool:
        """Validate all pending summaries without pauses; False if that took longer than ``timeout`` seconds."""
        with self._changed:
            self._hurried += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(lambda: not self._pending and not self._busy, timeout)
            finally:
                self._hurried -= 1

    def close(self, timeout: float) -> bool:
        """``flush``, and accept no further summaries. Of tables that pass here first, no result is laid out."""
        with self._changed:
            self._closing = True
        done = self.flush(timeout)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        return done

    def _run(self) -> None:
        with suppress(Exception):  # the first validation fails with the same error, which is then its result
            load()
        due = time.monotonic() + self._interval
        while True:
            with self._changed:
                self._changed.wait_for(self._is_wanted, due - time.monotonic())
                if self._closed:
                    return
                taken, self._pending = self._pending, {}
                self._busy = bool(taken)
            due = time.monotonic() + self._interval
            try:
                self._validate(taken)
                self._validate_samples()
            finally:
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _validate(self, taken: dict[str, dict[tuple[Statement, ...], Summary]]) -> None:
        """Validate one frame per set of rules of a table: one, unless the catalogue changed meanwhile."""
        while taken and not self._closed:
            frame = []
            for table, held in list(taken.items()):
                stated = next(iter(held))
                frame.append((table, stated, held.pop(stated)))
                if not held:
                    del taken[table]
            self._validate_frame(frame)

    def _validate_frame(self, frame: list[tuple[str, tuple[Statement, ...], Summary]]) -> None:
        waiting = {table for table, _, _ in frame}
        try:
            started = time.monotonic()
            for table, validation in validations(frame, is_last=self._closing):
                waiting.discard(table)
                self._add(table, validation)
                self._rest(time.monotonic() - started)
                if self._closed:
                    return
                started = time.monotonic()
        except Exception as error:  # a library's error must not end the thread, nor count as success
            kind = type(error).__name__
            _log.warning("Great Expectations could not validate %d tables (%s).", len(waiting), kind)
            for table in waiting:
                self._add(table, Validation(False, json.dumps({"success": False, "error": kind})))

    def _validate_samples(self) -> None:
        with self._changed:
            samples, self._samples = self._samples, {}
        for table, (suites, sample) in samples.items():
            started = time.monotonic()
            failure = None
            try:
                rows = pa.ipc.open_stream(sample).read_all()
                found = [validate_sample(table, suite, rows) for suite in suites]
                failure = next((each for each in found if not each.success), None)
            except Exception as error:  # a library's error must not end the thread, nor count as success
                _log.warning("Great Expectations could not validate rows of %s (%s).", table, type(error).__name__)
                failure = Validation(False, json.dumps({"success": False, "error": type(error).__name__}))
            with self._changed:
                self._sample_failures.pop(table, None)
                self._sample_failures |= {} if failure is None else {table: failure}
            self._rest(time.monotonic() - started)

    def _add(self, table: str, validation: Validation) -> None:
        with self._changed:
            held = self._verdicts.get(table, Verdict(0, 0, validation))
            self._verdicts[table] = Verdict(
                held.validations + 1,
                held.failed + (not validation.success),
                validation,
                held.last_failed if validation.success else validation,
            )

    def _is_wanted(self) -> bool:
        return self._closed or bool(self._hurried and self._pending)

    def _rest(self, spent: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._hurried), spent * (1 / self._share - 1))


def write_docs(folder: str, places: Mapping[str, str]) -> None:
    """Build the data docs of this process's validations at the end of a run; logs a warning on failure.

    ``places`` maps each table to its refused rows.
    """
    try:
        write_data_docs(Path(folder).resolve(), places, _DOCS_SECONDS)
    except Exception as error:  # missing pages are not a reason to fail a successful run
        _log.warning("The data docs could not be written (%s).", type(error).__name__)

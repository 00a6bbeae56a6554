"""Predicates: which records a transform is applied to."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from cdc_core.events.envelope.batch import EventBatch
from cdc_core.events.transform.settings import Settings


class Predicate(Protocol):
    """Decides for every record."""

    def test(self, batch: EventBatch) -> np.ndarray:
        """bool[N]: whether the predicate is true for the record."""


class TopicNameMatches:
    """Whether an expression matches the whole topic."""

    def __init__(self, settings: Settings) -> None:
        self._pattern = settings.regex("pattern")

    def test(self, batch: EventBatch) -> np.ndarray:
        """Test each topic once."""
        encoded = batch.topic.dictionary_encode()
        found = [self._pattern.fullmatch(name) is not None for name in encoded.dictionary.to_pylist()]
        return np.asarray(np.array(found, dtype=bool)[encoded.indices.to_numpy()])


class HasHeaderKey:
    """Whether the record has a header of that name."""

    def __init__(self, settings: Settings) -> None:
        self._name = settings.text("name")

    def test(self, batch: EventBatch) -> np.ndarray:
        """Test the headers' presence."""
        found = np.zeros(len(batch), dtype=bool)
        for header in batch.headers:
            if header.key == self._name:
                found |= header.has()
        return found


class RecordIsTombstone:
    """Whether the value is null."""

    def test(self, batch: EventBatch) -> np.ndarray:
        """Test the values."""
        return ~batch.value.valid

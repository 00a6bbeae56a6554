"""How old changes are when they are in the lake: counted by bounds, as a histogram of Prometheus has them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_DECADE = (
    *(1.0, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2.0, 2.2, 2.4, 2.7, 3.0),
    *(3.3, 3.6, 3.9, 4.3, 4.7, 5.1, 5.6, 6.2, 6.8, 7.5, 8.2, 9.1),
)
LAG_BOUNDS = (
    *(round(factor * decade, 2) for decade in (0.1, 1.0, 10.0) for factor in _DECADE),
    *(100.0, 200.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0),
)
"""Upper bounds in seconds: up to 100 s each is some 10 % above the one before, so that a quantile is within 10 %."""


@dataclass(frozen=True, slots=True)
class LagCounts:
    """``counts`` are changes whose lag is at most a bound and above the one before; last, those above all bounds.

    ``seconds`` is the sum of their lags.
    """

    counts: tuple[int, ...] = (0,) * (len(LAG_BOUNDS) + 1)
    seconds: float = 0.0

    @classmethod
    def of(cls, lags: np.ndarray, changes: np.ndarray) -> LagCounts:
        """Count lags in seconds, each that of some changes. Shape: float64[N], int64[N]"""
        places = np.searchsorted(LAG_BOUNDS, lags, side="left")
        counts = np.bincount(places, weights=changes, minlength=len(LAG_BOUNDS) + 1)
        return cls(tuple(int(count) for count in counts), float(np.dot(lags, changes)))

    @property
    def changes(self) -> int:
        """How many changes were counted."""
        return sum(self.counts)

    def plus(self, other: LagCounts) -> LagCounts:
        """Return the counts of both."""
        pairs = zip(self.counts, other.counts, strict=True)
        return LagCounts(tuple(a + b for a, b in pairs), self.seconds + other.seconds)

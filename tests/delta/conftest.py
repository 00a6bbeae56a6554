"""The Spark session that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.spark import test_session as start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session with Delta, two cores."""
    session = start_session()
    yield session
    session.stop()

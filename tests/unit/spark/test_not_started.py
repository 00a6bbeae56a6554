"""Why Java did not start, as far as it can be known."""

from __future__ import annotations

import os
import pwd

import pytest

from cdc_core.spark.session import _not_started


def test_a_user_without_a_name_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Install Java" in _not_started().remedy

    def unknown(number: int) -> pwd.struct_passwd:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    found = _not_started()
    assert f"user {os.getuid()} has no entry in /etc/passwd" in found.message and "10001" in found.remedy

"""docs/types.md says what the registry says."""

from __future__ import annotations

from tools import gen_types_doc


def test_the_page_is_up_to_date() -> None:
    assert gen_types_doc.main(["--check"]) == 0


def test_a_changed_page_is_noticed(monkeypatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    changed = tmp_path / "types.md"
    changed.write_text(gen_types_doc.page().replace("timestamp_ntz", "timestamp"))
    monkeypatch.setattr(gen_types_doc, "PAGE", changed)
    assert gen_types_doc.main(["--check"]) == 1

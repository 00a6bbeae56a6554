"""Write the table of known faults in docs/plugins.md from cdc_core/postgres/known_faults; a test compares them."""

from __future__ import annotations

from pathlib import Path

from cdc_core.postgres.known_faults import KNOWN_FAULTS, KnownFault

PAGE = Path(__file__).parents[1] / "docs" / "plugins.md"
_BEGIN, _END = "<!-- known faults: written by tools/gen_known_faults.py -->\n", "<!-- end of known faults -->\n"


def page_of(page: str) -> str:
    """Return the page with the table as it should be."""
    before, rest = page.split(_BEGIN)
    _, after = rest.split(_END)
    return f"{before}{_BEGIN}{_table()}{_END}{after}"


def _table() -> str:
    lines = ["| of | in versions | what happens | what wal2lake does |", "|---|---|---|---|"]
    lines += [
        f"| {fault.plugin or 'the server'} | {_versions(fault)} | {fault.effect} | {_done(fault)} |"
        for fault in KNOWN_FAULTS
    ]
    return "\n".join(lines) + "\n"


def _versions(fault: KnownFault) -> str:
    if fault.versions is None:
        return "all"
    said, never = [], [str(major) for major, (_, repaired) in fault.versions.items() if repaired is None]
    if never:
        said.append(f"{never[0]} to {never[-1]} (not repaired)")
    for major, (first, repaired) in sorted(fault.versions.items()):
        if repaired is not None:
            said.append(f"{major}.{first}" if repaired == first + 1 else f"{major}.{first} to {major}.{repaired - 1}")
    return ", ".join(said)


def _done(fault: KnownFault) -> str:
    remedy = f" What ends it: {fault.remedy}." if fault.remedy else ""
    return f"{fault.answer.value[0].upper()}{fault.answer.value[1:]}.{remedy}"


if __name__ == "__main__":
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""docs/schema-changes.md, form by form, on live servers: each is of the kind that the page says, and the lake is right.

Each form is found out in two ways: by the Relation message of a change of rows that follows it, and by asking the
catalogue when none does.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from cdc_core.schema.changes import Verdict
from tests.postgres.evolution_model import ModelLake, Session, two_sessions
from tests.postgres.schema_change_forms import FORMS, SETUP, Form
from tests.support.cluster import Cluster

pytestmark = pytest.mark.postgres

PAGE = Path(__file__).parents[2] / "docs" / "schema-changes.md"
KINDS = ("followed", "re-read", "refused", "nothing", "not possible")
LINE = re.compile(r"\| `(?P<form>.+?)` \| (?P<since>\d*) \| (?P<kind>[a-z -]+) \| (?P<sentence>.+) \|")
VERDICTS = {Verdict.FOLLOW: "followed", Verdict.REREAD: "re-read", Verdict.REFUSE: "refused"}
DROP_SLOTS = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = current_database()"
LEFTOVERS = (
    "drop publication if exists p",
    "drop schema if exists public, renamed, elsewhere cascade",
    "drop access method if exists heap2",
    "create schema public",
)
STATEMENT_END = re.compile(r";\s*(?=(?:[^']*'[^']*')*[^']*$)")


@dataclass(frozen=True)
class Documented:
    since: int
    kind: str


def documented() -> dict[str, Documented]:
    lines = (LINE.fullmatch(line) for line in PAGE.read_text(encoding="utf-8").splitlines())
    return {line["form"]: Documented(int(line["since"] or 15), line["kind"]) for line in lines if line}


@pytest.fixture(scope="module")
def server(each_pg: Cluster) -> Iterator[Cluster]:
    space = each_pg.sockets / "space"
    space.mkdir()
    if os.geteuid() == 0:
        shutil.chown(space, each_pg.data.owner())
    each_pg.execute("postgres", "create role somebody")
    each_pg.execute("postgres", f"create tablespace elsewhere location '{space}'")
    yield each_pg
    each_pg.execute("postgres", "drop role somebody")
    each_pg.execute("postgres", "drop tablespace elsewhere")
    space.rmdir()


@pytest.fixture(scope="module")
def sessions(server: Cluster) -> Iterator[tuple[Session, Session]]:
    with two_sessions(server, "forms") as sessions:
        yield sessions


@pytest.fixture
def nothing_left(sessions: tuple[Session, Session]) -> Iterator[None]:
    """A form finds nothing of the one before it in its database: one for each would cost two checkpoints."""
    session, reader = sessions
    yield
    reader.execute(DROP_SLOTS)
    run(session, LEFTOVERS)


def statements(text: str) -> list[str]:
    return [part.strip() for part in STATEMENT_END.split(text) if part.strip()]


def run(session: Session, texts: Iterable[str]) -> None:
    for text in texts:
        session.execute(text.encode(), prepare=False)


def captured(session: Session, reader: Session, form: Form) -> ModelLake:
    """The table, published and read, and at rest behind a first event."""
    run(session, [*statements(SETUP), "create schema elsewhere", *statements(form.before)])
    target = "all tables" if form.all_tables else "table t"
    settings = f" with ({', '.join(form.settings)})" if form.settings else ""
    slot = session.info.dbname
    run(session, [f"create publication p for {target}{settings}"])
    run(reader, [f"select pg_create_logical_replication_slot('{slot}', 'pgoutput')"])
    lake = ModelLake(session, reader, "p", slot)
    lake.read_table()
    run(session, ["insert into t (id) values (80)"])
    lake.drain()
    lake.decisions.clear()
    return lake


def kind_of(lake: ModelLake) -> str:
    """The heaviest of what was decided."""
    found = {VERDICTS[decision.verdict] for decision in lake.decisions}
    for kind in ("refused", "re-read"):
        if kind in found:
            return kind
    return "followed" if any(one.changes or one.operations for one in lake.decisions) else "nothing"


def test_the_page_lists_the_forms_that_are_tried() -> None:
    page = documented()
    assert list(page) == list(FORMS)
    assert {one.kind for one in page.values()} == set(KINDS)


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize("name", list(FORMS))
def test_a_form_is_of_the_kind_that_the_page_says(sessions: tuple[Session, Session], name: str) -> None:
    """Asked while no change of a row has followed it; then another lake, which stood where the first did, is told."""
    page, form = documented()[name], FORMS[name]
    session, _ = sessions
    if session.info.server_version < page.since * 10000:
        pytest.skip(f"since PostgreSQL {page.since}")
    lake = captured(*sessions, form)
    if page.kind == "not possible":
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
            run(session, statements(form.sql))
        return
    if page.kind == "nothing":  # nothing is to be found, so one lake shows both
        run(session, statements(form.sql))
        read_on(lake)
    else:
        asked = lake.twin()
        run(session, statements(form.sql))
        read_on(asked)
        assert_is_of(form.alone or page.kind, asked, name)
    run(session, form.changes)
    read_on(lake)
    assert_is_of(page.kind, lake, name)


def read_on(lake: ModelLake) -> None:
    """Take what the slot has, then ask."""
    lake.drain()
    if not lake.is_paused:
        lake.poll()


def assert_is_of(kind: str, lake: ModelLake, name: str) -> None:
    """What was decided is of the kind, and the lake is right where it went on."""
    assert kind_of(lake) == kind
    for decision in lake.decisions:
        assert bool(decision.reason) is (decision.verdict is not Verdict.FOLLOW)
        assert bool(decision.remedy) is (decision.verdict is Verdict.REFUSE)
    if not lake.is_paused and name != "DROP TABLE":
        lake.assert_equal()

"""The project of Great Expectations: the library opens it, and what a user edits there counts and stays."""

import dataclasses
import json

import pytest

from cdc_core.lake.checks.table_checks import TableChecks
from cdc_core.lake.rows.typing_plan import TypingPlan
from cdc_core.quality.great_expectations import library
from cdc_core.quality.options import QualityOptions
from cdc_core.quality.project import make_project, write_suite
from cdc_core.quality.rule_files import read_rule_files
from cdc_core.quality.rules import Severity
from cdc_core.schema.table import TableId
from cdc_core.selection.options import SelectionOptions
from cdc_core.types.options import TypeOptions
from tests.unit.quality.people import TABLE, frame, image, row

GENERATED = {"key_not_null:id", "not_null:na me", "max_length:na me", "enum_member:mood"}


def checks(folder):
    plan = TypingPlan(TypeOptions(), SelectionOptions())
    return TableChecks(QualityOptions(), plan, lambda table: table, read_rule_files(str(folder)))


def write(folder, table=TABLE):
    return write_suite(folder, TABLE.id, checks(folder).generated(table))


def refused(folder, *rows):
    """The rules by which each row is refused, and the rules that failed."""
    found = checks(folder).judged(TABLE, frame(list(rows)))
    return ([] if found.reasons is None else found.reasons.to_pylist()), {
        each.rule.name for each in found.verdicts if not each.success
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    make_project(folder)
    write(folder)
    return folder


@pytest.fixture
def project(made, tmp_path):
    """A copy of a project with the suite of one table."""
    path = tmp_path / "gx/expectations/public/people.json"
    path.parent.mkdir(parents=True)
    path.write_text((made / "gx/expectations/public/people.json").read_text())
    (tmp_path / "gx/great_expectations.yml").write_text((made / "gx/great_expectations.yml").read_text())
    return tmp_path


def opened(folder):
    return library().get_context(mode="file", project_root_dir=folder).suites.get("public.people")


def rules_of(suite):
    return {each.meta["wal2lake"]["rule"]: each for each in suite.expectations if each.meta}


LONG = row(0, after=image(name="much too long"))


def test_the_library_opens_what_was_generated_and_saving_it_edits_nothing(project):
    suite = opened(project)
    assert set(rules_of(suite)) == GENERATED
    suite.save()
    assert checks(project).edits(TABLE.id) == ()
    text = (project / "gx/expectations/public/people.json").read_text()
    report = write(project)
    assert (report.added, report.changed, report.removed, report.edited, report.own) == (0, 0, 0, 0, 0)
    assert (project / "gx/expectations/public/people.json").read_text() == text
    assert refused(project, LONG) == ([["max_length:na me"]], {"max_length:na me"})


def test_edits_by_the_library_count_and_are_kept(project):
    suite = opened(project)
    by_rule = rules_of(suite)
    by_rule["max_length:na me"].max_value = 40  # the user's expectation from here on
    by_rule["enum_member:mood"].severity = "warning"
    suite.delete_expectation(by_rule["not_null:na me"])
    gx = library().expectations
    suite.add_expectation(gx.ExpectColumnValuesToBeBetween(column="id", max_value=5))
    suite.save()

    assert checks(project).edits(TABLE.id) == ("max_length:na me off", "not_null:na me off", "enum_member:mood warn")
    rows = (
        LONG,
        row(1, after=image(name="x" * 41)),
        row(2, after=image(mood="other")),
        row(3, after=image(name=None)),
        row(4, after=image(id=9)),
    )
    reasons, failed = refused(project, *rows)
    assert reasons == [["user:lengths_to_be_between:na me"], ["user:be_between:id"]]
    assert "enum_member:mood" in failed

    before = json.loads((project / "gx/expectations/public/people.json").read_text())
    report = write(project)
    assert (report.added, report.changed, report.edited, report.own) == (0, 0, 2, 1)
    assert json.loads((project / "gx/expectations/public/people.json").read_text()) == before


def test_what_is_not_edited_follows_the_catalogue(project):
    def altered(column):
        if column.name == "mood":
            return dataclasses.replace(column, type=dataclasses.replace(column.type, labels=("a", "b")))
        return dataclasses.replace(column, optional=True) if column.name == "na me" else column

    suite = opened(project)
    rules_of(suite)["enum_member:mood"].severity = "warning"
    suite.save()
    table = dataclasses.replace(TABLE, columns=tuple(map(altered, TABLE.columns)))
    report = write(project, table)
    assert (report.added, report.changed, report.removed, report.edited) == (0, 1, 1, 0)
    by_rule = rules_of(opened(project))
    assert set(by_rule) == GENERATED - {"not_null:na me"}
    assert by_rule["enum_member:mood"].value_set == ["a", "b"]
    assert by_rule["enum_member:mood"].severity == "warning"
    assert write(project).added == 1  # NOT NULL again


def test_a_file_that_is_not_the_tables_suite_is_left(project):
    path = project / "gx/expectations/public/people.json"
    path.write_text('{"name": "others", "expectations": []}')
    assert "is not the suite public.people" in write(project).problem
    path.write_text("{")
    assert "no JSON" in write_suite(project, TABLE.id, ()).problem
    assert path.read_text() == "{"
    assert "cannot have /" in write_suite(project, TableId("public", "a/b"), ()).problem


def test_severities_are_those_of_the_library(project):
    suite = opened(project)
    rules_of(suite)["enum_member:mood"].severity = "info"
    suite.save()
    (rule,) = [each for each in checks(project).rules_on_rows(TABLE, ["mood"]) if each.column == "mood"]
    assert rule.severity is Severity.WARN

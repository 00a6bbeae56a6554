"""Files that only a code host or pip reads: workflows, pre-commit, forms, the versions that are installed."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cdc_core.extras import MODULES
from cdc_core.version import __version__
from tests.conftest import FLAVOURS

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z0-9-]+):.*## ", MAKEFILE, re.MULTILINE))
VARIABLES = set(re.findall(r"^([A-Z_]+) \?=", MAKEFILE, re.MULTILINE))
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def parsed(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def jobs() -> dict[str, dict[str, Any]]:
    return {f"{path.stem}/{name}": job for path in WORKFLOWS for name, job in parsed(path)["jobs"].items()}


def unknown(call: str) -> list[str]:
    """The words of a call of make that are neither targets nor variables of the Makefile."""
    program, *words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "value", call))
    if program != "make":
        return [program]
    return [word for word in words if (word.partition("=")[0] not in VARIABLES if "=" in word else word not in TARGETS)]


def test_each_step_of_a_workflow_is_a_target_of_the_makefile() -> None:
    calls = [(name, step["run"]) for name, job in jobs().items() for step in job["steps"] if "run" in step]
    assert len(calls) >= 8
    assert {call: unknown(call[1]) for call in calls if unknown(call[1])} == {}
    assert unknown("make tset") == ["tset"]
    assert unknown("make soak SOAK_SECOND=1") == ["SOAK_SECOND=1"]


def test_each_job_has_a_time_limit_and_checks_the_repository_out() -> None:
    for name, job in jobs().items():
        assert 0 < job["timeout-minutes"] <= 180, name
        assert job["steps"][0]["uses"].startswith("actions/checkout@"), name


def test_the_matrix_has_every_supported_version() -> None:
    matrix = jobs()["ci/test"]["strategy"]["matrix"]
    offered = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert matrix["python"] == [version.rpartition(":")[2] for version in offered]
    assert matrix["java"] == ["17", "21"]
    assert jobs()["ci/soak"]["strategy"]["matrix"]["server"] == list(FLAVOURS)


def test_hooks_before_a_commit_call_what_make_lint_calls() -> None:
    [repository] = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = [hook["entry"].replace(" --force-exclude", "") for hook in repository["hooks"]]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert lint
    calls = [line.strip("\t@").replace("$(BIN)", ".venv/bin").removesuffix(" .") for line in lint[1].splitlines()]
    assert hooks == calls


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_forms_of_issues_have_what_the_host_requires(path: Path) -> None:
    form = parsed(path)
    assert form["name"] and form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert fields
    assert all(re.fullmatch(r"[a-z]+", field["id"]) and field["attributes"]["label"] for field in fields)


def test_constraints_have_a_version_of_each_dependency_in_its_range() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in pins.items()}
    extras = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(line for extra in extras if extra != "stores" for line in extras[extra])]
    required = [Requirement(line) for line in lines if not line.startswith("wal2lake[")]
    chosen = {str(each): versions.get(canonicalize_name(each.name)) for each in required}
    wrong = [str(each) for each in required if not each.specifier.contains(chosen[str(each)] or "0")]
    assert wrong == [] and None not in chosen.values(), "RELEASING.md describes how they are renewed"


def test_the_modules_of_an_extra_are_those_that_it_installs() -> None:
    extras = PROJECT["optional-dependencies"]

    def installed(extra: str) -> set[str]:
        names = {Requirement(line).name.replace("-", "_") for line in extras[extra]}
        return names - {"wal2lake"} | (installed("dagster") if "wal2lake[dagster]" in extras[extra] else set())

    # A code location needs no web server.
    assert {extra: {module.replace(".", "_") for module in modules} for extra, modules in MODULES.items()} == {
        extra: installed(extra) - {"dagster_webserver"} for extra in extras if extra not in ("dev", "stores")
    }


def test_the_package_has_the_version_that_it_says() -> None:
    assert PROJECT["version"] == __version__

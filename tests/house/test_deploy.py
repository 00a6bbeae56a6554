"""The files in deploy/: they parse, and name commands, options and properties that exist."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml

from cdc_core.cli.program import cli
from cdc_core.config.connector import from_entries
from cdc_core.config.properties_file import parse_properties
from tests.support.waits import patient

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = ROOT / "tests" / "data" / "kubernetes-1.37.json"
INSTRUCTIONS = {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
UNITS = sorted((DEPLOY / "systemd").iterdir())


def kubernetes() -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / "wal2lake.yaml").read_text()))


def connector_files() -> dict[str, str]:
    [config] = [each for each in kubernetes() if each["kind"] == "ConfigMap"]
    return {
        "compose": (DEPLOY / "compose" / "shop.properties").read_text(),
        "kubernetes": config["data"]["shop.properties"],
    }


def called() -> list[list[str]]:
    """The arguments of each call of wal2lake."""
    services = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())["services"]
    found = [services["wal2lake"]["command"]]
    found += [line.split()[1:] for line in services["dagster"]["command"] for line in line.split(" && ")[:1]]
    for each in kubernetes():
        spec = each.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec).get("template", {}).get("spec", {})
        found += [container["args"] for container in spec.get("containers", ())]
    for unit in UNITS:
        found += [line.split()[1:] for line in re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)]
    return found


def test_commands_and_their_options_exist() -> None:
    assert len(called()) >= 6
    for command, *arguments in called():
        assert command in cli.commands, command
        options = {name for each in cli.commands[command].params for name in each.opts}
        assert [each for each in arguments if each.startswith("-") and each not in options] == []
        needed = [each for each in cli.commands[command].params if isinstance(each, click.Argument) and each.required]
        assert len([each for each in arguments if not each.startswith("-")]) >= len(needed)


@pytest.mark.parametrize("name", ["compose", "kubernetes"])
def test_connector_files_are_valid(name: str) -> None:
    config = from_entries(parse_properties(connector_files()[name], name), name)
    config.require_lake()
    assert [warning for warning in config.warnings if "unknown" in warning.lower()] == []
    assert config.lake.lake_path.startswith("/data/") and str(config.state_path).startswith("/data/")


def wrong_fields(resource: dict) -> list[str]:
    """What Kubernetes' API would refuse or ignore: fields that do not exist, and values of a wrong type."""
    jsonschema = pytest.importorskip("jsonschema", reason="it comes with great-expectations")
    schema = json.loads(KUBERNETES.read_text())
    wanted = {"$ref": f"#/$defs/{schema['kinds'][resource['kind']]}", "$defs": schema["$defs"]}
    return [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
        for error in jsonschema.Draft7Validator(wanted).iter_errors(resource)
    ]


@pytest.mark.parametrize("resource", kubernetes(), ids=lambda resource: resource["kind"])
def test_kubernetes_knows_every_field(resource: dict) -> None:
    assert wrong_fields(resource) == []


def test_a_field_that_kubernetes_does_not_know_would_be_found() -> None:
    [run] = [copy.deepcopy(each) for each in kubernetes() if each["kind"] == "Deployment"]
    run["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    run["spec"]["replicas"] = "one"
    assert len(wrong_fields(run)) == 2


def test_containers_may_not_do_more_than_they_need() -> None:
    pods = [each["spec"] for each in kubernetes() if each["kind"] in ("Deployment", "CronJob")]
    for pod in [spec.get("jobTemplate", {}).get("spec", spec)["template"]["spec"] for spec in pods]:
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
        [container] = pod["containers"]
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"] and not context["allowPrivilegeEscalation"]
        assert context["capabilities"]["drop"] == ["ALL"]
        assert container["resources"]["limits"]["memory"]
        mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        assert mounted == {"connector": "/etc/wal2lake", "data": "/data", "tmp": "/tmp"}
        assert {volume["name"] for volume in pod["volumes"]} == set(mounted)


def test_one_pod_reads_the_slot_and_has_time_to_stop() -> None:
    [run] = [each["spec"] for each in kubernetes() if each["kind"] == "Deployment"]
    pod = run["template"]["spec"]
    assert (run["replicas"], run["strategy"]["type"]) == (1, "Recreate")
    assert pod["terminationGracePeriodSeconds"] >= 60 and pod["securityContext"]["runAsNonRoot"]
    ports = {port["name"] for port in pod["containers"][0]["ports"]}
    probes = [pod["containers"][0][name]["httpGet"]["port"] for name in ("startupProbe", "livenessProbe")]
    assert set(probes) <= ports
    assert "wal2lake.metrics.port=9404" in connector_files()["kubernetes"]


def test_the_image_copies_what_is_there_and_is_not_root() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().split()
    for sources in re.findall(r"^COPY (?!--)(.*) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists() and source not in ignored, source
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {f"COPY {name.rstrip('*')} {name.rstrip('*')}" for name in packages} <= set(text.splitlines())
    assert re.findall(r"^USER (\S+)$", text, re.MULTILINE)[-1] == "10001:10001"
    assert 'ENTRYPOINT ["tini", "--", "wal2lake"]' in text


def test_the_dockerfile_is_as_a_linter_wants_it() -> None:
    """The rules of hadolint 2.15.1 that apply here, with its numbers."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.MULTILINE))
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip()]
    steps = [(name, rest) for name, rest in lines]
    stages = {rest.split(" AS ")[1] for name, rest in steps if name == "FROM" and " AS " in rest}
    for name, rest in steps:
        assert name in INSTRUCTIONS, name
        if name == "FROM" and rest.split()[0] not in stages:
            assert re.fullmatch(r"\S+:\d[\w.-]*", rest.split(" AS ")[0]), "DL3006, DL3007: a tag that is not latest"
        if name == "RUN":
            assert not re.search(r"\b(sudo|cd|curl|wget|apt)\s", rest), "DL3004, DL3003, DL4001, DL3027"
            if "apt-get install" in rest:
                assert "apt-get update" in rest and "rm -rf /var/lib/apt/lists/*" in rest, "DL3009"
                assert "install -y --no-install-recommends" in rest, "DL3014, DL3015"
            assert "pip install" not in rest or "--no-cache-dir" in rest, "DL3042"
        if name == "WORKDIR":
            assert rest.startswith("/"), "DL3000"
        if name == "USER":
            assert re.match(r"\d+", rest), "DL3066: a number, which runAsNonRoot can check"
        if name in ("ENTRYPOINT", "CMD"):
            assert isinstance(json.loads(rest), list), "DL3025"
    for first, second in pairwise(steps):
        assert (first[0], second[0]) != ("RUN", "RUN"), "DL3059"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    program = tmp_path / "wal2lake"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in UNITS:
        text = (
            unit.read_text().replace("/opt/wal2lake/bin/wal2lake", str(program)).replace("User=wal2lake", "User=root")
        )
        (tmp_path / unit.name.replace("@", "@shop")).write_text(text)
    units = sorted(str(path) for path in tmp_path.glob("*@shop.*"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *units],
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0 and "shop" not in done.stderr, done.stderr

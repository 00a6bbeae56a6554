"""The command line without a server: exit codes, help, and how errors read."""

import gc
import io
import json
import os
import signal
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from cdc_core import cli as entry
from cdc_core.assemble import Connector
from cdc_core.cli.arguments import ConnectorFile
from cdc_core.cli.exits import describe, stop_requests
from cdc_core.cli.logs import say_stopping
from cdc_core.cli.program import cli, main
from cdc_core.cli.status import _print, as_plain, moment
from cdc_core.config.connector import load
from cdc_core.engine.reports import Status, StreamReport, TableStatus
from cdc_core.errors import SourceError
from cdc_core.lsn import Lsn
from cdc_core.offsets.reports import HandBack
from cdc_core.schema.table import TableId
from tests.support.waits import patient

ROOT = Path(__file__).parents[3]
COMMANDS = ("demo", "check", "run", "snapshot", "envelopes", "status", "signal", "reset", "dagster-home")


@pytest.fixture
def config(tmp_path):
    lines = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "localhost",
        "database.user": "u",
        "database.password": "p",
        "database.dbname": "shop",
        "topic.prefix": "shop",
        "wal2lake.lake.path": str(tmp_path / "lake"),
    }
    path = tmp_path / "shop.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return str(path)


def called(*arguments, monkeypatch):
    """The exit code of ``wal2lake`` with these arguments."""
    monkeypatch.setattr(sys, "argv", ["wal2lake", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_what_it_does(command):
    shown = CliRunner().invoke(cli, [command, "--help"])
    assert shown.exit_code == 0
    first = next(line.strip() for line in shown.output.splitlines()[1:] if line.strip())
    assert len(first) > 40, "a sentence, not a word"
    assert command in CliRunner().invoke(cli, ["--help"]).output


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("run",),
        ("run", "/nonexistent/file.properties"),
        ("run", "CONFIG", "--until-lsn", "yesterday"),
        ("run", "CONFIG", "--until-idle", "-1"),
        ("snapshot", "CONFIG", "orders"),
        ("envelopes", "CONFIG"),
        ("run", "CONFIG", "--no-such-option"),
        ("run",),
        ("run", "CONFIG", "CONFIG"),
    ],
    ids=" ".join,
)
def test_wrong_use_ends_with_2(arguments, config, monkeypatch, capsys):
    given = [config if argument == "CONFIG" else argument for argument in arguments]
    assert called(*given, monkeypatch=monkeypatch) == 2
    said = capsys.readouterr().err
    assert "Error: " in said
    assert "Traceback" not in said


def test_events_are_not_written_with_a_transform_that_is_not_here(config, tmp_path, monkeypatch, capsys):
    with open(config, "a") as file:
        file.write("transforms=mine\ntransforms.mine.type=com.acme.Mine\nvalue.converter.schemas.enable=false\n")
    assert called("envelopes", config, "--output", str(tmp_path / "out.jsonl"), monkeypatch=monkeypatch) == 1
    assert "transforms.mine.type is com.acme.Mine, which wal2lake does not have" in capsys.readouterr().err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("unheard-of",), "Unknown signal type unheard-of"),
        (("execute-snapshot",), "data-collections is not a list"),
        (("log", "--data", "{"), "not JSON"),
    ],
)
def test_a_signal_that_nobody_could_obey_is_not_sent(arguments, said, config, monkeypatch, capsys):
    assert called("signal", config, *arguments, monkeypatch=monkeypatch) == 1
    assert said in capsys.readouterr().err


def test_without_a_lake_and_a_channel_nobody_takes_a_signal(config, monkeypatch, capsys):
    lines = Path(config).read_text().splitlines(keepends=True)
    Path(config).write_text("".join(line for line in lines if "lake.path" not in line))
    assert called("signal", config, "pause-snapshot", monkeypatch=monkeypatch) == 1
    assert "No enabled signal channel accepts signals" in capsys.readouterr().err


def test_a_signal_goes_to_runs_into_the_lake_by_the_state_folder(config, tmp_path, monkeypatch, capsys):
    with open(config, "a") as file:
        file.write(f"wal2lake.state.path={tmp_path}\nslot.name=mine\n")
    assert called("signal", config, "log", "--data", '{"message": "m"}', monkeypatch=monkeypatch) == 0
    assert "through channel in-process" in capsys.readouterr().err
    (written,) = tmp_path.glob("signals-mine-*.jsonl")
    assert json.loads(written.read_text())["type"] == "log"


def test_a_signal_goes_to_the_file_where_that_is_its_channel(config, tmp_path, monkeypatch, capsys):
    path = tmp_path / "signals.txt"
    with open(config, "a") as file:
        file.write(f"signal.enabled.channels=file\nsignal.file={path}\n")
    assert called("signal", config, "log", "--data", '{"message": "m"}', monkeypatch=monkeypatch) == 0
    assert "through channel file" in capsys.readouterr().err
    sent = json.loads(path.read_text())
    assert (sent["type"], sent["data"]) == ("log", {"message": "m"})


def test_an_error_ends_with_1_and_two_lines(config, monkeypatch, capsys):
    def fails(self, **_):
        raise SourceError("There is no server.", "Start it.")

    monkeypatch.setattr(Connector, "initial_snapshot", fails)
    assert called("run", config, monkeypatch=monkeypatch) == 1
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning: ")]
    assert said == ["wal2lake: There is no server.", "  → Start it."]
    assert describe(SourceError("Found.")) == "Found."


@pytest.mark.parametrize("error", [KeyboardInterrupt, click.exceptions.Abort])
def test_a_second_interrupt_ends_with_1(error, config, monkeypatch, capsys):
    def stops(self, **_):
        raise error

    left = []
    monkeypatch.setattr(Connector, "initial_snapshot", stops)
    monkeypatch.setattr("cdc_core.cli.program.leave_at_once", lambda: left.append(True))
    assert called("run", config, monkeypatch=monkeypatch) == 1
    assert capsys.readouterr().err.endswith("Stopped.\n")
    assert left, "whatever its threads wait for"


def test_a_run_ends_with_0(config, monkeypatch):
    report = StreamReport(1, 2, Lsn(3), (), 0.1, "request")
    monkeypatch.setattr(Connector, "initial_snapshot", lambda self, **_: [])
    monkeypatch.setattr(Connector, "stream", lambda self, until, **_: report)
    assert called("run", config, monkeypatch=monkeypatch) == 0


def test_a_run_without_rounds_ends_with_1_while_a_table_is_paused(config, monkeypatch, capsys):
    paused = {TableId("public", "orders"): "It has no key."}
    report = StreamReport(0, 0, Lsn(3), (), 0.1, "idle", paused)
    monkeypatch.setattr(Connector, "initial_snapshot", lambda self, **_: [])
    monkeypatch.setattr(Connector, "stream", lambda self, until, **_: report)
    assert called("run", config, monkeypatch=monkeypatch) == 1
    assert "public.orders is not merged: It has no key." in capsys.readouterr().err


@pytest.fixture
def two(config, tmp_path):
    """Two connectors that may run in one process."""
    other = tmp_path / "billing.properties"
    other.write_text(Path(config).read_text().replace("=shop", "=billing") + "slot.name=billing\n")
    return config, str(other)


def test_an_lsn_is_of_one_server(two, monkeypatch, capsys):
    assert called("run", *two, "--until-lsn", "0/1", monkeypatch=monkeypatch) == 2
    assert "--until-lsn is a position of one server" in capsys.readouterr().err


def test_runs_in_one_process_end_with_1_if_one_of_them_does(two, monkeypatch, capsys):
    report = StreamReport(1, 2, Lsn(3), (), 0.1, "idle")
    monkeypatch.setattr(Connector, "initial_snapshot", lambda self, **_: [])
    monkeypatch.setattr(Connector, "stream", lambda self, until, **_: report)
    assert called("run", *two, "--until-idle", "1", monkeypatch=monkeypatch) == 0
    said = capsys.readouterr().err
    assert "shop: 2 changes in 1 batches" in said and "billing: 2 changes in 1 batches" in said

    def stream(connector, until, **_):
        if connector.name == "billing":
            raise SourceError("The slot is lost.", "Take a snapshot.")
        return report

    monkeypatch.setattr(Connector, "stream", stream)
    assert called("run", *two, "--until-idle", "1", monkeypatch=monkeypatch) == 1
    said = capsys.readouterr().err
    assert "shop: 2 changes" in said and "billing: The slot is lost.\n  → Take a snapshot.\n" in said
    paused = replace(report, failed={TableId("public", "orders"): "It has no key."})
    monkeypatch.setattr(Connector, "stream", lambda self, until, **_: paused)
    assert called("run", *two, "--until-idle", "1", monkeypatch=monkeypatch) == 1


def test_files_that_differ_in_a_property_of_the_process_start_nothing(two, monkeypatch, capsys):
    monkeypatch.setattr(Connector, "initial_snapshot", lambda self, **_: pytest.fail("started"))
    with Path(two[0]).open("a") as file:
        file.write("wal2lake.metrics.port=9404\n")
    assert called("run", *two, monkeypatch=monkeypatch) == 1
    said = capsys.readouterr().err
    assert f"wal2lake.metrics.port is 9404 in {two[0]}, line 8, and not set in {two[1]}" in said


def test_the_second_signal_interrupts():
    with stop_requests() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.wait(patient(5))
        # What a handler raises while a callback of the garbage collector runs is lost: none runs meanwhile.
        gc.disable()
        try:
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(5)
        finally:
            gc.enable()


def test_status_as_json_names_tables_and_lsns_as_postgresql_does():
    table = TableStatus(TableId("public", "orders"), ("id",), Lsn(1 << 32), None, None, 3, None, None)
    status = Status("shop", True, False, "reserved", None, Lsn(255), Lsn(511), 256, (table,))
    plain = json.loads(json.dumps(as_plain(status)))
    assert plain["confirmed_lsn"] == "0/FF"
    assert plain["lag_bytes"] == 256
    assert plain["tables"][0]["table"] == "public.orders"
    assert plain["tables"][0]["snapshot_lsn"] == "1/0"
    assert plain["tables"][0]["key"] == ["id"]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_status_has_a_line_a_table_with_times_before_lsns_and_cuts_no_name(width):
    long = TableId("accounting_2026", "invoice_lines_with_a_name_as_long_as_names_may_be_in_postgres")
    now = datetime.now(UTC)
    rows = (
        TableStatus(long, ("id", "line"), Lsn(1 << 44), Lsn(1 << 45), Lsn(1 << 45), 3, 1_000_000, 1_000_000),
        TableStatus(TableId("public", "orders"), (), Lsn(1), Lsn(3), Lsn(2), 3, None, None, up_to=now),
        TableStatus(TableId("public", "new"), ("id",), None, None, None, None, None, None),
        TableStatus(TableId("public", "[odd]"), ("id",), None, None, None, None, None, None, error="It is gone."),
    )
    status = Status("shop", True, True, "reserved", None, Lsn(255), Lsn(511), 256, rows, lag_seconds=1.25)
    console = Console(file=io.StringIO(), width=width, soft_wrap=True)
    _print(console, status, ConnectorFile(Path("c.properties")))
    said = console.file.getvalue()
    for text in (str(long), "public.orders", "behind", "not read", "unreadable", "public.[odd]"):
        assert text in said, said
    assert "…" not in said
    assert "in use by a run" in said and "the server has its WAL" in said
    assert "1.2 s, 256 bytes behind: confirmed 0/FF, server at 0/1FF" in said
    for row in rows[:-1]:
        assert len([line for line in said.splitlines() if line.startswith(str(row.table))]) == 1
    [orders] = [line for line in said.splitlines() if line.startswith("public.orders")]
    assert f"{now:%H:%M:%S}, 0." in orders
    assert ("1000/0" in said and orders.index("ago") < orders.index("0/2")) is (width == 200)


def test_a_moment_says_how_long_ago_it_is_in_the_largest_unit():
    now = datetime(2026, 11, 28, 0, 30, 0, tzinfo=UTC)
    said = {seconds: moment(now - timedelta(seconds=seconds), now) for seconds in (1.2, 90, 7_200, 300_000, -5)}
    assert said == {
        1.2: "00:29:58, 1.2 s ago",
        90: "00:28:30, 2 min ago",
        7_200: "2026-11-27 22:30:00, 2 h ago",
        300_000: "2026-11-24 13:10:00, 3 d ago",
        -5: "00:30:05, 0.0 s ago",
    }


def test_every_command_that_takes_a_connector_file_takes_properties_for_one_run(config, monkeypatch, capsys):
    for name, command in cli.commands.items():
        parameters = {one.name for one in command.params}
        assert ("overrides" in parameters) is bool({"config", "configs"} & parameters), name
    given = ("--set", "slot.name=mine", "--set", "topic.prefix=other", "--set", "database.port=1")
    assert called("check", config, "--explain", *given, monkeypatch=monkeypatch) == 1
    said = capsys.readouterr().out
    assert "mine" in said and ".wal2lake/other" in said and "at localhost:1." in said
    assert called("check", config, "--explain", "--set", "slot.nam=mine", monkeypatch=monkeypatch) == 1
    said = capsys.readouterr().err
    assert "with --set" in said and "Did you mean slot.name?" in said
    assert called("check", config, "--set", "slot.name", monkeypatch=monkeypatch) == 2
    assert "expected KEY=VALUE, found 'slot.name'" in capsys.readouterr().err


def test_properties_of_one_run_replace_older_names_too(tmp_path):
    file = tmp_path / "old.properties"
    file.write_text("database.server.name=old\ndatabase.dbname=d\ndatabase.hostname=h\ndatabase.user=u\n")
    config = load(file, [("topic.prefix", "new"), ("wal2lake.metrics.port", "1")])
    assert (config.schema.topic_prefix, config.observe.metrics_port, config.postgres.database_dbname) == ("new", 1, "d")
    assert not [line for line in config.warnings if "database.server.name" in line or "twice" in line]


def test_the_first_signal_is_acknowledged_at_once(capfd):
    with stop_requests(say_stopping) as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(patient(5))
    assert "Stopping after the current step. A second Ctrl-C stops at once." in capfd.readouterr().err


def test_events_into_a_folder_that_does_not_exist_are_one_sentence(config, tmp_path, monkeypatch, capsys):
    assert called("envelopes", config, "-o", str(tmp_path / "gone" / "out.jsonl"), monkeypatch=monkeypatch) == 1
    said = capsys.readouterr().err
    assert f"The folder {tmp_path / 'gone'} of the output does not exist." in said and "Traceback" not in said


def test_a_file_of_offsets_that_cannot_be_written_is_one_sentence(config, tmp_path, monkeypatch, capsys):
    back = HandBack("shop", "shop", Lsn(7), "{}", ())
    monkeypatch.setattr(Connector, "offsets", lambda self, name="": back)
    file = tmp_path / "nowhere" / "offsets.dat"
    assert called("offsets", config, "--format", "file", "--output", str(file), monkeypatch=monkeypatch) == 1
    assert f"{file} cannot be written: No such file or directory." in capsys.readouterr().err


def test_a_home_for_dagster_is_written_once_and_nothing_in_it_is_overwritten(tmp_path, monkeypatch, capsys):
    home = tmp_path / "a home"
    said = []
    for _ in range(2):
        assert called("dagster-home", str(home), monkeypatch=monkeypatch) == 0
        said.append(capsys.readouterr().out)
    assert "dagster.yaml: written" in said[0] and "dagster.yaml: unchanged" in said[1]
    assert f"export DAGSTER_HOME='{home}'" in said[0] and (home / "connectors").is_dir()
    texts = {name: (ROOT / name).read_text() for name in ("dagster.yaml", "workspace.yaml")}
    assert {file.name: file.read_text() for file in home.glob("*.yaml")} == texts
    (home / "dagster.yaml").unlink()
    (home / "workspace.yaml").write_text("load_from: []\n")
    assert called("dagster-home", str(home), monkeypatch=monkeypatch) == 1
    found = capsys.readouterr().err
    assert "workspace.yaml exists and is not the file" in found and "→" in found
    assert not (home / "dagster.yaml").exists(), "all or nothing"
    assert (home / "workspace.yaml").read_text() == "load_from: []\n"


class Interrupted:
    """Finds no module, and is interrupted when the program is looked for."""

    def find_spec(self, name, *_):
        if name == "cdc_core.cli.program":
            raise KeyboardInterrupt


def test_ctrl_c_while_the_program_is_loaded_prints_no_stack(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "cdc_core.cli.program")
    monkeypatch.setattr(sys, "meta_path", [Interrupted(), *sys.meta_path])
    with pytest.raises(SystemExit) as found:
        entry.main()
    assert (found.value.code, capsys.readouterr().err) == (1, "Stopped.\n")

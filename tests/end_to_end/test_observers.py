"""What programs outside learn of runs as a user starts them: OpenLineage events, as a real Debezium's, and alerts."""

import json

import pytest

from tests.support import otlp
from tests.support.lake import lake_settings, write_properties
from tests.support.openlineage import common, distinct, recorded, wrong
from tests.support.unity import unity_server
from tests.support.waits import wait_until
from tests.support.webhook import webhook

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

# What the recording was made of.
SCHEMA = """
create table orders (id int primary key, amount numeric(12,2), note text);
insert into orders values (1, 2.5, 'secret value');
"""
SETTINGS = {
    "table.include.list": "public.orders",
    "publication.autocreate.mode": "filtered",
    "openlineage.integration.enabled": "true",
    "openlineage.integration.job.description": "This connector does cdc for orders",
    "openlineage.integration.job.tags": "env=prod,team=cdc",
    "openlineage.integration.job.owners": "Mario=maintainer,John Doe=Data scientist",
    "column.mask.with.10.chars": "public.orders.note",
    "topic.prefix": "test",
}


LINEAGE, ALERTS = "/api/v1/lineage", "/secret"


def columns(event):
    """The columns of the source table of an event."""
    return [field["name"] for dataset in event["inputs"] for field in dataset["facets"]["schema"]["fields"]]


def written(events):
    """The rows written to the lake table by each event that counts them."""
    found = [one.get("outputFacets", {}).get("outputStatistics") for event in events for one in event["outputs"]]
    return [facet["rowCount"] for facet in found if facet]


def test_events_are_debeziums_and_name_the_lake_table(pg, program, tmp_path):
    database = pg.database("lineage")
    pg.execute(database, SCHEMA)
    with webhook() as server:
        transport = tmp_path / "openlineage.yml"
        auth = "{type: api_key, apiKey: k3y}"
        address = server.url.removesuffix("/secret")
        transport.write_text(f"transport:\n  type: http\n  url: {address}\n  auth: {auth}\n  compression: gzip\n")
        more = {
            "openlineage.integration.config.file.path": str(transport),
            "wal2lake.alerts.url": server.url,
            "wal2lake.alerts.after.seconds": "0",
            "wal2lake.telemetry.otlp.endpoint": address,
            "wal2lake.quality.rule.small": "public.orders: after.amount < 1000",
            **SETTINGS,
            **lake_settings(tmp_path),
        }
        file = write_properties(tmp_path / "lineage.properties", pg.properties(database, **more))
        with program.started("run", file) as running:
            running.wait_for("streaming", 150)
            pg.execute(database, "alter table orders add column extra varchar(20)")
            pg.execute(database, "insert into orders values (2, 3.5, 'another secret value', 'z'), (3, 1, 'x', 'y')")
            wait_until(lambda: any("extra" in columns(event) for event in server.at(LINEAGE)), 90, "the new column")
            commits = tmp_path / "lake" / "test" / "public" / "orders" / "_delta_log"
            wait_until(lambda: len(list(commits.glob("*.json"))) > 1, 90, "the rows")
            pg.execute(database, "insert into orders values (4, 5000, 'too much', '')")
            wait_until(lambda: server.at(ALERTS), 60, "the alert")
            assert running.end(2) in (0, -2), running.said()
        events = server.at(LINEAGE)
        assert {headers.get("Authorization") for path, headers, _ in server.posted if path == LINEAGE} == {"Bearer k3y"}
        assert server.at(ALERTS) == [
            {
                "event": "quarantine",
                "state": "failing",
                "text": "test: public.orders: 1 changes wait in quarantine, more than 0.",
                "connector": "test",
                "message": "1 changes wait in quarantine, more than 0.",
                "table": "public.orders",
            }
        ]
        assert [problem for event in events for problem in wrong(event)] == []
        assert len({event["run"]["runId"] for event in events}) == 1

        # Debezium's own, except for names and what only one of both knows.
        ports = {f":{pg.port}": ":5432", database: "shop"}
        ours = distinct([common(event, ports) for event in events])
        theirs = distinct([common(event, {}) for event in recorded("debezium_stream")])
        for event in [*ours, *theirs]:
            configs = event["run"]["facets"]["debezium_config"].pop("configs")
            assert "database.password=********" in configs
            assert {f"{name}={value}" for name, value in SETTINGS.items()} <= set(configs)
        assert ours == theirs

        (lake,) = [one for event in events for one in event["outputs"] if "extra" in str(one)][:1]
        assert (lake["namespace"], lake["name"]) == ("file", str(tmp_path / "lake" / "test" / "public" / "orders"))
        kinds = {field["name"]: field["type"] for field in lake["facets"]["schema"]["fields"]}
        assert kinds["amount"] == "decimal(12,2)" and kinds["__commit_lsn"] == "bigint"
        origin = {
            name: (one["inputFields"][0]["field"], one["inputFields"][0]["transformations"][0]["masking"])
            for name, one in lake["facets"]["columnLineage"]["fields"].items()
        }
        expected = {name: (name, name == "note") for name in ("id", "amount", "note", "extra")}
        assert origin == expected
        assert written(events) == [1, 2]
        assert "secret value" not in json.dumps(events)
        assert not any("secret value" in str(body) for _, _, body in server.posted)

        # A trace of a round, and the metrics of all of them.
        rounds = [span for span in otlp.spans(server) if span.name == "round"]
        (merge, *_) = [span for span in otlp.spans(server) if span.parent_span_id == rounds[0].span_id]
        assert merge.name == "merge public.orders" and otlp.attributes(merge)["wal2lake.inserted"] == 2
        (lag,) = otlp.metrics(server)["wal2lake_lag_seconds"].histogram.data_points
        assert lag.count >= 2 and lag.sum > 0
        assert otlp.metrics(server)["debezium_metrics_RowsScanned"].gauge.data_points[0].as_double == 1

        # A run that ends by an error.
        pg.execute(database, "select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")
        server.posted.clear()
        assert program.run("run", file, "--max-seconds", "60").returncode == 1
        events = server.at(LINEAGE)
        assert [event["eventType"] for event in events] == ["START", "RUNNING", "RUNNING", "FAIL"]
        error = events[-1]["run"]["facets"]["errorMessage"]
        assert "slot" in error["message"] and error["stackTrace"].startswith("  File ")
        assert [problem for event in events for problem in wrong(event)] == []
        (down,) = server.at(ALERTS)
        assert (down["event"], down["state"]) == ("stream_down", "failing") and "slot" in down["message"]
    # Nobody listens any more.
    done = program.run("run", file, "--until-idle", "1", "--set", "slot.name=another", "--set", "snapshot.mode=no_data")
    assert "messages are dropped" in done.stderr and "/secret" not in done.stderr
    transport.write_text("transport:\n  type: carrier pigeon\n")
    refused = program.run("run", file)
    assert refused.returncode == 1 and "expected one of http, file, console, composite" in refused.stderr
    checked = program.run("check", file).stdout
    assert "carrier pigeon" in checked and f"Alerts are posted to {address}." in checked
    pg.drop_database(database)


def test_catalogs_follow_the_tables(pg, program, tmp_path):
    database = pg.database("catalogs")
    pg.execute(
        database, SCHEMA + "comment on table orders is 'What was ordered'; create table people (id int primary key)"
    )
    with unity_server() as server:
        more = {
            "table.include.list": r"public\..*",
            "publication.autocreate.mode": "all_tables",
            "topic.prefix": "test",
            "wal2lake.catalogs": "unity",
            "wal2lake.catalogs.unity.url": server.url,
            "wal2lake.catalogs.unity.token": server.token,
            "wal2lake.catalogs.database": "{connector}_{schema}",
            "wal2lake.catalogs.table": "{table}",
            **lake_settings(tmp_path),
        }
        file = write_properties(tmp_path / "catalogs.properties", pg.properties(database, **more))
        orders, sold = "unity.test_public.orders", "unity.test_public.sold"
        with program.started("run", file) as running:
            wait_until(lambda: set(server.tables) == {orders, "unity.test_public.people"}, 150, "the first snapshot")
            table = server.tables[orders]
            assert table["comment"] == "What was ordered"
            assert table["storage_location"] == f"file://{tmp_path}/lake/test/public/orders"
            names = {column["name"]: column["type_text"] for column in table["columns"]}
            assert names["amount"] == "decimal(12,2)" and "__commit_lsn" in names
            running.wait_for("streaming", 90)
            pg.execute(database, "alter table orders add column extra text")
            pg.execute(database, "insert into orders values (2, 1, 'x', 'y')")

            def has_extra():
                columns = server.tables.get(orders, {}).get("columns", ())
                return "extra" in [column["name"] for column in columns]

            wait_until(has_extra, 60, "the new column")
            # A catalog that is away keeps no row from the lake.
            server.status = 503
            pg.execute(database, "alter table orders rename to sold")
            pg.execute(database, "insert into sold values (3, 1, 'x', 'y')")
            wait_until((tmp_path / "lake" / "test" / "public" / "sold" / "_delta_log").exists, 90, "the table")
            running.wait_for("tables are not registered", 60)
            server.status = 0
            wait_until(lambda: sold in server.tables and orders not in server.tables, 120, "the other name")
            assert "t0ken" not in running.said()
            assert running.end(2) in (0, -2), running.said()
        # While no run is active.
        pg.execute(database, "drop table people")
        assert program.run("run", file, "--until-idle", "1").returncode == 0
        assert set(server.tables) == {sold}
        checked = program.run("check", file).stdout
        assert f"Unity Catalog unity at {server.url} answers" in checked
        server.status = 503
        checked = program.run("check", file)
        assert "cannot be used" in checked.stdout and checked.returncode == 0
    pg.drop_database(database)

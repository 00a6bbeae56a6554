"""``/health``: what each connector of a process does."""

import json
import urllib.error
import urllib.request

from cdc_core.demo.processes import free_port
from cdc_core.observe import forget_metrics, metrics_of
from cdc_core.observe.metrics import ConnectorMetrics


def health(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_the_state_follows_the_run():
    metrics = ConnectorMetrics("shop")

    def state():
        found = metrics.health()
        return found.state, found.cause

    assert state() == ("starting", "")
    metrics.snapshot_started(["t"])
    assert state() == ("snapshot", "")
    metrics.snapshot_ended(aborted=False)
    metrics.connected(["t"])
    assert state() == ("streaming", "")
    metrics.waiting("UnreachableError", "It is away.")
    metrics.disconnected()
    assert state() == ("waiting", "It is away.")
    metrics.going_on()
    assert state() == ("starting", "")
    metrics.waiting("UnreachableError", "It is away.")
    metrics.stopped("The slot is lost.")
    metrics.going_on()  # a run that ends notes that it does not wait
    metrics.stopped("The slot is lost.")
    assert state() == ("failed", "The slot is lost.")
    metrics.starting()
    assert state() == ("starting", "")
    metrics.stopped()
    assert state() == ("ended", "")


def test_all_connectors_of_an_address_are_shown_and_a_failed_one_is_a_failure(tmp_path):
    port = free_port()
    shop, billing = (metrics_of(name, "127.0.0.1", port) for name in ("shop", "billing"))
    shop.connected(["t"])
    assert health(port) == (
        200,
        {"status": "ok", "connectors": {"billing": {"state": "starting"}, "shop": {"state": "streaming"}}},
    )
    billing.waiting("UnreachableError", "It is away.")
    code, page = health(port)
    assert (code, page["status"], page["connectors"]["billing"]["cause"]) == (200, "waiting", "It is away.")
    wrong = metrics_of("b.properties", "127.0.0.1", port)
    wrong.stopped("slot.name is missing.")
    code, page = health(port)
    assert (code, page["status"]) == (503, "failed")
    failed = {s.labels["name"]: s.value for m in wrong.collect() if m.name == "wal2lake_failed" for s in m.samples}
    assert failed == {"b.properties": 1}
    forget_metrics("b.properties", "127.0.0.1", port)
    code, page = health(port)
    assert code == 200 and "b.properties" not in page["connectors"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'wal2lake_failed{name="shop"} 0.0' in text and "b.properties" not in text
    # The format wants all samples of a metric together.
    connected = [line for line in text.splitlines() if "debezium_metrics_Connected" in line]
    assert [line.partition("{")[0] for line in connected[:2]] == [
        "# HELP debezium_metrics_Connected Whether the stream is connected to the server.",
        "# TYPE debezium_metrics_Connected gauge",
    ]
    assert len(connected) == 4


def test_each_connector_has_its_own_data_docs(tmp_path):
    port = free_port()
    for name in ("shop", "billing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(name)
        metrics_of(name, "127.0.0.1", port, [tmp_path / name])

    def page(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read().decode()

    assert [page(f"/data-docs/{path}") for path in ("shop/", "billing/index.html", "index.html")] == [
        "shop",
        "billing",
        "shop",
    ]

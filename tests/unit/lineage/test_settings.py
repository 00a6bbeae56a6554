"""The file of transports is read as OpenLineage's client for Java reads it."""

from pathlib import Path

import pytest

from cdc_core.errors import ConfigError
from cdc_core.lineage.settings import opened_transport
from cdc_core.lineage.transports import CompositeTransport, ConsoleTransport, FileTransport, HttpTransport
from cdc_core.outbox import DeliveryError
from tests.support.webhook import webhook


@pytest.fixture
def read(tmp_path):
    def opened(text):
        file = tmp_path / "openlineage.yml"
        file.write_text(text)
        return opened_transport(str(file))

    return opened


HTTP = """
transport:
  type: HTTP
  url: https://lineage.example.org:8443
  timeoutInMillis: 250
  auth: {type: api_key, apiKey: k3y}
  urlParams: {url.param.team: a b}
  headers: {X-Team: cdc}
  compression: gzip
"""


def test_http(read):
    transport = read(HTTP)
    assert isinstance(transport, HttpTransport)
    assert transport.url == "https://lineage.example.org:8443/api/v1/lineage?team=a+b"
    assert (transport.key.reveal(), transport.headers) == ("k3y", {"X-Team": "cdc"})
    assert (transport.timeout_seconds, transport.is_compressed) == (0.25, True)
    assert transport.place == "https://lineage.example.org:8443"
    assert "k3y" not in repr(transport)


def test_debeziums_example(read):
    transport = read(
        "transport:\n  type: http\n  url: http://server:5000\n  endpoint: /api/v1/lineage\n"
        "  auth:\n    type: api_key\n    api_key: your-api-key\n"
    )
    assert (transport.url, transport.key.reveal()) == ("http://server:5000/api/v1/lineage", "your-api-key")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("transport: {type: console}", ConsoleTransport()),
        ("transport: {type: file, location: /data/events.ndjson}", FileTransport(Path("/data/events.ndjson"))),
        (
            "transport: {type: composite, transports: [{type: console}, {type: file, location: x}]}",
            CompositeTransport((ConsoleTransport(), FileTransport(Path("x")))),
        ),
        (
            "transport: {type: composite, continueOnFailure: false, transports: {b: {type: console}, "
            "a: {type: file, location: x}}}",
            CompositeTransport((FileTransport(Path("x")), ConsoleTransport()), False),
        ),
    ],
)
def test_other_kinds(read, text, kind):
    assert read(text) == kind


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not YAML"),
        ("a list", "the file is expected to be a map"),
        ("transport: {type: kafka}", "expected one of http, file, console, composite"),
        ("transport: {}", "transport.type is missing"),
        ("transport: {type: http}", "transport.url is expected"),
        ("transport: {type: http, url: 'http://h/x', endpoint: y}", "keep one of them"),
        ("transport: {type: http, url: 'http://h', auth: {type: jwt}}", "expected api_key"),
        ("transport: {type: http, url: 'http://h', timeoutInMillis: 0}", "from 1 to 60000"),
        ("transport: {type: http, url: 'http://h', compression: zip}", "expected gzip"),
        ("transport: {type: http, url: 'http://h', sslContext: {}}", "not supported"),
        ("transport: {type: file}", "transport.location is missing"),
        ("transport: {type: composite, transports: [{type: x}]}", r"transport.transports\[0\].type is x"),
    ],
)
def test_what_is_refused(read, text, problem):
    with pytest.raises(ConfigError, match=problem):
        read(text)


def test_a_file_that_is_missing(tmp_path):
    with pytest.raises(ConfigError, match=r"openlineage\.integration\.config\.file\.path\) cannot be read: No such"):
        opened_transport(str(tmp_path / "none.yml"))


def test_events_are_posted_and_errors_have_no_secret():
    with webhook() as server:
        address = server.url.removesuffix("/secret")
        HttpTransport(f"{server.url}?token=t0ken", is_compressed=True).send({"a": 1})
        assert server.alerts == [{"a": 1}]
        server.status = 500
        with pytest.raises(DeliveryError) as answered:
            HttpTransport(f"{server.url}?token=t0ken").send({})
    assert str(answered.value) == f"{address} answered 500"
    with pytest.raises(DeliveryError, match="cannot be reached") as away:
        HttpTransport(f"{server.url}?token=t0ken").send({})
    assert "t0ken" not in str(away.value) and "secret" not in str(away.value)


def test_a_file_gets_a_line_an_event(tmp_path):
    file = tmp_path / "events"
    composite = CompositeTransport((FileTransport(tmp_path), FileTransport(file)))
    with pytest.raises(DeliveryError, match="Is a directory"):
        composite.send({"a": 1})
    assert file.read_text() == '{"a": 1}\n'
    with pytest.raises(DeliveryError):
        CompositeTransport((FileTransport(tmp_path), FileTransport(file)), False).send({"a": 2})
    assert file.read_text() == '{"a": 1}\n'

"""The data docs over HTTP, beside the metrics."""

import http.client
import os
import socket
import urllib.error
import urllib.request

import pytest

from cdc_core.demo.processes import free_port
from cdc_core.observe.endpoint import metrics_of
from cdc_core.observe.static_pages import DATA_DOCS_PATH, data_docs_url, static_page

SECRET = "not a page"


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def site(tmp_path):
    folder = tmp_path / "docs" / "site"
    (folder / "static" / "styles").mkdir(parents=True)
    (folder / "index.html").write_text("<h1>Päge</h1>")
    (folder / "static" / "styles" / "a b.css").write_text("h1 {}")
    (tmp_path / "docs" / "secret").write_text(SECRET)
    os.symlink(tmp_path / "docs" / "secret", folder / "link.html")
    return folder


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def test_pages_are_served_beside_the_metrics_once_they_are_built(port, site):
    later = site.with_name("later")
    metrics_of("shop", "127.0.0.1", port, [later, site])
    kind, text = get(data_docs_url("127.0.0.1", port))
    assert (kind, text) == ("text/html; charset=utf-8", "<h1>Päge</h1>")
    # A folder, and the address without the last slash.
    assert get(f"http://127.0.0.1:{port}/data-docs")[1] == text
    assert get(f"http://127.0.0.1:{port}/data-docs/static/styles/a%20b.css") == ("text/css; charset=utf-8", "h1 {}")
    assert "debezium_metrics_Connected" in get(f"http://127.0.0.1:{port}/metrics")[1]
    site.rename(later)  # as a run that builds them anew does
    assert get(data_docs_url("127.0.0.1", port))[1] == text


def test_an_address_of_ipv6(site):
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
            port = probe.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no IPv6")
    metrics_of("shop", "::1", port, [site])
    assert get(data_docs_url("::1", port))[1] == "<h1>Päge</h1>"


def test_what_was_not_built_is_not_found_and_says_why(port, tmp_path):
    metrics_of("shop", "127.0.0.1", port, [tmp_path / "none"])
    with pytest.raises(urllib.error.HTTPError) as found:
        get(data_docs_url("127.0.0.1", port))
    assert found.value.code == 404
    assert "at the end of each run" in found.value.read().decode()


@pytest.mark.parametrize(
    "path", ["../secret", "%2e%2e/secret", "static/../../secret", "/etc/hostname", "link.html", "a%00b", "static"]
)
def test_nothing_outside_of_the_folder_is_served(port, site, path):
    metrics_of("shop", "127.0.0.1", port, [site])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", DATA_DOCS_PATH + path)
        answer = connection.getresponse()
        assert (answer.status, SECRET in answer.read().decode()) == (404, False)
    finally:
        connection.close()


def test_where_the_pages_are():
    assert data_docs_url("127.0.0.1", 0) == ""
    assert data_docs_url("0.0.0.0", 9404) == "http://127.0.0.1:9404/data-docs/index.html"
    assert data_docs_url("::1", 9404) == "http://[::1]:9404/data-docs/index.html"
    assert static_page([], "/data-docs/index.html").status.startswith("404")

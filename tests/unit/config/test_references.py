"""Values that point elsewhere: resolved at use, and never shown."""

import pickle
import re

import pytest

from cdc_core.config.connector import from_entries
from cdc_core.config.references import has_reference, resolve_references
from cdc_core.errors import ConfigError
from cdc_core.option import Secret

CLEAR = "s3cr3t-Clear-Text"
LEAST = {"database.hostname": "h", "database.user": "u", "database.dbname": "d", "topic.prefix": "t"}


def config_of(**more):
    return from_entries({**LEAST, **{name.replace("__", "."): value for name, value in more.items()}}.items())


def test_an_environment_variable_is_looked_up(monkeypatch):
    monkeypatch.setenv("PW", CLEAR)
    assert resolve_references("a ${env:PW} b") == f"a {CLEAR} b"
    assert resolve_references("${env::PW}") == CLEAR


def test_a_file_gives_its_text_or_one_of_its_properties(tmp_path):
    (tmp_path / "whole").write_text(CLEAR + "\r\n")
    (tmp_path / "some.properties").write_text(f"x = 1\npw : {CLEAR}\n")
    assert resolve_references(f"${{file:{tmp_path}/whole}}") == CLEAR
    assert resolve_references(f"${{file:{tmp_path}/some.properties:pw}}") == CLEAR


@pytest.mark.parametrize("text", ["${env:NOT_SET_ANYWHERE}", "${file:/no/such/file}", "${vault:a:b}"])
def test_a_reference_to_nothing_is_named(text):
    with pytest.raises(ConfigError, match=re.escape(text)):
        resolve_references(text)


def test_a_missing_key_is_named_and_the_file_not_shown(tmp_path):
    (tmp_path / "f").write_text(f"pw={CLEAR}\n")
    with pytest.raises(ConfigError) as raised:
        resolve_references(f"${{file:{tmp_path}/f:other}}")
    assert "other" in str(raised.value)
    assert CLEAR not in str(raised.value)


def test_what_is_no_reference_stays():
    assert not has_reference("(.*)$ {1} ${user.home}")
    assert resolve_references("${user.home}/x$") == "${user.home}/x$"


def test_a_password_is_looked_up_when_it_is_used(monkeypatch):
    monkeypatch.delenv("PW", raising=False)
    config = config_of(database__password="${env:PW}")
    with pytest.raises(ConfigError, match="PW} is not set"):
        config.postgres.database_password.reveal()
    monkeypatch.setenv("PW", CLEAR)
    assert config.postgres.database_password.reveal() == CLEAR
    assert pickle.loads(pickle.dumps(config)).postgres.database_password.reveal() == CLEAR
    assert CLEAR.encode() not in pickle.dumps(config)


def test_another_value_is_looked_up_when_the_file_is_read(monkeypatch):
    monkeypatch.setenv("PG_PORT", "6543")
    assert config_of(database__port="${env:PG_PORT}").postgres.database_port == 6543
    monkeypatch.setenv("PG_PORT", CLEAR)
    with pytest.raises(ConfigError) as raised:
        config_of(database__port="${env:PG_PORT}")
    assert "${env:PG_PORT}" in str(raised.value)
    assert CLEAR not in str(raised.value)


def test_a_secret_never_prints():
    secret = Secret(CLEAR)
    assert CLEAR not in f"{secret} {secret!r}"
    assert secret == Secret(CLEAR)
    assert secret
    assert not Secret()
    assert secret.reveal() == CLEAR

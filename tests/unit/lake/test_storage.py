"""One set of storage settings for both engines; a path that carries them, and no secret."""

import pickle

from cdc_core.config.connector import load
from cdc_core.lake.delta.folder import delta_uri
from cdc_core.lake.delta.storage import LOG_STORE, Location, Storage, copies_for, options_for
from cdc_core.lake.paths import LakePaths
from cdc_core.option import Secret
from cdc_core.schema.table import TableId

T = TableId("public", "t")
MINIO = Storage("http://127.0.0.1:9000", "eu-1", "key", Secret("very secret"), True)


def test_both_engines_get_the_same_settings():
    assert MINIO.for_delta_rs() == {
        "aws_endpoint_url": "http://127.0.0.1:9000",
        "aws_region": "eu-1",
        "aws_access_key_id": "key",
        "aws_secret_access_key": "very secret",
        "aws_allow_http": "true",
        "aws_virtual_hosted_style_request": "false",
        "aws_conditional_put": "etag",
    }
    assert MINIO.for_hadoop() == {
        "fs.s3a.endpoint": "http://127.0.0.1:9000",
        "fs.s3a.endpoint.region": "eu-1",
        "fs.s3a.access.key": "key",
        "fs.s3a.secret.key": "very secret",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
    }
    # What is not said is left to the engines' defaults, but for the condition of a commit.
    assert Storage().for_delta_rs() == {"aws_conditional_put": "etag"}
    assert Storage().for_hadoop() == {}


def test_only_what_is_in_a_store_has_copies_on_the_machine(tmp_path):
    """Workers ask the log of a local table in each round, as it costs nothing: other programs may have written."""
    storage = Storage(copies=str(tmp_path / "objects"), copies_max_bytes=1 << 20)
    assert copies_for(Location("s3://bucket/lake/t", storage)) is not None
    assert copies_for(Location(str(tmp_path / "lake" / "t"), storage)) is None


def test_a_path_carries_its_settings_to_tasks_and_shows_no_secret():
    paths = LakePaths("s3://bucket/lake/", "shop", MINIO)
    lake = pickle.loads(pickle.dumps(paths)).lake(T)
    assert lake == "s3a://bucket/lake/shop/public/t"
    assert delta_uri(lake) == "s3://bucket/lake/shop/public/t"
    assert isinstance(lake, Location)
    assert options_for(pickle.loads(pickle.dumps(lake))) == MINIO.for_delta_rs()
    assert "very secret" not in repr(paths) + repr(lake) + str(lake)
    assert {lake: 1}["s3a://bucket/lake/shop/public/t"] == 1


def test_a_secret_that_is_a_reference_is_resolved_in_the_end_only(monkeypatch, tmp_path):
    file = tmp_path / "s3.properties"
    file.write_text(
        "topic.prefix=shop\ndatabase.hostname=h\ndatabase.user=u\ndatabase.password=p\ndatabase.dbname=d\n"
        "wal2lake.lake.path=s3a://bucket/lake\nwal2lake.storage.s3.secret.key=${env:W2L_TEST_SECRET}\n"
    )
    monkeypatch.setenv("W2L_TEST_SECRET", "from the environment")
    config = load(file)
    storage = Storage.of(config.lake)
    assert b"from the environment" not in pickle.dumps(LakePaths(config.lake.lake_path, "shop", storage))
    assert storage.for_delta_rs()["aws_secret_access_key"] == "from the environment"
    assert "from the environment" not in repr(config)


def test_other_file_systems_are_left_alone(tmp_path):
    paths = LakePaths(str(tmp_path), "shop", MINIO)
    assert options_for(paths.lake(T)) is None
    assert options_for("s3://bucket/t", {"a": "b"}) == {"a": "b"}
    assert Storage.spark_settings(str(tmp_path)) == {}
    assert Storage.spark_settings("s3a://bucket/lake") == dict([LOG_STORE])
    MINIO.reach(None, str(tmp_path))

import pytest
from dagster._utils.schedules import is_valid_cron_schedule

from cdc_core.config.connector import from_entries
from cdc_core.errors import ConfigError
from cdc_core.observe.cron import parse_cron
from cdc_core.observe.options import FreshnessWindow

PLAIN = (("topic.prefix", "shop"), ("database.hostname", "h"), ("database.user", "u"), ("database.dbname", "d"))


@pytest.mark.parametrize(
    "text", ["0 3 * * 0", "*/5 * * * *", "0,30 8-18/2 1 jan-mar mon-fri", "  0   3 * * 7 ", "@daily", "59 23 31 12 6"]
)
def test_what_is_accepted_dagster_accepts_too(text):
    assert is_valid_cron_schedule(parse_cron(text))


@pytest.mark.parametrize(
    "text", ["daily", "0 3 * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "5-1 * * * *", "*/0 * * * *"]
)
def test_what_is_no_cron_expression_is_refused(text):
    with pytest.raises(ValueError, match="cron expression"):
        parse_cron(text)


def test_a_schedule_of_a_connector_file():
    config = from_entries(
        [
            *PLAIN,
            ("wal2lake.snapshot.schedule", "@weekly"),
            ("wal2lake.snapshot.schedule.tables", "public.orders, public\\.p.*"),
            ("wal2lake.snapshot.schedule.timezone", "Europe/Berlin"),
        ]
    )
    assert config.observe.snapshot_schedule == "0 0 * * 0"
    assert config.observe.snapshot_schedule_tables == ("public.orders", "public\\.p.*")
    assert config.observe.snapshot_schedule_timezone == "Europe/Berlin"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("wal2lake.snapshot.schedule", "0 3 * *"),
        ("wal2lake.snapshot.schedule.timezone", "Mars/Olympus"),
        ("wal2lake.metrics.port", "70000"),
        ("wal2lake.dagster.owners", "ann"),
        ("wal2lake.dagster.tags", "domain=a b"),
        ("wal2lake.dagster.freshness", "public\\.orders"),
        ("wal2lake.dagster.freshness", "public\\.orders=4m"),
        ("wal2lake.dagster.freshness", "public\\.orders=soon"),
        ("wal2lake.dagster.freshness", "public\\.orders=1h:30m"),
        ("wal2lake.dagster.freshness", "public\\.(ord=1h"),
    ],
)
def test_a_wrong_value_is_reported_before_anything_starts(name, text):
    with pytest.raises(ConfigError, match=name):
        from_entries([*PLAIN, (name, text)])


def test_notifications_to_a_table_need_a_lake():
    config = from_entries([*PLAIN, ("notification.enabled.channels", "sink,log")])
    assert "notification channel sink" in " ".join(config.warnings)
    config = from_entries(
        [*PLAIN, ("notification.enabled.channels", "sink"), ("wal2lake.lake.path", "/x"), ("plugin.name", "pgoutput")]
    )
    assert "notification" not in " ".join(config.warnings)


def test_owners_and_tags():
    config = from_entries(
        [*PLAIN, ("wal2lake.dagster.owners", "team:data, ann@example.org"), ("wal2lake.dagster.tags", "tier=1, gold")]
    )
    assert config.observe.dagster_owners == ("team:data", "ann@example.org")
    assert config.observe.dagster_tags == (("tier", "1"), ("gold", ""))


def test_freshness_windows_in_the_files_order():
    config = from_entries([*PLAIN, ("wal2lake.dagster.freshness", r"public\.orders=15m:2h, .*=1d")])
    assert config.observe.dagster_freshness == (
        FreshnessWindow(r"public\.orders", 900, 7200),
        FreshnessWindow(".*", None, 86_400),
    )

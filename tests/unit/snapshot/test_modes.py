"""The truth table of snapshot modes, row by row, and the page that shows it."""

import re
from pathlib import Path

import pytest

from cdc_core.errors import ConfigError
from cdc_core.snapshot.modes import ModeActions, mode_actions
from cdc_core.snapshot.options import SnapshotMode, SnapshotOptions, parse_snapshot_mode
from cdc_core.snapshot.snapshotter import Snapshotter

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "snapshots.md"

#                first  cut short  later  position lost  streams
ROWS = {
    "always": ("yes", "yes", "yes", "no", "yes"),
    "initial": ("yes", "yes", "no", "no", "yes"),
    "initial_only": ("yes", "yes", "no", "no", "no"),
    "no_data": ("no", "no", "no", "no", "yes"),
    "when_needed": ("yes", "yes", "no", "yes", "yes"),
}
OLDER = {"never": "no_data", "schema_only": "no_data", "exported": "initial"}


class Weekend:
    """A mode of the user's own; its answers differ for each question."""

    def should_snapshot_data(self, offset_exists: bool, snapshot_in_progress: bool) -> bool:
        return offset_exists and not snapshot_in_progress

    def should_stream(self) -> bool:
        return False

    def should_snapshot_on_data_error(self) -> bool:
        return True


class Silent:
    def should_stream(self) -> bool:
        return True


class Broken(Weekend):
    def __init__(self) -> None:
        raise RuntimeError("secret in a text")


def shown(row: ModeActions) -> tuple[str, ...]:
    found = (row.first, row.interrupted, row.later, row.position_lost, row.stream)
    return tuple("yes" if answer else "no" for answer in found)


@pytest.mark.parametrize(("name", "row"), [*ROWS.items(), *((old, ROWS[new]) for old, new in OLDER.items())])
def test_each_mode_answers_as_its_row_says(name, row):
    assert shown(mode_actions(SnapshotOptions(snapshot_mode=parse_snapshot_mode(name)))) == row


@pytest.mark.parametrize("data", [True, False])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("on_error", [True, False])
def test_configuration_based_is_its_switches(data, stream, on_error):
    options = SnapshotOptions(
        snapshot_mode=SnapshotMode.CONFIGURATION_BASED,
        snapshot_mode_configuration_based_snapshot_data=data,
        snapshot_mode_configuration_based_start_stream=stream,
        snapshot_mode_configuration_based_snapshot_on_data_error=on_error,
    )
    assert mode_actions(options) == ModeActions(data, data, data, on_error, stream)


def custom(name: str) -> SnapshotOptions:
    return SnapshotOptions(snapshot_mode=SnapshotMode.CUSTOM, snapshot_mode_custom_name=name)


def test_custom_asks_the_class_each_question():
    assert isinstance(Weekend(), Snapshotter)
    assert shown(mode_actions(custom(f"{__name__}.Weekend"))) == ("no", "no", "yes", "yes", "no")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("Weekend", "not the import path"),
        ("no_such_package_at_all.Weekend", "ModuleNotFoundError"),
        (f"{__name__}.Nothing", "AttributeError"),
        (f"{__name__}.Broken", "RuntimeError"),
        (f"{__name__}.Silent", "should_snapshot_data, should_snapshot_on_data_error"),
        ("io.debezium.connector.postgresql.spi.Snapshotter", "cannot be instantiated"),
    ],
)
def test_an_unusable_class_is_reported(path, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        mode_actions(custom(path))
    assert "secret" not in str(caught.value)


def test_the_page_shows_the_same_rows():
    found = dict(
        re.findall(r"^\| `(\w+)` \| ((?:[^|]+ \| ){4}[^|]+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert set(found) == {mode.value for mode in SnapshotMode}
    assert {name: tuple(found[name].split(" | ")) for name in ROWS} == ROWS
    for old, new in OLDER.items():
        assert f"`{old}`" in PAGE.read_text(encoding="utf-8"), f"{old} is the older name of {new}"

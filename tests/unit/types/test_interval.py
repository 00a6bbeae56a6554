"""interval as ISO text: every component, and the seconds as a double's decimal text is cut."""

from decimal import ROUND_DOWN, Decimal

import pytest

from cdc_core.types.options import IntervalHandlingMode
from tests.unit.types.converters import base, event_of, values

WRITTEN = event_of(base("interval"), interval_handling_mode=IntervalHandlingMode.STRING)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # recorded from Debezium 3.6.3
        ("1 year 2 mons 3 days 04:05:06.78", "P1Y2M3DT4H5M6.78S"),
        ("1 year 2 mons 3 days 04:05:06.789", "P1Y2M3DT4H5M6.789S"),
        ("-1 years -2 mons +3 days -04:05:06.000001", "P-1Y-2M3DT-4H-5M-6.000001S"),
        ("-1 mons -1 days -00:00:01", "P0Y-1M-1DT0H0M-1S"),
        ("1 day 00:00:01.999999", "P0Y0M1DT0H0M1.999998999S"),
        # the same rule
        ("00:00:01.999999", "P0Y0M0DT0H0M1.999998999S"),
        ("-00:00:01.999999", "P0Y0M0DT0H0M-1.999998999S"),
        ("00:00:00.000001", "P0Y0M0DT0H0M0.000001S"),
        ("00:00:00.999999", "P0Y0M0DT0H0M0.999999S"),
        ("00:00:59.5", "P0Y0M0DT0H0M59.5S"),
        ("infinity", "P0Y0M0DT0H0M0S"),
    ],
)
def test_recorded_and_computed_texts(text, expected):
    assert values(WRITTEN.convert, text, None) == [expected, None]


def test_the_cut_at_nine_decimals_over_a_minute_of_microseconds():
    drawn = [*range(1, 60_000_000, 7_919), *range(1_999_000, 2_000_000)]
    texts = [f"00:00:{us // 1_000_000:02d}.{us % 1_000_000:06d}" for us in drawn]
    found = values(WRITTEN.convert, *texts)
    expected = []
    for us in drawn:
        # What the driver adds up, and Java's decimal text of that double.
        seconds = us // 1_000_000 + (us % 1_000_000) / 1e6
        cut = Decimal(repr(seconds)).quantize(Decimal("1e-9"), ROUND_DOWN)
        expected.append("P0Y0M0DT0H0M" + f"{cut:f}".rstrip("0").rstrip(".") + "S")
    assert found == expected
    assert any(len(text) > len("P0Y0M0DT0H0M59.999999S") for text in found), "some doubles lie below"

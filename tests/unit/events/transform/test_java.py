"""What Java 17 answers to the same questions: hash codes and formatted times."""

from __future__ import annotations

import pytest

from cdc_core.events.transform.date_format import DateFormat
from cdc_core.events.transform.hashes import java_hash, murmur_hash

MURMUR = {
    "": 89125410,
    "a": -1119243492,
    "abc": 1809745788,
    "0123456789abcde": -1723162990,
    "0123456789abcdef": 26898387,
    "0123456789abcdefg": -1536414354,
    "héllo": -1401450635,
    "日本語日本語日本語": -1391047871,
    "😀x😀": -1901986733,
    "é": 646796076,
    "aaaaaaaaé日": -1561231071,
}
NUMBERS = {0: 1805505889, 1: -1931162451, -1: 171705313, 123456: -486788689}

# Pattern, milliseconds since 1970 if they are formatted, the text, and the milliseconds that are read from it.
TIMES = [
    ("yyyy-MM-dd'T'HH:mm:ss.SSS", -12219103719359, "1582-10-17T04:31:20.641", -12219103719359),
    ("yyyy-MM-dd'T'HH:mm:ss.SSS", -12217495765740, "1582-11-04T19:10:34.260", -12217495765740),
    ("yyyy-MM-dd'T'HH:mm:ss.SSS", -230886054769832, "5348-08-17T16:47:10.168", 106619215630168),
    ("yyyy-MM-dd'T'HH:mm:ss.SSS", 332603255121914, "12509-10-11T17:05:21.914", 332603255121914),
    (
        "G y MMM d E DDD u a hh KK kk z Z X",
        -12219103719359,
        "AD 1582 Oct 17 Sun 280 7 AM 04 04 04 UTC +0000 Z",
        -12219105600000,
    ),
    (
        "G y MMM d E DDD u a hh KK kk z Z X",
        -12217495765740,
        "AD 1582 Nov 4 Thu 298 4 PM 07 07 19 UTC +0000 Z",
        -12217496400000,
    ),
    (
        "G y MMM d E DDD u a hh KK kk z Z X",
        -230886054769832,
        "BC 5348 Aug 17 Wed 229 3 PM 04 04 16 UTC +0000 Z",
        -230886057600000,
    ),
    (
        "G y MMM d E DDD u a hh KK kk z Z X",
        332603255121914,
        "AD 12509 Oct 11 Fri 284 5 PM 05 05 17 UTC +0000 Z",
        332603254800000,
    ),
    ("yyyy-MM-dd G HH:mm", -12219103719359, "1582-10-17 AD 04:31", -12219103740000),
    ("yyyy-MM-dd G HH:mm", -12217495765740, "1582-11-04 AD 19:10", -12217495800000),
    ("yyyy-MM-dd G HH:mm", -230886054769832, "5348-08-17 BC 16:47", -230886054780000),
    ("yyyy-MM-dd G HH:mm", 332603255121914, "12509-10-11 AD 17:05", 332603255100000),
    ("yyyyMMddHHmmss", -12219103719359, "15821017043120", -12219103720000),
    ("yyyyMMddHHmmss", -12217495765740, "15821104191034", -12217495766000),
    ("yyyyMMddHHmmss", -230886054769832, "53480817164710", 106619215630000),
    ("yyyyMMddHHmmss", 332603255121914, "125091011170521", -22483741279000),
    ("yyyy-DDD G", -12219103719359, "1582-280 AD", -12219120000000),
    ("yyyy-DDD G", -12217495765740, "1582-298 AD", -12217564800000),
    ("yyyy-DDD G", -230886054769832, "5348-229 BC", -230886115200000),
    ("yyyy-DDD G", 332603255121914, "12509-284 AD", 332603193600000),
    ("yyyy-MM-dd", None, "20-01-02", -61536153600000),
    ("yyyy-MM-dd", None, "1582-10-10", -12218860800000),
    ("yyyy-MM-dd", None, "1582-10-4", -12219379200000),
    ("yyyy-MM-dd", None, "1582-10-40", -12217132800000),
    ("yyyy-MM-dd", None, "1583-01-00", -12212640000000),
    ("yyyy-MM-dd", None, "1583-01-0", -12212640000000),
    ("yyyy-MM-dd", None, "123456-01-05", 3833728185600000),
    ("yyyy-MM-dd G", None, "0044-03-15 BC", -63517996800000),
    ("yyyy-MM-dd", None, "0000-03-15", -62160998400000),
    ("yyyy-MM-dd", None, "1500-02-29", -14825894400000),
    ("yyyy-MM-dd", None, "1900-02-29", -2203891200000),
    ("yyyy DDD", None, "1582 300", -12217392000000),
    ("y", None, "-5", -62325158400000),
    ("yyyy-MM-dd", None, "-005-01-01", -62325158400000),
]


def test_murmur() -> None:
    assert {text: murmur_hash("string", text) for text in MURMUR} == MURMUR
    assert {number: murmur_hash("int32", number) for number in NUMBERS} == NUMBERS
    assert java_hash("string", "a") == 97
    assert murmur_hash("boolean", True) == -1891831265


@pytest.mark.parametrize(("pattern", "millis", "text", "read"), TIMES)
def test_times_before_and_after_the_gregorian_calendar(pattern: str, millis: int | None, text: str, read: int) -> None:
    form = DateFormat(pattern, "format")
    if millis is not None:
        assert form.text(millis) == text
    assert form.millis(text) == read

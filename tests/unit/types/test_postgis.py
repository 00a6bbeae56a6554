"""PostGIS: EWKB octets kept as they are, the SRID beside them."""

from __future__ import annotations

import base64

from tests.unit.types.converters import bad_places, codec_of, event_of, from_extension, obeys_laws, values

WITH_SRID = "0101000020E61000006666666666D665406666666666664 2C0".replace(" ", "")
WITHOUT = "0101000000000000000000F03F0000000000000040"
BIG_ENDIAN = "0020000001000010E6" + "00" * 16
TEXTS = [WITH_SRID, None, WITHOUT, BIG_ENDIAN, "01", "0101000000zz000000", WITHOUT + "0", "", WITHOUT.lower()]


def test_laws() -> None:
    for name in ("geometry", "geography"):
        codec = codec_of(from_extension(name))
        obeys_laws(codec.natural.convert, codec.natural.arrow_type, *TEXTS)
        assert codec.event is not None
        obeys_laws(codec.event.convert, codec.event.arrow_type, *TEXTS)


def test_octets_and_srid() -> None:
    event = event_of(from_extension("geometry"))
    with_srid, without, big = values(event.convert, WITH_SRID, WITHOUT, BIG_ENDIAN)
    assert base64.b64encode(with_srid["wkb"]) == b"AQEAACDmEAAAZmZmZmbWZUBmZmZmZmZCwA=="
    assert (with_srid["srid"], without["srid"], big["srid"]) == (4326, None, 4326)
    natural = codec_of(from_extension("geometry")).natural
    assert values(natural.convert, WITHOUT) == [bytes.fromhex(WITHOUT)]
    assert bad_places(natural.convert, *TEXTS) == [4, 5, 6, 7]


def test_schemas() -> None:
    for name in ("Geometry", "Geography"):
        event = event_of(from_extension(name.lower()))
        assert (event.schema.name, event.schema.doc) == (f"io.debezium.data.geometry.{name}", name)
        assert event.fallback == {"wkb": bytes.fromhex("010700000000000000"), "srid": None}
        assert event.unavailable is None

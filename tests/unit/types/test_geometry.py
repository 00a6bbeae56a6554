"""Points, and the geometric types that Debezium does not know."""

from __future__ import annotations

import base64
import math

from tests.unit.types.converters import bad_places, base, codec_of, event_of, obeys_laws, values

TEXTS = ["(1.5,-2)", None, "(0,0)", "(1e-300,1e+10)", "(Infinity,-Infinity)", "x", "(1,a)", "(1,2,3)"]


def test_laws() -> None:
    codec = codec_of(base("point"))
    obeys_laws(codec.natural.convert, codec.natural.arrow_type, *TEXTS)
    assert codec.event is not None
    obeys_laws(codec.event.convert, codec.event.arrow_type, *TEXTS)


def test_a_point_on_both_faces() -> None:
    codec = codec_of(base("point"))
    assert values(codec.natural.convert, "(1.5,-2)", None) == [{"x": 1.5, "y": -2.0}, None]
    assert bad_places(codec.natural.convert, *TEXTS) == [5, 6, 7]
    event = event_of(base("point"))
    (point, nothing, not_a_number) = values(event.convert, "(1.5,-2)", None, "(NaN,1e+10)")
    assert nothing is None
    assert base64.b64encode(point["wkb"]) == b"AQEAAAAAAAAAAAD4PwAAAAAAAADA"
    assert point["srid"] is None
    assert math.isnan(not_a_number["x"])
    assert base64.b64encode(not_a_number["wkb"]) == b"AQEAAAAAAAAAAAD4fwAAACBfoAJC"
    assert event.schema.doc == "Geometry (POINT)"
    assert base64.b64encode(event.fallback["wkb"]) == b"AQEAAAAAAAAAAAAAAAAAAAAAAAAA"


def test_other_geometric_types_are_opaque_as_java_prints_them() -> None:
    for name in ("box", "lseg", "path", "polygon", "line", "circle"):
        assert codec_of(base(name)).event is None
        assert values(codec_of(base(name)).natural.convert, "(3,4),(1,2)") == ["(3,4),(1,2)"]
    event = event_of(base("circle"), include_unknown_datatypes=True)
    assert values(event.convert, "<(1e-05,123456789),0.001>", None) == [b"<(1.0E-5,1.23456789E8),0.001>", None]

"""Inputs that once were read wrongly, or that stand for a kind: files of JSON with the bytes in hexadecimal."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cdc_core.schema.table import Column
from cdc_core.types.codec import EventConverter, NaturalConverter
from cdc_core.types.options import TypeOptions
from cdc_core.types.registry import resolve
from tests.fuzz import judge
from tests.unit.types.samples import SAMPLES

FOLDER = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Input:
    """``kind`` is stream, copy, natural or event; ``of`` the number of columns or the sample's name."""

    kind: str
    of: str
    pieces: tuple[str, ...]

    @classmethod
    def of_bytes(cls, kind: str, of: str, pieces: list[bytes]) -> Input:
        """An input of these frames, this data, or these texts."""
        return cls(kind, of, tuple(piece.hex() for piece in pieces))

    def judged(self) -> bool:
        """Judge it; returns whether it was read, raises what judge raises."""
        pieces = [bytes.fromhex(piece) for piece in self.pieces]
        if self.kind == "stream":
            return judge.stream(pieces)
        if self.kind == "copy":
            return judge.copy(int(self.of), pieces[0])
        face = converter(self.kind, self.of)
        assert face is not None
        return judge.texts(face.convert, face.arrow_type, [piece.decode() for piece in pieces])


def converter(kind: str, name: str) -> NaturalConverter | EventConverter | None:
    """Return the natural or event converter of a sample's type; None if its type has none."""
    sample = SAMPLES[name]
    codec = resolve(Column("c", sample.type, sample.modifier), TypeOptions())
    return codec.natural if kind == "natural" else codec.event


def kept(folder: Path = FOLDER) -> Iterator[tuple[str, Input]]:
    """Return the inputs of a folder with their names."""
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text())
        yield path.stem, Input(found["kind"], found["of"], tuple(found["pieces"]))


def keep(found: Input, folder: Path = FOLDER) -> Path:
    """Write an input to a file named by its kind and digest; returns the path."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(asdict(found), indent=1)
    path = folder / f"{found.kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    path.write_text(text + "\n")
    return path

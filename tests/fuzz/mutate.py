"""What is done to bytes: changes that a defect, a damaged connection or a hostile server could make."""

from __future__ import annotations

from random import Random

# Numbers at which lengths and counts go wrong, in the widths that the protocol has.
_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_BYTES = b"\0\t\n\r\\NnutbKOIUDTMYRBCw\x7f\x80\xc0\xff"


def mutated(random: Random, data: bytes) -> bytes:
    """Return ``data`` with one to three changes; may be equal to it."""
    out = bytearray(data)
    for _ in range(random.randint(1, 3)):
        random.choice(_CHANGES)(random, out)
    return bytes(out)


def rearranged(random: Random, frames: list[bytes]) -> list[bytes]:
    """Return the frames with some removed, repeated or exchanged."""
    out = list(frames)
    for _ in range(random.randint(1, 2)):
        if not out:
            break
        first, second = random.randrange(len(out)), random.randrange(len(out))
        how = random.randrange(3)
        if how == 0:
            del out[first]
        elif how == 1:
            out.insert(second, out[first])
        else:
            out[first], out[second] = out[second], out[first]
    return out


def _flip(random: Random, out: bytearray) -> None:
    if out:
        out[random.randrange(len(out))] ^= 1 << random.randrange(8)


def _replace(random: Random, out: bytearray) -> None:
    if out:
        out[random.randrange(len(out))] = random.choice(_BYTES)


def _number(random: Random, out: bytearray) -> None:
    width = random.choice((1, 2, 4, 8))
    if len(out) >= width:
        at = random.randint(0, len(out) - width)
        out[at : at + width] = (random.choice(_NUMBERS) & (256**width - 1)).to_bytes(width, "big")


def _insert(random: Random, out: bytearray) -> None:
    at = random.randint(0, len(out))
    out[at:at] = bytes(random.choice(_BYTES) for _ in range(random.randint(1, 6)))


def _remove(random: Random, out: bytearray) -> None:
    if out:
        at = random.randrange(len(out))
        del out[at : at + random.randint(1, 6)]


def _cut(random: Random, out: bytearray) -> None:
    del out[random.randint(0, len(out)) :]


def _repeat(random: Random, out: bytearray) -> None:
    if out:
        at = random.randrange(len(out))
        piece = out[at : at + random.randint(1, 12)]
        out[at:at] = piece


_CHANGES = (_flip, _flip, _replace, _replace, _number, _number, _insert, _remove, _cut, _repeat)

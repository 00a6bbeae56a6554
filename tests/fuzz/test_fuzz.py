"""The kept inputs, and a short run of the fuzzer: `make fuzz` reads a million."""

import random
import re
import subprocess
import sys

import pytest

from tests.fuzz import corpus
from tests.support.waits import patient

KEPT = dict(corpus.kept())


@pytest.mark.parametrize("name", KEPT)
def test_a_kept_input_is_read_or_refused(name):
    KEPT[name].judged()


def test_mutated_input_is_read_or_refused(tmp_path):
    seed = random.randrange(10**9)
    command = [sys.executable, "-m", "tests.fuzz", "--inputs", "4000", "--seed", str(seed), "--corpus", str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=patient(300), check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = {name: int(count) for name, count in re.findall(r"(\w+ (?:read|refused)) (\d+)", ran.stdout)}
    assert min(counts[f"{kind} {how}"] for kind in ("stream", "copy") for how in ("read", "refused")) > 100


def test_a_wrong_reading_is_noticed_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.fuzz.judge.decode_copy", lambda data, names: corpus_columns())
    found = corpus.Input.of_bytes("copy", "1", [b"a\n"])
    with pytest.raises(AssertionError, match="other values"):
        found.judged()
    path = corpus.keep(found, tmp_path)
    assert dict(corpus.kept(tmp_path)) == {path.stem: found}


def corpus_columns():
    from cdc_core.decode.copy_text import decode_copy

    return decode_copy(b"b\n", ("c0",))

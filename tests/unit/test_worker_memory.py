"""What a process remembers of a run is forgotten as a whole when it works for another one."""

import re
from pathlib import Path

from cdc_core.worker_memory import WorkerMemory

ROOT = Path(__file__).parents[2] / "cdc_core"


def test_another_run_finds_nothing():
    memory = WorkerMemory()
    tables, rules = memory.part(), memory.part()
    memory.serve("a")
    tables["t"], rules["r"] = 1, 2
    memory.serve("a")
    assert (tables, rules) == ({"t": 1}, {"r": 2}) and memory.serves("a")
    memory.forget("b")
    assert tables and rules
    memory.serve("b")
    assert not tables and not rules and not memory.serves("a")


def test_tasks_remember_nothing_beside_it():
    """A dictionary of a module would outlive its run; bounded caches of pure functions (``lru_cache``) may."""
    own = re.compile(r"^_\w+: (?:dict|list|set)\[.*\] = (?:\{\}|\[\]|set\(\))$", re.MULTILINE)
    paths = [path for folder in ("lake", "snapshot") for path in (ROOT / folder).glob("**/*.py")]
    assert not [path.name for path in paths if own.search(path.read_text(encoding="utf-8"))]

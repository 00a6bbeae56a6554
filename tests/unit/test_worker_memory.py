"""What a process remembers of a run is forgotten as a whole when it works for another one of the same connector."""

import re
from pathlib import Path

from cdc_core import worker_memory
from cdc_core.worker_memory import WorkerMemory, new_run

ROOT = Path(__file__).parents[2] / "cdc_core"


def test_another_run_of_the_connector_finds_nothing():
    memory = WorkerMemory()
    tables, rules = memory.part(), memory.part()
    first, second = new_run("lake/shop"), new_run("lake/shop")
    assert first != second and len(first) == 32
    memory.serve(first)
    tables["t"], rules["r"] = 1, 2
    memory.serve(first)
    assert (tables, rules) == ({"t": 1}, {"r": 2}) and memory.serves(first)
    memory.serve(second)
    assert not tables and not rules and not memory.serves(first)
    memory.serve(first)
    assert not tables


def test_connectors_that_alternate_find_what_is_theirs():
    memory = WorkerMemory()
    tables = memory.part()
    shop, billing = new_run("lake/shop"), new_run("lake/billing")
    for run, content in ((shop, "s"), (billing, "b")):
        memory.serve(run)
        assert not tables
        tables["public.t"] = content
    later = memory.part()  # of a module that is imported by a later task
    memory.serve(shop)
    assert tables == {"public.t": "s"} and not later
    later["l"] = 1
    memory.serve(new_run("lake/billing"))
    assert not tables and not later
    memory.serve(shop)
    assert (tables, later) == ({"public.t": "s"}, {"l": 1})


def test_connectors_are_remembered_up_to_a_number(monkeypatch):
    monkeypatch.setattr(worker_memory, "_MOST_CONNECTORS", 3)
    memory = WorkerMemory()
    tables, runs = memory.part(), [new_run(f"lake/{number}") for number in range(4)]
    for run in runs:
        memory.serve(run)
        tables["t"] = run
    memory.serve(runs[1])
    assert tables == {"t": runs[1]}
    memory.serve(runs[0])
    assert not tables


def test_tasks_remember_nothing_beside_it():
    """A dictionary of a module would outlive its run; bounded caches of pure functions (``lru_cache``) may."""
    own = re.compile(r"^_\w+: (?:dict|list|set)\[.*\] = (?:\{\}|\[\]|set\(\))$", re.MULTILINE)
    paths = [path for folder in ("lake", "snapshot") for path in (ROOT / folder).glob("**/*.py")]
    assert not [path.name for path in paths if own.search(path.read_text(encoding="utf-8"))]

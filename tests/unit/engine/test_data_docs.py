import json
import re

import pytest

from cdc_core.engine.round.judgements import Judgements
from cdc_core.quality.check_report import CheckReport, RuleResult
from cdc_core.quality.data_docs import write_data_docs
from cdc_core.schema.table import TableId

# The library takes three CPU seconds to import.
pytestmark = pytest.mark.slow

PLACE = "/lake/shop/__quarantine/public/where"
MEAN = "expect_column_mean_to_be_between"


def check(name, failed=0, observed="12.5"):
    rules = (
        RuleResult("image_present", "", "error", 5, failed, "a row has its image", not failed),
        RuleResult(
            "user:mean",
            "n",
            "error",
            5,
            0,
            f"{MEAN} of n",
            not failed,
            observed,
            "min_value 9",
            MEAN,
            '{"column": "n", "min_value": 9}',
            over_slice=True,
        ),
    )
    return CheckReport(TableId("public", name), 5, failed, not failed, rules)


def test_data_docs_show_what_the_expectations_observed_and_replace_the_former(tmp_path):
    for _ in range(2):  # a run of Dagster may have a folder of its own and that of the connector file
        index = write_data_docs(tmp_path / "docs", [check("where", 2), check("fine")], {"public.where": PLACE})
    assert [path.name for path in tmp_path.iterdir()] == ["docs"]
    # A plain link of the first page leads to each table: its own list needs scripts of other sites.
    links = dict(re.findall(r'<li><a href="([^"]+)">([^<]+)</a></li>', index.read_text()))
    pages = {table: (index.parent / link).read_text() for link, table in links.items()}
    assert {*pages} == {"public.where", "public.fine"}
    assert (
        f"Failed: a row has its image. The rows are in {PLACE}, where reasons has image_present"
        in pages["public.where"]
    )
    # No row of a slice that is kept out is in quarantine.
    kept = f"Failed: {MEAN} of n (min_value 9). The changes are not in the lake table; the changelog has them."
    assert kept in pages["public.where"]
    assert "Failed:" not in pages["public.fine"] and PLACE not in pages["public.fine"]
    assert "12.5" in pages["public.where"]
    crosses = {table: page.count("text-danger") for table, page in pages.items()}
    assert crosses["public.where"] >= crosses["public.fine"] + 2
    results = [
        json.loads(page.read_text()) for page in (tmp_path / "docs").rglob("*.json") if '"results"' in page.read_text()
    ]
    assert sorted(one["success"] for one in results) == [False, True]
    assert write_data_docs(tmp_path / "none", [], {}) is None


def test_a_runs_judgements_are_summed_up_for_its_pages(tmp_path):
    from dataclasses import replace

    from cdc_core.engine.reports import RoundReport
    from cdc_core.lsn import Lsn

    made = Judgements(str(tmp_path / "docs"))
    for found in (check("where", 2, "1.5"), check("where", 0)):
        made.add(replace(RoundReport(Lsn(1), ()), refused=(found,)))
    made.close({"public.where": PLACE})
    (text,) = [page.read_text() for page in (tmp_path / "docs").rglob("*.json") if '"results"' in page.read_text()]
    first, second = json.loads(text)["results"]
    assert (first["result"]["element_count"], first["result"]["unexpected_count"]) == (10, 2)
    assert (second["success"], second["result"]["observed_value"]) == (False, "1.5")
    Judgements("").close({})  # no folder, no pages

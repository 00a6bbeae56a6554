"""Commands of dbt in one process and one Spark session: dbt_commands.py RESULTS MODULES...

``MODULES`` are folders of modules behind those of this environment. Each line of the standard input is a command of
dbt as a JSON list. ``RESULTS`` gets a line for each: whether it succeeded, and the status of each node.
"""

import json
import sys


def main(results: str, modules: list[str]) -> None:
    sys.path += modules
    from dbt.cli.main import dbtRunner

    from cdc_core.spark import get_session

    get_session({"spark.sql.warehouse.dir": "warehouse"})
    with open(results, "a", encoding="utf-8") as file:
        for line in sys.stdin:
            done = dbtRunner().invoke(json.loads(line))
            nodes = {each.node.name: str(each.status) for each in getattr(done.result, "results", ())}
            text = "" if done.exception is None else str(done.exception)
            file.write(json.dumps({"success": done.success, "nodes": nodes, "error": text}) + "\n")
            file.flush()


if __name__ == "__main__":  # dbt starts processes that import this module
    main(sys.argv[1], sys.argv[2:])

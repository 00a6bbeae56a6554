"""The program that Spark starts for Python workers (``spark.python.daemon.module``): they judge slices."""

from __future__ import annotations

import os


def main() -> None:
    """Serve Spark with workers that have Great Expectations loaded."""
    # A fork has no threads of its parent. Read when numpy is imported, so nothing is imported before.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from cdc_core.quality import library
    from cdc_core.spark import serve

    serve(library)


if __name__ == "__main__":
    main()

"""Every Python process of a test run starts with this (``PYTHONPATH`` in ``conftest.py``).

Most of them import thousands of modules, of which nothing is ever garbage, and end soon. With the usual threshold the
collector looks at them again and again, which took a twentieth of the CPU time of `make test`.
"""

import gc

gc.set_threshold(50_000, 20, 50)

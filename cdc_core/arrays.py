"""Types of NumPy arrays: masks of rows, numbers of rows and keys, bytes of texts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
"""A mask: which rows, keys or places are meant."""
Ints = npt.NDArray[np.int64]
"""Row numbers, codes of keys, LSNs, ids of transactions; the docstring of a function says which."""
Bytes = npt.NDArray[np.uint8]

"""Which touches belong to one row of the source, across its key changes.

A row's life in a slice is a sequence of stays at keys. A stay begins with the row that the lake has at that key, with
an insert, or with the key change that brought the row there; it ends at the delete or key change that took it away. A
key change links the stay it ended to the one it began. Following the links back to the first stay is pointer jumping
over pairs of positions: done in numpy, in as many steps as the longest chain has binary digits, on key changes alone.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

_DELETED, _MOVED = "__deleted", "__moved"


def with_lineage(touches: DataFrame, key: list[str]) -> DataFrame:
    """Adds ``__lineage``, equal for the touches of one row and different for those of different rows.

    Needs the slice's rows to be cut by the source's unique key alone; reads the slice once more for its key changes.
    """
    position = F.struct(F.col("__commit_lsn").alias("l"), F.col("__tx_index").alias("i"))
    order = [F.col("__commit_lsn"), F.col("__tx_index"), F.col(_DELETED).desc()]
    so_far = Window.partitionBy(*key).orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = ~F.col(_DELETED) & (F.col(_MOVED) | (F.col("__op") != "u"))
    staying = touches.withColumn("__began", F.last(F.when(begins, position), ignorenulls=True).over(so_far))
    # The lake's own row at a key leaves it once at most: by the first key change out of it that no stay here precedes.
    leaves = F.when(F.col(_DELETED) & F.col(_MOVED) & F.col("__began").isNull(), position)
    staying = staying.withColumn("__left", F.min(leaves).over(Window.partitionBy(*key)))
    moves = staying.filter(F.col(_DELETED) & F.col(_MOVED)).select(
        F.col("__commit_lsn").alias("l"), F.col("__tx_index").alias("i"), "__began.l", "__began.i"
    )
    roots = touches.sparkSession.createDataFrame(_roots(moves.toDF("l", "i", "pl", "pi").toArrow()))
    began = staying.join(
        roots, (F.col("__began.l") == F.col("__root_l")) & (F.col("__began.i") == F.col("__root_i")), "left"
    )
    root = F.when(F.col("__to_l").isNotNull(), F.struct(F.col("__to_l").alias("l"), F.col("__to_i").alias("i")))
    row = F.coalesce(root, F.col("__began"), F.col("__left"))
    here = F.when(row.isNull(), F.struct(*key))
    return began.withColumn("__lineage", F.struct(row.alias("row"), here.alias("key"))).drop(
        "__began", "__left", "__root_l", "__root_i", "__to_l", "__to_i"
    )


def _roots(moves: pa.Table) -> pa.Table:
    """Key change → where its row's first stay began: an insert's position, or that of the first change of a lake row.

    Shape:  (l, i, pl, pi)[N] -> (__root_l, __root_i, __to_l, __to_i)[N]
    Nulls:  pl and pi are null when the stay that the change ended is the lake's own.
    """
    own = np.stack([moves["l"].to_numpy(), moves["i"].to_numpy()], axis=1).astype(np.int64)
    ended = moves["pl"].is_valid().to_numpy()
    parent = np.where(
        ended[:, None],
        np.stack([moves["pl"].fill_null(0).to_numpy(), moves["pi"].fill_null(0).to_numpy()], axis=1),
        own,
    )
    every, place = np.unique(np.concatenate([own, parent]), axis=0, return_inverse=True)
    place = place.reshape(-1)
    up = np.arange(len(every))
    up[place[: len(own)]] = place[len(own) :]
    while not np.array_equal(up, up[up]):
        up = up[up]
    root = every[up[place[: len(own)]]]
    arrays = [own[:, 0], own[:, 1], root[:, 0], root[:, 1]]
    return pa.table(dict(zip(("__root_l", "__root_i", "__to_l", "__to_i"), map(pa.array, arrays), strict=True)))

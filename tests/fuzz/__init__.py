"""Hostile bytes: mutated replication messages, COPY lines and texts of values, judged by oracles.

    python -m tests.fuzz --inputs 1000000          (make fuzz)

An input may be read or refused with a typed error. Anything else is a failure, and is kept in the corpus: another
exception, a result that differs from the oracle's, more time or memory than the bounds.

    streams.py  valid streams, COPY lines and texts, at random from a seed
    mutate.py   what is done to their bytes
    judge.py    reads one input by the product and by the oracle
    corpus.py   the inputs that are kept, as files
"""

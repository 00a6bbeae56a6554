"""Faults at a place: the process that reaches it is stopped there, the fault happens, and it is let go.

    python -m tests.soak.places [--phase "first snapshot"] [--fault "kill Java"] [--seconds 1800] [--said]

What the soak meets by chance is here done once for each pair of phase (``phases``) and fault (``faults``, ``dagster``),
each with a lake of its own. A run goes on by itself; a command, or a run in Dagster, may end with a sentence and is
then run again. At the end the lake equals the source, each change is in its changelog once, and nothing that was
printed is a stack. Exit code 1 if that is not so.
"""

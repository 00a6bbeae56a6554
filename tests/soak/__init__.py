"""A long run with everything at random: ``python -m tests.soak --seconds 1800``."""

"""Asset checks: what a merge must meet, and the health of the slot."""

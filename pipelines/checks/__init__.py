"""Asset checks: quality of merged changes, and health of the slot."""

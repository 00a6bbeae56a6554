"""What must hold before a run reads or writes anything, and what is recorded of the tables for which it does not."""

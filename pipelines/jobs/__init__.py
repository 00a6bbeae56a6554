"""The jobs and schedules of a connector, and which of them use its slot."""

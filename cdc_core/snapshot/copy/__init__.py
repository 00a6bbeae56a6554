"""Whole tables into the lake: their ranges, the tasks that copy them, and how an interrupted snapshot continues."""

"""Dagster definitions of wal2lake: assets, checks, sensors, schedules and jobs, generated from connector files.

They call the engine (``cdc_core.assemble.Connector``) and convert its reports; they contain no capture logic.
"""

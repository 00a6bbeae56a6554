"""What Dagster sees of wal2lake: assets, checks, sensors and jobs made from connector files.

Bodies call the engine (``cdc_core.assemble.Connector``) and translate its reports; no capture logic lives here.
"""

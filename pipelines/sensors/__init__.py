"""Sensors: tables to discover, streaming runs to start, the slot's health, alerts."""

"""The parts of benchmarks/macro/freshness.py: a load, observers that look from outside, and the scenarios F1 to F6."""

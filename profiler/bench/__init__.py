"""Micro-benchmarks that end as a device file: ops as they look inside training, collectives, host time, peaks."""

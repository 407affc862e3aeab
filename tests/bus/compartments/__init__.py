"""Compartments: topics with keys of their own, with both front ends.

- `test_traffic.py`: who reads and publishes what, and what others learn of it.
- `test_as_one.py`: lists, counters, workers and the end of a bus that has several keys.
"""

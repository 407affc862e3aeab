"""Channels of both front ends.

- `test_abort.py`: channels that are given up.
"""

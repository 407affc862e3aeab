"""Reliable topics: detecting and repairing losses."""

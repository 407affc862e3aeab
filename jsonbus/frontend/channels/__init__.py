"""Channels between two nodes, as far as threads and tasks agree."""

"""Channels: the protocol between the two ends."""

"""Channels in the simulator."""

"""Requests, replies and pings."""

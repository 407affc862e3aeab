"""The text server: one command a line over TCP."""

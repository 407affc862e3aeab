"""The screen of `jsonbus top`."""

"""The log on disk: offset_log.py tells how it works, block.py what is in its files."""

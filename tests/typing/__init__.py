"""What type checkers know of the public API: `program.py` is checked, not run."""

"""The front end for threads."""

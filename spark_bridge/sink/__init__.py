"""From Spark onto the bus: sink.py tells how it works."""

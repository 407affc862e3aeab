"""Who is on the bus, and the shared subscription list."""

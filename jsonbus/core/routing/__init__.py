"""Topics, patterns, and which subscription wants a message."""

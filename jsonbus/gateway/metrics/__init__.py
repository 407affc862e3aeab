"""What the gateway measures, and how Prometheus reads it."""

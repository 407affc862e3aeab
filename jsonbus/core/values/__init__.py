"""Large, retained and typed values."""

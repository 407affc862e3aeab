"""JSON text to Arrow columns, without the JVM."""

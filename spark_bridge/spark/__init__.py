"""Spark on this machine: a session that finds its Java, and a supervisor for its queries."""

from .java import Java, JavaNotFoundError, find_java
from .sessions import session
from .supervisor import Supervisor, supervise

__all__ = ["Java", "JavaNotFoundError", "Supervisor", "find_java", "session", "supervise"]

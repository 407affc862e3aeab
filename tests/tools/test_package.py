"""The wheel and the source distribution: their contents, and that they work on their own."""

from __future__ import annotations

import email
import email.message
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import jsonbus
from tests.end_to_end.processes import desk as open_desk
from tests.tools.packages import ROOT, build, install, run, succeed

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = ("jsonbus", "spark_bridge")

#: Everything in the packages that is neither Python nor a page.
DATA = (
    "jsonbus/py.typed",
    "jsonbus/gateway/dashboard/assets/*.css",
    "jsonbus/gateway/dashboard/assets/*.js",
    "spark_bridge/py.typed",
    "spark_bridge/spark/log4j2.properties",
)
INFO = f"jsonbus-{jsonbus.__version__}.dist-info"


def files(*patterns: str) -> set[str]:
    found = {
        path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern)
    }
    assert found
    return found


def code() -> set[str]:
    return files(*(f"{package}/**/*.py" for package in PACKAGES), *DATA)


def read_metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(f"{INFO}/METADATA"))


def read_description(wheel: Path) -> str:
    content = read_metadata(wheel).get_payload(decode=True)
    assert isinstance(content, bytes)
    return content.decode()


def test_the_wheel_has_the_code_its_data_and_the_license(wheel: Path) -> None:
    names = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    with zipfile.ZipFile(wheel) as archive:
        assert set(archive.namelist()) == code() | {f"{INFO}/{name}" for name in names}


def test_the_source_distribution_has_what_a_wheel_is_built_from_and_the_pages(wheel: Path) -> None:
    (path,) = wheel.parent.glob("*.tar.gz")
    pages = files(*(f"{package}/**/*.md" for package in PACKAGES))
    # hatchling adds its own rules of what to leave out, for whoever builds from it.
    beside = {"README.md", "LICENSE", "pyproject.toml", "PKG-INFO", ".gitignore"}
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names == code() | pages | beside


def test_the_tree_gives_the_same_wheel_as_the_source_distribution(
    wheel: Path, tmp_path: Path
) -> None:
    def contents(path: Path) -> dict[str, int]:
        with zipfile.ZipFile(path) as archive:
            return {each.filename: each.CRC for each in archive.infolist()}

    assert contents(build(tmp_path / "dist", "--wheel")) == contents(wheel)


def test_the_package_index_would_accept_both(wheel: Path) -> None:
    both = list(wheel.parent.iterdir())
    assert len(both) == 2
    told = succeed([sys.executable, "-m", "twine", "check", "--strict", *both], wheel.parent)
    assert told.count("PASSED") == 2


def test_the_page_of_the_package_index_is_the_readme_without_links_into_the_tree(
    wheel: Path,
) -> None:
    page = read_description(wheel)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S)
    links = re.findall(r"\]\(([^)]*)\)", prose)
    assert [each for each in links if not each.startswith("https://")] == []
    assert "tools/demo.py" not in page and "pip install ." not in page
    titles = re.findall(r"^##+ .+$", readme, re.M)
    assert [each for each in titles if each not in page] == ["## Where things are"]
    # Every block but the one that installs from the tree.
    blocks = re.findall(r"^```\w+\n.*?^```$", readme, flags=re.M | re.S)
    assert [each for each in blocks if each not in page] == [
        each for each in blocks if "tools/demo.py" in each
    ]
    for command in re.findall(r"pip install '?(jsonbus[^'\s]*)", page):
        assert command in ("jsonbus", *(f"jsonbus[{each}]" for each in extras()))


def extras() -> set[str]:
    return PROJECT["optional-dependencies"].keys() - {"dev"}


def test_every_extra_is_named_where_people_install_it(wheel: Path) -> None:
    for page in (read_description(wheel), (ROOT / "README.md").read_text(encoding="utf-8")):
        _, _, told = page.partition("Extras")
        named = set(re.findall(r"`(\w+)`", told.partition("\n\n")[0]))
        assert extras() <= named


def test_the_metadata_is_what_the_index_and_older_installers_read(wheel: Path) -> None:
    metadata = read_metadata(wheel)
    assert metadata["Metadata-Version"] == "2.4"
    assert metadata["Version"] == jsonbus.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == PROJECT["requires-python"]
    assert len(metadata["Summary"]) <= 100


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires; no extras."""
    return install(tmp_path_factory.mktemp("installed") / "venv", wheel)


def test_without_extras_the_command_and_the_library_work(programs: Path, tmp_path: Path) -> None:
    told = succeed([programs / "jsonbus", "--version"], tmp_path)
    assert told == f"jsonbus {jsonbus.__version__}\n"
    where = succeed(
        [programs / "python", "-c", "import jsonbus; print(jsonbus.__file__)"], tmp_path
    )
    assert Path(where.strip()).is_relative_to(programs.parent)


def test_without_extras_a_publisher_reaches_a_subscriber(programs: Path) -> None:
    with open_desk() as desk:
        command = str(programs / "jsonbus")
        subscriber = desk.start_command([command, "sub", "--once", "--value", "door"])
        desk.start_command([command, "pub", "--wait", "60", "door", '"open"']).expect_exit(0)
        subscriber.expect_exit(0)
        assert subscriber.lines == ['"open"']


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("jsonbus gateway", "gateway"),
        ("jsonbus bridge", "bridge"),
        ("jsonbus demo", "spark"),
        ("jsonbus record door.mcap door", "mcap"),
        ("jsonbus-pipeline --once", "spark"),
    ],
)
def test_what_needs_an_extra_says_which(
    programs: Path, tmp_path: Path, command: str, extra: str
) -> None:
    name, *arguments = command.split()
    done = run([programs / name, *arguments], tmp_path)
    assert done.returncode == 1
    assert f"python3 -m pip install 'jsonbus[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert extra in extras()


def test_uvx_and_pipx_run_it_without_installing_it(wheel: Path, tmp_path: Path) -> None:
    folder = install(tmp_path / "venv", "uv")
    uvx = [folder / "uvx", "--python", sys.executable]
    home = {
        "UV_CACHE_DIR": str(tmp_path / "uv"),
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_DEFAULT_PYTHON": sys.executable,
    }
    version = f"jsonbus {jsonbus.__version__}\n"
    assert succeed([*uvx, "--from", wheel, "jsonbus", "--version"], tmp_path, home) == version
    pipx = [*uvx, "pipx", "run", "--spec", wheel, "jsonbus", "--version"]
    assert succeed(pipx, tmp_path, home) == version

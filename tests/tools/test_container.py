"""tools/examples: the Dockerfile and the compose file, run step by step without an engine.

Paths of the image become paths below a temporary folder, and services become processes in a network
namespace. What is not tried here: the base image, the user, and the network between containers.
"""

from __future__ import annotations

import json
import re
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.end_to_end.processes import Desk
from tests.end_to_end.processes import desk as open_desk
from tests.tools.packages import ROOT, succeed
from tests.transport.namespace import in_private_namespace

EXAMPLES = ROOT / "tools" / "examples"
COMPOSE: dict[str, Any] = yaml.safe_load((EXAMPLES / "compose.yaml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read_steps() -> list[tuple[str, str]]:
    text = (EXAMPLES / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.M).replace("\\\n", "").splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines) if name]


STEPS = read_steps()


def arguments_of(name: str) -> list[str]:
    return [rest for each, rest in STEPS if each == name]


class Image:
    """What the Dockerfile makes, below a folder."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder = folder
        (folder / "opt").mkdir()
        for command in arguments_of("RUN"):
            succeed(["sh", "-ec", self._here(command, wheel)], folder)
        # The packages that it requires are those that the tests use.
        (packages,) = (folder / "opt/jsonbus/lib").glob("python3*/site-packages")
        paths = "\n".join([*site.getsitepackages(), ""])
        (packages / "required.pth").write_text(paths, encoding="utf-8")

    def command(self, words: list[str]) -> list[str]:
        """Return the command in the folder of the image and with its PATH."""
        (setting,) = [rest for rest in arguments_of("ENV") if "PATH=" in rest]
        (path,) = re.findall(r"\bPATH=(\S+):\$PATH", setting)
        (workdir,) = arguments_of("WORKDIR")
        place = ["env", "-C", f"{self.folder}{workdir}"]
        words = [f"{self.folder}{word}" if word == workdir else word for word in words]
        return ["sh", "-c", f'PATH="{self.folder}{path}:$PATH" exec "$@"', "sh", *place, *words]

    def _here(self, command: str, wheel: Path) -> str:
        """The same as any user, with paths below the folder, and without the package index."""
        for word, other in (
            ("python3 ", f"{sys.executable} "),
            ('"/source[$EXTRAS]"', f"--no-deps {wheel}"),
            (" -o 1000 -g 1000", ""),
        ):
            command = command.replace(word, other)
        return re.sub(r"(?<= )/(opt|data)|^/(opt)", rf"{self.folder}/\1\2", command)


@pytest.fixture(scope="module")
def image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image(tmp_path_factory.mktemp("image"), wheel)


def default_command() -> list[str]:
    (entry,), (rest,) = arguments_of("ENTRYPOINT"), arguments_of("CMD")
    return [*json.loads(entry), *json.loads(rest)]


def health_check() -> list[str]:
    (text,) = arguments_of("HEALTHCHECK")
    words = json.loads(text.partition("CMD ")[2])
    assert isinstance(words, list)
    return words


def test_the_image_is_of_a_python_that_is_supported_and_not_of_root() -> None:
    bases = {each.split()[0] for each in arguments_of("FROM")}
    assert bases == {"python:3.13-slim"}
    assert "Programming Language :: Python :: 3.13" in PROJECT["classifiers"]
    last = [name for name, _ in STEPS][::-1]
    assert last.index("USER") < last.index("FROM")
    assert arguments_of("USER")[-1].partition(":")[0] not in ("root", "0")
    (chosen,) = arguments_of("ARG")
    assert set(chosen.partition("=")[2].split(",")) <= PROJECT["optional-dependencies"].keys()


@pytest.mark.slow
def test_the_image_is_built_from_what_the_source_distribution_has(wheel: Path) -> None:
    copied = {
        source
        for each in arguments_of("COPY")
        if not each.startswith("--from")
        for source in each.split()[:-1]
    }
    (path,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        needed = {name.split("/")[1] for name in archive.getnames()}
    assert copied == needed - {".gitignore", "PKG-INFO"}


@pytest.mark.slow
@in_private_namespace
def test_the_image_runs_a_gateway_that_its_health_check_finds(image: Image) -> None:
    assert subprocess.run(image.command(health_check()), capture_output=True).returncode != 0
    with open_desk() as desk:
        gateway = desk.start_command(image.command(default_command()))
        wait_until_healthy(desk, image)
        assert (image.folder / "data" / "jsonbus-gateway.db").is_file()
        gateway.send_signal(15)
        gateway.expect_exit(0)


def wait_until_healthy(desk: Desk, image: Image) -> None:
    check = image.command(health_check())
    desk.wait_until(lambda: subprocess.run(check, capture_output=True).returncode == 0)


def command_of(service: dict[str, Any]) -> list[str]:
    if "entrypoint" in service:
        return [*service["entrypoint"], *service.get("command", [])]
    return (
        [default_command()[0], *service["command"]] if "command" in service else default_command()
    )


@pytest.mark.slow
@in_private_namespace
def test_the_composed_subscriber_hears_the_sensor_and_the_gateway_is_healthy(image: Image) -> None:
    assert COMPOSE["services"].keys() == {"gateway", "sensor", "subscriber"}
    with open_desk() as desk:
        started = {
            name: desk.start_command(image.command(command_of(service)))
            for name, service in COMPOSE["services"].items()
        }
        desk.wait_until(lambda: started["subscriber"].lines)
        assert started["subscriber"].results[0]["topic"] == "sensors/load"
        assert isinstance(started["subscriber"].results[0]["value"], float)
        wait_until_healthy(desk, image)


def test_the_composed_services_use_what_the_file_declares() -> None:
    for name, service in COMPOSE["services"].items():
        build = service["build"]
        context = (EXAMPLES / build["context"]).resolve()
        assert context == ROOT and (context / build["dockerfile"]).is_file()
        assert set(service["networks"]) <= COMPOSE["networks"].keys()
        volumes = [each.split(":") for each in service.get("volumes", [])]
        assert {volume for volume, _ in volumes} <= COMPOSE["volumes"].keys()
        assert all([folder] == arguments_of("WORKDIR") for _, folder in volumes)
        # The check of the image is that of a gateway.
        runs_gateway = command_of(service) == default_command()
        assert service.get("healthcheck", {}).get("disable", False) is not runs_gateway, name


def test_the_composed_gateway_is_reached_from_this_machine_alone() -> None:
    exposed = {port.removesuffix("/tcp") for port in arguments_of("EXPOSE")[0].split()}
    ports = [each.split(":") for each in COMPOSE["services"]["gateway"]["ports"]]
    assert {address for address, _, _ in ports} == {"127.0.0.1"}
    assert {port for _, _, port in ports} <= exposed
    assert [name for name, each in COMPOSE["services"].items() if "ports" in each] == ["gateway"]


@pytest.mark.skipif(shutil.which("docker") is None, reason="there is no docker command")
def test_the_compose_file_is_read_by_docker() -> None:
    if subprocess.run(["docker", "compose", "version"], capture_output=True).returncode != 0:
        pytest.skip("docker has no compose here")
    command = ["docker", "compose", "-f", "tools/examples/compose.yaml", "config", "--quiet"]
    succeed(command, ROOT)

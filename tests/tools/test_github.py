""".github: workflows whose commands exist and whose rights are small, forms, and pages."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import jsonbus
from tests.test_readme import anchors
from tests.tools.packages import ROOT

GITHUB = ROOT / ".github"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def read(path: Path) -> Any:
    # "on" is true in YAML 1.1; the loader without types leaves every word a word.
    return yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.BaseLoader)


WORKFLOWS: dict[str, Any] = {path.stem: read(path) for path in GITHUB.glob("workflows/*.yml")}
FORMS: dict[str, Any] = {
    path.stem: read(path) for path in GITHUB.glob("ISSUE_TEMPLATE/*.yml") if path.stem != "config"
}
PAGES = sorted(GITHUB.glob("*.md"))


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for workflow, content in WORKFLOWS.items():
        for name, job in content["jobs"].items():
            yield workflow, name, job


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for workflow, name, job in jobs():
        for step in job["steps"]:
            yield f"{workflow}.{name}", step


def commands() -> Iterator[str]:
    for _, step in steps():
        yield from step.get("run", "").splitlines()


def test_there_are_the_files_that_the_host_looks_for() -> None:
    assert WORKFLOWS.keys() == {"tests", "release"}
    assert FORMS.keys() == {"bug", "feature"}
    names = {"CONTRIBUTING.md", "SECURITY.md", "pull_request_template.md"}
    assert {page.name for page in PAGES} == names
    assert read(GITHUB / "dependabot.yml")["updates"][0]["package-ecosystem"] == "github-actions"


@pytest.mark.parametrize("command", list(dict.fromkeys(commands())))
def test_every_command_of_a_workflow_exists(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "test":
        return  # tried below
    assert words[0] == "python3"
    if words[1] == "-m":
        known = {re.split(r"[>=\[]", each)[0] for each in PROJECT["optional-dependencies"]["dev"]}
        assert words[2] in known | {"pip"}
        if words[2] == "pip":
            assert words[3] == "install" and set(words[4:]) <= known
    else:
        assert (ROOT / words[1]).is_file()
        text = (ROOT / words[1]).read_text(encoding="utf-8")
        assert [word for word in words if word.startswith("--") and word not in text] == []


def test_every_action_is_pinned_to_a_commit_and_named_with_its_version() -> None:
    found = 0
    for path in GITHUB.glob("workflows/*.yml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            if "uses:" in line:
                assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
                found += 1
    assert found == sum("uses" in step for _, step in steps())


def test_an_action_is_the_same_commit_everywhere() -> None:
    uses = {step["uses"] for _, step in steps() if "uses" in step}
    assert len({each.partition("@")[0] for each in uses}) == len(uses)


def test_only_the_job_that_publishes_has_a_right_beyond_reading() -> None:
    for workflow, name, job in jobs():
        rights = job.get("permissions", WORKFLOWS[workflow]["permissions"])
        publishes = any("pypi-publish" in step.get("uses", "") for step in job["steps"])
        assert rights == ({"id-token": "write"} if publishes else {"contents": "read"}), name
        # It runs nothing of the tree, and nothing that a package brings.
        assert not publishes or not any("run" in step for step in job["steps"])
        assert int(job["timeout-minutes"]) <= 60
        assert set(job.get("needs", [])) <= WORKFLOWS[workflow]["jobs"].keys()
    for _, step in steps():
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] == "false"
    assert all("${{ secrets" not in path.read_text() for path in GITHUB.glob("workflows/*.yml"))


def test_a_tag_publishes_what_was_built_after_the_tests_passed() -> None:
    release = WORKFLOWS["release"]
    assert release["on"] == {"push": {"tags": ["v*"]}}
    assert set(release["jobs"]["publish"]["needs"]) == {"test", "build"}
    assert release["jobs"]["publish"]["environment"] == "pypi"
    (upload,) = [each for _, each in steps() if "upload-artifact" in each.get("uses", "")]
    (download,) = [each for _, each in steps() if "download-artifact" in each.get("uses", "")]
    assert upload["with"]["name"] == download["with"]["name"]
    assert upload["with"]["path"] == download["with"]["path"]


@pytest.mark.parametrize(("tag", "passes"), [("v{}", True), ("{}", False), ("v{}.1", False)])
def test_a_tag_that_is_not_the_version_publishes_nothing(tag: str, passes: bool) -> None:
    (check,) = [each["run"] for _, each in steps() if each.get("run", "").startswith("test ")]
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    env["GITHUB_REF_NAME"] = tag.format(jsonbus.__version__)
    done = subprocess.run(["bash", "-c", check], cwd=ROOT, env=env)
    assert (done.returncode == 0) is passes


def test_every_supported_python_is_tested() -> None:
    claimed = {
        each.rpartition(" ")[2]
        for each in PROJECT["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
    }
    tested = set(WORKFLOWS["tests"]["jobs"]["versions"]["strategy"]["matrix"]["python"])
    setups = [each["with"] for _, each in steps() if "setup-python" in each.get("uses", "")]
    tested |= {each["python-version"] for each in setups if "$" not in each["python-version"]}
    assert tested == claimed
    least = min(claimed, key=lambda version: int(version.partition(".")[2]))
    assert PROJECT["requires-python"] == f">={least}"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == least
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py{least.replace('.', '')}"


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_one_that_the_host_can_show(name: str) -> None:
    form = FORMS[name]
    assert form["name"] and form["description"]
    kinds = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    asked = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in form["body"]} <= kinds
    assert len({field["id"] for field in asked}) == len(asked)
    assert all(field["attributes"]["label"] for field in asked)
    assert any(field.get("validations", {}).get("required") == "true" for field in asked)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_commands_of_a_page_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        found = (GITHUB / path).resolve()
        assert found.exists(), target
        assert not anchor or anchor in anchors(found.read_text(encoding="utf-8")), target
    for script, options in re.findall(r"python3 (tools/\w+\.py)((?: --\w+)*)", text):
        source = (ROOT / script).read_text(encoding="utf-8")
        assert [each for each in options.split() if each not in source] == []

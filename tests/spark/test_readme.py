"""spark_bridge/README.md tells the truth: its programs run in order, as one session in a shell."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.end_to_end.processes import Desk
from tests.readme import Block, Section, normalize, read_sections
from tests.spark.bridges import Bridge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXT = (Path(__file__).parents[2] / "spark_bridge" / "README.md").read_text(encoding="utf-8")
SECTIONS = {section.title: section for section in read_sections(TEXT)}


def cells(section: Section) -> list[list[str]]:
    lines = [line for line in section.text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def names_in(title: str) -> set[str]:
    return {name for row in cells(SECTIONS[title]) for name in re.findall(r"`(\w+)`", row[0])}


def publish(desk: Desk, bridge: Bridge, block: Block) -> None:
    for command in block.commands:
        _, *arguments = shlex.split(command)
        desk.run(*arguments)
    bridge.wait_for_rows(len(block.commands))


def test_its_programs_do_what_it_says(
    spark: SparkSession,
    desk: Desk,
    bridge: Bridge,
    tmp_path: Path,
) -> None:
    subscriber = desk.subscribe("alarms/**", "--count", "1", "--value")
    names: dict[str, Any] = {"__name__": "readme"}
    shown = ""
    for section in SECTIONS.values():
        for block in section.blocks:
            if block.kind == "python":
                program = block.text.replace("127.0.0.1:7710", bridge.address)
                # The JVM has been started elsewhere: its folder is not this test's.
                program = re.sub(
                    r'(?<!queryName\()"(checkpoints/\w+|readings)"',
                    lambda path: f'"{tmp_path}/{path[1]}"',
                    program,
                )
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(compile(program, section.title, "exec"), names)
                shown = printed.getvalue()
            elif block.kind == "text" and block.text.startswith("+"):
                assert normalize(shown) == normalize(block.text)
            elif any("jsonbus pub" in each for each in block.commands):
                publish(desk, bridge, block)
            elif any("jsonbus sub" in each for each in block.commands):
                desk.wait_until(lambda: subscriber.lines)
                assert subscriber.lines == block.shown.splitlines()


def test_every_column_is_told(java_home: str) -> None:
    from spark_bridge.source.columns import COLUMNS, GAP

    assert names_in("Columns") == {*COLUMNS, GAP}


def test_every_option_is_told(java_home: str) -> None:
    from spark_bridge.source.options import SourceOptions
    from spark_bridge.source.sink_options import SinkOptions

    def as_option(name: str) -> str:
        return re.sub(r"_(\w)", lambda match: match[1].upper(), name)

    told = names_in("Options of the source, beside those of Kafka's")
    assert told == {as_option(each.name) for each in fields(SourceOptions)}
    assert names_in("The sink") == {as_option(each.name) for each in fields(SinkOptions)}


@pytest.mark.parametrize("path", re.findall(r"`(spark_bridge/[\w/.]+|tools/\w+\.py)`", TEXT))
def test_every_file_told_is_there(path: str) -> None:
    assert (Path(__file__).parents[2] / path).exists()

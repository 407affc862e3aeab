from __future__ import annotations

import jsonbus
from tests.cli.commands.test_hz import publish
from tests.cli.running import Run, json_lines, meanwhile

KEYS = (
    "at topic bytes_per_s rate mean_bytes min_bytes max_bytes window total_bytes messages total"
    " publishers lost loss late duplicates"
).split()


def test_a_line_per_topic_tells_rates_and_sizes(run: Run, bus: jsonbus.Bus) -> None:
    with meanwhile(lambda: publish(bus, "a", 20)):
        result = run("bw", "--subscribe", "--count", "20", "a")
    assert result.exit_code == 0
    line = json_lines(result.stdout)[-1]
    assert list(line) == KEYS
    assert (line["topic"], line["total"], line["window"]) == ("a", 20, 20)
    assert (line["min_bytes"], line["max_bytes"], line["mean_bytes"]) == (1, 2, 1.5)
    assert line["total_bytes"] == 30

from __future__ import annotations

import pytest

import jsonbus
from jsonbus.cli.lib.output import Output
from tests.cli.running import Run, json_lines, meanwhile

KEYS = (
    "at topic rate mean_s jitter_s min_s max_s window publisher_rate messages total publishers"
    " lost loss late duplicates"
).split()


def publish(bus: jsonbus.Bus, topic: str, count: int) -> None:
    assert bus.wait_for_subscribers(topic, timeout=30)
    for number in range(count):
        bus.publish(topic, number)
        bus.flush()


def test_a_line_per_topic_tells_rate_and_intervals(run: Run, bus: jsonbus.Bus) -> None:
    with meanwhile(lambda: (publish(bus, "a/x", 30), publish(bus, "a/y", 20))):
        result = run("hz", "--subscribe", "--count", "50", "a/*")
    assert result.exit_code == 0
    x, y = json_lines(result.stdout)[-2:]
    assert list(x) == KEYS
    assert (x["topic"], x["total"], x["window"], x["publishers"]) == ("a/x", 30, 29, 1)
    assert (y["topic"], y["total"], y["lost"], y["loss"]) == ("a/y", 20, 0, 0.0)
    assert 0 <= x["min_s"] <= x["mean_s"] <= x["max_s"]
    assert x["rate"] == pytest.approx(1 / x["mean_s"], rel=0.01)


@pytest.mark.slow
def test_a_passive_look_sees_what_travels_for_others(run: Run, bus: jsonbus.Bus) -> None:
    with jsonbus.Bus(name="another") as another:
        another.subscribe("a", lambda message: None)
        done = False

        def publish_on() -> None:
            assert bus.wait_for_subscribers("a", timeout=30)
            while not done:
                bus.publish("a", 1)
                bus.publish("unwanted", 1)
                bus.flush()

        with meanwhile(publish_on):
            result = run("hz", "--count", "20")
            done = True
    assert {each["topic"] for each in json_lines(result.stdout)} == {"a"}


def test_the_window_bounds_what_figures_are_about(run: Run, bus: jsonbus.Bus) -> None:
    with meanwhile(lambda: publish(bus, "a", 30)):
        result = run("hz", "--subscribe", "--count", "30", "--window", "5", "a")
    line = json_lines(result.stdout)[-1]
    assert (line["window"], line["total"]) == (4, 30)


def test_too_few_messages_are_a_timeout(run: Run, bus: jsonbus.Bus) -> None:
    result = run("hz", "--subscribe", "--count", "2", "--duration", "0.1", "a")
    assert result.exit_code == 3


def test_people_see_a_table(run: Run, bus: jsonbus.Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    make = Output.__init__

    def make_terminal(output: Output) -> None:
        make(output)
        output.is_terminal = True

    monkeypatch.setattr(Output, "__init__", make_terminal)
    monkeypatch.setenv("COLUMNS", "80")
    with meanwhile(lambda: publish(bus, "a/日本", 30)):
        result = run("hz", "--subscribe", "--count", "30", "a/*")
    heading, *_, line = result.stdout.splitlines()
    assert heading.split() == "TOPIC RATE/s MEAN ms JITTER MIN MAX MESSAGES LOSS".split()
    assert line.split()[0] == "a/日本" and line.split()[-2:] == ["30", "0%"]
    assert len(heading) == 80

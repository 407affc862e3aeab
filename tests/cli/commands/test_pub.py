from __future__ import annotations

import json
from typing import Any

import pytest

import jsonbus
from jsonbus.cli.commands import pub
from tests.cli.running import Run
from tests.helpers import wait_until


def values_of(subscription: Any, count: int) -> list[Any]:
    """The next so many messages, as topic and value."""
    messages = [subscription.get(timeout=30) for _ in range(count)]
    return [(message.topic, message.value) for message in messages]


@pytest.mark.slow
def test_a_value_reaches_its_subscriber(run: Run, bus: jsonbus.Bus) -> None:
    subscription = bus.subscribe("sensors/**")
    result = run("pub", "sensors/kitchen", '{"temp": 21.5}')
    assert (result.exit_code, result.output) == (0, "")
    assert values_of(subscription, 1) == [("sensors/kitchen", {"temp": 21.5})]


@pytest.mark.slow
def test_a_value_that_nobody_wants_is_told_and_is_no_failure(run: Run, bus: jsonbus.Bus) -> None:
    result = run("pub", "door", "1")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "nobody subscribes to door: nothing was sent" in result.stderr


@pytest.mark.slow
def test_a_value_without_anybody_on_the_bus_is_told_and_is_no_failure(run: Run) -> None:
    result = run("pub", "door", "1")
    assert result.exit_code == 0
    assert "nobody subscribes to door: nothing was sent" in result.stderr


@pytest.mark.slow
def test_quiet_tells_nothing(run: Run) -> None:
    result = run("pub", "-q", "door", "1")
    assert (result.exit_code, result.output) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["basic", "master", "delayed"])
def test_a_value_arrives_in_every_mode(run: Run, port: int, mode: str) -> None:
    with jsonbus.Bus(mode=mode, master=mode == "master") as other:
        subscription = other.subscribe("door")
        assert run("pub", "--mode", mode, "door", "1").exit_code == 0
        assert values_of(subscription, 1) == [("door", 1)]


@pytest.mark.slow
def test_a_value_may_be_repeated(run: Run, bus: jsonbus.Bus) -> None:
    subscription = bus.subscribe("door")
    assert run("pub", "--count", "3", "--rate", "1000", "door", "-5").exit_code == 0
    assert values_of(subscription, 3) == [("door", -5)] * 3


@pytest.mark.slow
def test_text_needs_no_quotes(run: Run, bus: jsonbus.Bus) -> None:
    subscription = bus.subscribe("door")
    assert run("pub", "--text", "door", "open").exit_code == 0
    assert run("pub", "--text", "door", input="wide open\n5\n").exit_code == 0
    assert values_of(subscription, 3) == [("door", "open"), ("door", "wide open"), ("door", "5")]


@pytest.mark.slow
def test_lines_of_standard_input_are_values(run: Run, bus: jsonbus.Bus) -> None:
    subscription = bus.subscribe("numbers")
    assert run("pub", "numbers", input="1\n2\n").exit_code == 0
    assert run("pub", "numbers", "-", input="3\n").exit_code == 0
    assert run("pub", "--count", "1", "numbers", input="4\n5\n").exit_code == 0
    assert values_of(subscription, 4) == [("numbers", each) for each in (1, 2, 3, 4)]
    bus.publish("numbers", "last")
    assert values_of(subscription, 1) == [("numbers", "last")]


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_lines_may_carry_their_own_topics(
    run: Run, bus: jsonbus.Bus, arguments: tuple[str, ...]
) -> None:
    subscription = bus.subscribe("**")
    lines = [json.dumps({"topic": f"t/{each}", "value": each}) for each in range(3)]
    assert run("pub", *arguments, input="\n".join(lines)).exit_code == 0
    assert values_of(subscription, 3) == [(f"t/{each}", each) for each in range(3)]


@pytest.mark.slow
def test_lines_that_cannot_be_published_are_told_and_the_rest_is_published(
    run: Run, bus: jsonbus.Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription = bus.subscribe("**")
    lines = [
        "hello",
        '{"topic":"a//b","value":1}',
        '{"topic":"a","value":1e999}',
        '{"topic":"big","value":"%s"}' % ("x" * 100_000),
        '{"topic":"good","value":1}',
    ]
    monkeypatch.setenv("JSONBUS_VALUE_BYTES_MAX", "90000")
    result = run("pub", input="\n".join(lines))
    assert result.exit_code == 1
    for number in (1, 2, 3, 4):
        assert f"line {number} is not published" in result.stderr
    assert values_of(subscription, 1) == [("good", 1)]


@pytest.mark.slow
def test_how_many_lines_nobody_wanted_is_told(run: Run, bus: jsonbus.Bus) -> None:
    bus.subscribe("wanted", lambda message: None)
    lines = [
        json.dumps({"topic": topic, "value": 1}) for topic in ("a", "wanted", "b", "a", "c", "d")
    ]
    result = run("pub", input="\n".join(lines))
    assert result.exit_code == 0
    assert "5 of 6 values were not sent: nobody subscribes to a, b, c, …" in result.stderr


@pytest.mark.slow
def test_waiting_for_a_subscriber_that_never_comes_times_out(run: Run) -> None:
    result = run("pub", "--wait", "0.01", "door", "1")
    assert result.exit_code == 3
    assert "nobody subscribed to door within 0.01 s" in result.stderr


@pytest.mark.slow
def test_waiting_ends_when_a_subscriber_is_there(run: Run, bus: jsonbus.Bus) -> None:
    subscription = bus.subscribe("door")
    assert run("pub", "--wait", "30", "door", "1").exit_code == 0
    assert values_of(subscription, 1) == [("door", 1)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("door", "open"),
        ("door", "NaN"),
        ("a//b", "1"),
        ("a/*", "1"),
        ("jsonbus.x", "1"),
        ("door", "1", "2"),
        ("--count", "0", "door", "1"),
        ("--rate", "0", "door", "1"),
        ("--text",),
    ],
)
def test_what_cannot_be_published_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    result = run("pub", *arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


def test_pacing_keeps_the_rate_and_does_not_make_up_for_long_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0

    def wait(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(pub, "monotonic", lambda: now)
    monkeypatch.setattr(pub, "sleep", wait)
    times = []
    for number, _ in pub._paced(((str(each), None) for each in range(60)), rate=10.0):
        times.append(now)
        now += 0.05 if number != "9" else 20.0
    assert times[:10] == pytest.approx([100.0 + each / 10 for each in range(10)])
    # A pause of 20 s: at most one second's worth follows at once.
    after = times[10:]
    assert sum(1 for each in after if each - after[0] < 0.9) <= 20
    assert after[-1] - after[0] > 3.0


@pytest.mark.slow
def test_a_one_shot_is_gone_from_the_list_afterwards(run: Run, bus: jsonbus.Bus) -> None:
    assert run("pub", "--name", "shot", "door", "1").exit_code == 0
    assert wait_until(lambda: all(each.name != "shot" for each in bus.nodes()))

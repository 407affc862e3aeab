from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import Result

import jsonbus
from jsonbus.cli.commands import channel as channel_command
from jsonbus.errors import ChannelClosedError
from tests.cli.running import Run, json_lines, meanwhile


def serve(bus: jsonbus.Bus, work: Callable[[jsonbus.Channel], object]) -> None:
    """Take channels to `port`, each for this work, which closes them."""

    def accept(channel: jsonbus.Channel) -> None:
        with channel:
            work(channel)

    bus.bind("port", accept)


def answer(channel: jsonbus.Channel) -> None:
    """A program that keeps to the convention."""
    for message in channel:
        channel.send(message)
        if message == b"":
            return


def run_listening(
    run: Run, bus: jsonbus.Bus, work: Callable[[jsonbus.Channel], Any], *args: str, **keywords: Any
) -> Result:
    """`jsonbus channel listen port`, and somebody who connects to it."""

    def call() -> None:
        with bus.connect("listener", "port", timeout=60, retry=True) as channel:
            work(channel)

    with meanwhile(call):
        return run("channel", "listen", "--name", "listener", "port", *args, **keywords)


def test_lines_go_out_as_messages_and_messages_come_in_as_lines(run: Run, bus: jsonbus.Bus) -> None:
    serve(bus, answer)
    result = run("channel", "open", "other", "port", input='{"a": "é"}\n\n[1, null]\n-5')
    assert result.exit_code == 0, result.stderr
    assert result.stdout == '{"a":"é"}\n[1,null]\n-5\n'
    assert result.stderr == "connected to other\n"


def test_bytes_are_copied_as_they_are(run: Run, bus: jsonbus.Bus) -> None:
    data = bytes(range(256)) * 1000
    serve(bus, answer)
    result = run("channel", "open", "--raw", "other", "port", input=data)
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes == data
    assert "other got 256,000 bytes" in result.stderr
    assert "256,000 bytes came from other" in result.stderr


def test_who_listens_takes_one_channel_and_ends_with_it(run: Run, bus: jsonbus.Bus) -> None:
    def work(channel: jsonbus.Channel) -> None:
        channel.send({"a": 1})
        assert channel.receive(timeout=60) == 5
        assert channel.receive(timeout=60) == b""
        channel.send(b"")
        assert channel.close(timeout=60) or channel.is_closed

    result = run_listening(run, bus, work, input="5")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == '{"a":1}\n'
    assert result.stderr == "listener takes a channel to port; Ctrl-C ends\nconnected to other\n"


@pytest.mark.slow
def test_who_keeps_listening_takes_one_channel_after_the_other_and_reads_no_input(
    run: Run, bus: jsonbus.Bus
) -> None:
    def work(channel: jsonbus.Channel) -> None:
        channel.send(1)
        channel.send(b"")
        assert channel.receive(timeout=60) == b""
        channel.close(timeout=60)
        with bus.connect("listener", "port", timeout=60, retry=True) as second:
            second.send(b"not JSON")
            with pytest.raises(ChannelClosedError, match="is gone"):
                while second.receive(timeout=60) == b"":
                    pass
        with bus.connect("listener", "port", timeout=60, retry=True) as third:
            third.send(3)
            third.send(b"")
            assert third.receive(timeout=60) == b""

    result = run_listening(run, bus, work, "--keep", "--timeout", "1", input="unread")
    assert json_lines(result.stdout) == [1, 3]
    assert "other sent bytes, not JSON: use --raw" in result.stderr
    assert result.exit_code == 1  # one of them failed


def test_nobody_who_connects_is_a_timeout(run: Run) -> None:
    for option in ("--raw", "--keep"):
        result = run("channel", "listen", "port", option, "--timeout", "0.05")
        assert result.exit_code == 3
        assert "nobody connected within 0.05 s" in result.stderr


@pytest.mark.slow
def test_what_refuses_a_channel_is_told(run: Run, bus: jsonbus.Bus) -> None:
    result = run("channel", "open", "nobody", "port")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: there is no node 'nobody'")
    bus.bind("taken", exclusive=True)
    result = run("channel", "open", "other", "port")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: nothing is bound to port 'port' of other")
    with bus.connect(bus.id, "taken", timeout=30):
        result = run("channel", "open", bus.id, "taken")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: port 'taken' of other is exclusive, and taken")


@pytest.mark.slow
@pytest.mark.parametrize("timeout", ["0.1", "0.8"])
def test_waiting_for_a_node_in_vain_is_a_timeout(run: Run, timeout: str) -> None:
    result = run("channel", "open", "nobody", "port", "--retry", "--timeout", timeout)
    assert result.exit_code == 3
    assert f"within {timeout} s" in result.stderr
    assert "use retry" not in result.stderr


def test_a_name_that_two_nodes_have_is_refused_at_once(run: Run, bus: jsonbus.Bus) -> None:
    with jsonbus.Bus(name="other"):
        result = run("channel", "open", "other", "port", "--retry", "--timeout", "600")
    assert result.exit_code == 1
    assert "several nodes are called 'other'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sent", "told"),
    [
        ((), b"bytes", "other sent bytes, not JSON: use --raw"),
        (("--raw",), {"a": 1}, "other sent JSON, not bytes: leave out --raw"),
    ],
)
def test_messages_of_the_other_kind_are_refused(
    run: Run, bus: jsonbus.Bus, arguments: tuple[str, ...], sent: object, told: str
) -> None:
    serve(bus, lambda channel: (channel.send(sent), list(channel)))
    result = run("channel", "open", "other", "port", *arguments)
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == f"Error: {told}"


@pytest.fixture
def idle_input(monkeypatch: pytest.MonkeyPatch) -> Iterator[type]:
    """An input to which nothing comes, and which does not end."""
    is_over = threading.Event()

    class Idle:
        is_terminal = False
        refused = 0

        def __init__(self, *, is_raw: bool) -> None:
            pass

        def __iter__(self) -> Iterator[object]:
            is_over.wait(60)
            return iter(())

    monkeypatch.setattr(channel_command, "Input", Idle)
    yield Idle
    is_over.set()


def test_messages_behind_the_last_one_are_refused(
    run: Run, bus: jsonbus.Bus, idle_input: type
) -> None:
    serve(bus, lambda channel: (channel.send(b""), channel.send(1), list(channel)))
    result = run("channel", "open", "other", "port")
    assert result.exit_code == 1
    assert "other sent something after its empty last message" in result.stderr


def test_an_input_that_is_a_terminal_has_ended_once_the_other_has(
    run: Run, bus: jsonbus.Bus, idle_input: Any
) -> None:
    idle_input.is_terminal = True
    serve(bus, lambda channel: (channel.send(1), channel.send(b""), list(channel)))
    result = run("channel", "open", "other", "port")
    assert (result.exit_code, result.stdout) == (0, "1\n"), result.stderr


@pytest.mark.parametrize("is_terminal", [True, False])
def test_an_idle_input_does_not_hold_up_the_end(
    run: Run, bus: jsonbus.Bus, idle_input: Any, is_terminal: bool
) -> None:
    idle_input.is_terminal = is_terminal
    serve(bus, lambda channel: channel.send(1))
    result = run("channel", "open", "other", "port")
    assert result.stdout == "1\n"
    assert result.exit_code == (0 if is_terminal else 1)


def test_a_channel_that_is_lost_is_told(run: Run, bus: jsonbus.Bus, idle_input: Any) -> None:
    serve(bus, lambda channel: channel.abort())
    result = run("channel", "open", "other", "port")
    assert result.exit_code == 1
    assert "the channel to other ('port') is closed: other is gone" in result.stderr


def test_lines_that_cannot_be_sent_are_told_and_the_rest_is_sent(
    run: Run, bus: jsonbus.Bus
) -> None:
    serve(bus, answer)
    result = run("channel", "open", "other", "port", input=f"hello\n{2**70}\n1\n")
    assert result.exit_code == 1
    assert result.stdout == "1\n"
    assert "line 1 is not sent: hello is not JSON" in result.stderr
    assert "--raw sends bytes as they are" in result.stderr
    assert "line 2 is not sent" in result.stderr


def test_a_program_is_told_how_many_lines_could_not_be_sent(run: Run, bus: jsonbus.Bus) -> None:
    got: list[object] = []

    def keep(channel: jsonbus.Channel) -> None:
        got.extend(channel.receive(timeout=60) for _ in range(3))

    serve(bus, keep)
    assert run("channel", "open", "other", "port", input="hello\n1\nworld\n").exit_code == 1
    assert got == [1, {"jsonbus.incomplete": 2}, b""]


@pytest.mark.parametrize("arguments", [(), ("--raw",)])
def test_what_the_other_side_could_not_send_is_a_failure(
    run: Run, bus: jsonbus.Bus, arguments: tuple[str, ...]
) -> None:
    def send(channel: jsonbus.Channel) -> None:
        channel.send({"jsonbus.incomplete": 2})
        channel.send(b"")
        list(channel)

    serve(bus, send)
    result = run("channel", "open", "other", "port", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    told = "other sent JSON, not bytes" if arguments else "other could not send all of its input"
    assert told in result.stderr


def test_a_program_that_just_closes_has_ended_its_input(run: Run, bus: jsonbus.Bus) -> None:
    serve(bus, lambda channel: channel.send(b"picture"))
    result = run("channel", "open", "--raw", "other", "port")
    assert (result.exit_code, result.stdout) == (0, "picture")


def test_a_program_that_just_closes_has_perhaps_not_got_everything(
    run: Run, bus: jsonbus.Bus
) -> None:
    serve(bus, lambda channel: channel.receive(timeout=60))
    result = run("channel", "open", "other", "port", input="1\n")
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last == "Error: other closed the channel without confirming that it got everything"


def test_an_endless_input_that_the_other_side_does_not_want_is_a_failure(
    run: Run, bus: jsonbus.Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless:
        is_terminal = False

        def __init__(self, *, is_raw: bool) -> None:
            pass

        def __iter__(self) -> Endless:
            return self

        def __next__(self) -> int:
            return 1

    monkeypatch.setattr(channel_command, "Input", Endless)
    serve(bus, lambda channel: channel.send(b""))
    result = run("channel", "open", "other", "port")
    assert result.exit_code == 1
    last = result.stderr.splitlines()[-1]
    assert last == "Error: other closed the channel before the input had ended"


def test_progress_is_shown_in_a_pipe_only_if_asked_for(run: Run, bus: jsonbus.Bus) -> None:
    serve(bus, answer)
    data = b"x" * 500_000
    assert "500.0 kB" not in run("channel", "open", "--raw", "other", "port", input=data).stderr
    result = run("channel", "open", "--raw", "--progress", "other", "port", input=data)
    assert result.exit_code == 0, result.stderr
    assert "sent" in result.stderr and "received" in result.stderr
    assert "500.0 kB" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("listen",),
        ("listen", ""),
        ("listen", "p", "--timeout", "nan"),
        ("listen", "p", "--progress"),
        ("open", "n"),
        ("open", "", "p"),
        ("open", "n", "p" * 256),
        ("open", "n", "p", "--timeout", "-1"),
        ("open", "n", "p", "--progress"),
    ],
)
def test_what_cannot_be_is_wrong_usage(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("channel", *arguments).exit_code == 2


def test_quiet_tells_nothing(run: Run, bus: jsonbus.Bus) -> None:
    serve(bus, answer)
    result = run("channel", "open", "-q", "--raw", "other", "port", input=b"x")
    assert (result.exit_code, result.stderr) == (0, "")

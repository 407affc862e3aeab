"""The text commands, without sockets."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jsonbus.errors import PayloadError
from jsonbus.gateway.text.wire import (
    END,
    FOREIGN,
    LINE_BYTES_MAX,
    REFUSED,
    SKIPPED_BYTES_MAX,
    Command,
    CommandReader,
    format_delivery,
    format_error,
    format_reply,
    format_topic,
    parse_line,
)
from jsonbus.gateway.values import MESSAGE_CHARACTERS_MAX, parse_text


def message_of(topic: str, value: Any) -> Any:
    return SimpleNamespace(topic=topic, value=value)


def read(*pieces: bytes, is_ended: bool = False) -> list[Command]:
    """All commands of an input that comes in pieces."""
    reader = CommandReader()
    commands: list[Command] = []
    for piece in pieces:
        reader.feed(piece)
        commands += drain(reader)
    if is_ended:
        reader.feed_end()
        commands += drain(reader)
    return commands


def drain(reader: CommandReader) -> list[Command]:
    commands = []
    while (command := reader.next_command()) is not None:
        commands.append(command)
    return commands


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (b"subscribe a/b", Command("subscribe", "a/b")),
        (b"subscribe a/*/**", Command("subscribe", "a/*/**")),
        (b"subscribe a ", Command("subscribe", "a")),
        (b'subscribe "hall 2/door"', Command("subscribe", "hall 2/door")),
        (b'subscribe "\\"quoted\\""', Command("subscribe", '"quoted"')),
        (b"unsubscribe a/b", Command("unsubscribe", "a/b")),
        (b'unsubscribe "hall 2/door" ', Command("unsubscribe", "hall 2/door")),
        (b"publish a hello world", Command("publish", "a", "hello world")),
        (b'publish a {"t": 1.5}', Command("publish", "a", '{"t": 1.5}')),
        (b"publish a 17", Command("publish", "a", "17")),
        (b'publish a "17"', Command("publish", "a", '"17"')),
        (b"publish a null", Command("publish", "a", "null")),
        (b"publish a  two spaces ", Command("publish", "a", " two spaces ")),
        (b"publish a ", Command("publish", "a", "")),
        (b"publish a", Command("publish", "a", "")),
        (b'publish "hall 2" open', Command("publish", "hall 2", "open")),
        (b'publish "hall 2"', Command("publish", "hall 2", "")),
        ("publish größe 1 €".encode(), Command("publish", "größe", "1 €")),
        (b"publish a b\x00c", Command("publish", "a", "b\x00c")),
        (b"auth s3cret", Command("auth", "", "s3cret")),
        (b"quit", Command("quit")),
        (b"quit ", Command("quit")),
    ],
)
def test_line_is_read_as_its_command(line: bytes, command: Command) -> None:
    assert parse_line(line) == command


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"SUBSCRIBE a", "unknown command"),
        (b"hello", "unknown command"),
        (b" subscribe a", "unknown command"),
        (b"quit now", "unknown command"),
        (b"\x00\x01\x02", "unknown command"),
        (b"subscribe", "subscribe needs a topic"),
        (b"unsubscribe  ", "unsubscribe needs a topic"),
        (b"publish", "publish needs a topic"),
        (b"publish  x", "publish needs a topic"),
        (b"subscribe a b", "takes one topic"),
        (b'subscribe "a', "JSON string"),
        (b'subscribe "a"b', "JSON string"),
        (b'subscribe "a" b', "JSON string"),
        (b'publish "a\\q" b', "JSON string"),
        (b'publish "\\ud800" b', "JSON string"),
        (b"auth", "auth needs a token"),
        (b"publish a \xff\xfe", "UTF-8"),
        (b"\xff", "UTF-8"),
    ],
)
def test_line_that_is_no_command_is_refused_with_a_reason(line: bytes, reason: str) -> None:
    command = parse_line(line)
    assert command.word == REFUSED
    assert reason in command.value


def test_unknown_word_is_not_repeated_since_it_may_be_a_token() -> None:
    assert "hunter2" not in parse_line(b"hunter2").value


@pytest.mark.parametrize(
    "line",
    [
        b"GET / HTTP/1.1",
        b"POST /publish HTTP/1.0",
        b"OPTIONS * HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1",
        b"Host: localhost:7676",
        b"host: localhost",
        b"\x16\x03\x01\x02\x00\x01\x00",
    ],
    ids=lambda line: line[:12].decode("latin-1"),
)
def test_nothing_is_read_behind_a_line_of_http_or_tls(line: bytes) -> None:
    commands = read(b"publish a 1\n", line, b"\r\npublish a 2\n", b"publish a 3\n", is_ended=True)
    assert [command.word for command in commands] == ["publish", FOREIGN]


def test_nothing_is_read_behind_quit() -> None:
    reader = CommandReader()
    reader.feed(b"quit\npublish a 1\n")
    assert [command.word for command in drain(reader)] == ["quit"]
    assert reader.is_over
    reader.feed(b"publish a 2\n")
    reader.feed_end()
    assert drain(reader) == []
    assert reader.unread_bytes == 0


def test_lines_end_in_either_way_and_empty_ones_mean_nothing() -> None:
    commands = read(b"\nsubscribe a\r\n\r\n\n\nsubscribe b\n")
    assert commands == [Command("subscribe", "a"), Command("subscribe", "b")]


def test_half_line_at_the_end_is_refused() -> None:
    commands = read(b"publish valve 1\npublish valve 1", is_ended=True)
    assert [command.word for command in commands] == ["publish", REFUSED, END]
    assert "ended within a line" in commands[1].value


def test_end_comes_once() -> None:
    reader = CommandReader()
    reader.feed_end()
    reader.feed_end()
    assert drain(reader) == [Command(END)]
    reader.feed_end()
    assert drain(reader) == []


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
def test_line_may_have_exactly_so_many_bytes(ending: bytes) -> None:
    token = b"x" * (LINE_BYTES_MAX - len(b"auth "))
    pieces = [b"auth " + token + ending[:-1], b"\n"]
    pieces += [b"auth " + token + b"y" + ending[:-1], b"\n"]
    commands = read(*pieces)
    assert commands == read(b"".join(pieces))
    assert commands[0] == Command("auth", value=token.decode())
    assert commands[1].word == REFUSED
    assert "65,536" in commands[1].value


@pytest.mark.parametrize("topic", ["a", '"hall 2/door"'])
@pytest.mark.parametrize("character", ["x", "\N{BALLOON}"])
def test_a_message_is_limited_in_characters_as_over_http(topic: str, character: str) -> None:
    longest = character * MESSAGE_CHARACTERS_MAX
    start = f"publish {topic} {longest}"
    (command,) = read(f"{start}\n".encode())
    assert (command.word, command.value) == ("publish", longest)
    (command,) = read(f"{start}{character}\n".encode())
    assert command.word == REFUSED
    assert command.value == (
        "message has 5,001 characters, at most 5,000 are allowed: larger ones go by POST "
        "/v1/topics/TOPIC"
    )


def test_a_line_without_an_end_is_refused_at_the_limit_and_ends_the_connection() -> None:
    reader = CommandReader()
    commands: list[Command] = []
    fed_bytes = 0
    while not reader.is_over:
        assert fed_bytes < 2 * SKIPPED_BYTES_MAX
        reader.feed(b"x" * 65_536)
        fed_bytes += 65_536
        commands += drain(reader)
        assert reader.unread_bytes <= LINE_BYTES_MAX + 1
        assert len(commands) == (0 if fed_bytes <= LINE_BYTES_MAX else 1) + reader.is_over
    assert [command.word for command in commands] == [REFUSED, FOREIGN]
    assert commands[1].value.startswith("line without an end after 1,048,576 bytes")
    assert SKIPPED_BYTES_MAX < fed_bytes <= SKIPPED_BYTES_MAX + 65_536


def test_rest_of_a_long_line_is_skipped_and_not_kept() -> None:
    reader = CommandReader()
    commands = []
    for _ in range(20):
        reader.feed(b"publish a " + b"x" * 50_000)
        commands += drain(reader)
        assert reader.unread_bytes <= LINE_BYTES_MAX + 1
    reader.feed(b"\nsubscribe a\n")
    commands += drain(reader)
    assert [command.word for command in commands] == [REFUSED, "subscribe"]


def test_commands_are_read_only_when_asked_for() -> None:
    reader = CommandReader()
    reader.feed(b"subscribe a\n" * 3)
    assert reader.next_command() == Command("subscribe", "a")
    assert reader.unread_bytes == 24


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                b"subscribe a",
                b"publish b [1, 2]",
                b'publish "x y" z',
                b"",
                b"\r",
                b"nonsense",
                b"\x00",
                b"\xc3",
                b"publish a " + b"x" * LINE_BYTES_MAX,
                b"publish " + b"x" * (LINE_BYTES_MAX - 8),
                b"x" * (LINE_BYTES_MAX + 1) + b"\r",
                b"quit",
                b"GET / HTTP/1.1",
            ]
        ),
        st.binary(max_size=30),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(LINES, st.binary(max_size=5), st.lists(st.integers(0, 200_000), max_size=20))
def test_pieces_make_no_difference(lines: list[bytes], rest: bytes, cuts: list[int]) -> None:
    data = b"".join(line + b"\n" for line in lines) + rest
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[first:last] for first, last in zip(edges, edges[1:], strict=False)]
    assert read(*pieces, is_ended=True) == read(data, is_ended=True)


@given(st.binary(max_size=200), st.sampled_from([b"\n", b"\r\n", b"\x00", b" "]))
def test_byte_by_byte_makes_no_difference(junk: bytes, separator: bytes) -> None:
    data = junk.replace(b"\x01", separator) + separator + junk
    one_by_one = [bytes((byte,)) for byte in data]
    assert read(*one_by_one, is_ended=True) == read(data, is_ended=True)


TOPICS = st.text(
    st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="*/"), min_size=1, max_size=60
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    # Infinity has no JSON; orjson writes null.
    .filter(lambda number: abs(number) < 1e308)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc "), inner, max_size=4),
    max_leaves=10,
)


@given(TOPICS, VALUES)
def test_delivery_read_as_publish_gives_topic_and_message_back(topic: str, value: Any) -> None:
    line = format_delivery(message_of(topic, value))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    command = parse_line(b"publish " + line[:-1])
    assert (command.word, command.topic) == ("publish", topic)
    if isinstance(value, str) and not is_json(value):
        assert parse_text(command.value) == value
    elif not isinstance(value, str):
        assert parse_text(command.value) == value


@given(TOPICS)
def test_topic_of_a_reply_can_be_sent_back(topic: str) -> None:
    reply = format_reply("subscribe_ack", topic)
    assert parse_line(b"unsubscribe " + reply.split(b" ", 1)[1][:-1]).topic == topic


@pytest.mark.parametrize(
    ("topic", "value", "line"),
    [
        ("a/b", "hello world", b"a/b hello world\n"),
        ("a", "", b"a \n"),
        ("a", "17", b"a 17\n"),
        ("a", 17, b"a 17\n"),
        ("a", {"t": [1, None, True]}, b'a {"t":[1,null,true]}\n'),
        ("a", "two\nlines", b'a "two\\nlines"\n'),
        ("a", "bell\x07", b'a "bell\\u0007"\n'),
        ("a", "größe", "a größe\n".encode()),
        ("hall 2", 1, b'"hall 2" 1\n'),
        ('"x', 1, b'"\\"x" 1\n'),
        ("error", "is a topic here", b'"error" is a topic here\n'),
        ("a", "half \ud800", b"a half ?\n"),
    ],
)
def test_delivery_is_one_line(topic: str, value: Any, line: bytes) -> None:
    assert format_delivery(message_of(topic, value)) == line


def test_value_that_is_not_json_is_an_error() -> None:
    with pytest.raises(PayloadError):
        format_delivery(message_of("a", {1, 2}))


def test_error_is_one_line_whatever_the_reason_says() -> None:
    assert format_error("bad\r\nerror worse\x00") == b"error bad error worse \n"


def test_reply_without_topic_is_the_word_alone() -> None:
    assert format_reply("auth_ack") == b"auth_ack\n"
    assert format_topic("a/**") == "a/**"


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True

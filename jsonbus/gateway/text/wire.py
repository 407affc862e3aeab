"""The TCP text commands: bytes to commands, messages and replies to bytes. No socket, no clock.

Lines are UTF-8 and end in `\\n` or `\\r\\n`. What a client sends, in lower case:

    subscribe TOPIC             a topic or a pattern
    unsubscribe TOPIC           as it was subscribed to
    publish TOPIC MESSAGE       a message that parses as JSON is that value, else it is a string
    auth TOKEN                  where tokens are needed
    quit

What it gets:

    connection_ack ID           once, first
    subscribe_ack TOPIC         unsubscribe_ack TOPIC       auth_ack
    error REASON                to a command that failed; `publish` has no reply else
    TOPIC MESSAGE               a delivery

MESSAGE is all that follows one space; none at all is the empty string. In a delivery it is a string
value as it is, any other value as compact JSON. A string with control characters is written as a
JSON string: a line break in it would begin a new line, which could say anything. A topic that has
a space in it or begins with `"` is written as a JSON string, in deliveries, replies and commands;
in deliveries so is one that is the first word of a reply, such as `error`.

Empty lines are ignored. A line that is not a command, is too long or is not UTF-8 gets an error,
and the next one is read. A line that does not end even then ends the connection. A last line
without a line end is not executed: half of `publish valve 10` is a valid command, too.

Browsers are not text clients
-----------------------------
A web page can make a browser send requests to any port of its user's machine, with lines of the
page's choosing in the body, or in the handshake of TLS. So nothing is read after a line that begins
like a request or a handshake. `Host:` is such a line as well: a page may choose the
method of a request to its own origin (`publish`, say), but every browser sends that header.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import jsonbus
from jsonbus.errors import PayloadError

from ..values import check_message_length, parse_json, to_json

#: Bytes of a line without its end: three times the longest command, whose message has as many
#: characters as over HTTP, of at most four bytes each.
LINE_BYTES_MAX = 65_536

#: What is skipped of a line that is too long; a client that sends more of it will not end it.
SKIPPED_BYTES_MAX = 1 << 20

SUBSCRIBE: Final = "subscribe"
UNSUBSCRIBE: Final = "unsubscribe"
PUBLISH: Final = "publish"
AUTH: Final = "auth"
# The last commands of a client; nothing is read after them.
QUIT: Final = "quit"
FOREIGN: Final = "(foreign)"  # no text client; `value` is what to tell it
END: Final = "(end)"  # the input is over
LAST_WORDS = frozenset((QUIT, FOREIGN, END))
#: A line that cannot be executed; `value` is the reason.
REFUSED: Final = "(refused)"


class Command(NamedTuple):
    """One line, read. Words in brackets are never written by a client."""

    word: str
    topic: str = ""
    #: The text to publish, the token, or the reason. The text is not parsed before it is published:
    #: as a value it may take twenty times the memory, and a thousand commands may wait.
    value: str = ""


class CommandReader:
    """Turns the bytes of one client, in any pieces, into commands, one per call.

    Bytes are parsed only on request, so the caller must stop feeding while it does not take
    commands. A caller that takes commands until None keeps at most one piece and LINE_BYTES_MAX.
    """

    __slots__ = ("_data", "_has_ended", "_is_over", "_searched", "_skipped_bytes", "_start")

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0  # of the first line not yet given out
        self._searched = 0  # up to here there is no line end behind _start
        self._skipped_bytes = 0  # of a line that was too long; 0: no such line
        self._has_ended = False
        self._is_over = False

    @property
    def is_over(self) -> bool:
        """True once the last command was returned: QUIT, FOREIGN or END."""
        return self._is_over

    @property
    def unread_bytes(self) -> int:
        """The bytes that were fed and not yet returned."""
        return len(self._data) - self._start

    def feed(self, piece: bytes | memoryview) -> None:
        if self._is_over or self._has_ended:
            return
        if self._start:
            del self._data[: self._start]
            self._searched -= self._start
            self._start = 0
        self._data += piece

    def feed_end(self) -> None:
        """Note the end of the input; END follows the commands that are still unread."""
        self._has_ended = True

    def next_command(self) -> Command | None:
        """Return the next command; None without a whole line, or after the last command."""
        while not self._is_over:
            end = self._data.find(b"\n", self._searched)
            if end < 0:
                command = self._read_rest()
            else:
                command = self._read_line(end)
                self._start = self._searched = end + 1
            if command is not None:
                if command.word in LAST_WORDS:
                    self._is_over = True
                    self._drop()
                return command
            if end < 0:
                break
        return None

    def _read_line(self, end: int) -> Command | None:
        """Return the command of the line that ends there; None if the line is empty or skipped."""
        if self._skipped_bytes:
            self._skipped_bytes = 0
            return None
        start = self._start
        if end > start and self._data[end - 1] == _CARRIAGE_RETURN:
            end -= 1
        if end == start:
            return None
        if end - start > LINE_BYTES_MAX:
            return _refuse_long(self._data[start : start + _HEAD_BYTES])
        return parse_line(self._data[start:end])

    def _read_rest(self) -> Command | None:
        """Handle bytes without a line end."""
        self._searched = len(self._data)
        if self._skipped_bytes:
            self._skipped_bytes += self.unread_bytes
            self._drop()
            if self._skipped_bytes > SKIPPED_BYTES_MAX:
                return Command(FOREIGN, value=_ENDLESS)
        # One byte more than the limit may be the `\r` of the line's end.
        elif self.unread_bytes > LINE_BYTES_MAX + 1:
            head = self._data[self._start : self._start + _HEAD_BYTES]
            self._skipped_bytes = self.unread_bytes
            self._drop()
            return _refuse_long(head)
        if not self._has_ended:
            return None
        rest_bytes = self.unread_bytes
        self._drop()
        if rest_bytes:
            return Command(REFUSED, value=_HALF_LINE)
        return Command(END)

    def _drop(self) -> None:
        self._data.clear()
        self._start = self._searched = 0


def parse_line(line: bytes | bytearray) -> Command:
    """Return the command of a line, given without its end."""
    if _is_foreign(line):
        return Command(FOREIGN, value=_FOREIGN)
    try:
        return _parse(line.decode())
    except UnicodeDecodeError:
        return Command(REFUSED, value="a line must be UTF-8")
    except ValueError as error:
        return Command(REFUSED, value=str(error))


def format_topic(topic: str) -> str:
    """Return a topic or pattern as one word, or as a JSON string."""
    if " " in topic or topic.startswith('"'):
        return to_json(topic).decode()
    return topic


def format_delivery(message: jsonbus.Message) -> bytes:
    """Return a message as a line. Raises PayloadError if the value is not JSON."""
    topic, value = message.topic, message.value
    if " " in topic or topic[0] == '"' or topic in _REPLY_WORDS:
        topic = to_json(topic).decode()
    if type(value) is str and _has_control(value) is None:
        # A value from JSON has no lone surrogates; if another has, the message still goes out.
        return f"{topic} {value}\n".encode(errors="replace")
    return b"%b %b\n" % (topic.encode(), to_json(value))


def format_reply(word: str, topic: str | None = None) -> bytes:
    """Return a reply as a line: `connection_ack`, `subscribe_ack` and so on."""
    if topic is None:
        return f"{word}\n".encode()
    return f"{word} {format_topic(topic)}\n".encode()


def format_error(reason: object) -> bytes:
    """Return an error as one line, whatever the reason contains."""
    text = _every_control(" ", str(reason))
    return f"error {text}\n".encode(errors="replace")


_CARRIAGE_RETURN = 0x0D
_HEAD_BYTES = 32  # enough to recognize another protocol

_REPLY_WORDS = frozenset(
    ("connection_ack", "subscribe_ack", "unsubscribe_ack", "auth_ack", "error")
)

_is_foreign = re.compile(
    rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|TRACE|CONNECT|PRI) |[Hh][Oo][Ss][Tt]:|\x16\x03"
).match
_has_control = re.compile(r"[\x00-\x1f]").search
_every_control = re.compile(r"[\x00-\x1f]+").sub
_quoted = re.compile(r'("(?:[^"\\]|\\.)*")(?: (.*))?', re.DOTALL).fullmatch

_UNKNOWN = (
    "unknown command: send subscribe TOPIC, unsubscribe TOPIC, publish TOPIC MESSAGE, auth TOKEN "
    "or quit"
)
_FOREIGN = "this is the text port, HTTP and TLS are not spoken here: see the gateway's HTTP port"
_ENDLESS = (
    f"line without an end after {SKIPPED_BYTES_MAX:,} bytes: connect again, and end every line "
    "with a newline"
)
_HALF_LINE = "the input ended within a line, which was not executed: end every line with a newline"
_QUOTES = 'a topic in quotes must be a JSON string, such as "hall 2/door"'


def _refuse_long(head: bytes | bytearray) -> Command:
    if _is_foreign(head):
        return Command(FOREIGN, value=_FOREIGN)
    reason = f"line too long, at most {LINE_BYTES_MAX:,} bytes are allowed"
    return Command(REFUSED, value=reason)


def _parse(line: str) -> Command:
    """Return the command of a line; raises ValueError with the reason if it is none."""
    word, _, rest = line.partition(" ")
    if word == PUBLISH:
        if rest.startswith('"'):
            topic, message = _split_quoted(rest)
        else:
            topic, _, message = rest.partition(" ")
            if not topic:
                raise ValueError("publish needs a topic: send publish TOPIC MESSAGE")
        check_message_length(len(message))
        return Command(PUBLISH, topic, message)
    if word in (SUBSCRIBE, UNSUBSCRIBE):
        return Command(word, _parse_pattern(word, rest.rstrip(" ")))
    if word == AUTH:
        secret = rest.strip()
        if not secret:
            raise ValueError("auth needs a token: send auth TOKEN")
        return Command(AUTH, value=secret)
    if word == QUIT and not rest.strip():
        return Command(QUIT)
    # The word is not repeated: it may be a token, sent without `auth`.
    raise ValueError(_UNKNOWN)


def _parse_pattern(word: str, text: str) -> str:
    if text.startswith('"'):
        pattern, rest = _split_quoted(text)
        if rest:
            raise ValueError(_QUOTES)
        return pattern
    if not text:
        raise ValueError(f"{word} needs a topic: send {word} TOPIC")
    if " " in text:
        hint = f'send {word} "hall 2/door"'
        raise ValueError(f"{word} takes one topic, one with spaces in quotes: {hint}")
    return text


def _split_quoted(text: str) -> tuple[str, str]:
    """Return the quoted topic at the beginning, and the text after one space."""
    found = _quoted(text)
    if found is None:
        raise ValueError(_QUOTES)
    try:
        return str(parse_json(found[1])), found[2] or ""
    except PayloadError:
        raise ValueError(_QUOTES) from None

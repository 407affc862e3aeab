"""Reliable messages get their sequences as they are packed, among all others, by every way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jsonbus.core.fast_publish import FastPublish
from jsonbus.core.outbox import Outbox
from jsonbus.core.reliable.history import History
from jsonbus.core.wire.codec import dumps, loads
from jsonbus.core.wire.decode import decode
from jsonbus.core.wire.encode_messages import Stamp
from jsonbus.core.wire.frames import FragmentFrame, MessagesFrame
from jsonbus.core.wire.items import RELIABLE_START, RETAINED_MARK
from tests.core.generated import unhurried

NOW = 1000.0
TOPICS = ("a", "a/b", "ü", 'quote"', "back\\slash", ',["a",')


class Desk:
    """An outbox, and the history that keeps what is reliable."""

    def __init__(self, datagram_bytes_max: int = 1400, *, batching: bool = True) -> None:
        self.fast_publish = FastPublish()
        self.outbox = Outbox(
            Stamp("k3v9aaaabbbbcccc", 1),
            datagram_bytes_max,
            500.0,
            batching=batching,
            fast_publish=self.fast_publish,
        )
        self.history = History()
        self.outbox.keep_by(self.keep)
        self.put: list[tuple[str, Any, bool, bool]] = []

    def keep(self, topic: str, texts: tuple[bytes, ...], *rest: Any) -> int:
        return self.history.keep(topic, texts, *rest)

    def publish(
        self, topic: str, value: Any, *, reliable: bool = True, retained: bool = False
    ) -> int:
        prefix, marks = b"[%b," % dumps(topic), {"is_reliable": reliable, "is_retained": retained}
        self.put.append((topic, value, reliable, retained))
        return self.outbox.put_message(prefix, dumps(value), NOW, **marks)

    def queue(self, topic: str, value: Any, *, reliable: bool = True) -> None:
        """By the short way."""
        start = RELIABLE_START if reliable else b""
        self.put.append((topic, value, reliable, False))
        self.fast_publish.queued.append(b"%b[%b,%b" % (start, dumps(topic), dumps(value)))

    def sent(self, datagrams: list[bytes] | None = None) -> list[list[Any]]:
        """The items of these datagrams, or of all that leave."""
        items, slices = [], ""
        for data in self.outbox.take(NOW) if datagrams is None else datagrams:
            frame = decode(data)
            if isinstance(frame, FragmentFrame):
                slices += frame.text
                if frame.index + 1 == frame.count:
                    items.append(loads(slices))
                    assert items[-1][2:3] == [frame.sequence] or frame.sequence is None
                    slices = ""
            else:
                assert isinstance(frame, MessagesFrame)
                items += frame.items
        return items

    def expected(self) -> list[list[Any]]:
        sequences: dict[str, int] = {}
        items = []
        for topic, value, reliable, retained in self.put:
            item = [topic, value]
            if reliable:
                sequences[topic] = sequences.get(topic, 0) + 1
                item.append(sequences[topic])
            elif retained:
                item.append(None)
            items.append([*item, 1] if retained else item)
        return items

    def check_history(self) -> None:
        """What is kept is what was sent, with its number and sequence."""
        kept = []
        for topic, state in self.history.topics.items():
            for record in self.history.take_nak(topic, [(1, state.last)], NOW):
                text = record.text.removeprefix(RELIABLE_START) + b"]"
                kept.append((record.number, record.sequence, loads(text), record.mark))
        assert sorted(kept) == [
            (number, item[2], item[:2], RETAINED_MARK if retained else b"")
            for number, (item, (_, _, reliable, retained)) in enumerate(
                zip(self.expected(), self.put, strict=True), 1
            )
            if reliable
        ]


@settings(unhurried)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(TOPICS),
            st.integers(0, 9) | st.sampled_from(["", ",", '],["a",1', "x" * 300, "x" * 3_000]),
            st.sampled_from(["put", "queue", "take"]),
            st.booleans(),
            st.booleans(),
        ),
        max_size=40,
    ),
    st.integers(300, 3_000),
    st.booleans(),
)
def test_whatever_is_put_in_comes_out_once_in_order_and_is_kept(
    steps: list[tuple[str, Any, str, bool, bool]], datagram_bytes_max: int, batching: bool
) -> None:
    desk = Desk(datagram_bytes_max, batching=batching)
    sent = []
    for topic, value, way, reliable, retained in steps:
        if way == "queue" and "\\" not in dumps(topic).decode() and len(str(value)) < 100:
            desk.queue(topic, value, reliable=reliable)
        else:
            assert desk.publish(topic, value, reliable=reliable, retained=retained) == len(desk.put)
        if way == "take":
            sent += desk.sent()
    assert sent + desk.sent() == desk.expected()
    desk.check_history()


def test_reliable_messages_fill_datagrams_and_do_not_exceed_them() -> None:
    desk = Desk()
    for number in range(3_000):  # their sequences grow longer
        desk.queue("a", number)
    datagrams = desk.outbox.take(NOW)
    assert max(map(len, datagrams)) <= 1_400
    assert min(map(len, datagrams[:-1])) > 1_100


def test_messages_of_a_topic_that_follow_each_other_are_kept_together() -> None:
    desk = Desk()
    for topic in ("a", "a", "b", "a"):
        desk.queue(topic, 1)
    desk.outbox.take(NOW)
    stretches = [each.texts for each in desk.history.topics["a"].stretches]
    assert [len(texts) for texts in stretches] == [2, 1]


def test_message_that_is_not_packed_has_no_sequence_yet() -> None:
    desk = Desk()
    desk.publish("a", 1)
    assert len(desk.history) == 0
    assert desk.sent() == [["a", 1, 1]]
    assert len(desk.history) == 1


@pytest.mark.parametrize("reliable", [False, True])
def test_queued_message_that_fits_no_datagram_leaves_in_slices(reliable: bool) -> None:
    desk = Desk()
    for _ in range(3):  # a flood
        desk.queue("a", "x" * 1_000, reliable=reliable)
    sent = desk.sent()
    desk.outbox.fill_datagrams(8)
    size = desk.fast_publish.size_max
    assert size > 1_200
    for topic in ("a", "t" * 255, "t" * 255, "a"):
        desk.queue(topic, "x" * (size - 2), reliable=reliable)
    datagrams = desk.outbox.take(NOW)
    assert max(map(len, datagrams)) <= 1_400
    assert sent + desk.sent(datagrams) == desk.expected()
    assert desk.outbox.messages_sent == 7
    desk.check_history()


class Shared(Desk):
    """Another thread queues a message while the first one is numbered."""

    def keep(self, topic: str, texts: tuple[bytes, ...], *rest: Any) -> int:
        if len(self.put) == 1:
            self.queue(topic, "late")
        return super().keep(topic, texts, *rest)


def test_message_that_another_thread_queues_meanwhile_comes_after_a_large_one() -> None:
    desk = Shared()
    assert desk.publish("a", "x" * 5_000) == 1
    frames = [decode(data) for data in desk.outbox.take(NOW)]
    assert {each.number for each in frames if isinstance(each, FragmentFrame)} == {1}
    assert type(frames[-1]) is MessagesFrame and frames[-1].items == [["a", "late", 2]]
    desk.check_history()


@pytest.mark.parametrize("retained", [False, True])
def test_escaped_topic_of_a_large_message_is_kept_under_its_name(retained: bool) -> None:
    desk = Desk()
    desk.publish('quote"', "x" * 5_000, retained=retained)
    desk.publish('quote"', 1, retained=retained)
    assert desk.sent() == desk.expected()
    desk.check_history()

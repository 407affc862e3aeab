"""What waits until the node is sure; test_publisher.py has it among nodes."""

from __future__ import annotations

from jsonbus.core.limits import HOLD_BYTES_MAX, HOLD_MESSAGES_MAX
from jsonbus.core.publisher import Held, JoinQueue


def put(hold: JoinQueue, topic: str, payload: bytes) -> list[Held]:
    return hold.put((topic, payload, False, False))


def test_messages_wait_in_order() -> None:
    hold = JoinQueue()
    for number in range(3):
        assert put(hold, "t", b"%d" % number) == []
    assert len(hold) == 3
    assert hold.take_all() == [
        ("t", b"0", False, False),
        ("t", b"1", False, False),
        ("t", b"2", False, False),
    ]
    assert len(hold) == 0


def test_overflow_of_messages_pushes_out_the_oldest() -> None:
    hold = JoinQueue()
    for number in range(HOLD_MESSAGES_MAX):
        assert put(hold, "t", b"%d" % number) == []
    assert put(hold, "u", b"x") == [("t", b"0", False, False)]
    assert put(hold, "u", b"y") == [("t", b"1", False, False)]
    assert len(hold) == HOLD_MESSAGES_MAX


def test_overflow_of_bytes_pushes_out_as_many_as_it_takes() -> None:
    hold = JoinQueue()
    for _ in range(4):
        assert put(hold, "small", bytes(HOLD_BYTES_MAX // 4)) == []
    pushed = put(hold, "large", bytes(HOLD_BYTES_MAX // 2))
    assert [topic for topic, *_ in pushed] == ["small", "small"]
    assert len(hold) == 3


def test_message_larger_than_the_queue_is_not_held_at_all() -> None:
    hold = JoinQueue()
    put(hold, "t", b"1")
    assert [topic for topic, *_ in put(hold, "huge", bytes(HOLD_BYTES_MAX + 1))] == ["t", "huge"]
    assert len(hold) == 0


def test_what_is_wanted_leaves_and_the_rest_stays_in_order() -> None:
    hold = JoinQueue()
    held = [
        ("a", b"1", True, False),
        ("b", b"2", False, False),
        ("a", b"3", False, False),
        ("c", b"4", True, True),
    ]
    for message in held:
        hold.put(message)
    assert hold.take_where(lambda topic: topic == "a") == [held[0], held[2]]
    assert hold.take_all() == [held[1], held[3]]


def test_room_is_free_again_after_taking() -> None:
    hold = JoinQueue()
    put(hold, "a", bytes(HOLD_BYTES_MAX))
    hold.take_where(lambda topic: True)
    assert put(hold, "b", bytes(HOLD_BYTES_MAX)) == []
    hold.take_all()
    assert put(hold, "c", bytes(HOLD_BYTES_MAX)) == []


def test_what_stays_keeps_its_weight() -> None:
    hold = JoinQueue()
    put(hold, "stays", bytes(HOLD_BYTES_MAX // 2))
    put(hold, "leaves", bytes(HOLD_BYTES_MAX // 2))
    hold.take_where(lambda topic: topic == "leaves")
    assert put(hold, "fits", bytes(HOLD_BYTES_MAX // 2)) == []
    assert [topic for topic, *_ in put(hold, "too much", b"x")] == ["stays"]

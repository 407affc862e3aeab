"""Sessions of browsers: random, bounded in number and in time."""

from __future__ import annotations

from jsonbus.gateway.dashboard.sessions import (
    AGE_S_MAX,
    IDLE_S_MAX,
    SESSIONS_MAX,
    Session,
    Sessions,
)

LOOK = frozenset({"subscribe"})


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_session_is_found_by_its_key_and_has_the_rights_of_its_token() -> None:
    sessions = Sessions()
    key, other = sessions.begin(LOOK), sessions.begin(frozenset({"admin"}))
    assert key != other and len(key) >= 40
    found = sessions.find(key)
    assert found is not None and found.rights == LOOK
    for wrong in (None, "", key[:-1], key + "x", "\ud800", other.swapcase()):
        assert sessions.find(wrong) is None


def test_the_key_itself_is_kept_nowhere() -> None:
    sessions = Sessions()
    key = sessions.begin(LOOK)
    assert key not in repr(vars(sessions))


def test_who_logs_out_is_out_wherever_the_session_is_held() -> None:
    sessions = Sessions()
    key = sessions.begin(LOOK)
    held = sessions.find(key)
    assert held is not None and not held.is_over
    sessions.end(key)
    sessions.end(key)
    assert held.is_over and sessions.find(key) is None


def test_a_session_ends_when_nobody_uses_it() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    key = sessions.begin(LOOK)
    for _ in range(3):
        clock.now += IDLE_S_MAX - 1
        assert sessions.find(key) is not None
    clock.now += IDLE_S_MAX + 1
    assert sessions.find(key) is None and len(sessions) == 0


def test_where_nobody_logs_in_the_session_of_all_lasts() -> None:
    clock = Clock()
    session = Session(LOOK, clock, is_lasting=True)
    clock.now += 100 * AGE_S_MAX
    assert not session.is_over
    session.is_ended = True
    assert session.is_over


def test_a_session_ends_however_much_it_is_used() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    key = sessions.begin(LOOK)
    held = sessions.find(key)
    assert held is not None
    while clock.now <= AGE_S_MAX:
        assert not held.is_over
        held.use()
        clock.now += IDLE_S_MAX / 2
    assert held.is_over


def test_the_session_that_was_unused_for_longest_makes_room() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    keys = [sessions.begin(LOOK) for _ in range(SESSIONS_MAX)]
    assert sessions.find(keys[0]) is not None
    held = sessions.find(keys[2])
    sessions.begin(LOOK)
    assert len(sessions) == SESSIONS_MAX
    assert sessions.find(keys[0]) is not None and sessions.find(keys[1]) is None
    assert held is not None and not held.is_over

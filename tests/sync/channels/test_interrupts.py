"""Calls about channels that are interrupted: nothing is lost, spoilt or left behind."""

from __future__ import annotations

import itertools
import random
import signal
from collections.abc import Iterator

import pytest

from jsonbus.errors import ChannelClosedError
from jsonbus.sync.channel import Channel
from tests.channel_peers import LONG_S
from tests.helpers import wait_until
from tests.sync.channels.channel_pair import InThread, fill, open_pair
from tests.sync.conftest import OpenBus


class Interrupted(BaseException):
    """As KeyboardInterrupt, which would end all tests if one of them let it out."""


def test_an_interrupted_wait_leaves_everything_as_it_was(open_bus: OpenBus) -> None:
    here, there, calling, bound, binding = open_pair(open_bus)
    before = signal.signal(signal.SIGALRM, _interrupt)
    try:
        for wait in (
            lambda: here.receive(LONG_S),
            lambda: binding.accept(LONG_S),
            lambda: calling.connect("nobody", "p", timeout=LONG_S, retry=True),
        ):
            with pytest.raises(Interrupted):
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                wait()
        count = fill(here, there)
        with pytest.raises(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            here.send(b"not sent")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert here.sent == count
    sending = InThread(here.send, "sent")
    for _ in range(count):
        assert there.receive(LONG_S) != b"not sent"
    assert there.receive(LONG_S) == "sent"
    sending.result()
    there.send("back")
    assert here.receive(LONG_S) == "back"
    assert wait_until(lambda: calling.stats()["channel_attempts_failed"] == 1)
    calling.connect("bound", "p", timeout=LONG_S, retry=True)
    binding.accept(LONG_S)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_connect_interrupted_anywhere_leaves_no_channel_open(open_bus: OpenBus) -> None:
    calling, bound = open_bus(), open_bus(name="desk")
    bound.bind("p", lambda channel: None)
    calling.connect("desk", "p", timeout=LONG_S, retry=True).close(
        LONG_S
    )  # starts the thread of channels
    dice = random.Random(1)

    def interrupt(number: int, frame: object) -> None:
        raise ZeroDivisionError  # whatever a program's handler raises

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(100):
            channel = None
            try:
                signal.setitimer(signal.ITIMER_REAL, dice.uniform(0.0001, 0.002))
                channel = calling.connect("desk", "p", timeout=LONG_S, retry=True)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except ZeroDivisionError:
                pass
            except RuntimeError as error:
                # Python's own: an interruption just when a condition takes its lock again.
                assert str(error) == "release unlocked lock"
            if channel is not None:
                channel.close(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert wait_until(lambda: calling.stats()["channels_open"] == 0)
    assert wait_until(lambda: bound.stats()["channels_open"] == 0)


def _interrupt(number: int, frame: object) -> None:
    raise Interrupted


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_send_interrupted_anywhere_never_spoils_what_follows(open_bus: OpenBus) -> None:
    bus = open_bus(name="alone")
    binding = bus.bind("p")
    dice = random.Random(1)
    before = signal.signal(signal.SIGALRM, _interrupt)
    try:
        for _ in range(60):
            channel = bus.connect("alone", "p", timeout=LONG_S, retry=True)
            receiving = InThread(_receive_all, binding.accept(LONG_S))
            sent: list[int] = []
            numbers = itertools.count()
            for _ in range(5):
                _send_until_interrupted(channel, numbers, sent, dice.uniform(0.00005, 0.001))
            channel.close(LONG_S)
            received = receiving.result()
            assert received == sorted(set(received))
            last = max(received, default=-1)
            assert not {number for number in sent if number < last} - set(received)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _send_until_interrupted(
    channel: Channel, numbers: Iterator[int], sent: list[int], after_s: float
) -> None:
    """Send numbers; what is interrupted may or may not have been sent, but is not sent again."""
    try:
        signal.setitimer(signal.ITIMER_REAL, after_s)
        try:
            # An interruption may be swallowed, if it comes while garbage is collected.
            for number in itertools.islice(numbers, 100_000):
                channel.send(number)
                sent.append(number)
        except ChannelClosedError:
            pass  # by the interruption before
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupted:
        pass  # once for each time the timer is set, here or in any line above


def _receive_all(channel: Channel) -> list[int]:
    received: list[int] = []
    try:
        for value in channel:
            assert type(value) is int
            received.append(value)
    except ChannelClosedError:
        pass  # lost, as an interruption may do
    return received

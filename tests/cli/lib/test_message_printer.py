from __future__ import annotations

import io
import json
import sys
import threading
from contextlib import ExitStack

import pytest

import jsonbus
from jsonbus import Message
from jsonbus.cli.lib import message_printer as listening
from jsonbus.cli.lib.input_lines import LineReader
from jsonbus.cli.lib.message_printer import Inbox, MessagePrinter
from jsonbus.cli.lib.output import Output
from jsonbus.cli.lib.values import gap_to_json
from jsonbus.core.message import make_message
from jsonbus.core.reliable import gaps
from jsonbus.transport import MemoryNetwork
from tests.helpers import wait_until
from tests.sync.transports import LosingTransport, all_with

GAP = jsonbus.GapEvent("x4rc", "kitchen", "t", 2, 1_235, 1.5)


def message(value: object) -> Message:
    return make_message("t", value, None, None)  # type: ignore[arg-type]


def test_messages_come_out_in_order_and_all_at_once() -> None:
    inbox = Inbox()
    messages = [message(each) for each in range(5)]
    for each in messages:
        inbox.put(each)
    assert inbox.take(30) == messages
    assert inbox.take(0) == []


def test_who_brings_waits_while_it_is_full() -> None:
    inbox = Inbox()
    count = listening.INBOX_MESSAGES_MAX + 1
    bringing = threading.Thread(
        target=lambda: [inbox.put(message(each)) for each in range(count)], daemon=True
    )
    bringing.start()
    taken: list[listening.Printed] = []

    def take() -> bool:
        batch = inbox.take(0)
        assert len(batch) <= listening.INBOX_MESSAGES_MAX
        taken.extend(batch)
        return len(taken) == count

    assert wait_until(take)
    bringing.join(30)
    assert not bringing.is_alive()


def test_closing_lets_go_whoever_waits() -> None:
    inbox = Inbox()
    bringing = threading.Thread(
        target=lambda: [inbox.put(message(each)) for each in range(3_000)], daemon=True
    )
    bringing.start()
    inbox.close()
    bringing.join(30)
    assert not bringing.is_alive()


@pytest.mark.slow
def test_gaps_are_printed_among_the_messages_and_not_counted(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(gaps, "HISTORY_AGE_S", 0.5)
    network = MemoryNetwork()
    transport = LosingTransport(network, all_with("gone", "likewise"))
    with ExitStack() as opened:
        publisher = opened.enter_context(jsonbus.Bus.over(transport, name="kitchen"))
        reader = opened.enter_context(jsonbus.Bus.over(network.open()))
        printer = MessagePrinter(reader, ["t"], Output(), has_gaps=True)
        assert publisher.wait_for_subscribers("t", timeout=30)
        assert wait_until(lambda: "kitchen" in {info.name for info in reader.nodes()})
        for value in ("first", "gone", "likewise", "last"):
            publisher.publish("t", value, reliable=True)
            assert publisher.flush()  # one to a datagram: only those two are lost
        # The gap has no fixed place among the messages: all three are here before two are counted.
        assert wait_until(lambda: len(printer._inbox._messages) == 3)
        printer.run(count=2)
    lines = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    (gap,) = (line["jsonbus.gap"] for line in lines if "jsonbus.gap" in line)
    assert (gap["topic"], gap["name"], gap["node"]) == ("t", "kitchen", publisher.id)
    assert (gap["first"], gap["last"], gap["count"]) == (2, 3, 2)
    assert [line["value"] for line in lines if "value" in line] == ["first", "last"]


def test_people_see_how_many_are_missing() -> None:
    output = Output()
    output.is_terminal = True
    with jsonbus.Bus.over(MemoryNetwork().open()) as bus:
        line = MessagePrinter(bus, ["t"], output)._gap_line(GAP)
    assert line.endswith(" t 1,234 missing kitchen")


def test_pub_passes_over_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = f'{gap_to_json(GAP)}\n{{"topic":"a","value":1}}\n'
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    reader = LineReader(None)
    assert list(reader) == [("a", 1)]
    assert reader.refused == 0

"""A process with channels forks: the child can neither use nor disturb them."""

from __future__ import annotations

from tests.end_to_end.processes import Desk

#: Prints what each call of the child raised, then "alive" once the parent's channel has gone on.
FORKING = """
import os, sys, threading, jsonbus
from jsonbus.errors import ForkedError

def attempt(what, act):
    try:
        result = act()
    except BaseException as error:
        result = type(error).__name__
    print(what, result, flush=True)

def echo(channel):
    channel.on_message(channel.send)

left, right = jsonbus.Bus(name="left"), jsonbus.Bus(name="right")
right.bind("echo", echo)
binding = right.bind("accept")
channel = left.connect("right", "echo")
channel.send("before")
assert channel.receive(30) == "before"
opening = left.connect("nobody", "echo", 600, retry=True, wait=False)
came = []
reader = threading.Thread(target=lambda: came.append(channel.receive(60)))
reader.start()
channel.lock.acquire()  # as another thread may do at any time
child = os.fork()
if child:
    channel.lock.release()
else:
    attempt("send", lambda: channel.send("child"))
    attempt("try_send", lambda: channel.try_send("child"))
    attempt("receive", lambda: channel.receive(1))
    attempt("opening receive", lambda: opening.receive(1))
    attempt("opening send", lambda: opening.send(1, 1))
    attempt("accept", lambda: binding.accept(1))
    attempt("connect", lambda: left.connect("right", "echo"))
    attempt("bind", lambda: left.bind("news"))
    attempt("close", channel.close)
    attempt("close opening", opening.close)
    binding.close()
    with jsonbus.Bus(name="child") as bus:
        own = bus.connect("right", "echo", 30, retry=True)
        own.send("own")
        attempt("own", lambda: own.receive(30))
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
channel.send("after")
reader.join(60)
assert came == ["after"] and not channel.is_closed, came
channel.send("more")
assert channel.receive(30) == "more"
assert left.stats()["channels_lost"] == 0
assert left.connect("right", "accept", 30).close(0) is not None
print("alive", flush=True)
opening.close()
left.close()
right.close()
"""


def test_a_forked_child_can_neither_use_nor_disturb_its_parents_channels(desk: Desk) -> None:
    process = desk.start_python(FORKING)
    process.expect_exit(0)
    told = dict(line.rsplit(" ", 1) for line in process.lines if " " in line)
    refused = ("send", "try_send", "receive", "opening receive", "opening send")
    for call in (*refused, "accept", "connect", "bind"):
        assert told[call] == "ForkedError", (call, process.lines, process.complaints)
    assert (told["close"], told["close opening"]) == ("False", "False")
    assert told["own"] == "own"
    assert process.lines[-1] == "alive"

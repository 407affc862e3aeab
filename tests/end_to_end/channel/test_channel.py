"""`jsonbus channel`: files and lines between two processes, and all the ways in which they end."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.end_to_end.processes import Desk, Process
from tests.end_to_end.test_ending import assert_no_traceback

#: What `open` needs for a listener that starts at the same time.
PATIENT = "--retry --timeout 60"

#: An input that does not end, and does not hurry.
TRICKLE = "<(exec 2> /dev/null; while sleep 0.01 && head -c 65536 /dev/zero; do :; done)"

#: A silent node is noticed after 7 seconds; this is for machines that are busy.
NOTICED_S = 30.0


def listen(desk: Desk, arguments: str) -> Process:
    return desk.start_shell(f"exec jsonbus channel listen port --name garage {arguments}")


def open_(desk: Desk, arguments: str) -> Process:
    return desk.start_shell(f"exec jsonbus channel open garage port {PATIENT} {arguments}")


def has_begun(copy: Path) -> bool:
    return copy.exists() and copy.stat().st_size > 100_000


def assert_last_words(process: Process, *words: str) -> None:
    """It failed, and told why in one sentence."""
    assert_no_traceback(process)
    errors = [line for line in process.complaints if line.startswith("Error: ")]
    assert errors == process.complaints[-1:]
    assert all(word in errors[0] for word in words), errors


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_file_that_is_not_json_fails_on_both_sides(desk: Desk, tmp_path: Path) -> None:
    picture, copy = tmp_path / "picture", tmp_path / "copy"
    picture.write_bytes(b"\xff\xd8\n12345\n" + os.urandom(3_000_000))
    listener = listen(desk, f"< /dev/null > {copy}")
    caller = open_(desk, f"< {picture}")  # without --raw
    caller.expect_exit(1)
    listener.expect_exit(1)
    assert copy.read_text().startswith("12345\n")  # the one line that is JSON
    assert "line 1 is not sent: it is not UTF-8; --raw sends bytes as they are" in caller.complaints
    assert_last_words(listener, "could not send all of its input")


def test_files_cross_both_ways_at_once_and_arrive_as_they_were(desk: Desk, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("there", "back", "there.copy", "back.copy")]
    there, back, there_copy, back_copy = files
    there.write_bytes(os.urandom(50_000_000))
    back.write_bytes(os.urandom(20_000_001))
    caller = open_(desk, f"--raw < {there} > {back_copy}")  # it waits for who listens
    desk.wait_until(lambda: desk.names())
    listener = listen(desk, f"--raw < {back} > {there_copy}")
    caller.expect_exit(0)
    listener.expect_exit(0)
    assert digest(there_copy) == digest(there)
    assert digest(back_copy) == digest(back)
    assert "garage got 50,000,000 bytes" in caller.complaints
    assert any(line.startswith("50,000,000 bytes came from ") for line in listener.complaints)
    assert not any("\x1b" in line or "MB/s" in line for line in caller.complaints)


@pytest.mark.parametrize("direction", ["to", "from"])
def test_a_file_crosses_while_the_other_side_has_nothing_to_say(
    desk: Desk, tmp_path: Path, direction: str
) -> None:
    file, copy = tmp_path / "file", tmp_path / "copy"
    file.write_bytes(os.urandom(3_000_000))
    streams = [f"--raw < /dev/null > {copy}", f"--raw < {file}"]
    if direction == "from":
        streams.reverse()
    listener, caller = listen(desk, streams[0]), open_(desk, streams[1])
    caller.expect_exit(0)
    listener.expect_exit(0)
    assert digest(copy) == digest(file)


def test_json_lines_go_both_ways_as_they_are_typed(desk: Desk) -> None:
    listener = desk.start("channel", "listen", "port", "--name", "garage", stdin=subprocess.PIPE)
    caller = desk.start(
        "channel", "open", "garage", "port", *PATIENT.split(), stdin=subprocess.PIPE
    )
    for number in range(3):
        for one, other in ((listener, caller), (caller, listener)):
            one.stdin.write(f'{{"n":{number},"text":"é ☃"}}\n')
            one.stdin.flush()
            desk.wait_until(lambda other=other, count=number: len(other.lines) > count)
    caller.stdin.close()
    listener.stdin.write('"more"\n')  # the other direction goes on
    listener.stdin.flush()
    desk.wait_until(lambda: len(caller.lines) == 4)
    assert not caller.has_ended
    listener.stdin.close()
    listener.expect_exit(0)
    caller.expect_exit(0)
    expected = [{"n": number, "text": "é ☃"} for number in range(3)]
    assert listener.results == expected
    assert caller.results == [*expected, "more"]


def test_a_program_takes_part(desk: Desk) -> None:
    program = desk.start_python(
        """
import time
import jsonbus

def add(channel):
    for message in channel:
        if message == b"":
            break
        channel.send(message["a"] + message["b"])
    channel.send(b"")
    print(channel.close(timeout=60) or channel.is_closed, flush=True)

with jsonbus.Bus(name="garage") as bus:
    with bus.bind("port", add):
        print("bound", flush=True)
        time.sleep(600)
"""
    )
    caller = desk.start_shell(
        f"jsonbus channel open garage port {PATIENT}"
        """ <<< '{"a":1,"b":2}\n{"a":3,"b":4}'"""
    )
    caller.expect_exit(0)
    assert caller.results == [3, 7]
    desk.wait_until(lambda: program.lines == ["bound", "True"])


def test_a_second_caller_is_refused_until_the_first_has_gone(desk: Desk) -> None:
    listener = listen(desk, "--keep")
    first = desk.start("channel", "open", "garage", "port", *PATIENT.split(), stdin=subprocess.PIPE)
    desk.wait_until(lambda: "connected to garage" in first.complaints)
    second = desk.start("channel", "open", "garage", "port", "--timeout", "60")
    second.expect_exit(1)
    assert_last_words(second, "port 'port' of garage is exclusive, and taken")
    third = desk.start_shell(f"echo 3 | jsonbus channel open garage port {PATIENT}")
    first.stdin.write("1\n")
    first.stdin.close()
    first.expect_exit(0)
    third.expect_exit(0)
    desk.wait_until(lambda: listener.lines == ["1", "3"])
    listener.send_signal(signal.SIGINT)
    listener.expect_exit(0)


@pytest.mark.parametrize(
    ("node", "words"), [("nobody", "there is no node 'nobody'"), ("garage", "nothing is bound")]
)
def test_a_refusal_is_told_at_once(desk: Desk, node: str, words: str) -> None:
    desk.start("node", "--name", "garage", "--sub", "x")
    desk.wait_for_node("garage")
    caller = desk.start("channel", "open", node, "port", "--timeout", "600")
    caller.expect_exit(1)
    assert_last_words(caller, words)


def test_waiting_in_vain_is_a_timeout_on_both_sides(desk: Desk) -> None:
    listener = listen(desk, "--timeout 0.1")
    listener.expect_exit(3)
    assert_last_words(listener, "nobody connected within 0.1 s")
    caller = desk.start("channel", "open", "garage", "port", "--retry", "--timeout", "0.7")
    caller.expect_exit(3)
    assert_last_words(caller, "within 0.7 s", "garage")


@pytest.mark.parametrize("victim", ["listener", "caller"])
def test_who_is_killed_in_the_middle_is_noticed_by_the_other(
    desk: Desk, tmp_path: Path, victim: str
) -> None:
    copy = tmp_path / "copy"
    listener = listen(desk, f"--raw > {copy} < /dev/null")
    caller = open_(desk, f"--raw < {TRICKLE}")
    desk.wait_until(lambda: has_begun(copy))
    killed, other = (listener, caller) if victim == "listener" else (caller, listener)
    killed.send_signal(signal.SIGKILL)
    assert other.wait(NOTICED_S) == 1
    assert_last_words(other, "the channel to ", "('port') is closed: ")


@pytest.mark.parametrize(("input_", "silence"), [(TRICKLE, "7 s"), ("/dev/null", "20 s")])
def test_who_stands_still_is_noticed_within_the_silence(
    desk: Desk, tmp_path: Path, input_: str, silence: str
) -> None:
    copy = tmp_path / "copy"
    listener = listen(desk, f"--raw > {copy} < {input_}")
    caller = open_(desk, f"--raw < {TRICKLE}")
    desk.wait_until(lambda: has_begun(copy))
    caller.send_signal(signal.SIGSTOP)  # its connection stays, but nothing comes of it
    begun_at = time.monotonic()
    assert listener.wait(NOTICED_S) == 1
    assert time.monotonic() - begun_at > 3
    assert_last_words(listener, f"was not heard for {silence}")


@pytest.mark.parametrize("who", ["listener", "caller"])
def test_ctrl_c_in_the_middle_is_told_by_both_exit_codes(
    desk: Desk, tmp_path: Path, who: str
) -> None:
    copy = tmp_path / "copy"
    listener = listen(desk, f"--raw > {copy} < /dev/null")
    caller = open_(desk, f"--raw < {TRICKLE}")
    desk.wait_until(lambda: has_begun(copy))
    ended, other = (listener, caller) if who == "listener" else (caller, listener)
    ended.send_signal(signal.SIGINT)
    ended.expect_exit(130)
    assert other.wait(NOTICED_S) == 1
    assert_no_traceback(ended)
    assert_last_words(other, "the channel to ")
    desk.wait_until(lambda: not desk.names())


@pytest.mark.parametrize(
    "arguments", [("listen", "port"), ("open", "nobody", "port", "--retry", "--timeout", "600")]
)
def test_ctrl_c_ends_who_waits_for_the_other(desk: Desk, arguments: tuple[str, ...]) -> None:
    process = desk.start("channel", *arguments, "--name", "waiting")
    desk.wait_until(lambda: "waiting" in desk.names())
    process.send_signal(signal.SIGINT)
    process.expect_exit(130)
    assert_no_traceback(process)


def test_an_input_that_stays_open_does_not_hold_up_the_end(desk: Desk) -> None:
    listener = desk.start("channel", "listen", "port", "--name", "garage", stdin=subprocess.PIPE)
    caller = open_(desk, f"--raw < {TRICKLE}")  # which who listens does not want: no --raw
    listener.expect_exit(1)
    assert_last_words(listener, "sent bytes, not JSON: use --raw")
    caller.expect_exit(1)
    assert_last_words(caller, "the channel to garage ('port') is closed")


def test_a_reader_that_has_enough_ends_the_command(desk: Desk) -> None:
    listener = listen(desk, f"--raw < {TRICKLE}")
    caller = desk.start_shell(
        f"set -o pipefail; jsonbus channel open garage port --raw {PATIENT} < /dev/null"
        " | head -c 10 | wc -c"
    )
    caller.expect_exit(0)
    assert caller.lines == ["10"]
    assert_no_traceback(caller)
    listener.expect_exit(1)  # who has not got everything across
    assert_no_traceback(listener)


def test_a_full_disk_is_told_on_both_sides(desk: Desk) -> None:
    listener = listen(desk, "--raw < /dev/null > /dev/full")
    caller = open_(desk, f"--raw < {TRICKLE}")
    listener.expect_exit(1)
    assert_last_words(listener, "cannot write to standard output: No space left on device")
    caller.expect_exit(1)
    assert_last_words(caller, "the channel to garage ('port') is closed")


def test_a_reader_that_stands_still_holds_up_the_sender_and_fills_no_memory(
    desk: Desk, tmp_path: Path
) -> None:
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, 2 << 30)  # without taking room on the disk
    read_end, write_end = os.pipe()
    try:
        listener = desk.start(
            "channel", "listen", "port", "--raw", "--name", "garage", stdout=write_end
        )
        os.close(write_end)
        caller = open_(desk, f"--raw < {huge}")

        def position() -> int:
            return int(Path(f"/proc/{caller.pid}/fdinfo/0").read_text().split()[1])

        def has_stopped() -> bool:
            before = position()
            time.sleep(0.5)  # as long as that, it would have read hundreds of megabytes
            return before == position() > 0

        desk.wait_until(has_stopped)
        assert position() < 50_000_000
        for process in (listener, caller):
            status = Path(f"/proc/{process.pid}/status").read_text()
            resident_kb = next(
                int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")
            )
            assert resident_kb < 150_000
        listener.send_signal(signal.SIGINT)  # which is stuck in a write
        listener.expect_exit(130)
        caller.expect_exit(1)
        assert_no_traceback(listener)
    finally:
        os.close(read_end)

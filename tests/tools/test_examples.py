"""tools/examples: sensors that are no nodes, heard by a real subscriber."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import jsonbus
from tests.helpers import find_free_port, need_program, wait_until

EXAMPLES = Path(__file__).parents[2] / "tools" / "examples"

#: What MicroPython has on a board, as far as the sensor uses it.
MACHINE = """
class WDT:
    fed = 0
    def __init__(self, timeout): assert timeout > 0
    def feed(self): WDT.fed += 1
class Pin:
    def __init__(self, number): pass
class ADC:
    def __init__(self, pin): assert isinstance(pin, Pin)
    def read_uv(self): return 1_234_567
def unique_id(): return bytes((0x24, 0x0a, 0xc4, 0, 0x12, 0xff))
"""
NETWORK = """
STA_IF, AP_IF = 0, 1
fails = 0
class WLAN:
    connected = False
    is_access_point = True
    def __init__(self, kind): self.kind = kind
    def active(self, is_active):
        if self.kind == AP_IF: WLAN.is_access_point = is_active
    def isconnected(self): return WLAN.connected
    def disconnect(self): WLAN.connected = False
    def connect(self, name, password):
        global fails
        if fails:
            fails -= 1
            raise OSError("Wifi Internal Error")
        WLAN.connected = True
    def ifconfig(self): return ("127.0.0.1", "255.0.0.0", "127.0.0.1", "127.0.0.1")
"""


class Heard:
    """A subscriber to everything on a bus of its own, on the loopback interface."""

    def __init__(self) -> None:
        self.port = find_free_port()
        self.messages: list[tuple[str, Any]] = []
        self.bus = jsonbus.Bus(port=self.port, interface="lo")
        self.bus.subscribe("**", lambda each: self.messages.append((each.topic, each.value)))

    def wait(self, count: int) -> list[tuple[str, Any]]:
        assert wait_until(lambda: len(self.messages) >= count), self.messages
        assert self.bus.stats()["datagrams_rejected"] == 0
        return self.messages


@pytest.fixture
def heard() -> Iterator[Heard]:
    opened = Heard()
    with opened.bus:
        yield opened


@pytest.fixture(scope="module")
def sensor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one in C, compiled as strictly as can be."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    program = tmp_path_factory.mktemp("c") / "sensor"
    options = ["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    subprocess.run([compiler, *options, "-o", program, EXAMPLES / "sensor.c"], check=True)
    return program


def run_sensor(sensor: Path, heard: Heard, text: bytes, topic: str = "a") -> str:
    done = subprocess.run(
        [sensor, "-i", "127.0.0.1", "-p", str(heard.port), topic],
        input=text,
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 0
    return done.stderr.decode()


@pytest.mark.slow
def test_the_sensor_in_c_publishes_numbers_and_text(sensor: Path, heard: Heard) -> None:
    text = 'a "b" \\ \t\x01 ü'
    lines = ["21.5", "-3", "1e3", "0x10", ".5", "nan", "inf", "21.5 C", "", text, "1\r"]
    lines += ["0.1", "1700000000123456", "0.30000000000000004"]
    assert run_sensor(sensor, heard, "\n".join(lines).encode(), 'x"\\y') == ""
    messages = heard.wait(13)
    assert {topic for topic, _ in messages} == {'x"\\y'}
    expected = [21.5, -3, 1000, 16, 0.5, "nan", "inf", "21.5 C", text, 1]
    expected += [0.1, 1700000000123456, 0.30000000000000004]
    assert [value for _, value in messages] == expected


def test_the_sensor_in_c_says_what_does_not_fit_and_goes_on(sensor: Path, heard: Heard) -> None:
    lines = [b"x" * 1_350, b"x" * 1_400, b'"' * 1_000, b"y" * 100_000, b"1"]
    said = run_sensor(sensor, heard, b"\n".join(lines))
    assert said.count("not sent: longer than a datagram") == 3
    assert [value for _, value in heard.wait(2)] == ["x" * 1_350, 1]


@pytest.mark.parametrize(
    "arguments",
    [[], ["a", "b"], ["-i", "nowhere", "a"], ["-g", "x", "a"], ["-p", "0", "a"], ["-x"]],
)
def test_the_sensor_in_c_tells_how_it_is_used(sensor: Path, arguments: list[str]) -> None:
    done = subprocess.run([sensor, *arguments], input=b"1\n", capture_output=True, timeout=60)
    assert done.returncode == 2 and done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "busybox sh"])
def test_the_sensor_in_shell_publishes_the_load(heard: Heard, shell: str) -> None:
    command = shell.split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"there is no {command[0]}")
    need_program("nc")
    script = [*command, EXAMPLES / "sensor.sh", "-t", 'x"\\ y', "-e", "0", "-n", "2"]
    subprocess.run([*script, "-i", "127.0.0.1", "-p", str(heard.port)], check=True, timeout=60)
    for topic, value in heard.wait(2):
        assert topic == 'x"\\ y'
        assert value["host"] == platform.node() and value["load"] >= 0


def run_board(folder: Path, heard: Heard, program: str) -> str:
    """Run a program with the sensor as `sensor`, and stand-ins for what MicroPython has."""
    (folder / "machine.py").write_text(MACHINE, encoding="utf-8")
    (folder / "network.py").write_text(NETWORK, encoding="utf-8")
    shutil.copy(EXAMPLES / "sensor_esp32.py", folder / "sensor.py")
    head = f"import machine, network, sensor\nsensor.PORT, sensor.EVERY_S = {heard.port}, 0\n"
    done = subprocess.run(
        [sys.executable, "-c", head + program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_sensor_in_micropython_publishes_what_it_reads(heard: Heard, tmp_path: Path) -> None:
    run_board(tmp_path, heard, "sensor.main(3)\nassert machine.WDT.fed == 3\n")
    value = {"millivolts": 1234, "board": "240ac40012ff"}
    assert heard.wait(3) == [("sensors/bench/voltage", value)] * 3


def test_the_sensor_in_micropython_survives_that_wifi_goes_away(
    heard: Heard, tmp_path: Path
) -> None:
    said = run_board(
        tmp_path,
        heard,
        "sensor.CONNECT_S = 0\n"
        "network.fails = 1\n"
        "read = machine.ADC.read_uv\n"
        "rounds = 0\n"
        "def read_and_leave(self):\n"
        "    global rounds\n"
        "    rounds += 1\n"
        "    if rounds == 1:\n"
        "        network.WLAN.connected, network.fails = False, 1\n"
        "    if rounds == 3:\n"
        "        raise OSError('unplugged')\n"
        "    return read(self)\n"
        "machine.ADC.read_uv = read_and_leave\n"
        "sensor.time.sleep = lambda seconds: None\n"
        "sensor.main(8)\n"
        "assert not network.WLAN.is_access_point\n",
    )
    # Nothing in five rounds: twice no Wi-Fi, twice it came while nobody waited, once no reading.
    assert said.splitlines() == [
        "no Wi-Fi: Wifi Internal Error",
        "no Wi-Fi: Wifi Internal Error",
        "not sent: Wi-Fi is gone",
        "not sent: unplugged",
    ]
    assert len(heard.wait(3)) == 3


@pytest.mark.slow
def test_the_sensor_in_micropython_escapes_what_it_sends(tmp_path: Path, heard: Heard) -> None:
    said = run_board(tmp_path, heard, "print(ascii(sensor.encode('a\"\\\\ü', ['\\n\"', 1.5])))")
    datagram = eval(said)
    assert json.loads(datagram) == {"topic": 'a"\\ü', "payload": ['\n"', 1.5]}
    assert datagram.startswith(b'{"topic":')


#: What the sketch uses of Arduino's core for the ESP32, as far as a compiler has to know.
ARDUINO = """
#pragma once
#include <cstdint>
#include <cstdio>
struct IPAddress { uint8_t bytes[4]; IPAddress(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
    : bytes{a, b, c, d} {} };
enum { WIFI_STA = 1, WL_CONNECTED = 3 };
struct { void mode(int) {} void setAutoReconnect(bool) {} void begin(const char *, const char *) {}
    int status() { return WL_CONNECTED; } int8_t RSSI() { return -60; } } WiFi;
struct { void begin(unsigned long) {} void println(const char *) {} } Serial;
struct WiFiUDP { int beginPacket(IPAddress, uint16_t) { return 1; }
    size_t print(const char *text) { return fputs(text, stdout) >= 0; }
    int endPacket() { return 1; } };
inline uint32_t analogReadMilliVolts(uint8_t) { return 1234; }
inline void delay(uint32_t) {}
"""


def test_the_sketch_compiles_and_writes_a_datagram(tmp_path: Path) -> None:
    compiler = shutil.which("c++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    (tmp_path / "WiFi.h").write_text(ARDUINO, encoding="utf-8")
    (tmp_path / "WiFiUdp.h").write_text('#include "WiFi.h"\n', encoding="utf-8")
    source = (EXAMPLES / "sensor.ino").read_text(encoding="utf-8")
    main = tmp_path / "main.cpp"
    main.write_text(source + "int main() { setup(); loop(); }\n", encoding="utf-8")
    program = tmp_path / "sketch"
    options = ["-std=c++11", "-Wall", "-Wextra", "-Werror", f"-I{tmp_path}"]
    subprocess.run([compiler, *options, "-o", program, main], check=True)
    done = subprocess.run([program], capture_output=True, check=True, timeout=60)
    assert json.loads(done.stdout) == {
        "topic": "sensors/bench/voltage",
        "payload": {"millivolts": 1234, "rssi": -60},
    }

"""A sensor in MicroPython, for an ESP32: copy it to the board as main.py.

It reads a voltage and publishes it. Wi-Fi that goes away comes back; nothing here waits for ever,
and if something did, the watchdog would restart the board.
"""

import json
import socket
import time

import machine
import network

WIFI_NAME, WIFI_PASSWORD = "name", "password"
GROUP, PORT = "239.255.24.16", 2416
TOPIC = "sensors/bench/voltage"
PIN = 34
EVERY_S = 5
CONNECT_S = 20


def encode(topic, value):
    # Not one dumps of it all: in MicroPython the keys would come in any order, and topic is first.
    return f'{{"topic":{json.dumps(topic)},"payload":{json.dumps(value)}}}'.encode()


def connect(station):
    """Whether there is Wi-Fi, within CONNECT_S."""
    if station.isconnected():
        return True
    try:
        station.disconnect()  # an attempt that is still under way would refuse the next one
        station.connect(WIFI_NAME, WIFI_PASSWORD)
    except OSError as error:
        print("no Wi-Fi:", error)
    for _ in range(CONNECT_S * 10):
        if station.isconnected():
            return True
        time.sleep(0.1)
    return False


def open_socket(address):
    """A socket whose datagrams leave by the interface with this address, and pass no router."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, 0))
    sock.settimeout(2)
    try:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 1)
    except (AttributeError, OSError):
        pass  # firmware without this option; routers keep to themselves what is sent to 239.255.…
    return sock


def main(rounds=None):
    watchdog = machine.WDT(timeout=(CONNECT_S + EVERY_S + 30) * 1000)
    board = "".join(f"{each:02x}" for each in machine.unique_id())
    sensor = machine.ADC(machine.Pin(PIN))
    network.WLAN(network.AP_IF).active(False)  # or multicast may leave by the access point
    station = network.WLAN(network.STA_IF)
    station.active(True)
    sock = None
    while rounds is None or rounds > 0:
        watchdog.feed()
        try:
            if connect(station):
                if sock is None:
                    sock = open_socket(station.ifconfig()[0])
                value = {"millivolts": sensor.read_uv() // 1000, "board": board}
                sock.sendto(encode(TOPIC, value), (GROUP, PORT))
            elif sock is not None:
                raise OSError("Wi-Fi is gone")
        except OSError as error:  # of the network: begin anew, perhaps with another address
            print("not sent:", error)
            if sock is not None:
                sock.close()
                sock = None
        time.sleep(EVERY_S)
        if rounds is not None:
            rounds -= 1
    if sock is not None:
        sock.close()


if __name__ == "__main__":
    main()

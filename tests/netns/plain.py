"""Peers that know nothing of jsonbus but UDP and JSON, as programs for Host.start_script."""

from __future__ import annotations

import json

GROUP = "239.255.24.16"
PORT = 2416

# Arguments: own address, group, port. Prints "ready", then the text of every datagram.
LISTENER = """
import socket, sys
address, group, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
sock.bind((group, port))
membership = socket.inet_aton(group) + socket.inet_aton(address)
sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
print("ready", flush=True)
while True:
    print(sock.recv(65536).decode(), flush=True)
"""

# Arguments: own address, group, port, count. Sends the numbers from 0 as texts.
COUNTER = """
import socket, sys, time
address, group, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
for number in range(count):
    sock.sendto(str(number).encode(), (group, port))
    time.sleep(0.001)
"""

# The same arguments. Sends as many datagrams in runs of at most 50, each in one system call.
RUN = """
import socket, struct, sys
address, group, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
segment = socket.SOL_UDP, 103, struct.pack("=H", 1000)  # UDP_SEGMENT
for start in range(0, count, 50):
    sock.sendmsg([bytes(1000)] * min(50, count - start), [segment], 0, (group, port))
"""


def message(topic: str, value: object) -> str:
    """A datagram as the simplest sensor sends it."""
    return json.dumps({"topic": topic, "payload": value})

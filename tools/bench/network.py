"""Where the processes of a benchmark are: all on loopback, or each on a host of its own.

Hosts are network namespaces joined by veth, two of them by one cable, more by a bridge. They are
what a LAN is without its hardware: interfaces with an ordinary frame size. A run of datagrams
passes veth as one, as it would reach a network card that cuts runs.
"""

from __future__ import annotations

from typing import NamedTuple

from tools.lab.namespace import LabError, Namespace, find_obstacle

INTERFACE = "eth0"
BRIDGE = "bridge"
NETWORKS = ("veth", "lo")


class Place(NamedTuple):
    """Where a process is."""

    interface: str
    address: str
    #: What its command line begins with.
    command: tuple[str, ...] = ()


LOOPBACK = Place("lo", "127.0.0.1")


class Lan:
    """So many hosts; `close` takes them away. Raises LabError."""

    def __init__(self, hosts: int) -> None:
        self._namespaces: list[Namespace] = []
        try:
            self.places = [self._make_host(number) for number in range(hosts)]
            if hosts == 2:
                self._join_two()
            else:
                self._join_by_bridge()
            for namespace, place in zip(self._namespaces, self.places, strict=False):
                namespace.run("ip", "addr", "add", f"{place.address}/24", "dev", INTERFACE)
                namespace.run("ip", "link", "set", INTERFACE, "up")
                # LCM sends where the multicast route points.
                namespace.run("ip", "route", "add", "224.0.0.0/4", "dev", INTERFACE)
        except LabError:
            self.close()
            raise

    def close(self) -> None:
        for namespace in self._namespaces:
            namespace.close()

    def _make_host(self, number: int) -> Place:
        namespace = Namespace()
        self._namespaces.append(namespace)
        return Place(INTERFACE, f"10.78.0.{number + 1}", tuple(namespace.command()))

    def _join_two(self) -> None:
        here, there = self._namespaces
        cable = ["ip", "link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE]
        here.run(*cable, "netns", str(there.holder_id))

    def _join_by_bridge(self) -> None:
        hosts = list(self._namespaces)
        hub = Namespace()
        self._namespaces.append(hub)
        # A bridge that watches who joined a group forgets it without a querier.
        hub.run("ip", "link", "add", BRIDGE, "type", "bridge", "mcast_snooping", "0")
        hub.run("ip", "link", "set", BRIDGE, "up")
        for number, host in enumerate(hosts):
            port = f"port{number}"
            cable = ["ip", "link", "add", port, "type", "veth", "peer", "name", INTERFACE]
            hub.run(*cable, "netns", str(host.holder_id))
            hub.run("ip", "link", "set", port, "master", BRIDGE, "up")


class Network:
    """The network of a benchmark, by its name: "lo" or "veth"."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lans: dict[int, Lan] = {}

    @property
    def is_lan(self) -> bool:
        return self.name == "veth"

    @property
    def obstacle(self) -> str | None:
        """Why it cannot be had here, or None if it can."""
        return find_obstacle() if self.is_lan else None

    def places(self, count: int) -> list[Place]:
        """Places for so many processes, always the same ones."""
        if not self.is_lan:
            return [LOOPBACK] * count
        count = max(2, count)
        if count not in self._lans:
            self._lans[count] = Lan(count)
        return self._lans[count].places

    def close(self) -> None:
        while self._lans:
            self._lans.popitem()[1].close()
